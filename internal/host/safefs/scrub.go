package safefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Scrub deletes all that is in a directory, which stays: the only recursive delete of
// kvol, for recycle and delete, whose purpose it is. It runs in the helper, whose
// caller has proven before that nobody uses the directory. The path is for messages.
//
// The directory is the one of the descriptor, whatever its path leads to by now. From
// there every step is one name in one open directory: a link is removed and never
// followed; a directory is entered by the descriptor that was looked at, and only on
// the mount of the first one, told by mount ids; and it is left by "..", which must
// lead to where it was entered from. A mount in the way ends it (also one of the same
// file system, and one that appears meanwhile), as does a directory that was moved
// while it was worked in. Killed at any point, the next run goes on.
func Scrub(dir *os.File, path string) (Contents, error) {
	s := scrubber{k: kernel{openat2: haveOpenat2(int(dir.Fd())), mountIDs: true}, top: path}
	err := s.run(int(dir.Fd()))
	return s.done, err
}

type scrubber struct {
	k    kernel
	top  string // for messages
	mnt  uint64
	done Contents
	cur  int // the open directory
	// stack are the directories from the first to cur.
	stack []scrubbed
}

type scrubbed struct {
	name     string
	ino, dev uint64
	left     []string // directories in it that are still to be entered
	rounds   int
}

func (s *scrubber) run(dir int) error {
	info, err := s.k.stat(dir)
	if err != nil {
		return fail("delete", s.top, err)
	}
	if info.Type != Dir {
		return fail("delete", s.top, notDirectory(s.top, info.Type, dir))
	}
	if s.cur, err = readable(dir); err != nil {
		return fail("delete", s.top, err)
	}
	defer func() { unix.Close(s.cur) }()
	s.mnt = info.MountID
	s.stack = []scrubbed{{ino: info.Ino, dev: info.Dev}}
	for len(s.stack) > 0 && err == nil {
		err = s.step()
	}
	return err
}

// readable opens an O_PATH directory for reading its names.
func readable(dir int) (int, error) { return openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0) }

// step enters the next directory, or deletes some of what is in this one, or leaves it.
func (s *scrubber) step() error {
	in := &s.stack[len(s.stack)-1]
	if n := len(in.left); n > 0 {
		name := in.left[n-1]
		in.left = in.left[:n-1]
		return s.enter(name)
	}
	if err := s.inPlace(); err != nil {
		return err
	}
	if in.rounds++; in.rounds > tries {
		return s.fail("", api.Errorf(api.ErrBusy, "something fills it again as fast as it is emptied").WithNext("end what writes there, then run the same command again"))
	}
	if _, err := unix.Seek(s.cur, 0, unix.SEEK_SET); err != nil {
		return s.fail("", err)
	}
	empty := true
	for buf := make([]byte, 32<<10); ; {
		part, err := readEntries(s.cur, buf)
		if err != nil {
			return s.fail("", err)
		}
		if part == nil {
			break
		}
		for _, e := range part {
			empty = false
			if err := s.drop(e.Name); err != nil {
				return err
			}
		}
	}
	if empty {
		return s.leave()
	}
	return nil
}

// inPlace wants the directory to be where it was entered, before anything in it goes.
func (s *scrubber) inPlace() error {
	n := len(s.stack)
	if n == 1 {
		return nil
	}
	up, err := s.k.statAt(s.cur, "..")
	if err == nil && (up.Ino != s.stack[n-2].ino || up.Dev != s.stack[n-2].dev) {
		err = errMoved
	}
	return s.fail("", err)
}

var errMoved = fmt.Errorf("it was moved meanwhile: %w", unix.EXDEV)

// drop deletes what is no directory, and remembers what is one.
func (s *scrubber) drop(name string) error {
	at := slot{dir: s.cur, name: name, mnt: s.mnt, k: s.k}
	fd, info, err := at.open(true)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return s.fail(name, err)
	}
	unix.Close(fd)
	if info.Type == Dir {
		in := &s.stack[len(s.stack)-1]
		in.left = append(in.left, name)
		return nil
	}
	switch err := at.unlink(); {
	case err == nil:
		s.done.Entries++
		if info.Type == File {
			s.done.Bytes += info.Size
		}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EISDIR):
		// Something else has its name by now; the next look tells.
	default:
		return s.fail(name, err)
	}
	return nil
}

// enter goes into a directory. What has its name by now and is none is left to the
// next look.
func (s *scrubber) enter(name string) error {
	at := slot{dir: s.cur, name: name, mnt: s.mnt, k: s.k}
	fd, info, err := at.open(false)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return s.fail(name, err)
	}
	defer unix.Close(fd)
	if info.Type != Dir {
		return nil
	}
	next, err := readable(fd)
	if err != nil {
		return s.fail(name, err)
	}
	unix.Close(s.cur)
	s.cur = next
	s.stack = append(s.stack, scrubbed{name: name, ino: info.Ino, dev: info.Dev})
	return nil
}

// leave goes back to where the empty directory was entered from, and removes it.
func (s *scrubber) leave() error {
	n := len(s.stack)
	if n == 1 {
		s.stack = nil
		return nil
	}
	up, err := openat(s.cur, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return s.fail("", err)
	}
	info, err := s.k.stat(up)
	if err == nil && (info.Ino != s.stack[n-2].ino || info.Dev != s.stack[n-2].dev || info.MountID != s.mnt) {
		err = errMoved
	}
	if err != nil {
		unix.Close(up)
		return s.fail("", err)
	}
	name := s.stack[n-1].name
	unix.Close(s.cur)
	s.cur, s.stack = up, s.stack[:n-1]
	err = retry(func() error { return unix.Unlinkat(s.cur, name, unix.AT_REMOVEDIR) })
	switch {
	case err == nil:
		s.done.Entries++
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTDIR):
		// Written to, or replaced, meanwhile.
	default:
		return s.fail(name, err)
	}
	return nil
}

// fail names the place of a failure.
func (s *scrubber) fail(name string, err error) error {
	if err == nil {
		return nil
	}
	path := s.top
	for _, in := range slices.Concat(s.stack, []scrubbed{{name: name}}) {
		path = filepath.Join(path, in.name)
	}
	if ob, ok := errors.AsType[*obstacle](err); ok {
		err = &obstacle{path, ob.what, ob.err}
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.At(path)
	}
	return fail("delete", path, err)
}

// RemoveScrubbed removes a directory that was scrubbed, or a file, from the open
// directory that it lies in, if what has its name there is that very thing.
func RemoveScrubbed(parent *os.File, name string, thing *os.File) error {
	path := filepath.Join(parent.Name(), name)
	was, err := StatFD(thing)
	if err != nil {
		return err
	}
	k := kernel{mountIDs: true}
	is, err := k.statAt(int(parent.Fd()), name)
	if err != nil {
		return fail("delete", path, err)
	}
	if is.Ino != was.Ino || is.Dev != was.Dev || is.MountID != was.MountID {
		return refuse("delete", path, "something else has its name by now")
	}
	flags := 0
	switch was.Type {
	case Dir:
		flags = unix.AT_REMOVEDIR
	case File:
	default:
		return refuse("delete", path, "is a %s, not a directory or a regular file", was.Type)
	}
	return fail("delete", path, retry(func() error { return unix.Unlinkat(int(parent.Fd()), name, flags) }))
}
