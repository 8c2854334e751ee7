package safefs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Root is a directory beneath which things are opened, made and removed by
// name. A name is relative to it or absolute below its path, clean (no empty
// element, ".", ".."), and may hold any other byte; "." is the root itself.
//
// Errors are *api.Error: ErrRefused where a link, a mount or anything but a directory
// is in the way, ErrNotFound (also fs.ErrNotExist), ErrBusy, ErrNotEmpty. The
// system's own error stays in it. A Root is safe for concurrent use; Close ends it.
type Root struct {
	given  string // as the caller named it, perhaps through links
	path   string // resolved
	kind   rootKind
	kernel kernel

	mu      sync.Mutex
	anchors map[string]anchor // "" is the root itself
}

type rootKind int

const (
	layoutRoot rootKind = iota
	volumeRoot
	ownRoot
)

// anchor is an open directory from which names are resolved, and the only
// mount that they may lie on.
type anchor struct {
	fd   int
	mnt  uint64
	path string
}

// Option changes how a Root works.
type Option func(*Root)

// WithoutOpenat2 resolves every name element by element, as on kernels before
// 5.6.
func WithoutOpenat2() Option { return func(r *Root) { r.kernel.openat2 = false } }

// ownMounts are the directories of a layout root that may be mounts themselves:
// nodes have their pods, or the data of their drivers, on a disk of their own.
var ownMounts = []string{"pods", "plugins"}

// OpenLayout opens a kubelet's root directory. The path itself may lead through
// links and is resolved here, once; beneath it none is followed. It must not
// lie on a file system that does not answer. pods and plugins may be made later.
func OpenLayout(root string, opts ...Option) (*Root, error) {
	r, err := openRoot("open root", root, layoutRoot, opts)
	if err != nil {
		return nil, err
	}
	for _, name := range ownMounts {
		if _, err := r.anchor(name); err != nil && !errors.Is(err, unix.ENOENT) {
			r.Close()
			return nil, fail("open root", r.abs(name), err)
		}
	}
	return r, nil
}

// OpenVolume makes the root of a volume from a descriptor of its mount point
// (O_PATH will do), which must be the root of the mount that the mount table
// calls wantMountID. The descriptor stays the caller's. Nothing can be unlinked in
// a volume.
func OpenVolume(mountPoint *os.File, wantMountID uint64, opts ...Option) (*Root, error) {
	const op = "open volume"
	path := mountPoint.Name()
	fd, err := unix.FcntlInt(mountPoint.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fail(op, path, err)
	}
	r, info, err := newRoot(fd, path, path, volumeRoot, opts)
	if err != nil {
		return nil, fail(op, path, err)
	}
	switch {
	case info.Type != Dir:
		err = refuse(op, path, "is a %s, not a directory", info.Type)
	case !info.MountRoot:
		err = refuse(op, path, "is not a mount point")
	case info.MountID != wantMountID:
		err = refuse(op, path, "is mount %d, not the mount %d that was looked for: something was mounted or unmounted here meanwhile",
			info.MountID, wantMountID).WithNext("look again: kvol list-mounts")
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// openRoot opens and resolves a directory by its path.
func openRoot(op, path string, kind rootKind, opts []Option) (*Root, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, &api.Error{Op: op, Path: path, Kind: api.ErrInput, Err: errors.New("is not an absolute path")}
	}
	fd, err := openAbs(path)
	if err != nil {
		return nil, fail(op, path, err)
	}
	resolved, err := resolvedPath(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fail(op, path, err)
	}
	r, _, err := newRoot(fd, strings.TrimRight(path, "/"), resolved, kind, opts)
	if err != nil {
		return nil, fail(op, path, err)
	}
	return r, nil
}

// openAbs opens a directory by an absolute path, following links.
func openAbs(path string) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// resolvedPath asks the kernel for the path of a descriptor, so that the path
// and the descriptor cannot be two different directories.
func resolvedPath(fd int) (string, error) {
	path, err := os.Readlink(fdPath(fd))
	if errors.Is(err, unix.ENOENT) { // not of the directory, which is open
		return "", fmt.Errorf("where it is cannot be asked: is proc mounted on /proc? (%v)", err) //nolint:errorlint // it is not not found
	}
	if err != nil {
		return "", err
	}
	again, err := openAbs(path)
	if err != nil {
		return "", fmt.Errorf("it has no path any more (%s): %w", quote(path), err)
	}
	defer unix.Close(again)
	if same, err := sameThing(fd, again); err != nil || !same {
		return "", errors.Join(fmt.Errorf("it has no path any more (%s)", quote(path)), err)
	}
	return path, nil
}

// newRoot takes over fd.
func newRoot(fd int, given, path string, kind rootKind, opts []Option) (*Root, Info, error) {
	r := &Root{given: given, path: path, kind: kind, kernel: kernel{openat2: true, mountIDs: true}}
	for _, opt := range opts {
		opt(r)
	}
	info, err := r.kernel.stat(fd)
	if err != nil {
		unix.Close(fd)
		return nil, Info{}, err
	}
	r.anchors = map[string]anchor{"": {fd: fd, mnt: info.MountID, path: path}}
	r.kernel.openat2 = r.kernel.openat2 && haveOpenat2(fd)
	return r, info, nil
}

// Path is the resolved absolute path of the root.
func (r *Root) Path() string { return r.path }

// Close closes the root's descriptors.
func (r *Root) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, a := range r.anchors {
		errs = append(errs, unix.Close(a.fd))
	}
	r.anchors = map[string]anchor{}
	return errors.Join(errs...)
}

