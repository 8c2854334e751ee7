package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// podOf is a pod's document; each volume is the claim of its name, or where it holds
// a brace the volume itself.
func (n *node) podOf(uid, name string, volumes ...string) string {
	n.t.Helper()
	text := podDocument(uid, name, "{}") + "  volumes:\n"
	for i, v := range volumes {
		if strings.Contains(v, "{") {
			text += fmt.Sprintf("  - {name: v%d, %s}\n", i, v)
		} else {
			text += fmt.Sprintf("  - {name: v%d, persistentVolumeClaim: {claimName: %s}}\n", i, v)
		}
	}
	return n.file(name+".yaml", text)
}

func claim(name string) string { return "claimRef: {namespace: default, name: " + name + "}" }

// foreign is a volume of a plugin that Kubernetes dropped.
const foreign = "flocker: {datasetName: d}"

// twoPods are two: both have a disk, the first a directory and a raw device as well.
func (n *node) twoPods() (files []string) {
	n.t.Helper()
	disk, _ := n.disk("disk", "ext4", claim("disk"))
	raw, _ := n.disk("raw", "", claim("raw"))
	dir, _ := n.dataDir("dir", claim("dir"))
	for _, file := range []string{disk, raw, dir, n.podOf(podA, "a", "disk", "raw", "dir"), n.podOf(podB, "b", "disk")} {
		files = append(files, "-f", file)
	}
	return files
}

// ended lists how each volume ended: pod, volume, rung and outcome.
func ended(o out) []string {
	var all []string
	for line := range strings.Lines(o.stdout) {
		if line == "\n" {
			break // the mount points come below
		}
		if f := strings.Fields(line); f[0] != "OP" {
			all = append(all, f[0]+" "+f[1]+" "+f[2])
		}
	}
	return all
}

func TestAllVolumesOfPods(t *testing.T) {
	n := newNode(t)
	files := n.twoPods()
	tree, mounts := n.tree(), n.mounts()
	o := n.must(0, append([]string{"setup", "--all"}, files...)...)
	var got []string
	for _, line := range ended(o) {
		if rung, rest, _ := strings.Cut(line, " "); rung == "publish" {
			got = append(got, rest)
		}
	}
	if want := []string{"dir done", "disk done", "raw done", "disk done"}; !slices.Equal(got, want) { // pod by pod, by name
		t.Errorf("published %q\n%v", got, o)
	}
	for _, path := range []string{n.podVolume(podA, "disk"), n.podVolume(podB, "disk"), n.podVolume(podA, "dir"), n.mapDevice(podA, "raw"), n.global("disk")} {
		if err := exec.Command("findmnt", "-rnM", path).Run(); err != nil {
			t.Errorf("%s is not mounted\n%v", path, o)
		}
	}
	// The same order in every format, and all is done already.
	again := append([]string{"setup", "--all"}, files...)
	table := ended(n.must(0, again...))
	for i, r := range decode[api.List[api.Result]](t, n.must(0, append(again, "-o", "json")...).stdout).Items {
		if got := fmt.Sprintf("%s %s %s", r.Op, r.Volume, r.Outcome); got != table[i] {
			t.Errorf("item %d is %q in JSON and %q in the table", i, got, table[i])
		}
		if r.Outcome != api.OutcomeAlready && r.Outcome != api.OutcomeSkipped {
			t.Errorf("the second time: %+v", r)
		}
	}
	// Each is an operation of its own.
	if got := len(decode[api.List[api.Operation]](t, n.must(0, "history", "-o", "json").stdout).Items); got != 3*4 {
		t.Errorf("%d operations", got)
	}
	// By the pods alone: everything that they have.
	n.must(0, "teardown", "--all", "--pod-uid", podB, "--pod-uid", podA)
	n.must(0, "unmount-device", "raw")
	if got := n.mounts(); got != mounts {
		t.Errorf("still mounted:\n%s", got)
	}
	for line := range strings.Lines(n.tree()) {
		if strings.Contains(line, " file ") && !strings.Contains(tree, line) {
			t.Errorf("left: %s", line)
		}
	}
	n.wants(0, []string{"already", "nothing of this pod"}, "teardown", "--all", "--pod-uid", podA)
	n.wants(5, []string{"--must-exist"}, "unpublish", "--all", "--pod-uid", podA, "--must-exist")
}

