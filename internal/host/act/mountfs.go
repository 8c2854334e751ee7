package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// MountFS mounts a file system that has no device, tmpfs or hugetlbfs, at a path
// below the root. The kernel says beforehand whether it has that file system and
// takes the options; nothing is mounted to find out.
type MountFS struct {
	FSType  string
	Source  string // any word; what is there already is told by its type
	Target  string
	Options []string // of the file system: size=1048576, pagesize=2Mi
	Reason  string
}

func (a MountFS) step() api.Step {
	args := []string{"-t", a.FSType}
	if len(a.Options) > 0 {
		args = append(args, "-o", strings.Join(a.Options, ","))
	}
	words := make([]string, len(args))
	for i, w := range args {
		words[i] = Quote(w)
	}
	return api.Step{
		Action: "mount", Target: a.Target, Args: append(slices.Clone(args), a.Source), Reason: a.Reason,
		Shell: mountShell(a.Target, "findmnt -rnM "+Quote(a.Target)+" -t "+Quote(a.FSType)+" >/dev/null", "ls -A",
			"mount "+strings.Join(words, " ")+" -- "+Quote(a.Source)),
	}
}

func (a MountFS) done(_ context.Context, r *Runner) (bool, string, error) {
	top, mounted := r.table.Top(a.Target)
	if !mounted {
		err := r.holdsNothing(a.Target)
		if err == nil {
			err = kernelTakes(a.FSType, a.Options)
		}
		if errors.Is(err, errNotAsked) {
			err = nil // an old kernel; the mount itself tells
		}
		return false, "", err
	}
	other := func(what string) error {
		return api.Errorf(api.ErrRefused, "%s", what).At(a.Target).WithNext("find out whose it is: kvol inspect %s", Quote(a.Target))
	}
	if top.FSType != a.FSType {
		return false, "", other(fmt.Sprintf("something else is mounted there: %s of %s (%s), not %s", top.Root, top.Source, top.FSType, a.FSType))
	}
	for _, o := range a.Options {
		if key, want, sized := strings.Cut(o, "="); sized && top.ID >= 0 && !sameSize(top.SuperOptions, key, want) {
			return false, "", other(fmt.Sprintf("%s is mounted there with other options (%s) than %s", a.FSType, strings.Join(top.SuperOptions, ","), o))
		}
	}
	return true, "", nil
}

// sameSize says whether a mount has a size option, which the kernel shows in other
// units than it was given in, and rounded up to pages.
func sameSize(options []string, key, want string) bool {
	for _, o := range options {
		if k, is, _ := strings.Cut(o, "="); k == key {
			page := int64(os.Getpagesize())
			return (bytesOf(want)+page-1)/page == (bytesOf(is)+page-1)/page
		}
	}
	return false
}

// bytesOf reads a size as the kernel does (memparse): a number and K, M, G or T; what
// follows ("2Mi") is ignored. -1 is none.
func bytesOf(s string) int64 {
	digits := strings.TrimLeft(s, "0123456789")
	n, err := strconv.ParseInt(strings.TrimSuffix(s, digits), 10, 64)
	if err != nil {
		return -1
	}
	unit := strings.IndexAny("KMGT", strings.ToUpper(digits + " ")[:1])
	return n << (10 * (unit + 1))
}

func (a MountFS) do(_ context.Context, r *Runner) (string, error) {
	target, err := r.Root.Open(a.Target)
	if err != nil {
		return "", err
	}
	defer target.Close()
	err = unix.Mount(a.Source, fdPath(target), a.FSType, 0, strings.Join(a.Options, ","))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return "", api.Errorf(api.ErrNotSupported, "the kernel mounts no %s with the options %q: %w", a.FSType, strings.Join(a.Options, ","), err).
			At(a.Target).WithNext("the kernel says why: dmesg | tail")
	}
	return "", os.NewSyscallError("mount", err)
}

func (a MountFS) verify(_ context.Context, r *Runner, _ string) error {
	if err := r.Reload(); err != nil {
		return err
	}
	if top, ok := r.table.Top(a.Target); !ok || top.FSType != a.FSType {
		return api.Errorf(api.ErrUncertain, "%s was mounted there and %q is", a.FSType, top.FSType).At(a.Target)
	}
	return nil
}

func (a MountFS) settle(r *Runner, _ Value) {
	if !r.DryRun {
		return // verify has read the table anew
	}
	m := planned(a.Target)
	m.FSType, m.Source = a.FSType, a.Source
	r.added(m)
}

// errNotAsked says that the kernel cannot be asked: before Linux 5.2, or under a
// seccomp filter.
var errNotAsked = errors.New("the kernel cannot be asked what its file systems take")

// kernelTakes asks the kernel to prepare a file system that is never mounted. What it
// does not have or take is [api.ErrNotSupported].
func kernelTakes(fsType string, options []string) error {
	fd, err := unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC)
	switch {
	case noSuchCall(err):
		return errNotAsked
	case errors.Is(err, unix.ENODEV):
		return api.Errorf(api.ErrNotSupported, "this kernel has no %s", fsType).WithNext("see what it has: cat /proc/filesystems")
	case err != nil:
		return os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fd)
	for _, o := range options {
		key, value, has := strings.Cut(o, "=")
		if has {
			err = unix.FsconfigSetString(fd, key, value)
		} else {
			err = unix.FsconfigSetFlag(fd, key)
		}
		if err != nil {
			return api.Errorf(api.ErrNotSupported, "this kernel's %s does not take the option %s: %w", fsType, o, err).
				WithNext("for huge pages see what sizes there are: ls /sys/kernel/mm/hugepages")
		}
	}
	return nil
}

// KernelTakes says whether a file system of this kernel takes an option.
func KernelTakes(fsType, option string) bool { return kernelTakes(fsType, []string{option}) == nil }
