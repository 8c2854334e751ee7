package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// A file whose volumeMode is not how the volume is up finds nothing of it: that is
// no already, and it must not be mounted and given away raw at once.
func TestOtherVolumeMode(t *testing.T) {
	n := newNode(t)
	_, dev := n.disk("pv", "ext4")
	raw := n.pv("pv", dev, "volumeMode: Block")
	text, err := os.ReadFile(raw)
	must(t, err)
	raw = n.file("raw.yaml", string(text))
	file := n.pv("pv", dev)

	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.unchanged(func() {
		for _, verb := range []string{"unpublish", "teardown", "setup", "publish"} {
			n.wants(4, []string{"volumeMode Block", "Filesystem"}, verb, "-f", raw, "--pod-uid", podA)
		}
		n.wants(4, []string{"volumeMode Block"}, "unmount-device", "-f", raw)
		n.wants(4, []string{"volumeMode Block"}, "setup", "-f", raw, "--pod-uid", podB, "--dry-run")
	})
	n.must(0, "teardown", "-f", file, "--pod-uid", podA)

	n.must(0, "setup", "-f", raw, "--pod-uid", podA)
	n.unchanged(func() {
		for _, verb := range []string{"unpublish", "teardown", "setup", "publish"} {
			n.wants(4, []string{"volumeMode Filesystem", "Block"}, verb, "-f", file, "--pod-uid", podA)
		}
		n.wants(4, []string{"volumeMode Filesystem"}, "mount-device", "-f", file)
	})
	n.must(0, "teardown", "-f", raw, "--pod-uid", podA)
}

// Two PersistentVolumes of one disk, one a file system and one raw.
func TestMountedAndRaw(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	raw := n.pv("raw", dev, "volumeMode: Block")

	n.must(0, "setup", "-f", raw, "--pod-uid", podA)
	n.unchanged(func() {
		n.wants(9, []string{"raw block", "pod " + podA}, "mount-device", "-f", file)
		n.wants(9, []string{"raw block"}, "setup", "-f", file, "--pod-uid", podB, "--dry-run")
	})
	n.must(0, "setup", "-f", raw, "--pod-uid", podB)
	n.must(0, "teardown", "raw", "--pod-uid", podA)
	n.must(0, "teardown", "raw", "--pod-uid", podB)

	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.unchanged(func() {
		n.wants(9, []string{n.global("pv")}, "publish", "-f", raw, "--pod-uid", podB)
	})
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}

// Two loop devices over one file are one disk, which the kernel does not know.
func TestTwoLoopDevicesOverOneFile(t *testing.T) {
	n := newNode(t)
	dev, img := testutil.LoopImage(t, 32<<20)
	other := testutil.Loop(t, img)
	t.Cleanup(n.sweep)
	one, two := n.pv("one", dev), n.pv("two", other)

	f, err := os.Open(dev) // somebody works on it, perhaps with writes on their way
	must(t, err)
	n.unchanged(func() { n.wants(9, []string{dev}, "mount-device", "-f", two, "--format") })
	must(t, f.Close())

	n.must(0, "mount-device", "-f", one, "--format")
	n.must(0, "mount-device", "-f", one)
	n.unchanged(func() { n.wants(9, []string{dev}, "mount-device", "-f", two) })
	n.must(0, "unmount-device", "one")
	n.must(0, "mount-device", "-f", two)
	n.must(0, "unmount-device", "two")
}

// What a teardown that waited for a lock takes down is what is there then.
func TestTeardownWaitsForSetup(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "")
	testutil.Tool(t, "strace")
	up := exec.Command("strace", append([]string{"-f", "-qq", "-o", n.dir + "/trace", "-e", "trace=mkdirat", "-e", "inject=mkdirat:delay_enter=300000",
		n.kvolPath, "setup", "-f", file, "--pod-uid", podA}, n.flags()...)...)
	must(t, up.Start())
	testutil.Poll(t, "setup has the lock", func() bool {
		text, _ := os.ReadFile(n.state + "/journal-000001.jsonl")
		return strings.Contains(string(text), "begin")
	})
	began := time.Now()
	got := n.outcomes(0, "teardown", "pv", "--pod-uid", podA)
	must(t, up.Wait())
	if got["unpublish"] != api.OutcomeDone {
		t.Errorf("teardown says %v after %v", got, time.Since(began))
	}
	if left := loopsBelow(n.root); len(left) > 0 || strings.Contains(n.tree(), "pv") {
		t.Errorf("it is up: %v\n%s", left, n.tree())
	}
}
