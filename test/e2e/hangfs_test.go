package e2e

import (
	"bytes"
	wire "encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// hangMode is how a file system that a test itself serves does not answer.
type hangMode string

const (
	// gone has lost its daemon: ENOTCONN at once.
	gone hangMode = "gone"
	// mute has a daemon that reads nothing, as one that is stopped: who waits can
	// still be killed.
	mute hangMode = "mute"
	// deaf has a daemon that reads each request and never answers: who waits is in
	// uninterruptible sleep, and SIGKILL does not help.
	deaf hangMode = "deaf"
)

// hangFS is a FUSE file system served from within the test, so that a hundred of
// them cost no processes. Whoever looks into it hangs: the test must not.
type hangFS struct {
	path  string
	mode  hangMode
	asked atomic.Int64 // requests that a deaf one read
}

// hang mounts one on dst, which is made. At the end of the test, or when closed,
// it is gone: all that waited for it is let go.
func hang(t *testing.T, dst string, mode hangMode) *hangFS {
	t.Helper()
	testutil.Root(t)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(t, os.MkdirAll(dst, 0o750), err)
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	testutil.Mount(t, "hang", dst, "fuse.hang", unix.MS_NOSUID|unix.MS_NODEV, data)
	// With the poller, so that Close ends a Read: it takes none that is not mounted.
	dev := os.NewFile(uintptr(fd), "/dev/fuse")
	t.Cleanup(func() { _ = dev.Close() }) // closed already where it is gone
	h := &hangFS{path: dst, mode: mode}
	must(t, greet(dev))
	switch mode {
	case gone:
		must(t, dev.Close())
	case deaf:
		go h.swallow(dev)
	}
	return h
}

// greet answers the kernel's INIT.
func greet(dev *os.File) error {
	req := make([]byte, 1<<17)
	if _, err := dev.Read(req); err != nil {
		return err
	}
	in := (*fuse.InitIn)(unsafe.Pointer(&req[0]))
	head := fuse.OutHeader{Length: uint32(wire.Size(fuse.OutHeader{}) + wire.Size(fuse.InitOut{})), Unique: in.Unique}
	var answer bytes.Buffer
	err := errors.Join(
		wire.Write(&answer, wire.NativeEndian, head),
		wire.Write(&answer, wire.NativeEndian, fuse.InitOut{Major: in.Major, Minor: in.Minor, MaxWrite: 4096}),
	)
	if err == nil {
		_, err = dev.Write(answer.Bytes())
	}
	return err
}

// swallow reads requests until the device is closed. FORGET, INTERRUPT and the
// like have no answer and nobody who waits, so they are not counted.
func (h *hangFS) swallow(dev *os.File) {
	const forget, interrupt, batchForget = 2, 36, 42
	req := make([]byte, 1<<17)
	for {
		if _, err := dev.Read(req); err != nil {
			return
		}
		switch (*fuse.InHeader)(unsafe.Pointer(&req[0])).Opcode {
		case forget, interrupt, batchForget:
		default:
			h.asked.Add(1)
		}
	}
}
