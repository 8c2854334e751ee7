// Package procs finds what processes keep of a directory tree, and which control
// groups have processes: from /proc and /sys alone, where no read waits for a file
// system.
//
// Do not use it to find who has a device: that is host/devices.
package procs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Use is a file or directory that a process keeps.
type Use struct {
	PID  int
	How  string // cwd, root, exe, fd N
	Path string // as /proc shows it: in the mount namespace of the process
}

// Uses tells of every path that a process has open, or as its directory, its root
// or its program; except is left out. Only the links in /proc are read, which the
// kernel makes from what it has in memory. A file that is mapped and no longer open
// does not show: its list is behind a lock that a stuck process keeps.
//
// denied are the processes that a security module lets nobody look at, also not root.
func Uses(ctx context.Context, procRoot string, except map[int]bool, tell func(Use)) (denied int, err error) {
	entries, err := os.ReadDir(procRoot)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || except[pid] {
			continue
		}
		if ctx.Err() != nil {
			return denied, ctx.Err()
		}
		if err := one(filepath.Join(procRoot, e.Name()), pid, tell); err != nil && !ended(err) {
			denied++
		}
	}
	return denied, nil
}

// ended are the errors of a process that has gone, or has no files any more, and of
// a kernel thread, which has no program.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func one(dir string, pid int, tell func(Use)) error {
	link := func(how, name string) error {
		target, err := os.Readlink(filepath.Join(dir, name))
		if err == nil && strings.HasPrefix(target, "/") {
			tell(Use{PID: pid, How: how, Path: target})
		}
		return err
	}
	for _, name := range []string{"cwd", "root", "exe"} {
		if err := link(name, name); err != nil && !ended(err) {
			return err
		}
	}
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	for _, fd := range fds {
		_ = link("fd "+fd.Name(), "fd/"+fd.Name()) // closed meanwhile
	}
	return err
}

// Command is the name of a process, "" where it has ended.
func Command(procRoot string, pid int) string {
	name, _ := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(pid), "comm"))
	return strings.TrimSpace(string(name))
}

// Own says that a process runs this program, in the mount namespace with this link
// text: another kvol, or the helper of one that was killed and has not ended yet. The
// name alone is not enough: a container may have a program with the same path.
func Own(procRoot string, pid int, namespace string) bool {
	mine, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return false
	}
	exe, err := os.Readlink(filepath.Join(procRoot, strconv.Itoa(pid), "exe"))
	return err == nil && exe == mine && MountNamespace(procRoot, pid) == namespace
}

// MountNamespace is the link text of a process's mount namespace, "" where it has
// ended.
func MountNamespace(procRoot string, pid int) string {
	ns, _ := os.Readlink(filepath.Join(procRoot, strconv.Itoa(pid), "ns/mnt"))
	return ns
}

// Cgroups walks the control groups below sysRoot/fs/cgroup: a version 2 tree, those
// of version 1, or both. Where is asked of each by its path, and of one that it
// knows, what it said is told when there is a process in it or below; only what it
// does not know is walked on. ErrNotExist where no control groups are mounted.
func Cgroups(ctx context.Context, sysRoot string, where func(name string) (string, bool), tell func(what, path string)) error {
	known := map[string]bool{} // with processes, in one of the trees
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			path := filepath.Join(dir, e.Name())
			what, ok := where(e.Name())
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case !ok:
				err = walk(path)
			case !known[what]:
				if known[what], err = populated(path); known[what] {
					tell(what, path)
				}
			}
			if err != nil && !gone(err) {
				return err
			}
		}
		return nil
	}
	return walk(filepath.Join(sysRoot, "fs/cgroup"))
}

// gone are the errors of a group that was removed meanwhile.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// populated says whether a process is in a group or below it. The list is not empty
// either where the processes are of a pid namespace that is not ours: it has zeros.
func populated(dir string) (bool, error) {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err == nil && len(procs) > 0 {
		return true, nil
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // a threaded group of version 2: its processes are listed above it
		return false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.IsDir() {
			if found, err := populated(filepath.Join(dir, e.Name())); found || err != nil && !gone(err) {
				return found, err
			}
		}
	}
	return false, nil
}
