package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// refused wants a command to end with one of some codes, to say some words and a
// next step, to change nothing and never to panic.
func (n *csiNode) refused(codes []int, words []string, args ...string) {
	n.t.Helper()
	n.unchanged(func() {
		n.t.Helper()
		calls := n.csi.Methods()
		o := n.kvol(append(args, "--timeout", "5s")...)
		ok := false
		for _, c := range codes {
			ok = ok || o.code == c
		}
		if !ok || strings.Contains(o.stderr, "goroutine ") || strings.Contains(o.stderr, "panic") {
			n.t.Errorf("wanted one of %v:\n%v", codes, o)
		}
		for _, w := range words {
			if !strings.Contains(o.stderr, w) {
				n.t.Errorf("nothing says %q:\n%v", w, o)
			}
		}
		if after := n.csi.Methods(); after != calls {
			n.t.Errorf("the driver was called: %s", strings.TrimPrefix(after, calls))
		}
	})
}

// Documents of CSI volumes with one thing wrong: the field is named.
func TestCSIBadDocuments(t *testing.T) {
	n := newCSI(t)
	for name, c := range map[string]struct {
		lines  []string
		handle string
		words  []string
	}{
		"no handle":             {handle: "", words: []string{"volumeHandle"}},
		"unknown field":         {lines: []string{"csi.volumeHandel: x"}, words: []string{"volumeHandel"}},
		"attributes of numbers": {lines: []string{"csi.volumeAttributes: {size: 7}"}, words: []string{"volumeAttributes"}},
		"secret without name":   {lines: []string{"csi.nodeStageSecretRef: {namespace: ns}"}, words: []string{"name"}},
		"secret not given":      {lines: []string{"csi.nodePublishSecretRef: {name: s, namespace: ns}"}, words: []string{"ns/s"}},
		"two sources":           {lines: []string{"local: {path: /x}"}, words: []string{"2 sources"}},
		"unknown access mode":   {lines: []string{"accessModes: [ReadWriteTwice]"}, words: []string{"ReadWriteTwice"}},
		"a driver of two lines": {lines: []string{"mountOptions: [\"a\\nb\"]"}, words: []string{"mountOptions"}},
	} {
		t.Run(name, func(t *testing.T) {
			sub := &csiNode{&node{t: t, dir: n.dir, root: n.root, state: n.state, run: n.run, kvolPath: n.kvolPath, env: n.env}, n.csi}
			handle := "vol-1"
			if name == "no handle" {
				handle = c.handle
			}
			sub.refused([]int{2}, c.words, setUp(podA, sub.unattached(), sub.pvOf("pv", handle, c.lines...))...)
		})
	}
}

// Driver names that are none: they become directories and sockets.
func TestCSIBadDriverNames(t *testing.T) {
	n := newCSI(t)
	for _, name := range []string{"", "..", "../x", "a/b", "pv", "volumeDevices", strings.Repeat("a", 64), "-a", "a b", "a\\nb"} {
		text := readText(t, n.pvOf("pv", "vol-1"))
		file := n.file("bad.yaml", strings.Replace(text, "driver: "+csiDriver, `driver: "`+name+`"`, 1))
		codes := []int{2}
		if name == "pv" || name == "volumeDevices" {
			codes = []int{2, 4, 7} // what a directory of that name would be, or there is none
		}
		n.refused(codes, nil, setUp(podA, file)...)
	}
}

// PV names that would be a directory of the plugin's own.
func TestCSIBadVolumeNames(t *testing.T) {
	n := newCSI(t)
	for _, name := range []string{"staging", "publish"} {
		n.refused([]int{2, 4}, []string{name}, setUp(podA, n.unattached(), n.volume(name, "vol-1", "volumeMode: Block"))...)
	}
}

// Flags with a value that is none.
func TestCSIBadFlags(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	for _, flag := range []string{"novalue", "=x"} {
		n.refused([]int{2}, []string{"publish-context"}, append(setUp(podA, n.unattached(), file), "--publish-context", flag)...)
	}
	n.refused([]int{2, 7}, []string{"/nonexistent"}, append(setUp(podA, n.unattached(), file), "--csi-endpoint", "/nonexistent/csi.sock")...)
	n.refused([]int{2}, []string{"csi-endpoint"}, append(setUp(podA, n.unattached(), file), "--csi-endpoint", "csi.sock")...)
}

