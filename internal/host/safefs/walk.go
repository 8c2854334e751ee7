package safefs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// slot is a name in an open directory: what every operation ends up with.
type slot struct {
	dir   int    // O_PATH descriptor of the directory, owned by the slot
	name  string // one element
	path  string // absolute, for messages
	elems []string
	mnt   uint64 // the mount that the directory is on
	k     kernel
}

func (s slot) close() { unix.Close(s.dir) }

// slot opens the directory that a name lies in. The root itself lies in none.
func (r *Root) slot(op, name string) (slot, error) {
	elems, err := r.elements(op, name)
	if err != nil {
		return slot{}, err
	}
	if len(elems) == 0 {
		return slot{}, refuse(op, r.path, "is the root itself")
	}
	s, err := r.slotOf(elems)
	return s, fail(op, r.abs(elems...), err)
}

// slotOf is slot with the bare cause of a failure.
func (r *Root) slotOf(elems []string) (slot, error) {
	last := len(elems) - 1
	a, rest, err := r.start(elems[:last])
	if err != nil {
		return slot{}, err
	}
	dir, err := r.kernel.openDir(a, rest)
	if err != nil {
		return slot{}, err
	}
	return slot{dir: dir, name: elems[last], path: r.abs(elems...), elems: elems, mnt: a.mnt, k: r.kernel}, nil
}

// openDir opens (O_PATH) the directory that the elements name beneath an
// anchor.
func (k kernel) openDir(a anchor, elems []string) (int, error) {
	if !k.openat2 || len(elems) == 0 {
		return k.walk(a, elems)
	}
	fd, err := openat2Dir(a.fd, elems)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) {
		// Only the walk can name the element that is in the way. If it finds none any
		// more, the tree is changing right now, and the first answer holds.
		if fd, werr := k.walk(a, elems); werr == nil {
			unix.Close(fd)
		} else {
			err = werr
		}
		return -1, err
	}
	return fd, err
}

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS

// openat2Dir lets the kernel resolve all elements at once, in pieces that fit
// into PATH_MAX.
func openat2Dir(dir int, elems []string) (int, error) {
	at := dir
	for len(elems) > 0 {
		n, size := 1, len(elems[0])
		for n < len(elems) && size+1+len(elems[n]) < unix.PathMax-1 {
			size += 1 + len(elems[n])
			n++
		}
		fd, err := openat2(at, strings.Join(elems[:n], "/"), unix.O_PATH|unix.O_DIRECTORY, 0)
		if at != dir {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, elems = fd, elems[n:]
	}
	return at, nil
}

// openat2 opens a name beneath a directory: no link, no mount, no way out.
func openat2(dir int, name string, flags int, perm uint32) (fd int, err error) {
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Mode: uint64(perm), Resolve: resolve,
	}
	err = retry(func() error {
		fd, err = unix.Openat2(dir, name, &how)
		return err
	})
	return fd, err
}

// haveOpenat2 asks the running kernel. ENOSYS is an old one, EPERM a seccomp
// filter; every other error would come with the walk as well.
func haveOpenat2(dir int) bool {
	fd, err := openat2(dir, ".", unix.O_PATH, 0)
	if err == nil {
		unix.Close(fd)
	}
	return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM)
}

// walk is openDir for kernels without openat2, and names what is in the way.
func (k kernel) walk(a anchor, elems []string) (int, error) {
	at, err := openat(a.fd, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	for i, el := range elems {
		next, err := k.step(at, el, a.mnt, func() string { return a.path + "/" + strings.Join(elems[:i+1], "/") })
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	if err := k.stillBeneath(a, at); err != nil {
		unix.Close(at)
		return -1, err
	}
	return at, nil
}

// step opens one element of a walk, which must be a directory on the same mount.
func (k kernel) step(dir int, el string, mnt uint64, path func() string) (int, error) {
	fd, err := openPath(dir, el)
	if err != nil {
		return -1, err
	}
	info, err := k.stat(fd)
	switch {
	case err != nil:
	case info.MountID != mnt:
		err = &obstacle{path(), "is a mount point", unix.EXDEV}
	case info.Type != Dir:
		err = notDirectory(path(), info.Type, fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// stillBeneath does at the end of a walk what openat2 does at the end of a
// resolution: a directory that was moved away meanwhile is not beneath any more.
func (k kernel) stillBeneath(a anchor, fd int) error {
	top, err := os.Readlink(fdPath(a.fd))
	if err != nil {
		return err
	}
	here, err := os.Readlink(fdPath(fd))
	if errors.Is(err, unix.ENAMETOOLONG) {
		return nil // deeper than the kernel can say
	}
	if err != nil {
		return err
	}
	if _, ok := below(top, here); !ok {
		return fmt.Errorf("it was moved to %s meanwhile: %w", quote(here), unix.EXDEV)
	}
	return nil
}

// notDirectory is the error for a thing (O_PATH) that is no directory.
func notDirectory(path string, t Type, fd int) error {
	if t == Symlink {
		return linkInTheWay(path, fd)
	}
	return &obstacle{path, fmt.Sprintf("is a %s, not a directory", t), unix.ENOTDIR}
}

func linkInTheWay(path string, fd int) error {
	return &obstacle{path, "is a symbolic link to " + quote(linkTarget(fd)), unix.ELOOP}
}

// open opens the thing itself (O_PATH), which must be on the directory's mount
// and no link unless links is true.
func (s slot) open(links bool) (int, Info, error) {
	fd, err := s.openThing()
	if err != nil {
		return -1, Info{}, err
	}
	info, err := s.k.stat(fd)
	switch {
	case err != nil:
	case info.MountID != s.mnt:
		err = &obstacle{s.path, ErrIsMount.Error(), ErrIsMount}
	case info.Type == Symlink && !links:
		err = linkInTheWay(s.path, fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, info, nil
}

func (s slot) openThing() (int, error) {
	if !s.k.openat2 {
		return openPath(s.dir, s.name)
	}
	fd, err := openat2(s.dir, s.name, unix.O_PATH, 0)
	if errors.Is(err, unix.EXDEV) {
		err = &obstacle{s.path, ErrIsMount.Error(), ErrIsMount}
	}
	return fd, err
}

// openat is for names in a directory that was checked: "." of it, and new files
// (O_EXCL).
func openat(dir int, name string, flags int, perm uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		return err
	})
	return fd, err
}

// reopen opens for reading what an O_PATH descriptor refers to: nothing can be
// put in its place between the look and the opening.
func reopen(fd int) (out int, err error) {
	err = retry(func() error {
		out, err = unix.Open(fdPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	})
	return out, err
}

// sameThing tells whether two descriptors refer to the same inode by the same
// mount.
func sameThing(a, b int) (bool, error) {
	k := kernel{mountIDs: true}
	x, err := k.stat(a)
	if err != nil {
		return false, err
	}
	y, err := k.stat(b)
	return x.Ino == y.Ino && x.Dev == y.Dev && x.MountID == y.MountID, err
}

// linkTarget reads a link by its own descriptor; what cannot be read is
// shown as that.
func linkTarget(fd int) string {
	target, err := readlinkFD(fd)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return target
}

func readlinkFD(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
