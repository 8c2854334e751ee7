package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// A mount's source is a name that anybody can give, and that another disk can have
// by now: it does not tell what is mounted.
func TestMountNamedAfterTheDevice(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	must(t, os.MkdirAll(n.global("pv"), 0o750))
	testutil.Mount(t, dev, n.global("pv"), "tmpfs", 0, "size=1m")
	n.unchanged(func() {
		for _, verb := range []string{"setup", "publish"} {
			n.wants(4, []string{dev, "tmpfs"}, verb, "-f", file, "--pod-uid", podA)
		}
		n.wants(4, []string{dev, "tmpfs"}, "mount-device", "-f", file)
		// Nor is it found by the device.
		n.wants(5, []string{dev}, "inspect", dev)
		n.wants(5, []string{dev}, "unmount-device", dev, "--must-exist")
	})
}

// What the verb will not unlink is not in the plan either.
func TestPlanOfDataAtTheDevicesPlace(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	at := n.mapDevice(podA, "pv")
	n.must(0, "setup", "-f", file, "--pod-uid", podB)
	for name, place := range map[string]func() error{
		"a file with data": func() error { return write(at) },
		"a link":           func() error { return os.Symlink(file, at) },
		"a directory":      func() error { return os.Mkdir(at, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, place())
			n.unchanged(func() {
				n.wants(4, []string{at}, "unpublish", "-f", file, "--pod-uid", podA)
				n.wants(4, []string{at}, "unpublish", "-f", file, "--pod-uid", podA, "--dry-run")
			})
			must(t, os.Remove(at))
		})
	}
	link := n.podDevice(podA, "pv")
	must(t, write(link))
	n.unchanged(func() {
		n.wants(4, []string{link}, "unpublish", "-f", file, "--pod-uid", podA)
		n.wants(4, []string{link}, "unpublish", "-f", file, "--pod-uid", podA, "--dry-run")
	})
	must(t, os.Remove(link))
	n.must(0, "teardown", "pv", "--pod-uid", podB)
}

// A script that is run later does not hide what came into the directory meanwhile,
// nor take another mount for its own.
func TestScriptWhereSomethingElseIs(t *testing.T) {
	for name, disk := range map[string]bool{"disk": true, "directory": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			file, at := "", n.podVolume(podA, "pv")
			if disk {
				file, _ = n.disk("pv", "ext4")
				at = n.global("pv")
			} else {
				file, _ = n.dataDir("pv")
			}
			must(t, os.MkdirAll(at, 0o750))
			script := n.file("plan", n.must(0, "setup", "-f", file, "--pod-uid", podA, "--dry-run", "-o", "shell").stdout)
			refused := func() {
				t.Helper()
				n.unchanged(func() {
					cmd := exec.Command("bash", script)
					out, _ := cmd.CombinedOutput()
					if code := cmd.ProcessState.ExitCode(); code != 4 {
						t.Errorf("exit code %d: %s", code, out)
					}
				})
			}
			must(t, write(at+"/mine"))
			refused()
			must(t, os.Remove(at+"/mine"))
			testutil.Tmpfs(t, at)
			refused()
			must(t, exec.Command("umount", at).Run())
			must(t, exec.Command("bash", script).Run(), exec.Command("bash", script).Run())
		})
	}
}

// --format was given, so the refusal does not say that it was not.
func TestFormatOfReadOnlyVolume(t *testing.T) {
	n := newNode(t)
	dev, _ := testutil.LoopImage(t, 16<<20)
	file := n.pv("pv", dev, "mountOptions: [ro]")
	n.unchanged(func() {
		n.wants(4, []string{dev, "read-only", "blank"}, "mount-device", "-f", file, "--format")
		n.wants(4, []string{dev, "read-only", "blank"}, "mount-device", "-f", file, "--format", "--dry-run")
	})
}

// Not to wait for a lock is what 0 says.
func TestNoWaitForALock(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "ext4")
	n.must(0, "mount-device", "-f", file)
	locks, err := filepath.Glob(n.run + "/volume-*.lock")
	must(t, err)
	f, err := os.Open(locks[0])
	must(t, err, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	defer f.Close()
	if o := n.wants(10, []string{"lock of volume"}, "unmount-device", "pv", "--lock-timeout", "0"); o.took > 5*time.Second {
		t.Errorf("it waited: %v", o)
	}
}
