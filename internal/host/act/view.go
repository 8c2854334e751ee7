package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Entry is what is at a path below the root, as the runner sees it.
type Entry struct {
	Present bool
	Type    safefs.Type
	Link    string // of a symlink
	Size    int64
	// Mounted says that something is mounted there.
	Mounted bool
}

// String says what it is, in a message.
func (e Entry) String() string {
	switch {
	case !e.Present:
		return "nothing"
	case e.Link != "":
		return fmt.Sprintf("a %s to %q", e.Type, e.Link)
	}
	return "a " + string(e.Type)
}

// overlay is what a dry run would have made of one path.
type overlay = Entry

// Entry looks at a path below the root without following or crossing anything.
func (r *Runner) Entry(path string) (Entry, error) {
	if e, ok := r.over[path]; ok {
		e.Mounted = len(r.table.At(path)) > 0
		return e, nil
	}
	// Below what a dry run made there is nothing yet, nor below what it removed.
	for p := filepath.Dir(path); len(p) > len(r.Layout.Root); p = filepath.Dir(p) {
		if _, ok := r.over[p]; ok {
			return Entry{}, nil
		}
	}
	info, err := r.Root.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Present: true, Type: info.Type, Size: info.Size, Mounted: len(r.table.At(path)) > 0}
	if info.Type == safefs.Symlink {
		if e.Link, err = r.Root.Readlink(path); err != nil {
			return Entry{}, err
		}
	}
	return e, nil
}

// Names lists a directory below the root; none when it is not there.
func (r *Runner) Names(dir string) ([]string, error) {
	e, err := r.Entry(dir)
	if err != nil || !e.Present {
		return nil, err
	}
	var out []string
	if _, made := r.over[dir]; !made {
		entries, err := r.Root.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, en := range entries {
			if o, ok := r.over[filepath.Join(dir, en.Name)]; !ok || o.Present {
				out = append(out, en.Name)
			}
		}
	}
	for name := range r.laid[dir] {
		if r.over[filepath.Join(dir, name)].Present && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Table is the mount table with what the runner did laid over it.
func (r *Runner) Table() *mounts.Table { return r.table }

// Reload reads the mount table anew; a dry run keeps its own.
func (r *Runner) Reload() error {
	if r.DryRun {
		return nil
	}
	t, err := r.Mounts()
	if err != nil {
		return err
	}
	r.table = t
	return nil
}

// PlannedAway says that a dry run has taken away what is really there: the mounts
// on a path, or a loop device.
func (r *Runner) PlannedAway(path string) bool {
	if !r.DryRun {
		return false
	}
	_, touched := r.over[path]
	return touched && len(r.table.At(path)) == 0 || slices.Contains(r.detached, path)
}

// Source is something outside the root that a volume comes from: a local PV's
// directory or device. It is resolved once and used by descriptor.
type Source struct {
	// Path is where it really is, links resolved.
	Path string
	Info safefs.Info
	file *os.File
}

// IsBlock says that the source is a block device.
func (s *Source) IsBlock() bool { return s.Info.Type == safefs.BlockDevice }

// Device is the number of a block device, "7:5".
func (s *Source) Device() string {
	return fmt.Sprintf("%d:%d", unix.Major(s.Info.Rdev), unix.Minor(s.Info.Rdev))
}

// Source resolves a path outside the root once for the whole operation.
func (r *Runner) Source(ctx context.Context, path string) (*Source, error) {
	if s, ok := r.sources[path]; ok {
		return s, nil
	}
	s, err := OpenSource(ctx, r.Helper, path)
	if err == nil {
		r.sources[path] = s
	}
	return s, err
}

// OpenSource resolves a path outside the root, in the helper, since it may lie
// on a mount that hangs.
func OpenSource(ctx context.Context, h *probe.Helper, path string) (*Source, error) {
	f, info, err := h.Open(ctx, path, unix.O_PATH)
	look := "check the path in the spec and that the disk is there: lsblk; ls -ld " + Quote(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, api.Errorf(api.ErrNotFound, "the volume's source is not on this node").At(path).WithNext("%s", look)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return nil, (&api.Error{Kind: api.ErrInput, Err: err}).WithNext("%s", look)
	case err != nil:
		return nil, (&api.Error{Err: err}).WithNext("%s", look)
	}
	real, err := os.Readlink(fdPath(f))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Source{Path: real, Info: info, file: f}, nil
}

// Close lets the source go.
func (s *Source) Close() error { return s.file.Close() }

// place is what a path shows: a directory of one file system.
type place struct {
	major, minor int
	root         string
}

// locate finds what a path shows by the mount that covers it.
func (r *Runner) locate(path string) (place, bool) {
	m, ok := r.covering(path)
	if !ok {
		return place{}, false
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(path, m.MountPoint), "/")
	return place{m.Major, m.Minor, filepath.Join(m.Root, rel)}, true
}

// covering is the mount that a path lies on.
func (r *Runner) covering(path string) (mounts.Mount, bool) {
	return r.table.Covering(path)
}

func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// openSource gives a descriptor of what is to be bound: a mount point below the
// root, or a source outside of it.
func (r *Runner) openSource(ctx context.Context, path string) (*os.File, safefs.Info, error) {
	if !within(path, r.Layout.Root) {
		s, err := r.Source(ctx, path)
		if err != nil {
			return nil, safefs.Info{}, err
		}
		fd, err := unix.FcntlInt(s.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, safefs.Info{}, os.NewSyscallError("fcntl", err)
		}
		return os.NewFile(uintptr(fd), s.Path), s.Info, nil
	}
	f, err := r.openEntry(path)
	if err != nil {
		return nil, safefs.Info{}, err
	}
	info, err := safefs.StatFD(f)
	if err != nil {
		f.Close()
		return nil, safefs.Info{}, err
	}
	return f, info, nil
}

// openEntry opens the thing at a path below the root with O_PATH; where a mount
// lies there, its top, which must be the one of the table.
func (r *Runner) openEntry(path string) (*os.File, error) {
	parent, base, err := r.Root.Parent(path)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	fd, err := unix.Openat(int(parent.Fd()), base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// added puts a new mount on top of its path in the runner's table.
func (r *Runner) added(m mounts.Mount) {
	m.ID = -1 - r.before - len(r.steps) // what a dry run makes has no id in the kernel
	if !r.DryRun {
		if info, err := r.Root.Stat(m.MountPoint); err == nil {
			m.ID = int(info.MountID)
		}
	}
	if on, ok := r.covering(m.MountPoint); ok {
		m.Parent = on.ID
	}
	r.table = &mounts.Table{Mounts: append(slices.Clone(r.table.Mounts), m), Bad: r.table.Bad, Changed: r.table.Changed}
}

// removed takes a mount out of the runner's table.
func (r *Runner) removed(m mounts.Mount) {
	r.table = r.table.Without(m)
}
