package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
	"github.com/kvol/kvol/test/schema"
)

// jsonNode is a node on which each command's JSON is held against its schema.
type jsonNode struct {
	*node
	ran map[string]bool // the commands
}

// prints runs a command that has to print one document of a kind; one that fails,
// an Error as its last line too. Kind "" is no document at all.
func (n *jsonNode) prints(kind string, code int, args ...string) {
	n.t.Helper()
	n.ran[args[0]] = true
	o := n.must(code, append(args, "-o", "json")...)
	if kind != "" || o.stdout != "" {
		n.check(kind, o.stdout, o)
	}
	if code != 0 {
		lines := strings.Split(strings.TrimSuffix(o.stderr, "\n"), "\n")
		n.check("Error", lines[len(lines)-1], o)
	}
}

func (n *jsonNode) check(kind, doc string, o out) {
	n.t.Helper()
	s, err := schema.Read("../../docs/schema", kind)
	if err != nil {
		n.t.Fatalf("%v: %v", err, o)
	}
	for _, wrong := range s.Check(doc) {
		n.t.Errorf("%s%s\n%v", kind, wrong, o)
	}
	old, err := schema.Read("../schema/testdata/frozen", kind)
	if errors.Is(err, fs.ErrNotExist) {
		return // the kind is newer
	}
	if err != nil {
		n.t.Fatal(err)
	}
	for _, wrong := range old.Refused(doc) {
		n.t.Errorf("who knows the old schema only: %s%s\n%v", kind, wrong, o)
	}
}

func TestJSONIsAsTheSchemas(t *testing.T) {
	n := &jsonNode{newNode(t), map[string]bool{}}
	n.empty()
	n.filesystem()
	n.block()
	n.odd()
	for _, name := range n.commands() {
		if !n.ran[name] {
			t.Errorf("the JSON of kvol %s is not tried", name)
		}
	}
}

// commands are all that show a result, as a shell's completion is told them.
func (n *jsonNode) commands() []string {
	n.t.Helper()
	text, err := exec.Command(n.kvolPath, "__complete", "").Output()
	var names []string
	for line := range strings.Lines(string(text)) {
		if name, _, is := strings.Cut(line, "\t"); is && name != "help" && name != "completion" {
			names = append(names, name)
		}
	}
	if err != nil || len(names) < 10 {
		n.t.Fatalf("these are not all commands: %v\n%s", err, text)
	}
	return names
}

// empty is a node without volumes.
func (n *jsonNode) empty() {
	n.prints("VersionInfo", 0, "version")
	n.prints("SettingList", 0, "config", "view")
	n.prints("LimitList", 0, "limits")
	n.prints("ColumnList", 0, "limits", "--list-columns")
	n.prints("PluginList", 0, "plugins")
	n.prints("MountList", 0, "list-mounts")
	n.prints("OperationList", 0, "history")
	n.prints("PathInfoList", 0, "paths", "/etc/passwd", n.podVolume(podA, "a"), n.podVolume(podStatic, "a/deeper"))
	n.prints("", 5, "inspect", "nothing")
	n.prints("", 2, "list-mounts", "--bogus")
	n.prints("", 2, "setup", "-f", "nothing.yaml")
	n.prints("ResultList", 0, "teardown", "nothing", "--pod-uid", podA)
	n.prints("ResultList", 5, "unpublish", "nothing", "--pod-uid", podA, "--must-exist")
}

