package safefs

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
)

// MoveOut takes the directory of a pod's volume out of a layout root, with all that
// is in it, by one rename into a directory outside, as the first name of "as", "as.1",
// "as.2"… that is free there. It gives that name.
//
// The directory outside (O_PATH will do) must be on the same mount: a rename crosses
// none, and a copy could be cut short. It must be the caller's own and closed to
// others, since the pods' directory closes what is in a volume off from them.
func (r *Root) MoveOut(name string, to *os.File, as string) (moved string, err error) {
	const op = "move"
	s, err := r.slot(op, name)
	if err != nil {
		return "", err
	}
	defer s.close()
	if at := (paths.Layout{Root: r.path}).Parse(s.path); r.kind != layoutRoot || at.Kind != paths.PodVolume || at.Rest != "" {
		return "", refuse(op, s.path, "is not the directory of a pod's volume")
	}
	fd, info, err := s.open(false)
	if err != nil {
		return "", fail(op, s.path, err)
	}
	defer unix.Close(fd)
	if info.Type != Dir {
		return "", fail(op, s.path, notDirectory(s.path, info.Type, fd))
	}
	if err := s.mayReceive(r, to); err != nil {
		return "", err
	}
	for n := 0; ; n++ {
		moved = as
		if n > 0 {
			moved += "." + strconv.Itoa(n)
		}
		err = retry(func() error { return unix.Renameat2(s.dir, s.name, int(to.Fd()), moved, unix.RENAME_NOREPLACE) })
		if !errors.Is(err, unix.EEXIST) || n == tries {
			break
		}
	}
	if err != nil {
		return "", fail(op, s.path, err)
	}
	return moved, s.arrived(info, to, moved)
}

// CheckMoveOut refuses a directory that [Root.MoveOut] would refuse to move to.
func (r *Root) CheckMoveOut(name string, to *os.File) error {
	s, err := r.slot("move", name)
	if err != nil {
		return err
	}
	defer s.close()
	return s.mayReceive(r, to)
}

func (s slot) mayReceive(r *Root, to *os.File) error {
	const op = "move"
	info, err := s.k.stat(int(to.Fd()))
	if err != nil {
		return fail(op, to.Name(), err)
	}
	real, err := os.Readlink(fdPath(int(to.Fd())))
	if err != nil {
		return fail(op, to.Name(), err)
	}
	_, inside := below(r.path, real)
	switch {
	case info.Type != Dir:
		return refuse(op, to.Name(), "is a %s, not a directory", info.Type)
	case inside:
		return refuse(op, to.Name(), "lies in the kubelet's root directory %s", quote(r.path)).
			WithNext("name a directory outside of it: --quarantine DIR")
	case info.MountID != s.mnt:
		return fail(op, to.Name(), &obstacle{to.Name(), "is on another mount than " + quote(s.path) + ", and a rename crosses none", unix.EXDEV})
	case int(info.UID) != os.Geteuid() || info.Mode&0o007 != 0:
		return refuse(op, to.Name(), "others could read in it what the pods' directory closes off from them (user %d, mode %#o)", info.UID, info.Mode).
			WithNext("make one for this: mkdir -m 0700 DIR")
	}
	return nil
}

// arrived says whether what was renamed is what was looked at, and has both
// directories written to the disk.
func (s slot) arrived(was Info, to *os.File, moved string) error {
	const op = "move"
	is, err := s.k.statAt(int(to.Fd()), moved)
	if err != nil {
		return fail(op, to.Name()+"/"+moved, err)
	}
	if is.Ino != was.Ino || is.Dev != was.Dev {
		return &api.Error{Op: op, Path: s.path, Kind: api.ErrUncertain,
			Err: fmt.Errorf("another directory was put there meanwhile, and that one is at %s now", quote(to.Name()+"/"+moved))}
	}
	there := slot{dir: int(to.Fd())}
	return fail(op, s.path, errors.Join(there.syncDir(), s.syncDir()))
}
