package probe

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// swallow mounts a FUSE file system whose daemon, this process, takes every
// request and answers none but INIT: who waits for it cannot be killed (state D),
// unlike with a daemon that is stopped. The function given makes it dead.
func swallow(t testing.TB, dst string) (dead func()) {
	t.Helper()
	f := mountFUSE(t, dst, 0)
	buf := make([]byte, 1<<17)
	n, err := f.Read(buf)
	if err != nil || n < 56 {
		t.Fatalf("read INIT: %d bytes, %v", n, err)
	}
	answer := make([]byte, 16+64) // fuse_out_header, fuse_init_out
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:16], buf[8:16])                       // unique
	copy(answer[16:24], buf[40:48])                     // major, minor
	binary.NativeEndian.PutUint32(answer[16+20:], 4096) // max_write
	if _, err := f.Write(answer); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
		}
	}()
	return func() { _ = f.Close() }
}

// mountFUSE mounts a FUSE file system of a user; the daemon is whoever reads the
// file. It is closed at the test's end, which frees all that wait.
func mountFUSE(t testing.TB, dst string, uid int) *os.File {
	t.Helper()
	testutil.Root(t)
	// Non-blocking, so that Close ends a Read.
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=0", fd, uid)
	if err := unix.Mount("kvoltest", dst, "fuse.kvoltest", 0, data); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "/dev/fuse") // before the mount it cannot be polled
	t.Cleanup(func() {
		_ = f.Close()
		_ = unix.Unmount(dst, unix.MNT_DETACH)
	})
	return f
}

// swallowed makes n such mounts, and a function that makes all dead.
func swallowed(t testing.TB, n int) (targets []Target, dead func()) {
	t.Helper()
	base := testutil.TempDir(t)
	var all []func()
	for i := range n {
		dir := filepath.Join(base, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		all = append(all, swallow(t, dir))
		targets = append(targets, Target{Path: dir, Dev: fmt.Sprintf("hung:%d", i)})
	}
	return targets, func() {
		for _, f := range all {
			f()
		}
	}
}
