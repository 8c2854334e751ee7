package act

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/format"
)

// LoopAttach puts a loop device over a file below the root; over the bind of a
// block device it is the open-handle lock of raw block volumes, which keeps the
// kernel from giving the device's name to another disk.
type LoopAttach struct {
	Backing string
	Reason  string
}

func (a LoopAttach) step() api.Step {
	return api.Step{
		Action: "loopAttach", Target: a.Backing, Reason: a.Reason,
		Shell: loopFind(refMark, a.Backing) + fmt.Sprintf("\n[ -n \"$%[1]s\" ] || %[1]s=$(losetup -f --show -- %[2]s)", refMark, Quote(a.Backing)),
	}
}

// loopFind looks a loop device up by the path that it was set up over, as the
// kubelet does; losetup -j asks for the inode, which the maps of all pods share.
func loopFind(variable, backing string) string {
	return fmt.Sprintf("%[1]s=$(%[2]s | head -n 1 || :)\n%[1]s=${%[1]s:+/dev/$%[1]s}", variable, loopGrep(backing))
}

// loopGrep prints the names of the loop devices over a path.
func loopGrep(backing string) string {
	return fmt.Sprintf("grep -lxF -e %s -e %s /sys/block/loop*/loop/backing_file 2>/dev/null | cut -d/ -f4", Quote(backing), Quote(backing+" (deleted)"))
}

func (a LoopAttach) makesValue() bool { return true }

func (a LoopAttach) done(_ context.Context, r *Runner) (bool, string, error) {
	path, err := r.loopOf(a.Backing)
	return path != "", path, err
}

// loopOf is the loop device over a path, "" when there is none.
func (r *Runner) loopOf(backing string) (string, error) {
	if path, ok := r.loops[backing]; ok {
		return path, nil
	}
	l, ok, err := r.Devices.LoopFor(backing)
	if err != nil || !ok {
		return "", err
	}
	return l.Path, nil
}

func (a LoopAttach) do(ctx context.Context, r *Runner) (string, error) {
	parent, base, err := r.Root.Parent(a.Backing)
	if err != nil {
		return "", err
	}
	defer parent.Close()
	fd, err := unix.Openat(int(parent.Fd()), base, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: a.Backing, Err: err}
	}
	backing := os.NewFile(uintptr(fd), a.Backing)
	defer backing.Close()
	l, err := r.Devices.AttachLoop(ctx, backing, false, a.Backing)
	return l.Path, err
}

func (a LoopAttach) verify(_ context.Context, r *Runner, dev string) error {
	path, err := r.loopOf(a.Backing)
	if err == nil && path != dev {
		err = api.Errorf(api.ErrUncertain, "%s was set up and is not over this file", dev).At(a.Backing)
	}
	return err
}

func (a LoopAttach) settle(r *Runner, v Value) {
	if r.DryRun {
		r.loops[a.Backing] = v.String()
	}
}

func (a LoopAttach) fact() string {
	return "grep -qxF -- " + Quote(a.Backing) + " /sys/block/loop*/loop/backing_file"
}

// LoopDetach takes away the loop device over a path.
type LoopDetach struct {
	Backing string
	Reason  string
}

func (a LoopDetach) step() api.Step {
	return api.Step{
		Action: "loopDetach", Target: a.Backing, Reason: a.Reason,
		Shell: loopGrep(a.Backing) + " | while read -r LOOP; do losetup -d \"/dev/$LOOP\"; done",
	}
}

func (a LoopDetach) done(_ context.Context, r *Runner) (bool, string, error) {
	path, err := r.loopOf(a.Backing)
	return path == "", "", err
}

func (a LoopDetach) do(ctx context.Context, r *Runner) (string, error) {
	// There can be several: somebody else made one by hand, or a kubelet beside kvol.
	for {
		l, ok, err := r.Devices.LoopFor(a.Backing)
		if err != nil || !ok {
			return "", err
		}
		if err := r.Devices.DetachLoop(ctx, l); err != nil {
			return "", err
		}
	}
}

func (a LoopDetach) verify(_ context.Context, r *Runner, _ string) error {
	path, err := r.loopOf(a.Backing)
	if err == nil && path != "" {
		// Detaching is lazy since Linux 3.7: it succeeds while the loop is open.
		err = api.Errorf(api.ErrBusy, "%s is open by somebody, so that it goes only when they close it", path).At(a.Backing).
			WithNext("see who has it open: fuser -v %s", path)
	}
	return err
}

func (a LoopDetach) settle(r *Runner, _ Value) {
	if !r.DryRun {
		return
	}
	if path, err := r.loopOf(a.Backing); err == nil {
		r.detached = append(r.detached, path)
	}
	r.loops[a.Backing] = ""
}

// Format makes a file system on a device that was proven blank, or ends one
// that the same command began. It has no shell form: a script that runs later
// cannot know that the disk is still blank.
type Format struct {
	Device   string
	decision format.Decision
}

func (a Format) step() api.Step {
	return api.Step{
		Action: "format", Target: a.Device, Args: []string{a.decision.FSType}, Reason: "--format was given: " + a.decision.Reason,
	}
}

func (a Format) irreversible() bool                                  { return true }
func (a Format) done(context.Context, *Runner) (bool, string, error) { return false, "", nil }
func (a Format) verify(context.Context, *Runner, string) error       { return nil } // format.Make asks blkid
func (a Format) settle(*Runner, Value)                               {}
func (a Format) do(ctx context.Context, r *Runner) (string, error) {
	return "", format.Make(ctx, r.formatEnv(), a.Device, a.decision)
}

