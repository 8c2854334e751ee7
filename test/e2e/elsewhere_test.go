package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// A volume that is up in another mount namespace only, as with a kubelet in a
// container, and directories that all namespaces share: rmdir would take its
// mounts off under the pods.
func TestUpInAnotherNamespace(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "ext4")
	u := n.user(true, fmt.Sprintf("%s setup -q -f %s --pod-uid %s %s", n.kvolPath, file, podA, strings.Join(n.flags(), " ")))
	there := func() int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", u.pid))
		must(t, err)
		return strings.Count(string(text), n.root)
	}
	if there() != 2 {
		t.Fatalf("%d mounts in the other namespace", there())
	}
	holder := fmt.Sprint("process ", u.pid)
	n.unchanged(func() {
		n.wants(9, []string{holder}, "unmount-device", "pv")
		n.wants(9, []string{holder}, "unpublish", "pv", "--pod-uid", podA)
		n.wants(9, []string{holder}, "teardown", "pv", "--pod-uid", podA)
		n.wants(9, []string{holder}, "teardown", "pv", "--pod-uid", podA, "--dry-run")
		n.wants(9, []string{podA}, "detach", "pv")
	})
	if there() != 2 {
		t.Errorf("%d mounts are left in the other namespace", there())
	}
	u.end()
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}

// A /dev that does not have the volume's device, as in a container, is no proof
// that nobody uses it.
func TestDetachWithoutTheDevicesNode(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	u := n.user(true, "")
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	must(t, unix.Unmount(n.global("pv"), 0))

	small := n.dir + "/dev"
	must(t, os.Mkdir(small, 0o755))
	must(t, exec.Command("cp", "-a", "/dev/null", "/dev/zero", "/dev/loop-control", small).Run())
	t.Run("here", func(t *testing.T) {
		testutil.Bind(t, small, "/dev", false)
		n.wants(8, []string{dev}, "detach", "pv")
		n.wants(8, []string{dev}, "detach", "-f", file)
	})
	n.wants(9, []string{fmt.Sprint("process ", u.pid)}, "detach", "pv")
	u.end()
	n.must(0, "detach", "pv")
}

// mount(8) mounts a device that can only be read read-only, and says well done.
func TestReadOnlyDevice(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	must(t, exec.Command("blockdev", "--setro", dev).Run())
	t.Cleanup(func() { must(t, exec.Command("blockdev", "--setrw", dev).Run()) }) // it would stay with the number
	n.unchanged(func() { n.wants(4, []string{dev, "read-only"}, "mount-device", "-f", file) })
	ro := n.pv("pv", dev, "mountOptions: [ro]")
	n.must(0, "setup", "-f", ro, "--pod-uid", podA)
	n.must(0, "setup", "-f", ro, "--pod-uid", podA)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}

// What somebody mounted inside of the volume is not the volume's: --lazy would take
// it along, with the last of a tmpfs.
func TestLazyLeavesWhatIsMountedInside(t *testing.T) {
	n := newNode(t)
	file, dir := n.dataDir("pv")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	must(t, os.Mkdir(dir+"/sub", 0o755))
	sub := n.podVolume(podA, "pv") + "/sub"
	testutil.Tmpfs(t, sub)
	must(t, write(sub+"/data"))
	n.unchanged(func() {
		n.wants(9, []string{sub}, "unpublish", "pv", "--pod-uid", podA)
		n.wants(9, []string{sub}, "unpublish", "pv", "--pod-uid", podA, "--lazy")
	})
	if _, err := os.Stat(sub + "/data"); err != nil {
		t.Error(err)
	}
}

// A btrfs of two disks is mounted from both and shows one.
func TestBtrfsOfTwoDisks(t *testing.T) {
	n := newNode(t)
	one, _ := testutil.LoopImage(t, 200<<20)
	two, _ := testutil.LoopImage(t, 200<<20)
	t.Cleanup(n.sweep)
	must(t, exec.Command("mkfs.btrfs", "-q", "-f", one, two).Run())
	for _, dev := range []string{one, two} {
		file := n.pv("pv", dev)
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		for _, word := range []string{one, two} {
			n.wants(9, []string{podA}, "unmount-device", word)
			n.wants(9, []string{podA}, "detach", word)
		}
		n.must(0, "teardown", "pv", "--pod-uid", podA)
	}
}