// One that cannot be taken does not keep the others, up or down.
func TestAllGoesOn(t *testing.T) {
	n := newNode(t)
	a, _ := n.dataDir("a", claim("a"))
	b, _ := n.dataDir("b", claim("b"))
	files := []string{"-f", a, "-f", b, "-f", n.podOf(podA, "pod", "a", foreign, "b")}
	o := n.wants(3, []string{"1 of 3", "flocker", "v1", podA, "next: kvol plugins"}, append([]string{"setup", "--all"}, files...)...)
	if got := strings.Join(ended(o), "\n"); !strings.Contains(got, "publish a done") || !strings.Contains(got, "publish b done") || !strings.Contains(got, "setup v1 failed") {
		t.Errorf("%v", o)
	}
	// Somebody's file is in the way of one; the foreign one has nothing here.
	must(t, exec.Command("umount", n.podVolume(podA, "a")).Run(), os.WriteFile(n.podVolume(podA, "a")+"/keep", []byte("x"), 0o600))
	o = n.wants(3, []string{"1 of 3", n.podVolume(podA, "a"), `holds "keep"`, "next: look at it"}, append([]string{"teardown", "--all"}, files...)...)
	doc := n.must(3, append([]string{"teardown", "--all", "-o", "json"}, files...)...)
	lines := strings.Split(strings.TrimSpace(doc.stderr), "\n")
	if d := decode[api.ErrorDoc](t, lines[len(lines)-1]); d.Reason != "PartlyDone" || d.Next == "" || !strings.Contains(strings.Join(d.Details, "\n"), "keep") {
		t.Errorf("%v", doc)
	}
	if _, err := os.Stat(n.podVolume(podA, "b")); err == nil {
		t.Errorf("b is still there\n%v", o)
	}
	// All the same: that code.
	must(t, os.Mkdir(n.podVolume(podA, "b"), 0o750), os.WriteFile(n.podVolume(podA, "b")+"/keep", []byte("x"), 0o600))
	n.wants(4, []string{"2 of 2", n.podVolume(podA, "a"), n.podVolume(podA, "b")}, "unpublish", "--all", "--pod-uid", podA)
	// Of a plugin that kvol has not, by the directory.
	odd := filepath.Dir(filepath.Dir(n.podVolume(podB, "x"))) + "/kubernetes.io~flocker/x"
	must(t, os.MkdirAll(odd, 0o750))
	n.unchanged(func() {
		n.wants(6, []string{"kubernetes.io/flocker", "kvol inspect"}, "teardown", "--all", "--pod-uid", podB)
		n.wants(6, []string{"kubernetes.io/flocker"}, "teardown", "--all", "--pod-uid", podB, "--dry-run")
	})
	// --plugin narrows it.
	n.wants(0, []string{"already"}, "teardown", "--all", "--pod-uid", podB, "--plugin", "kubernetes.io/local-volume")
}

// A dry run is one plan, and its script does what the verb does.
func TestAllInOnePlan(t *testing.T) {
	n := newNode(t)
	files := n.twoPods()
	n.unchanged(func() {
		o := n.must(0, append([]string{"setup", "--all", "--dry-run", "-o", "json"}, files...)...)
		seen := map[string]int{}
		for i, s := range decode[api.List[api.Step]](t, o.stdout).Items {
			if s.N != i+1 {
				t.Errorf("step %d has the number %d", i+1, s.N)
			}
			if s.Action == "mkdir" {
				seen[s.Target]++
			}
		}
		for dir, times := range seen {
			if times > 1 {
				t.Errorf("%s is made %d times", dir, times)
			}
		}
	})
	// One that has no plan is told, and there is half a plan only for reading.
	odd := append(files, "-f", n.podOf(podStatic, "odd", foreign))
	n.unchanged(func() {
		n.wants(3, []string{"flocker", n.podVolume(podA, "disk")}, append([]string{"setup", "--all", "--dry-run"}, odd...)...)
		if o := n.wants(3, []string{"flocker"}, append([]string{"setup", "--all", "--dry-run", "-o", "shell"}, odd...)...); o.stdout != "" {
			t.Errorf("half a script:\n%v", o)
		}
	})
	volume := func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		disk, dev := n.disk("pv", "ext4", claim("pv"))
		raw, _ := n.dataDir("raw", claim("raw"))
		text := ""
		for _, f := range []string{disk, raw, n.podOf(podA, "a", "pv", "raw"), n.podOf(podB, "b", "pv")} {
			b, err := os.ReadFile(f)
			must(t, err)
			text += "---\n" + string(b)
		}
		return n, n.file("all.yaml", text), dev
	}
	const allUp = `setup --all -f "$FILE"`
	for _, s := range []scenario{
		{"up", "", allUp},
		{"up beside what is there", `kvol setup -f "$FILE" --volume pv --pod-uid "$UID_B"`, allUp},
		{"down by documents", "kvol " + allUp, `teardown --all -f "$FILE"`},
		{"down by what is there", "kvol " + allUp, `teardown --all --pod-uid "$UID_A" --pod-uid "$UID_B"`},
		{"down in one of the pods", "kvol " + allUp, `teardown --all --pod-uid "$UID_A"`},
	} {
		s.same(t, volume)
	}
}

// A volume that another kvol holds is one that fails; the others wait for nobody.
func TestAllWithoutAnothersLock(t *testing.T) {
	n := newNode(t)
	a, _ := n.dataDir("a", claim("a"))
	b, _ := n.dataDir("b", claim("b"))
	n.must(0, "setup", "-f", a, "--pod-uid", podA)
	locks, err := filepath.Glob(n.run + "/*")
	must(t, err)
	var volume string
	for _, l := range locks {
		if strings.Contains(filepath.Base(l), "volume") {
			volume = l
		}
	}
	if volume == "" {
		t.Fatalf("no lock of a volume among %q", locks)
	}
	f, err := os.OpenFile(volume, os.O_RDWR, 0)
	must(t, err, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	defer f.Close()
	files := []string{"-f", a, "-f", b, "-f", n.podOf(podA, "pod", "a", "b"), "--lock-timeout", "0"}
	o := n.wants(3, []string{"1 of 2", "lock"}, append([]string{"setup", "--all"}, files...)...)
	if got := strings.Join(ended(o), "\n"); !strings.Contains(got, "publish b done") {
		t.Errorf("%v", o)
	}
}
