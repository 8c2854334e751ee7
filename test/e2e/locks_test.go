package e2e

import (
	"os/exec"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// Two loop devices hold one map: a second one made by hand is let go as well, and
// nobody is said to have it open.
func TestTwoLockLoops(t *testing.T) {
	n := newNode(t)
	dev, _ := testutil.LoopImage(t, 16<<20)
	file := n.pv("pv", dev, "volumeMode: Block")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	must(t, exec.Command("losetup", "-f", n.mapDevice(podA, "pv")).Run())
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	if m := n.mounts(); m != "" {
		t.Errorf("still mounted:\n%s", m)
	}
}