// Fsck checks a file system before it is mounted read-write.
type Fsck struct {
	Device string
	FSType string
}

func (a Fsck) step() api.Step {
	return api.Step{
		Action: "exec", Target: a.Device, Args: []string{"fsck", "-a", a.Device}, Reason: "check the file system before it is mounted",
		// Exit code 4 is errors left uncorrected; with every other one the kubelet mounts.
		Shell: fmt.Sprintf("findmnt -rnS %[1]s >/dev/null || fsck -a %[1]s || [ $? -ne 4 ]", Quote(a.Device)),
	}
}

func (a Fsck) done(context.Context, *Runner) (bool, string, error) { return false, "", nil }
func (a Fsck) verify(context.Context, *Runner, string) error       { return nil }
func (a Fsck) settle(*Runner, Value)                               {}
func (a Fsck) do(ctx context.Context, r *Runner) (string, error) {
	warning, err := format.Fsck(ctx, r.formatEnv(), a.Device, a.FSType)
	if warning != "" {
		r.warn("%s", warning)
	}
	return "", err
}

// MountDevice brings the file system of a device to a path below the root: it is
// made where the device is blank and that is allowed, checked, and mounted. What
// is on the device is looked at first, so that a refusal leaves nothing behind. A
// FSType of "" takes what is there.
func (r *Runner) MountDevice(ctx context.Context, m Mount, allowFormat bool) error {
	dev, known := m.Device.Text()
	if known {
		// Also for a dry run's own view of the mount: which disk it is of.
		if _, err := r.Source(ctx, dev); err != nil {
			return err
		}
	}
	is, _, err := m.done(ctx, r)
	if err != nil {
		return r.fail(m.step(), err)
	}
	if !is {
		// Looked for before the first change: a disk that was formatted and cannot be
		// mounted then is half the work.
		if _, err := r.Exec.LookPath("mount"); err != nil {
			return r.fail(m.step(), err)
		}
	}
	if !is && known {
		readOnly := slices.Contains(m.Options, "ro")
		if m.FSType, err = r.fileSystem(ctx, dev, m.FSType, allowFormat, !readOnly); err != nil {
			return err
		}
	}
	before := len(r.steps)
	if !is {
		if err := r.MkdirAll(ctx, m.Target, 0o750, "where the device is mounted"); err != nil {
			return err
		}
	}
	if _, err = r.Do(ctx, m); err != nil && api.ExitCode(err) == api.ExitFailed {
		r.unmake(ctx, r.steps[before:])
	}
	return err
}

// unmake removes the directories that steps made for a mount that mount(8) then
// refused, as the kubelet does. What cannot be removed is left: it is empty.
func (r *Runner) unmake(ctx context.Context, steps []api.Step) {
	for _, s := range slices.Backward(slices.Clone(steps)) {
		if s.Action != "mkdir" {
			continue
		}
		if _, err := r.Do(ctx, Rmdir{Path: s.Target, Reason: "it was made for a mount that failed"}); err != nil {
			return
		}
	}
}

// fileSystem makes sure of the file system on a device and gives its type.
func (r *Runner) fileSystem(ctx context.Context, dev, fsType string, allowFormat, write bool) (string, error) {
	r.busyWith("looking at what is on %s", dev)
	d, err := format.Prepare(ctx, r.formatEnv(), dev, fsType, allowFormat)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if write && d.Device.ReadOnly {
		// mount(8) would mount it read-only with no more than a warning.
		return "", api.Errorf(api.ErrRefused, "the device is read-only, and the volume was to be read-write").At(dev).
			WithNext("ask for the volume read-only (readOnly: true of the pod's claim, or the mount option ro), or make the device writable: blockdev --report %s", Quote(dev))
	}
	switch d.Verdict {
	case format.Format, format.Continue:
		if !write {
			return "", api.Errorf(api.ErrRefused, "%s, and the volume is read-only: nothing is made on a device that nobody may write to", d.Reason).At(dev).
				WithNext("ask for the volume read-write to have it formatted, or name the device that has the data: lsblk -f")
		}
		_, err := r.Do(ctx, Format{Device: dev, decision: d})
		return d.FSType, err
	case format.Adopt:
		// The file system is there; only the record of it is not.
		if !r.DryRun {
			if err := format.Make(ctx, r.formatEnv(), dev, d); err != nil {
				return "", err
			}
		}
	}
	d.Close()
	r.facts = append(r.facts, fmt.Sprintf(`[ "$(blkid -p -s TYPE -o value %s)" = %s ]`, Quote(dev), Quote(d.FSType)))
	if write && format.HasFsck(d.FSType) {
		_, err = r.Do(ctx, Fsck{dev, d.FSType})
	}
	return d.FSType, err
}

// GiveRaw has to come before a device is given to a pod as it is.
func (r *Runner) GiveRaw(ctx context.Context, dev string) error {
	if r.DryRun {
		return nil
	}
	return format.GiveRaw(ctx, r.formatEnv(), dev)
}

func (r *Runner) formatEnv() format.Env {
	return format.Env{Exec: r.Exec, Devices: r.Devices, State: r.State, Look: r.DryRun, Locks: r.locks()}
}