// filesystem carries a disk with a file system up, into two pods, and down.
func (n *jsonNode) filesystem() {
	dev, _ := testutil.LoopImage(n.t, 64<<20)
	file := n.pv("fs", dev, "fsType: ext4")
	up := []string{"-f", file, "--pod-uid", podA}
	n.prints("PathSet", 0, append([]string{"paths"}, up...)...)
	n.prints("ResultList", 4, append([]string{"setup"}, up...)...)
	n.prints("StepList", 0, append([]string{"setup", "--format", "--dry-run"}, up...)...)
	n.prints("ResultList", 0, "attach", "-f", file)
	n.prints("ResultList", 0, "attach", "-f", file, "--check")
	n.prints("ResultList", 0, "mount-device", "-f", file, "--format")
	n.prints("ResultList", 0, append([]string{"publish"}, up...)...)
	n.prints("ResultList", 0, append([]string{"publish"}, up...)...)
	n.prints("ResultList", 0, "setup", "-f", file, "--pod-uid", podB)
	n.prints("MountList", 0, "list-mounts")
	for _, subject := range []string{"fs", podA, dev, n.podVolume(podA, "fs"), n.global("fs"), n.root + "/pods"} {
		n.prints("Inspection", 0, "inspect", subject)
	}
	n.prints("WaitList", 0, "wait", "fs", podA, dev, n.global("fs"), "--for", "healthy")
	n.prints("WaitList", 8, "wait", "fs", "--for", "unmounted", "--timeout", "100ms")
	n.prints("ResultList", 9, "detach", "fs")
	n.prints("ResultList", 9, "unmount-device", "fs")
	n.prints("StepList", 0, "unpublish", "fs", "--pod-uid", podA, "--dry-run")
	n.prints("ResultList", 0, "unpublish", "fs", "--pod-uid", podA)
	n.prints("ResultList", 0, "teardown", "fs", "--pod-uid", podB)
	n.prints("ResultList", 0, "unmount-device", "fs")
	n.prints("ResultList", 0, "detach", "-f", file)
	n.prints("OperationList", 0, "history")
	n.prints("ResultList", 5, "expand", "-f", file)
	n.prints("ResultList", 6, "recycle", "-f", file, "--yes-delete-data")
	n.prints("ResultList", 6, "delete", "-f", file, "--yes-delete-data")
	n.prints("", 2, "provision", "-f", file)
}

// block carries a raw device up and down.
func (n *jsonNode) block() {
	dev, _ := testutil.LoopImage(n.t, 16<<20)
	file := n.pv("raw", dev, "volumeMode: Block")
	n.prints("StepList", 0, "setup", "-f", file, "--pod-uid", podA, "--dry-run")
	n.prints("ResultList", 0, "setup", "-f", file, "--pod-uid", podA)
	n.prints("PathSet", 0, "paths", "-f", file, "--pod-uid", podA)
	n.prints("MountList", 0, "list-mounts")
	n.prints("Inspection", 0, "inspect", "raw")
	n.prints("ResultList", 0, "teardown", "raw", "--pod-uid", podA)
}

// odd is what is found on nodes in trouble.
func (n *jsonNode) odd() {
	for path, what := range map[string]func(string){
		n.podVolume(podA, "dead"):      func(p string) { testutil.FUSE(n.t, p, testutil.FUSEDead) },
		n.podVolume(podA, "hung"):      func(p string) { testutil.FUSE(n.t, p, testutil.FUSEHung) },
		n.podVolume(podA, "line\nend"): func(p string) { testutil.Tmpfs(n.t, p) },
		n.podVolume(podA, "\xff\x1b"):  func(p string) { testutil.Tmpfs(n.t, p) },
		n.podVolume(podB, "leftover"):  func(string) {},
		n.root + "/plugins/mine":       func(p string) { testutil.Tmpfs(n.t, p) },
		n.root + "/pods/" + podB + "/volumes/kubernetes.io~csi/c": func(p string) {
			if err := os.WriteFile(p+"/vol_data.json", []byte(`{"driverName":"d","volumeHandle":"h"}`), 0o600); err != nil {
				n.t.Fatal(err)
			}
		},
	} {
		if err := os.MkdirAll(path, 0o750); err != nil {
			n.t.Fatal(err)
		}
		what(path)
	}
	n.prints("StepList", 0, "recover", "c")
	n.prints("ResultList", 0, "recover", "c", "--apply")
	n.prints("ResultList", 0, "recover", "c", "--apply")
	n.prints("MountList", 0, "list-mounts", "--probe-timeout", "100ms")
	n.prints("MountList", 0, "list-mounts", "--no-probe")
	n.prints("MountEvent", 0, "list-mounts", "--watch", "--kind", "other", "--timeout", "300ms")
	for _, subject := range []string{"c", "dead", podB, n.podVolume(podA, "line\nend")} {
		n.prints("Inspection", 0, "inspect", subject, "--probe-timeout", "100ms")
	}
	n.prints("OrphanList", 4, "gc-orphans")
	live := "file:" + n.file("pods.txt", podStatic+"\n")
	n.prints("OrphanList", 4, "gc-orphans", "--pods-from", live, "--min-age", "0")
	n.prints("OrphanList", 0, "gc-orphans", "--pods-from", live, "--min-age", "0", "--assert-no-pods")
	n.prints("OrphanList", 3, "gc-orphans", "--pods-from", live, "--min-age", "0", "--assert-no-pods", "--apply", "--max", "1")
}
