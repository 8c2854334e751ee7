package safefs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// OwnDir opens a directory of kvol's own outside the kubelet's root (--state-dir,
// --run-dir), and makes it and what is missing above it with mode 0700. The path may
// lead through links. It is refused where another user owns it or could write in it.
func OwnDir(path string, opts ...Option) (*Root, error) {
	if err := makeOwn(path, opts); err != nil {
		return nil, err
	}
	return OpenOwn(path, opts...)
}

// OpenOwn is [OwnDir] for those who only read: nothing is made.
func OpenOwn(path string, opts ...Option) (*Root, error) {
	const op = "open own directory"
	r, err := openRoot(op, path, ownRoot, opts)
	if err != nil {
		return nil, err
	}
	return r.owned(op, path)
}

// OwnDirAt is [OpenOwn] for a directory that was opened before, in another mount
// namespace, where path is what it is called. The descriptor stays the caller's.
func OwnDirAt(dir *os.File, path string, opts ...Option) (*Root, error) {
	const op = "open own directory"
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fail(op, path, err)
	}
	r, _, err := newRoot(fd, path, path, ownRoot, opts)
	if err != nil {
		return nil, fail(op, path, err)
	}
	return r.owned(op, path)
}

// owned closes and refuses a directory of kvol's own that another user could work in.
func (r *Root) owned(op, path string) (*Root, error) {
	info, err := r.Stat(".")
	switch {
	case err != nil:
	case int(info.UID) != os.Geteuid():
		err = refuse(op, path, "belongs to user %d", info.UID).WithNext("find out whose it is (ls -ld %s); then chown root: it, or name another directory", api.Quote(path))
	case info.Mode&0o022 != 0:
		err = refuse(op, path, "can be written to by others (mode %#o)", info.Mode).
			WithNext("chmod 0700 %s, or name another directory", api.Quote(path))
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// makeOwn makes the directories that are missing beneath the deepest one that is
// there.
func makeOwn(path string, opts []Option) error {
	path = filepath.Clean(path)
	for dir := path; strings.HasPrefix(dir, "/"); dir = filepath.Dir(dir) {
		r, err := openRoot("open own directory", dir, ownRoot, opts)
		if errors.Is(err, unix.ENOENT) && dir != "/" {
			continue
		}
		if err != nil || dir == path {
			if err == nil {
				r.Close()
			}
			return err
		}
		_, err = r.MkdirAll(path, 0o700)
		return errors.Join(err, r.Close())
	}
	return nil // not absolute: openRoot says so
}

// OpenFile opens a regular file in one of kvol's own directories. Flags are
// those of open(2): O_CREAT makes the file with perm, less the umask; O_TRUNC is
// refused, WriteFile replaces. A link, a mount and any other type are refused.
func (r *Root) OpenFile(name string, flags int, perm uint32) (*os.File, error) {
	const op = "open"
	s, err := r.slot(op, name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if r.kind != ownRoot || flags&unix.O_TRUNC != 0 {
		return nil, refuse(op, s.path, "is opened for writing only where kvol keeps its own files, and never cut")
	}
	// What is there is looked at first: opening another thing can have effects.
	switch thing, info, err := s.open(false); {
	case err == nil:
		unix.Close(thing)
		if info.Type != File {
			return nil, refuse(op, s.path, "is a %s, not a regular file", info.Type)
		}
	case !errors.Is(err, unix.ENOENT) || flags&unix.O_CREAT == 0:
		return nil, fail(op, s.path, err)
	}
	if flags&unix.O_CREAT == 0 {
		perm = 0 // openat2(2): EINVAL otherwise
	}
	// Should it be a fifo by now, the opening must not wait; on a regular file
	// O_NONBLOCK says nothing.
	flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	var fd int
	if s.k.openat2 {
		fd, err = openat2(s.dir, s.name, flags, perm)
	} else {
		fd, err = openat(s.dir, s.name, flags, perm)
	}
	if err != nil {
		return nil, fail(op, s.path, err)
	}
	f := os.NewFile(uintptr(fd), s.path)
	info, err := s.k.stat(fd)
	switch {
	case err != nil:
	case info.MountID != s.mnt:
		err = &obstacle{s.path, ErrIsMount.Error(), ErrIsMount}
	case info.Type != File:
		err = refuse(op, s.path, "is a %s, not a regular file", info.Type)
	}
	if err != nil {
		f.Close()
		return nil, fail(op, s.path, err)
	}
	return f, nil
}

// UnlinkOwn removes a regular file of kvol's own directory.
func (r *Root) UnlinkOwn(name string) error {
	const op = "unlink"
	s, err := r.slot(op, name)
	if err != nil {
		return err
	}
	defer s.close()
	if r.kind != ownRoot {
		return refuse(op, s.path, "is not in a directory of kvol's own")
	}
	return fail(op, s.path, s.unlinkFile())
}