// anchor gives the open directory of that name, "" being the root.
func (r *Root) anchor(name string) (anchor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.anchors[name]; ok {
		return a, nil
	}
	root, ok := r.anchors[""]
	if !ok {
		return anchor{}, os.ErrClosed
	}
	fd, err := openPath(root.fd, name)
	if err != nil {
		return anchor{}, err
	}
	path := r.abs(name)
	info, err := r.kernel.stat(fd)
	if err == nil && info.Type != Dir {
		err = notDirectory(path, info.Type, fd)
	}
	if err != nil {
		unix.Close(fd)
		return anchor{}, err
	}
	a := anchor{fd: fd, mnt: info.MountID, path: path}
	r.anchors[name] = a
	return a, nil
}

// elements splits a name, and refuses one that is not clean.
func (r *Root) elements(op, name string) ([]string, error) {
	rel, abs := name, strings.HasPrefix(name, "/")
	if abs {
		var ok bool
		if rel, ok = below(r.path, name); !ok {
			if rel, ok = below(r.given, name); !ok {
				return nil, refuse(op, name, "is not below %s", quote(r.path))
			}
		}
	}
	if rel == "." || rel == "" && abs {
		return nil, nil
	}
	elems := strings.Split(rel, "/")
	for _, el := range elems {
		if el == "" || el == "." || el == ".." || strings.ContainsRune(el, 0) {
			return nil, refuse(op, name, "is not a clean path: it has the element %q", el)
		}
	}
	return elems, nil
}

// below cuts a directory off a path that lies at or below it.
func below(dir, path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// abs is the absolute path of a clean relative name.
func (r *Root) abs(elems ...string) string {
	return strings.TrimSuffix(r.path, "/") + "/" + strings.Join(elems, "/")
}

// start chooses the anchor of a name: the elements that it leaves are resolved
// beneath it.
func (r *Root) start(elems []string) (anchor, []string, error) {
	if r.kind == layoutRoot && len(elems) > 0 && slices.Contains(ownMounts, elems[0]) {
		a, err := r.anchor(elems[0])
		return a, elems[1:], err
	}
	a, err := r.anchor("")
	return a, elems, err
}
