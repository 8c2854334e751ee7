package exec

import (
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// View is how another process sees the machine, held open: it stays when the process
// ends.
type View struct {
	mount, root *os.File
	host        *os.File // the namespace of its host name, nil where it is ours
}

// OpenView opens the view of a process, by its directory and by ours in /proc.
func OpenView(proc, self string) (*View, error) {
	v := &View{}
	theirs, err := os.Readlink(proc + "/ns/uts")
	ours, _ := os.Readlink(self + "/ns/uts")
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		to    **os.File
		name  string
		flags int
	}{
		{&v.mount, "ns/mnt", unix.O_RDONLY}, {&v.host, "ns/uts", unix.O_RDONLY}, {&v.root, "root", unix.O_PATH | unix.O_DIRECTORY},
	} {
		if part.to == &v.host && theirs == ours {
			continue // so that no right is needed to go there
		}
		fd, err := unix.Open(proc+"/"+part.name, part.flags|unix.O_CLOEXEC, 0)
		if err != nil {
			v.Close()
			return nil, &os.PathError{Op: "open", Path: proc + "/" + part.name, Err: err}
		}
		*part.to = os.NewFile(uintptr(fd), proc+"/"+part.name)
	}
	return v, nil
}

// Close lets go of the view.
func (v *View) Close() {
	for _, f := range []*os.File{v.mount, v.host, v.root} {
		if f != nil {
			f.Close()
		}
	}
}

// Become starts this program again, as the same process, where the view is: in its
// mount namespace (and that of its host name), below its root directory. The program
// is the file that runs now, which need not be there. keep are the descriptors that
// it gets, under their numbers. It returns only when that fails.
func (v *View) Become(args, env []string, keep ...*os.File) error {
	// All of kvol asks /proc about itself, and a namespace of processes that we are
	// not in has a /proc without us.
	if _, err := readlinkat(v.root, "proc/self"); err != nil {
		return api.Errorf(api.ErrRefused, "its /proc does not have this process: it has process ids of its own, or none is mounted there").
			WithNext("work in this mount namespace, or have a /proc mounted there that shows all processes")
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	for _, f := range append(keep, self) {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	// The thread that calls execve becomes the process. One that shares its root and
	// working directory with others cannot change its mount namespace. It is not
	// given back where that fails half way: a thread that ends locked is destroyed.
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- v.become(fmt.Sprintf("/proc/self/fd/%d", self.Fd()), args, env)
	}()
	return <-failed
}

func (v *View) become(program string, args, env []string) error {
	type step struct {
		name string
		do   func() error
	}
	steps := []step{
		{"unshare", func() error { return unix.Unshare(unix.CLONE_FS) }},
		{"setns", func() error { return unix.Setns(int(v.mount.Fd()), unix.CLONE_NEWNS) }},
		// setns has put us at the root of the namespace, and the process may be in a
		// chroot of that.
		{"chdir", func() error { return unix.Fchdir(int(v.root.Fd())) }},
		{"chroot", func() error { return unix.Chroot(".") }},
		{"exec", func() error { return unix.Exec(program, args, env) }},
	}
	if v.host != nil {
		steps = slices.Insert(steps, 0, step{"setns", func() error { return unix.Setns(int(v.host.Fd()), unix.CLONE_NEWUTS) }})
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return os.NewSyscallError(step.name, err)
		}
	}
	return nil
}

func readlinkat(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	return string(buf[:max(n, 0)]), err
}
