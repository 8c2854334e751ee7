package safefs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/paths"
)

// Mkdir makes a directory with exactly perm (01777), whatever the umask. What
// is there already must be a directory, which may be a mount point, and is left as it
// is: created is then false.
func (r *Root) Mkdir(name string, perm uint32) (created bool, err error) {
	const op = "mkdir"
	s, err := r.slot(op, name)
	if err != nil {
		return false, err
	}
	defer s.close()
	withoutUmask(func() { created, err = s.mkdir(perm) })
	return created, fail(op, s.path, err)
}

// MkdirAll makes a directory and those above it that are missing, all with
// perm, and gives the paths that it made, also when it fails.
func (r *Root) MkdirAll(name string, perm uint32) (created []string, err error) {
	const op = "mkdir"
	elems, err := r.elements(op, name)
	if err != nil || len(elems) == 0 {
		return nil, err
	}
	withoutUmask(func() {
		for i := 1; i <= len(elems) && err == nil; i++ {
			var s slot
			if s, err = r.slotOf(elems[:i]); err != nil {
				break
			}
			var made bool
			if made, err = s.mkdir(perm); made {
				created = append(created, s.path)
			}
			s.close()
		}
	})
	return created, fail(op, r.abs(elems...), err)
}

// mkdir is called without a umask.
func (s slot) mkdir(perm uint32) (bool, error) {
	if perm&^0o1777 != 0 {
		return false, fmt.Errorf("mkdir cannot give mode %#o: %w", perm, unix.EINVAL)
	}
	err := retry(func() error { return unix.Mkdirat(s.dir, s.name, perm) })
	if !errors.Is(err, unix.EEXIST) {
		return err == nil, err
	}
	fd, err := openPath(s.dir, s.name)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	info, err := s.k.stat(fd)
	if err != nil || info.Type == Dir || info.Type == Unknown && info.MountRoot {
		return false, err
	}
	return false, notDirectory(s.path, info.Type, fd)
}

// withoutUmask runs f on a thread of its own whose umask is 0. The umask belongs to
// the whole process otherwise, and a chmod after the fact could hit what somebody
// put in the new directory's place. Where a seccomp filter forbids it the umask
// stays: what is made then has less permissions than asked for, never more.
func withoutUmask(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked, so the thread and its umask end with this goroutine.
		runtime.LockOSThread()
		if unix.Unshare(unix.CLONE_FS) == nil {
			unix.Umask(0)
		}
		f()
	}()
	<-done
}

// Rmdir removes an empty directory: ErrNotEmpty, ErrBusy for a mount point. The root
// itself, pods and plugins stay.
//
// A mount on it in another mount namespace does not keep it: the kernel takes
// that mount off (detach_mounts, since Linux 3.18). Who must not do this looks at
// all namespaces before.
func (r *Root) Rmdir(name string) error {
	const op = "rmdir"
	s, err := r.slot(op, name)
	if err != nil {
		return err
	}
	defer s.close()
	if r.kind == layoutRoot && len(s.elems) == 1 && slices.Contains(ownMounts, s.name) {
		return refuse(op, s.path, "is part of every kubelet root and stays")
	}
	err = retry(func() error { return unix.Unlinkat(s.dir, s.name, unix.AT_REMOVEDIR) })
	switch {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST): // rmdir(2): the file system's choice
		err = &obstacle{s.path, "is not empty" + s.sample(), unix.ENOTEMPTY}
	case errors.Is(err, unix.EBUSY):
		if info, serr := s.k.statAt(s.dir, s.name); serr == nil && info.MountRoot {
			err = &obstacle{s.path, ErrIsMount.Error(), errors.Join(err, ErrIsMount)}
		}
	}
	return fail(op, s.path, err)
}

// sample names some of what a directory holds, for a message.
func (s slot) sample() string {
	fd, _, err := s.open(false)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	dir, err := openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(dir)
	entries, err := readEntries(dir, make([]byte, 4<<10))
	if err != nil || len(entries) == 0 {
		return ""
	}
	names := []string{}
	for _, e := range entries[:min(3, len(entries))] {
		names = append(names, fmt.Sprintf("%q", e.Name))
	}
	if len(entries) > len(names) {
		names = append(names, "…")
	}
	return ", it holds " + strings.Join(names, ", ")
}

