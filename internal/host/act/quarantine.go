package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// Quarantine moves the directory of a pod's volume, with all that is in it, to a
// directory outside of the root on the same mount: what is somebody's data leaves the
// way without being lost. The value is where it is then; its name there tells the pod,
// the plugin and the volume, and nothing that is there is replaced.
type Quarantine struct {
	Path   string // the volume's directory in the pod
	Dir    string // the operator's
	Reason string
}

func (a Quarantine) step() api.Step {
	return api.Step{Action: "quarantine", Target: a.Path, Args: []string{a.Dir}, Reason: a.Reason, Shell: a.shell()}
}

// shell moves within one mount only: across two, mv copies and deletes.
func (a Quarantine) shell() string {
	from, dir := Quote(a.Path), Quote(a.Dir)
	stop := func(why string) string { return "{ echo " + Quote("refused, "+why+": "+a.Path) + " >&2; exit 4; }" }
	return fmt.Sprintf("if [ -d %[1]s ]; then\n"+
		"  ! grep -qF -- %[2]s /proc/self/mountinfo || %[3]s\n"+
		"  [ \"$(findmnt -no ID --target %[1]s)\" = \"$(findmnt -no ID --target %[4]s)\" ] || %[5]s\n"+
		"  N=0; TO=%[6]s; while [ -e \"$TO\" ] || [ -L \"$TO\" ]; do N=$((N+1)); TO=%[6]s.$N; done\n"+
		"  mv -nT -- %[1]s \"$TO\"\n"+
		"fi", from, Quote(" "+a.Path+"/"), stop("something is mounted in it"), dir, stop("it is on another mount"), Quote(a.to()))
}

// to is the place, unless its name is taken.
func (a Quarantine) to() string { return filepath.Join(a.Dir, a.name()) }

// name is of three elements that hold no "_" but for the last.
func (a Quarantine) name() string {
	plugin := filepath.Dir(a.Path)
	pod := filepath.Dir(filepath.Dir(plugin))
	return filepath.Base(pod) + "_" + filepath.Base(plugin) + "_" + filepath.Base(a.Path)
}

// irreversible: the journal tells where the data went, whatever happens next.
func (a Quarantine) irreversible() bool { return true }

func (a Quarantine) done(ctx context.Context, r *Runner) (bool, string, error) {
	e, err := r.Entry(a.Path)
	if err != nil || !e.Present {
		return err == nil, "", err
	}
	if at := r.Layout.Parse(a.Path); at.Kind != paths.PodVolume || at.Rest != "" {
		return false, "", api.Errorf(api.ErrRefused, "is not the directory of a pod's volume, and only such are moved away").At(a.Path).
			WithNext("see what it is: kvol paths %s", Quote(a.Path))
	}
	if e.Type != safefs.Dir {
		return false, "", notDir(a.Path, e.Type)
	}
	if within := r.table.Under(a.Path); len(within) > 0 {
		err := api.Errorf(api.ErrBusy, "something is mounted there, and would be moved with it").At(a.Path).
			WithNext("find out whose it is: kvol inspect %s", Quote(within[0].MountPoint))
		for _, m := range within {
			err.Details = append(err.Details, m.MountPoint+" is a mount of "+m.Source)
		}
		return false, "", err
	}
	if err := r.notElsewhere(a.Path); err != nil {
		return false, "", err
	}
	dir, err := a.open(ctx, r)
	if err != nil {
		return false, "", err
	}
	defer dir.Close()
	if r.over[a.Path].Present {
		return false, "", nil
	}
	return false, "", r.Root.CheckMoveOut(a.Path, dir)
}

// open opens the operator's directory in the helper: it may lie on a file system
// that does not answer.
func (a Quarantine) open(ctx context.Context, r *Runner) (*os.File, error) {
	if !filepath.IsAbs(a.Dir) {
		return nil, api.Errorf(api.ErrUsage, "the directory for what is moved away, %q, is not an absolute path", a.Dir).
			WithNext("give it from the root of the file system on: --quarantine /DIR")
	}
	dir := filepath.Clean(a.Dir)
	f, info, err := r.Helper.Open(ctx, dir, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, api.Errorf(api.ErrNotFound, "the directory for what is moved away is not there").At(dir).
			WithNext("make it: mkdir -m 0700 %s", Quote(dir))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Type != safefs.Dir {
		return nil, api.Errorf(api.ErrRefused, "is a %s, not a directory to move data to", info.Type).At(dir).
			WithNext("name the directory itself")
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), dir), nil // by its name, for messages
}

func (a Quarantine) do(ctx context.Context, r *Runner) (string, error) {
	dir, err := a.open(ctx, r)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	name, err := r.Root.MoveOut(a.Path, dir, a.name())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.Join(dir.Name(), name), err
}

func (a Quarantine) verify(_ context.Context, r *Runner, _ string) error {
	return r.expect(a.Path, Entry{})
}

func (a Quarantine) settle(r *Runner, _ Value) { r.lay(a.Path, Entry{}) }
