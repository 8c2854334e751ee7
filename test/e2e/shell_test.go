package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// envState makes the test binary print the state of a node, from inside of the
// mount namespace that it is started in. It has the kubelet's root and then other
// directories that count, with tabs between.
const envState = "KVOL_TEST_STATE"

// fatal is a testing.TB for what needs one only to fail.
type fatal struct{ testing.TB }

func (fatal) Helper()           {}
func (fatal) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func stateMain() {
	dirs := strings.Split(os.Getenv(envState), "\t")
	if len(dirs) < 2 {
		return
	}
	fmt.Printf("mounts\n%s", testutil.MountTable(fatal{}, dirs[0]))
	for _, dir := range dirs {
		if _, err := os.Lstat(dir); err == nil {
			fmt.Printf("in %s\n%s", dir, testutil.Tree(fatal{}, dir))
		}
	}
	loops := loopsBelow(dirs[0])
	fmt.Println(len(loops), "loop devices")
	for _, backing := range slices.Sorted(maps.Keys(loops)) {
		fmt.Println(backing)
	}
	os.Exit(0)
}

// driver is what runs in a fresh mount namespace: it prepares, looks at the plan,
// carries it out by verb or by script, and writes down how the node looks.
const driver = `set -eu
kvol() { "$KVOL" "$@" --root-dir "$ROOT" --state-dir "$STATE" --run-dir "$RUN" >"$OUT/kvol" 2>"$OUT/said" || { cat "$OUT/kvol" "$OUT/said"; return 1; }; }
state() { ` + envState + `="$ROOT	$GLOBAL	$POD${1+	$1}" "$SELF"; }
script() { env -i PATH="${KVOL%/*}:/usr/sbin:/usr/bin:/sbin:/bin" bash "$OUT/plan" >"$OUT/ran" || { cat "$OUT/ran"; return 1; }; }
free() { for f in /sys/block/loop*/loop/backing_file; do
	case $(cat "$f") in "$ROOT"/*) f=${f#/sys/block/}; losetup -d "/dev/${f%%/*}";; esac
done; }
trap free EXIT
`

// scenario is one verb on one volume on a node in some state.
type scenario struct {
	name    string
	prepare string // bash
	verb    string // its arguments, words of bash
}

// result is how a node looks after the verb, or its script, once and twice.
type result struct{ plan, once, twice string }

// carry runs a scenario on a node of its own; flags are those of the script.
func (s scenario) carry(t *testing.T, newVolume func(*testing.T) (*node, string, string), byScript bool, flags string) result {
	n, file, dev := newVolume(t)
	out := testutil.TempDir(t)
	act := `kvol ` + s.verb + `; state >"$OUT/once"; kvol ` + s.verb
	if byScript {
		act = `state "$DIR" >"$OUT/before"
kvol ` + s.verb + ` --dry-run
kvol ` + s.verb + ` --dry-run -o shell ` + flags + `; mv "$OUT/kvol" "$OUT/plan"
state "$DIR" >"$OUT/after"
script; state >"$OUT/once"; script`
	}
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "bash", "-c", driver+s.prepare+"\n"+act+"\n"+`state >"$OUT/twice"`)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "KVOL=" + n.kvolPath, "SELF=/proc/" + fmt.Sprint(os.Getpid()) + "/exe", "OUT=" + out,
		"DIR=" + n.dir, "ROOT=" + n.root, "STATE=" + n.state, "RUN=" + n.run, "FILE=" + file, "DEV=" + dev, "UID_A=" + podA, "UID_B=" + podB,
		"GLOBAL=" + n.global("pv"), "POD=" + n.podVolume(podA, "pv"), "POD_B=" + n.podVolume(podB, "pv"),
		"LINK=" + n.podDevice(podA, "pv"), "MAP=" + n.mapDevice(podA, "pv"),
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		plan, _ := os.ReadFile(out + "/plan")
		t.Fatalf("%v\n%s\nplan:\n%s", err, said.String(), plan)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(out, name))
		must(t, err)
		// The device, and its node as the root of a bind.
		return strings.NewReplacer(n.dir, "DIR", dev+`"`, `DEV"`, `"/`+filepath.Base(dev)+`"`, `"/DEV"`).Replace(string(b))
	}
	r := result{once: read("once"), twice: read("twice")}
	if byScript {
		plan, err := os.ReadFile(out + "/plan")
		must(t, err)
		r.plan = string(plan)
		if before, after := read("before"), read("after"); before != after {
			t.Errorf("the dry run changed the node from\n%s\nto\n%s", before, after)
		}
	}
	return r
}