// A vol_data.json that is not what it should be: commands that can do without it do
// and say so, the others name the file, and none changes what it does not understand.
func TestCSIBadVolData(t *testing.T) {
	outside := "precious\n"
	for name, spoil := range map[string]func(n *csiNode, path string) error{
		"numbers":   writes(`{"driverName": 7, "volumeHandle": ["a"], "specVolID": {}}`),
		"a list":    writes(`["a", "b"]`),
		"null":      writes(`null`),
		"no keys":   writes(`{}`),
		"no handle": writes(`{"driverName": "` + csiDriver + `"}`),
		"deep":      writes(strings.Repeat(`{"a":`, 100_000)),
		"huge":      writes(`{"driverName": "` + strings.Repeat("x", 64<<20) + `"}`),
		"twice":     writes(`{"driverName":"a","volumeHandle":"b"}{"driverName":"c","volumeHandle":"d"}`),
		"not UTF-8": writes("{\"driverName\":\"\xff\xfe\",\"volumeHandle\":\"x\"}"),
		"of another driver": writes(`{"driverName":"other.kvol.test","volumeHandle":"vol-1","specVolID":"pv",
			"nodeName":"node1","attachmentID":"csi-1","volumeLifecycleMode":"Persistent"}`),
		"of another volume": writes(`{"driverName":"` + csiDriver + `","volumeHandle":"vol-9","specVolID":"pv9"}`),
		"a way out":         writes(`{"driverName":"../../../../etc","volumeHandle":"vol-1","specVolID":"../../x"}`),
		"a directory":       func(_ *csiNode, p string) error { return os.Mkdir(p, 0o755) },
		"a link":            func(n *csiNode, p string) error { return os.Symlink(n.file("outside.json", outside), p) },
		"a dangling link":   func(_ *csiNode, p string) error { return os.Symlink("/nonexistent", p) },
		"a fifo": func(n *csiNode, p string) error {
			n.sh("mkfifo " + p)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, file := carried(t)
			must(t, os.Remove(n.podData(podA, "pv")), spoil(n, n.podData(podA, "pv")))
			n.unchanged(func() {
				n.must(0, "list-mounts")
				for _, args := range [][]string{{"inspect", "pv"}, {"paths", n.target(podA, "pv")}, {"limits"}} {
					if o := n.kvol(args...); strings.Contains(o.stderr, "goroutine ") || o.code > 11 {
						t.Errorf("%v", o)
					}
				}
			})
			before, mounts := n.tree(), n.mounts()
			o := n.kvol("teardown", "-f", file, "--pod-uid", podA)
			if strings.Contains(o.stderr, "goroutine ") {
				t.Fatalf("%v", o)
			}
			if o.code != 0 {
				if !strings.Contains(o.stderr, n.csiDir(podA, "pv")) {
					t.Errorf("the file is not named: %v", o)
				}
				if strings.Contains(name, "another") && (n.tree() != before || n.mounts() != mounts) {
					t.Errorf("%v\nchanged:\n%s%s", o, n.tree(), n.mounts())
				}
			}
			if strings.HasSuffix(name, "a link") && readText(t, n.dir+"/outside.json") != outside {
				t.Error("what the link points to was changed")
			}
			for _, c := range n.csi.CallsTo("NodeUnpublishVolume") {
				if c.VolumeID != "vol-1" {
					t.Errorf("the driver was asked for %q", c.VolumeID)
				}
			}
		})
	}
}

func writes(text string) func(*csiNode, string) error {
	return func(_ *csiNode, path string) error { return os.WriteFile(path, []byte(text), 0o644) }
}

// The metadata of a staging directory that is not of that directory: its hash is
// another's. Nothing is done to the volume that it names.
func TestCSIForeignGlobalMetadata(t *testing.T) {
	n, _ := carried(t)
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	must(t, os.WriteFile(n.stagedData("vol-1"), []byte(`{"driverName":"`+csiDriver+`","volumeHandle":"vol-9"}`), 0o644))
	n.csi.Volume("vol-9", "", 16<<20)
	n.unchanged(func() {
		o := n.kvol("unmount-device", n.staging("vol-1"))
		if o.code == 0 || !strings.Contains(o.stderr, "vol-9") && !strings.Contains(o.stderr, n.staged("vol-1")) {
			t.Errorf("%v", o)
		}
	})
	for _, c := range n.csi.CallsTo("NodeUnstageVolume") {
		if c.VolumeID == "vol-9" {
			t.Error("the driver was asked for another volume")
		}
	}
	n.unchanged(func() { n.wants(4, []string{"vol-9", n.stagedData("vol-1")}, "unmount-device", csiDriver+"^vol-1") })
}

// A target or a staging path that is a link leads nowhere.
func TestCSILinksInTheWay(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	out := n.dir + "/outside"
	must(t, os.Mkdir(out, 0o755), os.MkdirAll(n.csiDir(podA, "pv"), 0o750), os.Symlink(out, n.target(podA, "pv")))
	o := n.kvol(setUp(podA, n.unattached(), file)...)
	if o.code == 0 || strings.Contains(testutil.MountTable(t, n.dir+"/outside"), "ext4") {
		t.Errorf("%v", o)
	}
	must(t, os.Remove(n.target(podA, "pv")))
	n.must(0, "teardown", "-f", file, "--pod-uid", podA)
	dir := n.root + "/plugins/kubernetes.io/csi/" + csiDriver
	must(t, os.RemoveAll(dir), os.MkdirAll(dir, 0o750), os.Symlink(out, dir+"/"+paths.HandleHash("vol-1")))
	n.refused([]int{2, 4}, []string{paths.HandleHash("vol-1")[:8]}, setUp(podA, n.unattached(), file)...)
	if entries, err := os.ReadDir(out); err != nil || len(entries) > 0 {
		t.Errorf("%v %v", entries, err)
	}
}

// More volumes than a node has: the list is whole and each is taken down.
func TestCSIManyVolumes(t *testing.T) {
	n := newCSI(t, plainStage)
	for i := range 8 {
		n.must(0, setUp(podA, n.unattached(), n.volume(fmt.Sprintf("pv-%d", i), fmt.Sprintf("vol-%d", i)))...)
	}
	for i := range 8 {
		n.must(0, "teardown", fmt.Sprintf("pv-%d", i), "--pod-uid", podA)
	}
	n.cleared()
}
