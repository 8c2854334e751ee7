package act

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/format"
	"github.com/kvol/kvol/internal/host/safefs"
)

// GrowFS grows the mounted file system of a device to the size of the device.
type GrowFS struct {
	Device string
	Path   string // where it is mounted, below the root
	FSType string
}

func (a GrowFS) step() api.Step {
	p, dev := Quote(a.Path), Quote(a.Device)
	shell := map[string]string{
		"ext3": "resize2fs " + dev, "ext4": "resize2fs " + dev, "xfs": "xfs_growfs -d " + p, "btrfs": "btrfs filesystem resize max " + p,
	}[a.FSType]
	if shell != "" {
		shell = fmt.Sprintf("findmnt -rnM %s -S %s >/dev/null || { echo %s >&2; exit 4; }\n%s", p, dev, Quote("refused, it is not mounted there any more: "+a.Device), shell)
	}
	return api.Step{Action: "grow", Target: a.Path, Args: []string{a.Device, a.FSType}, Reason: "the device is larger than its file system", Shell: shell}
}

func (a GrowFS) done(ctx context.Context, r *Runner) (bool, string, error) {
	mount, err := a.open(ctx, r)
	if err != nil {
		return false, "", err
	}
	defer mount.Close()
	more, err := format.CanGrow(ctx, r.formatEnv(), a.Device, a.FSType, mount)
	return more == 0, "", err
}

// open opens the mount, which must be the device's and take writes.
func (a GrowFS) open(ctx context.Context, r *Runner) (*os.File, error) {
	top, mounted := r.table.Top(a.Path)
	if !mounted {
		return nil, api.Errorf(api.ErrNotMounted, "nothing is mounted there, and a file system grows while it is mounted").At(a.Path)
	}
	same, err := r.Shows(ctx, top, a.Device)
	switch {
	case err != nil:
		return nil, err
	case !same:
		return nil, api.Errorf(api.ErrRefused, "something else is mounted there: %s (%s), not %s", top.Source, top.FSType, a.Device).At(a.Path).
			WithNext("find out whose it is: kvol inspect %s", Quote(a.Path))
	case top.ReadOnly() || top.SuperReadOnly():
		return nil, api.Errorf(api.ErrRefused, "it is mounted read-only, and a file system grows while it can be written").At(a.Path).
			WithNext("see how it is mounted, and by whom: kvol inspect %s", Quote(a.Path))
	}
	f, _, err := r.Root.OpenMount(a.Path)
	return f, err
}

func (a GrowFS) do(ctx context.Context, r *Runner) (string, error) {
	mount, err := a.open(ctx, r)
	if err != nil {
		return "", err
	}
	defer mount.Close()
	return "", format.Grow(ctx, r.formatEnv(), a.Device, a.FSType, mount)
}

func (a GrowFS) verify(context.Context, *Runner, string) error { return nil } // format.Grow measures it
func (a GrowFS) settle(*Runner, Value)                         {}

const sizeJob = "fssize"

// FSSize is how large the file system is that is mounted at a path, as df tells it.
func (r *Runner) FSSize(ctx context.Context, path string) (int64, error) {
	f, err := r.openEntry(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var size int64
	_, err = r.Helper.Call(ctx, sizeJob, nil, []*os.File{f}, &size)
	return size, err
}

func runSize(_ []byte, files []*os.File) (any, []*os.File, error) {
	if len(files) == 0 {
		return nil, nil, errors.New("no file system")
	}
	size, err := safefs.FileSystemSize(files[0])
	return size, nil, err
}
