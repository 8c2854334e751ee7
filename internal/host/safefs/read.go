package safefs

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Entry is a name in a directory. The type is that of the directory's own
// entry, also where something is mounted on it.
type Entry struct {
	Name string
	Type Type
}

// Open opens (O_PATH) the named thing itself. A link is refused, a mount point
// is ErrIsMount; pods and plugins of a layout root may be mounts.
func (r *Root) Open(name string) (*os.File, error) {
	const op = "open"
	elems, err := r.elements(op, name)
	if err != nil {
		return nil, err
	}
	if a, rest, err := r.start(elems); err == nil && len(rest) == 0 {
		fd, err := openat(a.fd, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, fail(op, a.path, err)
		}
		return os.NewFile(uintptr(fd), a.path), nil
	}
	s, err := r.slot(op, name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	fd, _, err := s.open(false)
	if err != nil {
		return nil, fail(op, s.path, err)
	}
	return os.NewFile(uintptr(fd), s.path), nil
}

// Parent opens (O_PATH) the directory that a name lies in and gives the last
// element: for mounting and unmounting there. Nothing is said of the thing itself.
func (r *Root) Parent(name string) (*os.File, string, error) {
	s, err := r.slot("open parent of", name)
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(s.dir), s.path[:len(s.path)-len(s.name)-1]), s.name, nil
}

// OpenMount opens (O_PATH) the root of the uppermost mount on a name, which
// must be a mount point (ErrNotMounted): for OpenVolume, and to verify a mount by its id.
func (r *Root) OpenMount(name string) (*os.File, Info, error) {
	const op = "open mount"
	s, err := r.slot(op, name)
	if err != nil {
		return nil, Info{}, err
	}
	defer s.close()
	fd, err := openPath(s.dir, s.name)
	if err != nil {
		return nil, Info{}, fail(op, s.path, err)
	}
	// Whether it is a mount's root is told by the two ids, which also an old kernel knows.
	info, err := s.k.stat(fd)
	if err == nil && info.MountID == s.mnt {
		err = &api.Error{Op: op, Path: s.path, Kind: api.ErrNotMounted, Err: fmt.Errorf("nothing is mounted there")}
	}
	if err != nil {
		unix.Close(fd)
		return nil, Info{}, fail(op, s.path, err)
	}
	info.MountRoot = true
	return os.NewFile(uintptr(fd), s.path), info, nil
}

// Stat looks at a name without following it: of a mount point it tells what is
// mounted there. It never waits for a dead file system.
func (r *Root) Stat(name string) (Info, error) {
	const op = "stat"
	elems, err := r.elements(op, name)
	if err != nil {
		return Info{}, err
	}
	if len(elems) == 0 {
		a, err := r.anchor("")
		if err != nil {
			return Info{}, fail(op, r.path, err)
		}
		info, err := r.kernel.stat(a.fd)
		return info, fail(op, r.path, err)
	}
	s, err := r.slot(op, name)
	if err != nil {
		return Info{}, err
	}
	defer s.close()
	info, err := s.k.statAt(s.dir, s.name)
	return info, fail(op, s.path, err)
}

// Directory is one that is open for reading. What lies in it is opened from it: a
// walk through a tree need not go from the root to each directory anew.
type Directory struct {
	root *Root
	fd   int
	path string
}

const readDirectory = "read directory"

// OpenDir opens a directory. What is mounted on it is not: a mount point is ErrIsMount.
func (r *Root) OpenDir(name string) (*Directory, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := openat(int(f.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fail(readDirectory, f.Name(), err)
	}
	return &Directory{r, fd, f.Name()}, nil
}

// OpenDir opens a directory in this one, as the root does by its whole name, which
// alone can tell what is in the way.
func (d *Directory) OpenDir(name string) (*Directory, error) {
	if d.root.kernel.openat2 {
		if fd, err := openat2(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
			return &Directory{d.root, fd, d.path + "/" + name}, nil
		}
	}
	return d.root.OpenDir(d.path + "/" + name)
}

// Close ends it.
func (d *Directory) Close() { unix.Close(d.fd) }

// Read lists the directory, sorted by name. It can be read once.
func (d *Directory) Read() ([]Entry, error) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	var out []Entry
	for {
		part, err := readEntries(d.fd, buf[:])
		if err != nil {
			return nil, fail(readDirectory, d.path, err)
		}
		if part == nil {
			slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
			return out, nil
		}
		if out == nil {
			out = part
		} else {
			out = append(out, part...)
		}
	}
}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadDir lists a directory, sorted by name. What is mounted on it is not listed:
// a mount point is ErrIsMount.
func (r *Root) ReadDir(name string) ([]Entry, error) {
	d, err := r.OpenDir(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Read()
}

// readEntries reads the next part of a directory, nil at its end. The os
// package is of no use here: where a file system gives no types it asks for each
// by a path.
func readEntries(fd int, buf []byte) ([]Entry, error) {
	var n int
	err := retry(func() (err error) { n, err = unix.Getdents(fd, buf); return err })
	if err != nil || n <= 0 {
		return nil, err
	}
	out := make([]Entry, 0, n/32)
	text := string(buf[:n]) // of all names at once
	for at := 0; at < n; {
		// struct linux_dirent64 of getdents(2): ino and off of 8 bytes, reclen of 2,
		// type of 1, then the name up to a NUL.
		size := int(binary.NativeEndian.Uint16(buf[at+16:]))
		name, _, _ := strings.Cut(text[at+19:at+size], "\x00")
		e := Entry{name, typeOf(uint32(buf[at+18]) << 12)} // DTTOIF of <dirent.h>
		at += size
		if name == "." || name == ".." {
			continue
		}
		if e.Type == Unknown {
			info, err := kernel{mountIDs: true}.statAt(fd, name)
			if lookupFailed(err) {
				continue // removed meanwhile
			}
			e.Type = info.Type
		}
		out = append(out, e)
	}
	return out, nil
}

// ReadFile reads a regular file of at most limit bytes.
func (r *Root) ReadFile(name string, limit int64) ([]byte, error) {
	const op = "read"
	s, err := r.slot(op, name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	fd, info, err := s.open(false)
	if err != nil {
		return nil, fail(op, s.path, err)
	}
	defer unix.Close(fd)
	// The type is known before the opening: opening a device can set something off.
	if info.Type != File {
		return nil, refuse(op, s.path, "is a %s, not a regular file", info.Type)
	}
	in, err := reopen(fd)
	if err != nil {
		return nil, fail(op, s.path, err)
	}
	f := os.NewFile(uintptr(in), s.path)
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fail(op, s.path, err)
	}
	if int64(len(data)) > limit {
		return nil, refuse(op, s.path, "is larger than the %d bytes that such a file can have", limit)
	}
	return data, nil
}

// Readlink tells where a symbolic link points to.
func (r *Root) Readlink(name string) (string, error) {
	const op = "read link"
	s, err := r.slot(op, name)
	if err != nil {
		return "", err
	}
	defer s.close()
	fd, info, err := s.open(true)
	if err != nil {
		return "", fail(op, s.path, err)
	}
	defer unix.Close(fd)
	if info.Type != Symlink {
		return "", refuse(op, s.path, "is a %s, not a symbolic link", info.Type)
	}
	target, err := readlinkFD(fd)
	return target, fail(op, s.path, err)
}
