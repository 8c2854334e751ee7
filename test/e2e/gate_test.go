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

// held wants every way to name the volume to be refused by detach, and each of
// some words in what it says.
func (n *node) held(words []string, ways ...[]string) {
	n.t.Helper()
	n.unchanged(func() {
		for _, way := range ways {
			n.wants(9, words, append([]string{"detach"}, way...)...)
		}
	})
}

// free wants every way to name the volume to end well.
func (n *node) free(ways ...[]string) {
	n.t.Helper()
	for _, way := range ways {
		n.must(0, append([]string{"detach"}, way...)...)
	}
}

// A process in another mount namespace has the disk mounted; here nothing is left
// of it.
func TestDetachWhileMountedInAnotherNamespace(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run("at another path "+fs, func(t *testing.T) {
			n := newNode(t)
			file, dev := n.disk("pv", fs)
			at := n.dir + "/elsewhere"
			must(t, os.Mkdir(at, 0o755))
			n.must(0, "setup", "-f", file, "--pod-uid", podA)
			u := n.user(true, "mount "+dev+" "+at+"; umount "+n.podVolume(podA, "pv")+" "+n.global("pv"))
			n.wants(9, []string{at}, "teardown", "pv", "--pod-uid", podA, "--dry-run")
			n.must(0, "unpublish", "pv", "--pod-uid", podA)
			n.must(0, "unmount-device", "pv")
			n.held([]string{at, fmt.Sprint("process ", u.pid), "mnt:["}, []string{"pv"}, []string{"-f", file}, []string{dev}, []string{n.global("pv")})
			n.wants(9, []string{at}, "teardown", "pv", "--pod-uid", podA)
			n.wants(9, []string{at}, "detach", "pv", "--dry-run")
			u.end()
			n.free([]string{"pv"}, []string{"-f", file}, []string{dev})
		})
	}
}

// Leftover copies of the volume's own mounts, as every namespace has that was made
// while it was mounted. Unmounting here leaves them; removing the directory takes
// off those that nobody works in.
func TestDetachWhileCopiesAreLeft(t *testing.T) {
	t.Run("of the global mount", func(t *testing.T) {
		n := newNode(t)
		file, dev := n.disk("pv", "ext4")
		n.must(0, "mount-device", "-f", file)
		u := n.user(true, "")
		must(t, unix.Unmount(n.global("pv"), 0)) // by somebody, who leaves the directory
		n.held([]string{n.global("pv"), fmt.Sprint("process ", u.pid)}, []string{"pv"}, []string{"-f", file}, []string{dev}, []string{n.global("pv")})
		u.end()
		n.free([]string{"pv"}, []string{dev})
	})
	t.Run("of the global mount, which kvol never made", func(t *testing.T) {
		n := newNode(t)
		_, dev := n.disk("pv", "ext4")
		must(t, os.MkdirAll(n.global("pv"), 0o750))
		testutil.Mount(t, dev, n.global("pv"), "ext4", 0, "")
		u := n.user(true, "")
		must(t, unix.Unmount(n.global("pv"), 0))
		n.held([]string{n.global("pv"), fmt.Sprint("process ", u.pid)}, []string{"pv"}, []string{dev}, []string{n.global("pv")})
		u.end()
		n.free([]string{"pv"})
	})
	t.Run("of the pod's mount", func(t *testing.T) {
		n := newNode(t)
		file, dev := n.disk("pv", "ext4")
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		u := n.user(true, "umount "+n.global("pv"))
		must(t, unix.Unmount(n.podVolume(podA, "pv"), 0), unix.Unmount(n.global("pv"), 0))
		n.held([]string{podA, fmt.Sprint("process ", u.pid)}, []string{"pv"}, []string{"-f", file}, []string{dev})
		u.end()
		n.free([]string{"pv"}, []string{dev})
	})
	t.Run("with a process in it, after rmdir", func(t *testing.T) {
		n := newNode(t)
		file, dev := n.disk("pv", "ext4")
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		u := n.user(true, "cd "+n.global("pv"))
		n.must(0, "unpublish", "pv", "--pod-uid", podA)
		n.must(0, "unmount-device", "pv")
		for _, way := range [][]string{{"pv"}, {dev}} {
			n.held([]string{dev}, way)
		}
		u.end()
		n.free([]string{"pv"}, []string{"-f", file}, []string{dev})
	})
	t.Run("without a process, kept by a descriptor", func(t *testing.T) {
		n := newNode(t)
		file, dev := n.disk("pv", "xfs")
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		f, err := os.Open(n.podVolume(podA, "pv"))
		must(t, err)
		defer f.Close()
		n.must(9, "teardown", "pv", "--pod-uid", podA)
		n.must(9, "teardown", "pv", "--pod-uid", podA, "--lazy")
		n.held([]string{dev}, []string{"-f", file})
		f.Close()
		n.must(0, "teardown", "pv", "--pod-uid", podA)
	})
}

// A disk that something other than a mount has claimed, by each way to name it.
func TestDetachOfClaimedDisk(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	link := n.dir + "/by-id"
	must(t, os.Symlink(dev, link))

	f, err := os.OpenFile(dev, os.O_RDWR|unix.O_EXCL, 0)
	must(t, err)
	n.held([]string{fmt.Sprint("process ", os.Getpid())}, []string{"pv"})
	must(t, f.Close())
	n.free([]string{"pv"}, []string{link})

	// Open only: O_EXCL does not see that.
	f, err = os.Open(dev)
	must(t, err)
	n.held([]string{fmt.Sprint("process ", os.Getpid())}, []string{link})
	must(t, f.Close())
	n.free([]string{"pv"}, []string{dev}, []string{link})

	// What is named is no device, or none that is there.
	n.must(5, "detach", dev+"-gone")
}

