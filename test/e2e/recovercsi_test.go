package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvol/kvol/internal/paths"
)

// What kvol did itself it tells when nobody else does; and a volume that was recovered
// is taken down like any other.
func TestRecoverFromHistory(t *testing.T) {
	for _, c := range []struct {
		name string
		more []string
		// files are those of the volume.
		files func(n *node) []string
	}{
		{"staged", nil, func(n *node) []string {
			return []string{n.root + podData(podA, "pv"), n.root + stagingData("csi.script.test", "vol/1 '$x")}
		}},
		{"raw block", []string{"volumeMode: Block"}, func(n *node) []string { return []string{n.root + blockData("pv")} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, up := csiScene{more: c.more, verb: []string{"setup", "-f", "PV", "-f", "A"}}.make(t)
			empty := n.csiState()
			n.must(0, up...)
			good := map[string]string{}
			for _, file := range c.files(n) {
				b, err := os.ReadFile(file)
				must(t, err, os.Truncate(file, 0))
				good[file] = string(b)
			}
			n.unchanged(func() { n.wants(0, []string{"the history: setup of", "vol/1"}, "recover", "pv") })
			for _, file := range c.files(n) { // by its directory
				n.must(0, "recover", filepath.Dir(file), "--apply")
				if b, err := os.ReadFile(file); err != nil || string(b) != good[file] {
					t.Errorf("%v\n%s\nnot\n%s", err, b, good[file])
				}
			}
			// Another pod's volume of that name is another matter.
			other := n.volFile(podData(podB, "pv"), "")
			n.unchanged(func() { n.wants(4, []string{"driverName"}, "recover", other) })
			must(t, os.RemoveAll(filepath.Dir(other)))
			// Without the history nobody tells.
			must(t, os.RemoveAll(n.state))
			for file := range good {
				must(t, os.Truncate(file, 0))
			}
			n.unchanged(func() { n.wants(4, []string{"volumeHandle"}, "recover", "pv") })
			n.must(0, "recover", "csi.script.test^vol/1 '$x", "-f", n.dir+"/p v.yaml", "--apply")
			n.must(0, "recover", "pv", "-f", n.dir+"/p v.yaml", "--apply")
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			if got := n.mounts(); got != "" {
				t.Errorf("still mounted:\n%s\nto begin with\n%s", got, empty)
			}
		})
	}
}

// A volume of another plugin, and an operation of another volume of that name, tell
// nothing.
func TestRecoverOfOthers(t *testing.T) {
	n := newNode(t)
	file, _ := n.dataDir("pv")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.unchanged(func() {
		n.wants(0, []string{"already", "nothing of its metadata is broken"}, "recover", "pv", "--apply")
		n.wants(0, []string{"already"}, "recover", n.podVolume(podA, "pv"), "--apply")
		n.wants(0, []string{"Nothing of the metadata is broken"}, "recover", "pv")
	})
	csi := n.volFile(podData(podA, "pv"), "")
	n.unchanged(func() { n.wants(4, []string{"driverName"}, "recover", csi) })
	// What can be told is, beside what cannot.
	n.volFile(podData(podB, "pv"), `{"driverName":"d","nodeName":"n","specVolID":"pv","volumeHandle":"h","vol`)
	n.wants(3, []string{"1 of 2", podA, "next: give the volume's document"}, "recover", "pv")
	n.wants(3, []string{"1 of 2", "done"}, "recover", "pv", "--apply")
	if data, err := kubeletReads(n.root + podData(podB, "pv")); err != nil || data["attachmentID"] != paths.CSIAttachmentID("h", "d", "n") {
		t.Errorf("%v %v", data, err)
	}
}