// same wants the script to do what the verb does, and nothing the second time.
func (s scenario) same(t *testing.T, newVolume func(*testing.T) (*node, string, string)) {
	s.sameBy(t, newVolume, "", goodScript)
}

// sameBy is same with flags for the script, and what it has to be.
func (s scenario) sameBy(t *testing.T, newVolume func(*testing.T) (*node, string, string), flags string, good func(*testing.T, string)) {
	t.Run(s.name, func(t *testing.T) {
		verb := s.carry(t, newVolume, false, flags)
		script := s.carry(t, newVolume, true, flags)
		good(t, script.plan)
		if script.once != verb.once {
			t.Errorf("the verb left\n%s\nand the script\n%s\nthe script:\n%s", verb.once, script.once, script.plan)
		}
		if verb.twice != verb.once || script.twice != script.once {
			t.Errorf("the second time was no second time: after the verb\n%s\nafter the script\n%s\nthe script:\n%s", verb.twice, script.twice, script.plan)
		}
	})
}

var (
	comment  = regexp.MustCompile(`(?m)^\s*#.*$`)
	wordKvol = regexp.MustCompile(`\bkvol\b`)
)

// goodScript checks what every script must be.
func goodScript(t *testing.T, plan string) {
	t.Helper()
	if !strings.HasPrefix(plan, "#!/usr/bin/env bash\nset -eu\n") {
		t.Errorf("it does not begin with set -eu:\n%s", plan)
	}
	if wordKvol.MatchString(comment.ReplaceAllString(plan, "")) {
		t.Errorf("it speaks of kvol:\n%s", plan)
	}
	bashLikes(t, plan)
}

// bashLikes checks a script by its form.
func bashLikes(t *testing.T, plan string) {
	t.Helper()
	testutil.Tool(t, "shellcheck")
	// SC2016 asks whether $ in single quotes is meant: in names, and in what is said.
	for _, tool := range [][]string{{"bash", "-n"}, {"shellcheck", "-e", "SC2016", "-s", "bash", "-"}} {
		cmd := exec.Command(tool[0], tool[1:]...)
		cmd.Stdin = strings.NewReader(plan)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s\n%s", tool, err, out, plan)
		}
	}
}

// podFile is a pod document with an fsGroup.
func (n *node) podFile(security string) string {
	return n.file("pod.yaml", podDocument(podA, "p", security))
}

// fill puts into a volume what an fsGroup meets.
func fill(t *testing.T, dir string) {
	t.Helper()
	must(t, os.Mkdir(dir+"/sub", 0o700), os.WriteFile(dir+"/sub/program", nil, 0o700), os.Chmod(dir+"/sub/program", 0o755|os.ModeSetuid),
		os.WriteFile(dir+"/sub/both", nil, 0o700), os.Chmod(dir+"/sub/both", 0o711|os.ModeSetuid|os.ModeSetgid),
		os.WriteFile(dir+"/sub/group", nil, 0o700), os.Chmod(dir+"/sub/group", 0o710|os.ModeSetgid),
		os.WriteFile(dir+"/-odd 'name\"\n", nil, 0o600), os.Symlink("/etc/passwd", dir+"/link"))
}

func (n *node) filled(dev, fs string) {
	n.t.Helper()
	at := n.dir + "/fill"
	must(n.t, os.Mkdir(at, 0o755))
	testutil.Mount(n.t, dev, at, fs, 0, "")
	fill(n.t, at)
	must(n.t, exec.Command("umount", at).Run(), os.Remove(at))
}

func diskVolume(fs string, more ...string) func(t *testing.T) (*node, string, string) {
	return func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		file, dev := n.disk("pv", fs, more...)
		n.filled(dev, fs)
		n.podFile("{fsGroup: 4321}")
		return n, file, dev
	}
}

