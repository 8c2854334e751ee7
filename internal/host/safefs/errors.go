package safefs

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// ErrIsMount says that the named thing itself is a mount point, so that what is
// there belongs to another mount: [Root.OpenMount], [Root.Stat] and [Root.Parent] are for those.
var ErrIsMount = errors.New("is a mount point")

// obstacle is one element of a name that is not what it must be.
type obstacle struct {
	path string // absolute path of the element
	what string // "is a symbolic link to …"
	err  error  // the system's error, ErrIsMount or both
}

func (o *obstacle) Error() string { return strings.TrimPrefix(quote(o.path)+" "+o.what, " ") }
func (o *obstacle) Unwrap() error { return o.err }

// faults is what the system's answers mean here. Next is a format for the path.
var faults = []struct {
	err  error
	kind error
	says string // instead of the system's words
	next string
}{
	{unix.ENOENT, api.ErrNotFound, "", ""},
	{unix.ELOOP, api.ErrRefused, "a symbolic link is in the way",
		"no link is followed here; look at it with: namei -l %s"},
	{unix.EXDEV, api.ErrRefused, "a mount is in the way",
		"no mount is entered here; see which it is: findmnt --target %s"},
	{unix.EBUSY, api.ErrBusy, "is busy: a mount point, or in use by the kernel", "see what is mounted on it: kvol inspect %s"},
	{ErrIsMount, api.ErrRefused, "", "see what is mounted on it: kvol inspect %s"},
	{unix.ENOTDIR, api.ErrRefused, "something that is not a directory is in the way",
		"look at it with: namei -l %s"},
	{unix.EEXIST, api.ErrRefused, "is there already and is not replaced", "look at it with: ls -ld %s"},
	{unix.ENOTEMPTY, api.ErrNotEmpty, "the directory is not empty",
		"no data is deleted; look at what is in it with: ls -la %s"},
	{unix.EROFS, nil, "", "see its mount options (findmnt --target %s) and what the kernel says of it (dmesg | tail)"},
	{unix.ENOSPC, nil, "", "make room on its file system; how full it is: df %[1]s; df -i %[1]s"},
	{unix.EDQUOT, nil, "", "make room in the quota of its user, or raise it (findmnt --target %s tells the file system)"},
	{unix.EACCES, nil, "", "run it as root; who may do it: namei -l %s"},
	{unix.EPERM, nil, "", "run it as root, and look for the immutable flag with: lsattr -d %s"},
}

// fail makes the error of an operation on a path: the kind and the next step
// follow from the cause, which stays in it for errors.Is.
func fail(op, path string, cause error) error {
	var done *api.Error
	if cause == nil || errors.As(cause, &done) {
		return cause
	}
	e := &api.Error{Op: op, Path: path, Err: cause}
	var ob *obstacle
	named := errors.As(cause, &ob)
	if named && ob.path == path {
		e.Err = &obstacle{"", ob.what, ob.err} // the path is in the message already
	}
	for _, f := range faults {
		if !errors.Is(cause, f.err) {
			continue
		}
		e.Kind = f.kind
		if f.says != "" && !named {
			e.Err = fmt.Errorf("%s: %w", f.says, cause)
		}
		if f.next != "" {
			e.Next = fmt.Sprintf(f.next, api.Quote(path))
		}
		break
	}
	return e
}

// refuse is a refusal that this package itself decides.
func refuse(op, path, format string, args ...any) *api.Error {
	e := api.Errorf(api.ErrRefused, format, args...).At(path).WithNext("look at it with: ls -ld %s", api.Quote(path))
	e.Op = op
	return e
}

// quote shows a name on one line and as it is where that is possible.
func quote(s string) string {
	if q := fmt.Sprintf("%q", s); q != `"`+s+`"` {
		return q
	}
	return s
}
