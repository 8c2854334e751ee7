package e2e

import (
	"os"
	"os/exec"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// The history knows which device a volume was on. Another disk that got that
// device's name since is none of the volume's.
func TestDetachOfARenumberedDevice(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	n.must(0, "unmount-device", "pv")
	held, err := os.OpenFile(dev, os.O_RDONLY, 0)
	must(t, err)
	n.wants(9, []string{dev}, "detach", "pv") // by the history alone
	must(t, held.Close())

	must(t, exec.Command("losetup", "-d", dev).Run())
	other := n.dir + "/other.img"
	must(t, os.WriteFile(other, make([]byte, 1<<20), 0o600))
	testutil.Poll(t, dev+" with another disk", func() bool { return exec.Command("losetup", dev, other).Run() == nil })
	held, err = os.OpenFile(dev, os.O_RDONLY, 0)
	must(t, err)
	defer held.Close()
	n.must(0, "detach", "pv")
}