// Symlink makes a symbolic link with any target. What is there already is not
// replaced (ErrRefused, fs.ErrExist).
func (r *Root) Symlink(target, name string) error {
	const op = "symlink"
	s, err := r.slot(op, name)
	if err != nil {
		return err
	}
	defer s.close()
	return fail(op, s.path, retry(func() error { return unix.Symlinkat(target, s.dir, s.name) }))
}

// CreateEmpty makes an empty file with exactly perm, for a bind mount. What is
// there already is not touched (ErrRefused, fs.ErrExist).
func (r *Root) CreateEmpty(name string, perm uint32) error {
	const op = "create"
	s, err := r.slot(op, name)
	if err != nil {
		return err
	}
	defer s.close()
	f, err := s.create(s.name, perm)
	if err != nil {
		return fail(op, s.path, err)
	}
	return fail(op, s.path, f.Close())
}

// create makes a new file in the slot's directory.
func (s slot) create(name string, perm uint32) (*os.File, error) {
	fd, err := openat(s.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Fchmod(fd, perm); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), s.path), nil
}

// WriteFile writes a file whole or not at all: under a temporary name, synced,
// renamed, the directory synced. In a layout root it writes only the metadata that
// kvol itself keeps there (VolData, ISCSIData, ReadyMarker); in a volume it replaces nothing.
func (r *Root) WriteFile(name string, data []byte, perm uint32) error {
	const op = "write"
	s, err := r.slot(op, name)
	if err != nil {
		return err
	}
	defer s.close()
	if r.kind == layoutRoot && !slices.Contains(writable, metaAt(paths.Layout{Root: r.path}, s.path)) {
		return refuse(op, s.path, "is not the place of any file that kvol writes")
	}
	if r.kind != volumeRoot {
		switch info, err := s.k.statAt(s.dir, s.name); {
		case err != nil: // nothing there, or the writing says it
		case info.MountID != s.mnt:
			return fail(op, s.path, &obstacle{s.path, ErrIsMount.Error(), ErrIsMount})
		case info.Type != File:
			return refuse(op, s.path, "is a %s, not a regular file, and is not replaced", info.Type)
		}
	}
	return fail(op, s.path, r.writeTemp(s, data, perm))
}

// writeTemp writes the temporary file and lets it take its place. What it
// could not finish it removes again.
func (r *Root) writeTemp(s slot, data []byte, perm uint32) error {
	temp := s
	temp.name = tempName(s.name)
	temp.path = s.path[:len(s.path)-len(s.name)] + temp.name
	f, err := temp.create(temp.name, perm)
	if errors.Is(err, unix.EEXIST) {
		if err = temp.unlinkFile(); err == nil {
			f, err = temp.create(temp.name, perm)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.takePlace(temp.name, r.kind != volumeRoot)
	}
	if err != nil {
		return errors.Join(err, temp.unlink())
	}
	return s.syncDir()
}

func (s slot) takePlace(temp string, replace bool) error {
	var flags uint
	if !replace {
		flags = unix.RENAME_NOREPLACE
	}
	return retry(func() error { return unix.Renameat2(s.dir, temp, s.dir, s.name, flags) })
}

func (s slot) syncDir() error {
	dir, err := openat(s.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return retry(func() error { return unix.Fsync(dir) })
}

// unlinkFile unlinks a regular file and nothing else.
func (s slot) unlinkFile() error {
	fd, info, err := s.open(true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if info.Type != File {
		return refuse("unlink", s.path, "is a %s, not a regular file", info.Type)
	}
	return s.unlink()
}

// Chown gives a thing an owner and a group, -1 for neither. A symbolic link is
// refused.
func (r *Root) Chown(name string, uid, gid int) error {
	return r.byDescriptor("chown", name, func(fd int) error {
		return unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH)
	})
}

// Chmod gives a thing a mode (07777). A symbolic link is refused.
func (r *Root) Chmod(name string, mode uint32) error {
	// fchmod(2) takes no O_PATH descriptor; its name in /proc leads to the same inode.
	return r.byDescriptor("chmod", name, func(fd int) error { return unix.Chmod(fdPath(fd), mode) })
}

func (r *Root) byDescriptor(op, name string, change func(fd int) error) error {
	f, err := r.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return fail(op, f.Name(), retry(func() error { return change(int(f.Fd())) }))
}
