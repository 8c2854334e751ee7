// Package mounts reads the kernel's mount table. Nothing in it touches a mounted
// file system, so it never hangs on a dead one.
//
// It exists because one odd mount, which any container may make, blinds the
// libraries: an empty source makes k8s.io/mount-utils refuse the whole table,
// and a line over 64 KiB (an overlay of 480 layers) makes moby/sys/mountinfo
// refuse it. Here a bad line costs that line only, and is reported. Lines have
// one reading everywhere: proc_pid_mountinfo(5), escapes undone once.
//
// Do not use it to ask about one path or descriptor whose mount id is enough
// (statx, host/safefs): the kernel needs about 4 µs a mount to print the table.
package mounts

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"golang.org/x/sys/unix"
)

// Mount is one line of a mount table, with all escapes undone.
//
// The fields are those of moby's mountinfo.Info, with which the tests compare
// them, but options are lists: they can only be cut apart before their escapes
// are undone. Mounts share these lists; do not write to them.
type Mount struct {
	// ID names the mount while it is there; the kernel uses it again afterwards.
	ID int
	// Parent is the ID of the mount that this one lies on. It is in no table
	// where it lies above the reader's root directory.
	Parent       int
	Major, Minor int // of the superblock: st_dev of its files, but for btrfs subvolumes
	// Root is what of the file system is mounted: "/", or the directory or file
	// of a bind. Some file systems have no paths there: "net:[4026531840]".
	Root       string
	Deleted    bool   // Root is unlinked; the kernel's mark //deleted is cut off
	MountPoint string // absolute, seen from the root directory of the process
	// Options are those of this mount, first "ro" or "rw".
	Options []string
	// Optional are the propagation tags: "shared:1", "master:1", "unbindable".
	Optional []string
	// PeerGroup is the number of the tag shared:N, 0 where the mount is not shared.
	PeerGroup int
	FSType    string // "ext4", "fuse.sshfs"
	Source    string // of any form, may be empty
	// SuperOptions are those of the superblock, first "ro" or "rw".
	SuperOptions []string
}

// ReadOnly says that this mount is read-only, whatever its file system is.
func (m Mount) ReadOnly() bool { return first(m.Options) == "ro" }

// SuperReadOnly says that the file system itself is read-only, under every mount
// of it.
func (m Mount) SuperReadOnly() bool { return first(m.SuperOptions) == "ro" }

// first alone tells ro from rw: the kernel prints it before what a file system
// adds, and some print what they were given.
func first(options []string) string {
	if len(options) == 0 {
		return ""
	}
	return options[0]
}

// Device is the superblock's number in the kernel's form, "7:5".
func (m Mount) Device() string { return strconv.Itoa(m.Major) + ":" + strconv.Itoa(m.Minor) }

// PartOf says that a mount shows what another one does, or a part of it.
func (m Mount) PartOf(of Mount) bool {
	return m.Major == of.Major && m.Minor == of.Minor && (m.Root == of.Root || of.Root == "/" || strings.HasPrefix(m.Root, of.Root+"/"))
}

// BadLine is a line that could not be read.
type BadLine struct {
	Line   int    // from 1
	Reason string // what is wrong with it
	Text   string // its first 120 bytes, quoted
}

func (b BadLine) String() string {
	return fmt.Sprintf("mount table line %d: %s: %s", b.Line, b.Reason, b.Text)
}

// tries bounds the readings of a table that changes all the time.
const tries = 10

// Read reads the table at path: /proc/self/mountinfo, /proc/PID/mountinfo or a
// recorded file. The kernel hands a table out in pieces of a page and lets
// mounts come and go between them, so it is read again, up to ten times, until
// the kernel says that the namespace stayed the same meanwhile; failing that,
// Changed is set. The error is an [api.Error], of kind [api.ErrNotFound] where
// there is no such file or process (any more).
func Read(path string) (*Table, error) {
	// Not os.Open: Go's poller would watch the descriptor, and the kernel tells
	// a change once only, to whoever polls first.
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, failed(path, fmt.Errorf("open: %w", err))
	}
	defer unix.Close(fd)
	t, err := consistent(fd, func() (*Table, error) {
		if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
			return nil, err
		}
		return Parse(descriptor(fd))
	})
	if err != nil {
		return nil, failed(path, err)
	}
	return t, nil
}

// consistent calls read until the namespace of fd did not change during the call.
func consistent(fd int, read func() (*Table, error)) (*Table, error) {
	for n := 1; ; n++ {
		t, err := read()
		if err != nil {
			return nil, err
		}
		changed, err := changed(fd)
		if err != nil {
			return nil, err
		}
		if !changed || n == tries {
			t.Changed = changed
			return t, nil
		}
	}
}

// changed says whether the mount namespace of fd changed since it was opened or
// last asked (proc_pid_mounts(5): such a file is readable in an exceptional
// condition). For a regular file it never did.
func changed(fd int) (bool, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	_, err := retry(func() (int, error) { return unix.Poll(p, 0) })
	return p[0].Revents&unix.POLLPRI != 0, err
}

// descriptor is an io.Reader that Go's poller does not know.
type descriptor int

func (d descriptor) Read(b []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(d), b) })
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func failed(path string, err error) error {
	e := &api.Error{Op: "read mount table", Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		e.Kind = api.ErrNotFound
	case errors.Is(err, unix.EINVAL):
		// A process that has ended and was not waited for has no namespace.
		e.Kind = api.ErrNotFound
		e.Err = fmt.Errorf("the process has ended: %w", err)
	}
	return e
}
