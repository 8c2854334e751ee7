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
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Unmount pops one mount off a path of the layout.
type Unmount struct {
	Path  string
	Lazy  bool // MNT_DETACH, the operator's risk
	Force bool // MNT_FORCE, the operator's risk
	// Blind says that what it holds is seen, and may keep it, only once what lies on it
	// is gone: a script would not look, so that there is none.
	Blind  bool
	Reason string
}

func (a Unmount) step() api.Step {
	var args []string
	if a.Lazy {
		args = append(args, "-l")
	}
	if a.Force {
		args = append(args, "-f")
	}
	words := append([]string{"umount"}, args...)
	s := api.Step{
		Action: "unmount", Target: a.Path, Args: args, Reason: a.Reason,
		Shell: fmt.Sprintf("! findmnt -rnM %[1]s >/dev/null || %[2]s -- %[1]s", Quote(a.Path), strings.Join(words, " ")),
	}
	if a.Blind {
		s.Shell = ""
	}
	return s
}

func (a Unmount) done(_ context.Context, r *Runner) (bool, string, error) {
	// The root, pods and plugins are of the layout too and can be mounts of their
	// own, with every volume below them.
	if r.Layout.Parse(a.Path).MountKind() == api.KindOther {
		return false, "", api.Errorf(api.ErrRefused, "it is no path at which the kubelet's layout mounts a volume, so what is mounted there is not kvol's to unmount").At(a.Path).
			WithNext("see what it is: kvol paths %s", Quote(a.Path))
	}
	_, mounted := r.table.Top(a.Path)
	if !mounted && len(r.table.At(a.Path)) > 0 {
		return false, "", api.Errorf(api.ErrRefused, "what is mounted there is hidden under a mount on a directory above it, so that no path leads to it").At(a.Path).
			WithNext("unmount what hides it first: findmnt --target %s", Quote(a.Path))
	}
	if mounted && a.Lazy && len(r.inside(a.Path)) > 0 {
		return false, "", r.unmountBusy(a.Path) // MNT_DETACH would take those too, whosever they are
	}
	return !mounted, "", nil
}

const unmountJob = "unmount"

type unmountArgs struct {
	Name  string
	Flags int
}

// Jobs are what this package lets the helper do: what may hang.
func Jobs() probe.Jobs {
	return probe.Jobs{unmountJob: runUnmount, fsGroupJob: runFSGroup, contentsJob: runContents, outsideJob: runOutside, scrubJob: runScrub, sizeJob: runSize}
}

func runUnmount(raw []byte, files []*os.File) (any, []*os.File, error) {
	var a unmountArgs
	if err := exact.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, unix.EBADF
	}
	return nil, nil, unix.Unmount(fdPath(files[0])+"/"+a.Name, a.Flags|unix.UMOUNT_NOFOLLOW)
}

func (a Unmount) do(ctx context.Context, r *Runner) (string, error) {
	before, err := r.topID(a.Path)
	if err != nil {
		return "", err
	}
	parent, base, err := r.Root.Parent(a.Path)
	if err != nil {
		return "", err
	}
	defer parent.Close()
	flags := 0
	if a.Lazy {
		flags |= unix.MNT_DETACH
	}
	if a.Force {
		flags |= unix.MNT_FORCE
	}
	// The locks go with the job: they are held as long as it may still happen.
	_, err = r.Helper.Call(ctx, unmountJob, unmountArgs{base, flags}, append([]*os.File{parent}, r.locks()...), nil)
	switch {
	case errors.Is(err, unix.EBUSY):
		return "", r.unmountBusy(a.Path)
	case errors.Is(err, api.ErrTimeout):
		return "", api.Errorf(api.ErrUncertain, "the kernel did not end the unmount in time; it may still happen").At(a.Path).
			WithNext("wait for the storage to answer and run the same command again; --force-umount and --lazy are there for storage that never will")
	case err != nil:
		return "", err
	}
	return strconv.FormatUint(before, 10), nil
}

// topID is the id of the mount that lies on a path, which must be the one that
// the table has: what appeared since is not ours to unmount.
func (r *Runner) topID(path string) (uint64, error) {
	info, err := r.Root.Stat(path)
	if err != nil {
		return 0, err
	}
	top, _ := r.table.Top(path)
	if info.MountID == uint64(top.ID) {
		return info.MountID, nil
	}
	if err := r.Reload(); err != nil {
		return 0, err
	}
	if top, _ = r.table.Top(path); info.MountID != uint64(top.ID) {
		return 0, api.Errorf(api.ErrUncertain, "the mounts on this path change while kvol looks at them").At(path).
			WithNext("see who does that: findmnt --poll --mountpoint %s", Quote(path))
	}
	return info.MountID, nil
}

func (r *Runner) unmountBusy(path string) error {
	e := api.Errorf(api.ErrBusy, "the mount is in use, so it was left as it is").At(path).
		WithNext("see who uses it: fuser -vm %s", Quote(path))
	if top, ok := r.table.Top(path); ok {
		if pid := r.Helper.Stuck(top.Device()); pid != 0 {
			e.Details = append(e.Details, fmt.Sprintf("kvol's own look at it still waits for an answer (process %d): its storage does not answer, and that keeps it busy", pid))
			e = e.WithNext("make the storage answer, or end its daemon, and run the same command again; --lazy is there for storage that never will")
		}
	}
	for _, m := range r.inside(path) {
		e.Details = append(e.Details, fmt.Sprintf("%s is mounted inside of it", m.MountPoint))
	}
	return e
}

// inside are the mounts in the directory of a mount.
func (r *Runner) inside(path string) []mounts.Mount {
	return slices.DeleteFunc(r.table.Under(path), func(m mounts.Mount) bool { return m.MountPoint == path })
}

func (a Unmount) verify(_ context.Context, r *Runner, before string) error {
	info, err := r.Root.Stat(a.Path)
	if err != nil {
		return err
	}
	if info.MountRoot && strconv.FormatUint(info.MountID, 10) == before {
		return api.Errorf(api.ErrUncertain, "the unmount ended well and the mount is still there").At(a.Path)
	}
	return nil
}

func (a Unmount) settle(r *Runner, _ Value) {
	if top, ok := r.table.Top(a.Path); ok {
		r.removed(top)
	}
	r.popped[a.Path] = true
	if r.DryRun {
		// What the mount covers cannot be seen through it; a directory that was
		// mounted on is taken to be empty, and rmdir looks again.
		kind := safefs.Dir
		if info, err := r.Root.Stat(a.Path); err == nil && info.Type != safefs.Dir {
			kind = safefs.File
		}
		r.lay(a.Path, Entry{Present: true, Type: kind})
	}
}