const (
	up   = `setup -f "$FILE" -f "$DIR/pod.yaml"`
	down = `teardown pv --pod-uid "$UID_A"`
)

func TestScriptOfDisk(t *testing.T) {
	setups := []scenario{
		{"setup on an empty root", "", up},
		{"setup on leftovers", `mkdir -p -m 0750 "$POD" "$GLOBAL"`, up},
		{"setup where it is half done", `kvol mount-device -f "$FILE"`, up},
		{"setup where all is done", "kvol " + up, up},
		{"setup beside another pod", `kvol setup -f "$FILE" --pod-uid "$UID_B"`, up},
	}
	teardowns := []scenario{
		{"teardown", "kvol " + up, down},
		{"teardown by file", "kvol " + up, `teardown -f "$FILE" --pod-uid "$UID_A"`},
		{"teardown of a stack", "kvol " + up + `; mount --bind "$GLOBAL" "$POD"; mount --bind "$GLOBAL" "$POD"; mount --bind "$GLOBAL" "$GLOBAL"`, down},
		{"teardown of leftovers", "kvol " + up + `; umount "$POD"; umount "$GLOBAL"`, down},
		{"teardown where the directory is gone", "kvol " + up + `; umount "$POD"; rmdir "$POD"`, down},
		{"teardown beside another pod", "kvol " + up + `; kvol setup -f "$FILE" --pod-uid "$UID_B"`, down},
		{"teardown of nothing", "", down},
		{"lazily", "kvol " + up + `; exec 9>"$POD/open"`, `unpublish pv --pod-uid "$UID_A" --lazy`},
	}
	t.Run("ext4", func(t *testing.T) {
		for _, s := range append(setups, teardowns...) {
			s.same(t, diskVolume("ext4"))
		}
	})
	t.Run("ext4 with options", func(t *testing.T) {
		for _, s := range []scenario{setups[0], setups[4], teardowns[0]} {
			s.same(t, diskVolume("ext4", "mountOptions: [noexec, nosuid, noatime, discard, errors=remount-ro]"))
		}
		setups[0].same(t, diskVolume("ext4", "mountOptions: [ro]"))
	})
	t.Run("xfs", func(t *testing.T) {
		setups[0].same(t, diskVolume("xfs"))
		teardowns[0].same(t, diskVolume("xfs"))
	})
}

func TestScriptOfDirectory(t *testing.T) {
	volume := func(more ...string) func(t *testing.T) (*node, string, string) {
		return func(t *testing.T) (*node, string, string) {
			n := newNode(t)
			file, dir := n.dataDir("pv", more...)
			fill(t, dir)
			n.podFile("{fsGroup: 4321, fsGroupChangePolicy: OnRootMismatch}")
			return n, file, dir
		}
	}
	scenario{"setup", "", up}.same(t, volume())
	scenario{"setup with options", "", up}.same(t, volume("mountOptions: [noexec, nosuid, noatime]"))
	scenario{"setup read-only", "", up}.same(t, volume("mountOptions: [ro]"))
	scenario{"setup where the group fits", `chgrp 4321 "$DEV"; chmod 2775 "$DEV"`, up}.same(t, volume())
	scenario{"setup where the mode does not fit", `chgrp 4321 "$DEV"; chmod 2755 "$DEV"`, up}.same(t, volume())
	scenario{"teardown", "kvol " + up, down}.same(t, volume())
}

func TestScriptOfRawBlock(t *testing.T) {
	volume := func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		file, dev := n.disk("pv", "")
		n.podFile("{}")
		return n, file, dev
	}
	const maps = `mkdir -p -m 0750 "${MAP%/*}"; install -m 0750 /dev/null "$MAP"; `
	for _, s := range []scenario{
		{"setup on an empty root", "", up},
		{"setup on leftovers", maps + `mkdir -p -m 0750 "${LINK%/*}"; ln -s "$DEV" "$LINK"`, up},
		{"setup where the device is bound", maps + `mount --bind "$DEV" "$MAP"`, up},
		{"setup where all is done", "kvol " + up, up},
		{"setup beside another pod", `kvol setup -f "$FILE" --pod-uid "$UID_B"`, up},
		{"teardown", "kvol " + up, down},
		{"teardown by file", "kvol " + up, `teardown -f "$FILE" --pod-uid "$UID_A"`},
		{"teardown without the link", "kvol " + up + `; rm "$LINK"`, down},
		{"teardown without the loop device", "kvol " + up + "; free", down},
		{"teardown of leftovers", "kvol " + up + `; free; umount "$MAP"`, down},
		{"teardown beside another pod", "kvol " + up + `; kvol setup -f "$FILE" --pod-uid "$UID_B"`, down},
	} {
		s.same(t, volume)
	}
}

