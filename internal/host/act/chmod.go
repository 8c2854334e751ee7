package act

import (
	"context"
	"fmt"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Chmod gives a directory below the root its permissions, where another umask or a
// command that was cut short left others.
type Chmod struct {
	Path   string
	Perm   uint32 // 01777; setuid and setgid stay as they are, as with chmod(1)
	Reason string
}

func (a Chmod) step() api.Step {
	return api.Step{
		Action: "chmod", Target: a.Path, Args: []string{fmt.Sprintf("%04o", a.Perm)}, Reason: a.Reason,
		Shell: fmt.Sprintf("chmod %04o %s", a.Perm, Quote(a.Path)),
	}
}

func (a Chmod) done(_ context.Context, r *Runner) (bool, string, error) {
	if r.over[a.Path].Present {
		return true, "", nil // a dry run has made it, as it should be
	}
	info, err := r.dir(a.Path)
	return info.Mode&0o1777 == a.Perm, "", err
}

// dir is what a directory is, which must be one, and no mount point.
func (r *Runner) dir(path string) (safefs.Info, error) {
	info, err := r.Root.Stat(path)
	if err == nil && info.Type != safefs.Dir {
		err = notDir(path, info.Type)
	}
	return info, err
}

func (a Chmod) do(_ context.Context, r *Runner) (string, error) {
	info, err := r.dir(a.Path)
	if err != nil {
		return "", err
	}
	return "", r.Root.Chmod(a.Path, info.Mode&^0o1777|a.Perm)
}

func (a Chmod) verify(_ context.Context, r *Runner, _ string) error {
	info, err := r.dir(a.Path)
	if err == nil && info.Mode&0o1777 != a.Perm {
		err = api.Errorf(api.ErrUncertain, "its mode is %04o after it was made %04o", info.Mode, a.Perm).At(a.Path)
	}
	return err
}

func (a Chmod) settle(*Runner, Value) {}
