package safefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Thing is something inside a volume, held by a descriptor as long as it is
// visited. Looking into a volume may hang: this is for the helper process.
type Thing struct {
	Info
	Name string // the last element; "" of the volume's root
	Rel  string // its path below where the walk began
	fd   int
	mnt  uint64 // the only mount that Walk enters
}

// VolumeThing is the root of a volume, by a descriptor (O_PATH will do) that stays
// the caller's.
func VolumeThing(root *os.File) (Thing, error) {
	info, err := StatFD(root)
	return Thing{Info: info, fd: int(root.Fd()), mnt: info.MountID}, err
}

// Walk visits all that is in a directory, and then itself. Links are visited and
// not followed, and what another mount shows is left out, the same file system's
// too. A visit that gives [fs.SkipAll] ends the walk without an error.
func (t Thing) Walk(visit func(Thing) error) error {
	err := t.walk(visit)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

func (t Thing) walk(visit func(Thing) error) error {
	if t.Type == Dir {
		if err := t.inside(visit); err != nil {
			return err
		}
	}
	return visit(t)
}

func (t Thing) inside(visit func(Thing) error) error {
	fd, err := openat(t.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", t.Name, err)
	}
	defer unix.Close(fd)
	for buf := make([]byte, 32<<10); ; {
		part, err := readEntries(fd, buf)
		if err != nil {
			return fmt.Errorf("read %q: %w", t.Name, err)
		}
		if part == nil {
			return nil
		}
		for _, e := range part {
			if err := t.child(fd, e.Name, visit); err != nil {
				return err
			}
		}
	}
}

func (t Thing) child(dir int, name string, visit func(Thing) error) error {
	fd, err := openPath(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed since it was listed
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	defer unix.Close(fd)
	info, err := kernel{mountIDs: true}.stat(fd)
	if err != nil {
		return fmt.Errorf("look at %q: %w", name, err)
	}
	if info.MountID != t.mnt {
		return nil
	}
	return Thing{Info: info, Name: name, Rel: path.Join(t.Rel, name), fd: fd, mnt: t.mnt}.walk(visit)
}

// Chgrp gives the thing itself, also a link, to a group.
func (t Thing) Chgrp(gid int) error {
	return os.NewSyscallError("fchownat", unix.Fchownat(t.fd, "", -1, gid, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW))
}

// Chmod gives it a mode (07777); a link has none.
func (t Thing) Chmod(mode uint32) error {
	// fchmod(2) takes no O_PATH descriptor; its name in /proc leads to the same inode.
	return os.NewSyscallError("chmod", unix.Chmod(fdPath(t.fd), mode))
}
