package kubelet

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Dir says which directory is meant by a path, whatever it is called and wherever
// from it is seen.
type Dir struct{ Dev, Ino uint64 }

// Jobs are this package's for the helper process.
func Jobs() probe.Jobs { return probe.Jobs{"open in root": openJob} }

// Resolve gives the directory that the process with this directory in /proc means by
// a path: links lead where they lead from its root. It asks the helper, since the file
// system may not answer.
func Resolve(ctx context.Context, helper *probe.Helper, proc, path string) (Dir, error) {
	root, err := os.OpenFile(proc+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return Dir{}, err
	}
	defer root.Close()
	files, err := helper.Call(ctx, "open in root", path, []*os.File{root}, nil)
	if err != nil {
		return Dir{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer files[0].Close()
	info, err := safefs.StatFD(files[0])
	return Dir{info.Dev, info.Ino}, err
}

func openJob(args []byte, files []*os.File) (any, []*os.File, error) {
	var path string
	if err := exact.Unmarshal(args, &path); err != nil {
		return nil, nil, err
	}
	f, err := openIn(files[0], path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, nil, err
	}
	return nil, []*os.File{f}, nil
}

// openIn opens a path as a process with this root directory would.
func openIn(root *os.File, path string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(int(root.Fd()), path, &how)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