// udev, losetup and blkid open every disk for a moment: a plan waits for them as the
// verb itself does. The list of swaps is read before each look for who has it open.
func TestPlanBesideAMomentaryOpener(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	held, err := os.Open(dev)
	must(t, err)
	defer held.Close()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	looks := os.NewFile(uintptr(fd), "inotify")
	defer looks.Close()
	_, err = unix.InotifyAddWatch(fd, "/proc/swaps", unix.IN_OPEN)
	must(t, err)
	go func() {
		var one [unix.SizeofInotifyEvent]byte
		for range 2 {
			if _, err := looks.Read(one[:]); err != nil {
				return
			}
		}
		held.Close()
	}()
	n.must(0, "teardown", "pv", "--pod-uid", podA, "--dry-run")
}

func TestDetachOfRawBlock(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.must(0, "setup", "-f", file, "--pod-uid", podB)
	ways := [][]string{{"pv"}, {"-f", file}, {dev}, {n.mapDevice(podA, "pv")}, {n.podDevice(podB, "pv")}}
	n.held([]string{podA, podB}, ways...)
	n.unchanged(func() {
		for _, way := range ways {
			n.wants(9, []string{podA, podB}, append([]string{"unmount-device"}, way...)...)
		}
	})
	reasons := n.reasons(0, "teardown", "pv", "--pod-uid", podA)
	for _, rung := range []string{"unmount-device", "detach"} {
		if !strings.Contains(reasons[rung], podB) || strings.Contains(reasons[rung], podA) {
			t.Errorf("%s says %q, and only %s has the volume", rung, reasons[rung], podB)
		}
	}
	n.held([]string{podB}, ways...)

	// What a kubelet that was killed leaves: the bind without the link, and the
	// link without the bind.
	must(t, os.Remove(n.podDevice(podB, "pv")))
	n.held([]string{podB}, []string{"pv"}, []string{"-f", file}, []string{dev})
	n.must(0, "unpublish", "pv", "--pod-uid", podB)
	n.must(0, "unmount-device", "pv")
	if _, err := os.Stat(n.root + "/plugins/kubernetes.io~local-volume/volumeDevices/pv"); err == nil {
		t.Errorf("the global map path is left:\n%s", n.tree())
	}
	must(t, os.Symlink(dev, n.podDevice(podB, "pv")))
	n.held([]string{podB}, []string{"pv"}, []string{"-f", file})
	n.must(0, "unpublish", "pv", "--pod-uid", podB)

	u := n.user(true, "exec 9<"+dev)
	n.held([]string{fmt.Sprint("process ", u.pid)}, []string{"-f", file})
	u.end()

	// The loop device that holds a device whose bind was taken off by force.
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	lock := loopsBelow(n.root)[n.mapDevice(podA, "pv")]
	must(t, unix.Unmount(n.mapDevice(podA, "pv"), unix.MNT_DETACH))
	n.wants(9, []string{lock}, "teardown", "pv", "--pod-uid", podA)
	n.held([]string{lock}, []string{"pv"}, []string{"-f", file}, []string{dev})
	must(t, exec.Command("losetup", "-d", lock).Run())

	// A bind of the node in another namespace, as a container has it.
	must(t, write(n.dir+"/node"))
	u = n.user(true, "mount --bind "+dev+" "+n.dir+"/node")
	n.held([]string{n.dir + "/node"}, []string{"pv"}, []string{"-f", file}, []string{dev})
	u.end()
	n.free([]string{"pv"}, []string{"-f", file}, []string{dev})
	if left := loopsBelow(n.root); len(left) > 0 {
		t.Errorf("left loop devices: %v", left)
	}
}

func TestDetachOfDirectory(t *testing.T) {
	n := newNode(t)
	file, _ := n.dataDir("pv")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.must(0, "setup", "-f", file, "--pod-uid", podB)
	n.held([]string{podA, podB}, []string{"pv"}, []string{"-f", file}, []string{n.podVolume(podA, "pv")})
	n.must(0, "unmount-device", "-f", file) // there is none, by design
	reasons := n.reasons(0, "teardown", "-f", file, "--pod-uid", podA)
	if !strings.Contains(reasons["detach"], podB) {
		t.Errorf("detach says %q", reasons["detach"])
	}
	n.held([]string{podB}, []string{"pv"}, []string{"-f", file})
	n.must(0, "teardown", "pv", "--pod-uid", podB)
	n.free([]string{"pv"}, []string{"-f", file})
	if _, err := os.Stat(n.dir + "/pv/file"); err != nil {
		t.Error(err)
	}
}

// Another volume's disk is not this volume's holder.
func TestDetachBesideOthers(t *testing.T) {
	n := newNode(t)
	one, dev := n.disk("one", "ext4")
	two, _ := n.disk("two", "ext4")
	n.must(0, "setup", "-f", one, "--pod-uid", podA)
	n.must(0, "setup", "-f", two, "--pod-uid", podA)
	n.must(0, "teardown", "one", "--pod-uid", podA)
	n.free([]string{"one"}, []string{"-f", one}, []string{dev})
	n.held([]string{podA}, []string{"two"})
}
