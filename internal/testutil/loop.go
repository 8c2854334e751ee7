package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// LoopImage makes a sparse file of sizeBytes and a loop device on it; both go at
// the end of the test.
func LoopImage(t testing.TB, sizeBytes int64) (dev, img string) {
	t.Helper()
	Root(t)
	img = filepath.Join(tempDirIn(t, inMemory()), "disk.img")
	f, err := os.OpenFile(img, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(sizeBytes); err != nil {
		t.Fatal(err)
	}
	return Loop(t, img), img
}

// inMemory is a directory for images in memory, "" where there is no room for them: to
// make and sync a file system on a disk takes longer.
func inMemory() string {
	const dir, room = "/dev/shm", 2 << 30
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	if err != nil || st.Type != unix.TMPFS_MAGIC || st.Bavail*uint64(st.Bsize) < room {
		return ""
	}
	return dir
}

// Loop makes a loop device on img and detaches it at the end of the test.
func Loop(t testing.TB, img string) string {
	t.Helper()
	Root(t)
	dev, err := AttachLoop(img)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { detachLoop(t, dev, img) })
	return dev
}

// AttachLoop makes a loop device on img. losetup opens the first free device, and claims
// it for a moment also where another one was faster: that one's user would find its
// device busy. So they go one after the other, by the lock that systemd has for that.
func AttachLoop(img string) (dev string, err error) {
	control, err := os.Open("/dev/loop-control")
	if err != nil {
		return "", err
	}
	defer control.Close()
	if err := unix.Flock(int(control.Fd()), unix.LOCK_EX); err != nil {
		return "", os.NewSyscallError("flock", err)
	}
	out, err := exec.Command("losetup", "-f", "--show", img).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("losetup -f --show %s: %w: %s", img, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// detachLoop detaches dev if it is still backed by img, and waits until it is
// gone: the kernel lets go of a loop device only with its last user.
func detachLoop(t testing.TB, dev, img string) {
	mine := func() bool {
		b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/backing_file"))
		return err == nil && strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), " (deleted)") == img
	}
	if !mine() {
		return
	}
	// Busy shows below, as a device that stays.
	_ = exec.Command("losetup", "-d", dev).Run()
	if !poll(func() bool { return !mine() }) {
		t.Errorf("%s is still attached to %s: something has it open or mounted", dev, img)
	}
}

// detachLoopsBelow detaches what a test, or what it tested, attached to files
// below dir.
func detachLoopsBelow(t testing.TB, dir string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		b, err := os.ReadFile(f)
		img := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), " (deleted)")
		if err == nil && strings.HasPrefix(img, dir+"/") {
			detachLoop(t, "/dev/"+strings.Split(f, "/")[3], img)
		}
	}
}
