package testutil

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TempDir is an empty directory, its path free of symlinks. At the end of the
// test every mount below it is taken off, every loop device backed by a file
// below it detached, and the directory removed; while a mount is left there
// nothing is removed, because that would delete through it.
func TempDir(t testing.TB) string {
	t.Helper()
	return tempDirIn(t, "")
}

// tempDirIn is TempDir in another directory than os.TempDir.
func tempDirIn(t testing.TB, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "kvoltest") //nolint:usetesting // t.TempDir removes through mounts
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unmountBelow(dir)
		detachLoopsBelow(t, dir)
		if left := mountsBelow(dir); len(left) > 0 {
			t.Errorf("still mounted, so %s is left: %v", dir, left)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// unmountBelow takes off every mount at or below dir, newest first.
func unmountBelow(dir string) {
	for _, m := range slices.Backward(mountsBelow(dir)) {
		// What could not be taken off is seen by who looks at the table again.
		_ = unix.Unmount(m.point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

// Mount mounts src on dst and takes it off at the end of the test.
func Mount(t testing.TB, src, dst, fstype string, flags uintptr, data string) {
	t.Helper()
	Root(t)
	if err := unix.Mount(src, dst, fstype, flags, data); err != nil {
		t.Fatalf("mount -t %q %s %s: %v", fstype, src, dst, err)
	}
	t.Cleanup(func() { detach(t, dst) })
}

// detach takes the topmost mount off dst; none there is no fault, the test may
// have taken it off itself.
func detach(t testing.TB, dst string) {
	err := unix.Unmount(dst, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("unmount %s: %v", dst, err)
	}
}

// Bind bind-mounts src on dst, a file on a file or a directory on a directory.
func Bind(t testing.TB, src, dst string, ro bool) {
	t.Helper()
	Mount(t, src, dst, "", unix.MS_BIND, "")
	if !ro {
		return
	}
	if err := unix.Mount("", dst, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("remount %s read-only: %v", dst, err)
	}
}

// Tmpfs mounts a tmpfs of at most 16 MiB on dst.
func Tmpfs(t testing.TB, dst string) {
	t.Helper()
	Mount(t, "tmpfs", dst, "tmpfs", 0, "size=16m,mode=755")
}

// Mkfs makes a file system on dev with mkfs.<fstype>, quietly and by force; args
// come before the device.
func Mkfs(t testing.TB, dev, fstype string, args ...string) {
	t.Helper()
	switch {
	case strings.HasPrefix(fstype, "ext"):
		args = append([]string{"-q", "-F"}, args...)
	case fstype == "xfs" || fstype == "btrfs":
		args = append([]string{"-q", "-f"}, args...)
	}
	run(t, "mkfs."+fstype, append(args, dev)...)
}

// run runs a tool and gives its standard output without the final newline.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	Tool(t, name)
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v%s", name, strings.Join(args, " "), err, stderrOf(err))
	}
	return strings.TrimSuffix(string(out), "\n")
}

func stderrOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return ": " + string(exit.Stderr)
	}
	return ""
}

// Tool skips the test when a program that it needs is not installed.
func Tool(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Skip(t, "needs %s, which is not installed (scripts/deps.sh test)", name)
		}
	}
}

// Poll waits until cond holds, looking every few milliseconds, and fails the test
// when it does not within ten seconds.
func Poll(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !poll(cond) {
		t.Fatalf("waited in vain until %s", what)
	}
}

func poll(cond func() bool) bool {
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if cond() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
