package safefs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Outside is a directory or an empty file to be made at a path that a volume's
// document names, outside of the kubelet's layout.
type Outside struct {
	Path string // absolute and clean
	File bool
	Perm uint32
	// Below is a directory of Path; what is above it may lead through links, as a
	// kubelet takes it, and below it none is followed. "" is the last element alone.
	Below string
	// Owned also wants everything below Below to be the caller's, and no other's to
	// write to.
	Owned bool
}

// Make makes it, and of a directory what is missing above it, each with Perm whatever
// the umask. It works from one open directory to the next, and never through a link
// that lies where the thing itself is to be. Looking at such a path may hang: this is
// for the helper process.
func (o Outside) Make() error {
	const op = "make"
	var err error
	withoutUmask(func() { err = o.make() })
	return fail(op, o.Path, err)
}

func (o Outside) make() error {
	elems := strings.Split(strings.Trim(o.Path, "/"), "/")
	free := len(elems) - 1 // the elements that may be links
	if rest, ok := below(o.Below, o.Path); ok && o.Below != "" {
		free = len(elems) - strings.Count(rest, "/") - 1
	}
	at, err := openAbs("/")
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	for i, el := range elems {
		if i == len(elems)-1 && o.File {
			return o.create(at, el)
		}
		next, err := o.enter(at, el, i < free)
		if err != nil {
			return o.failed(elems[:i+1], err)
		}
		unix.Close(at)
		at = next
	}
	return nil
}

// enter opens a directory, and makes it where it is missing.
func (o Outside) enter(dir int, name string, links bool) (int, error) {
	flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if !links {
		flags |= unix.O_NOFOLLOW
	}
	open := func() (fd int, err error) {
		err = retry(func() error { fd, err = unix.Openat(dir, name, flags, 0); return err })
		return fd, err
	}
	fd, err := open()
	if errors.Is(err, unix.ENOENT) && !o.File {
		if err := retry(func() error { return unix.Mkdirat(dir, name, o.Perm) }); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
		fd, err = open()
	}
	if err != nil || links || !o.Owned {
		return fd, err
	}
	info, err := kernel{mountIDs: true}.stat(fd)
	if err == nil && (int(info.UID) != os.Geteuid() || info.Mode&0o022 != 0) {
		err = fmt.Errorf("it is of user %d and has mode %#o, so that others could put something else in the volume's place: %w", info.UID, info.Mode, api.ErrRefused)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (o Outside) create(dir int, name string) error {
	var fd int
	err := retry(func() (err error) {
		fd, err = openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, o.Perm)
		return err
	})
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// failed names the element that is in the way.
func (o Outside) failed(elems []string, err error) error {
	path := "/" + strings.Join(elems, "/")
	if path == o.Path {
		path = ""
	}
	return &obstacle{path, "cannot be entered: " + err.Error(), err}
}