// Whatever the names are, they stay names.
func TestScriptWithOddNames(t *testing.T) {
	const odd = "/ku be'l\"et$(touch x)`touch y`;&*?[a]\\!~#é"
	volume := func(root string, more ...string) func(t *testing.T) (*node, string, string) {
		return func(t *testing.T) (*node, string, string) {
			n := newNode(t)
			n.root = n.dir + root
			src := n.dir + "/source" + root
			must(t, os.MkdirAll(n.root+"/pods", 0o750), os.MkdirAll(n.root+"/plugins", 0o750), os.MkdirAll(src, 0o755))
			fill(t, src)
			n.podFile("{fsGroup: 4321}")
			return n, n.pv("pv", fmt.Sprintf("%q", src), more...), src
		}
	}
	scenario{"setup", "", up}.same(t, volume(odd))
	scenario{"setup read-only", "", up}.same(t, volume(odd, "mountOptions: [ro]"))
	scenario{"teardown", "kvol " + up, down}.same(t, volume(odd))
	scenario{"raw block", "", up}.same(t, func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		n.root = n.dir + odd
		must(t, os.MkdirAll(n.root+"/pods", 0o750), os.MkdirAll(n.root+"/plugins", 0o750))
		file, dev := n.disk("pv", "")
		n.podFile("{}")
		return n, file, dev
	})
}

// A script that is run later finds that its facts do not hold, and changes
// nothing.
func TestScriptOfOtherTimes(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	plan := n.must(0, "setup", "-f", file, "--pod-uid", podA, "--dry-run", "-o", "shell").stdout
	testutil.Mkfs(t, dev, "ext2")
	script := n.file("plan", plan)
	n.unchanged(func() {
		cmd := exec.Command("bash", script)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 4 {
			t.Errorf("exit code %d\n%s\n%s", code, out, plan)
		}
	})

	// Data that came into the file which a device was bound on.
	raw, _ := n.disk("raw", "")
	n.must(0, "setup", "-f", raw, "--pod-uid", podA)
	script = n.file("plan", n.must(0, "teardown", "raw", "--pod-uid", podA, "--dry-run", "-o", "shell").stdout)
	must(t, exec.Command("losetup", "-d", loopsBelow(n.root)[n.mapDevice(podA, "raw")]).Run(),
		exec.Command("umount", n.mapDevice(podA, "raw")).Run(), write(n.mapDevice(podA, "raw")))
	out, err := exec.Command("bash", script).CombinedOutput()
	if err == nil {
		t.Errorf("the script removed somebody's data:\n%s", out)
	}
	if b, err := os.ReadFile(n.mapDevice(podA, "raw")); err != nil || string(b) != "written\n" {
		t.Errorf("%q, %v\n%s", b, err, out)
	}
}

// A plan that formats has no script.
func TestNoScriptOfFormat(t *testing.T) {
	n := newNode(t)
	dev, _ := testutil.LoopImage(t, 16<<20)
	file := n.pv("pv", dev)
	for _, verb := range [][]string{{"setup", "--pod-uid", podA}, {"mount-device"}} {
		args := append(verb, "-f", file, "--format", "--dry-run", "-o", "shell")
		o := n.wants(6, []string{"format", dev}, args...)
		if o.stdout != "" {
			t.Errorf("half a script:\n%s", o.stdout)
		}
	}
	n.must(0, "setup", "-f", file, "--pod-uid", podA, "--format", "--dry-run")
	n.must(4, "setup", "-f", file, "--pod-uid", podA, "--dry-run", "-o", "shell")
}
