package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
)

// makers are the types that kvol makes. Of these it is known, by measuring, what a
// killed mkfs leaves behind; of others a half-made one may look complete.
var makers = []string{"ext2", "ext3", "ext4", "xfs", "btrfs"}

// mkfsCmd is what the kubelet runs (k8s.io/mount-utils, formatAndMountSensitive):
// no blocks reserved for root on ext; plus the chosen UUID. The force flag of xfs
// and btrfs is given only over kvol's own remains: without it the tool itself looks
// for a signature once more.
func mkfsCmd(fsType, id string, force bool) exec.Cmd {
	var args []string
	switch fsType {
	case "xfs":
		args = []string{"-m", "uuid=" + id}
	case "btrfs":
		args = []string{"-U", id}
	default:
		// -F: also a whole disk, and without asking.
		return exec.Cmd{Name: "mkfs." + fsType, Args: []string{"-F", "-m0", "-U", id, selfFD}}
	}
	if force {
		args = append([]string{"-f"}, args...)
	}
	return exec.Cmd{Name: "mkfs." + fsType, Args: append(args, selfFD)}
}

// Make carries out a decision: it records the intent, runs mkfs, verifies with
// blkid that the file system is there with the type and UUID chosen, and records
// that. For Adopt it only records; for Mount it does nothing.
//
// mkfs is never killed. When the deadline passes it goes on, with the locks, and
// the error is [api.ErrUncertain] naming its pid.
func Make(ctx context.Context, e Env, path string, d Decision) error {
	switch d.Verdict {
	case Mount:
		return nil
	case Adopt:
		done := *d.intent
		done.Done = true
		return e.save(&done)
	case Format, Continue:
	default:
		return fmt.Errorf("format %s: no decision", path)
	}
	if _, err := d.claim.Stat(); err != nil {
		return fmt.Errorf("format %s: the device is not claimed any more: %w", d.Device.Path, err)
	}
	boot, err := e.Devices.BootID()
	if err != nil {
		return err
	}
	in := &Intent{Device: d.Device, BootID: boot, FSType: d.FSType, Time: time.Now().UTC()}
	if d.intent != nil {
		in.UUIDs = slices.Clone(d.intent.UUIDs)
	}
	in.UUIDs = append(in.UUIDs, uuid.NewString())
	if err := e.save(in); err != nil {
		return &api.Error{Op: "format", Path: d.Device.Path, Kind: api.ErrRefused, Err: fmt.Errorf("the intent cannot be recorded, so nothing was formatted: %w", err),
			Next: "free or repair the state directory, or name another with --state-dir"}
	}
	if err := e.mkfs(ctx, d, in); err != nil {
		return err
	}
	in.Done = true
	return e.save(in)
}

// mkfs runs the tool on the descriptor that was looked at.
//
// The claim cannot be handed on: the kernel grants O_EXCL to one open, and mkfs
// makes its own, so ours goes right before. What stays open is the plain
// descriptor, which keeps the disk's number its own and is what mkfs opens, by
// /proc/self/fd: a node that is swapped, or a disk that is pulled and replaced,
// changes nothing. In the few milliseconds until mkfs has claimed the device
// another process could claim it too; then mkfs finds it busy and does nothing.
func (e Env) mkfs(ctx context.Context, d Decision, in *Intent) error {
	cmd := mkfsCmd(d.FSType, last(in.UUIDs), d.Verdict == Continue)
	cmd.Files, cmd.Inherit, cmd.NoKill = []*os.File{d.handle.File}, e.Locks, true
	if err := d.handle.Check(); err != nil {
		return err
	}
	// A child between fork and exec would keep a copy of the claim, and mkfs find
	// the device busy.
	syscall.ForkLock.RLock()
	d.claim.Close()
	syscall.ForkLock.RUnlock()
	res, err := e.Exec.Run(ctx, cmd)
	if err == nil {
		err = res.Check(cmd)
	}
	if ctx.Err() != nil {
		// It may still run, or has ended unseen: the next run of the command looks.
		return api.Errorf(api.ErrUncertain, "%s was not seen to its end: %w", cmd.Name, cmp.Or(err, ctx.Err())).At(d.Device.Path)
	}
	now, probeErr := Probe(ctx, e.Exec, d.handle)
	complete := probeErr == nil && mountsAs(now.FSType, d.FSType) && now.UUID == last(in.UUIDs)
	if complete && d.FSType == "xfs" {
		unfinished, err := e.xfsUnfinished(ctx, d.handle)
		probeErr, complete = err, err == nil && !unfinished
	}
	switch {
	case err == nil && complete:
		return nil
	case err == nil && probeErr == nil:
		err = fmt.Errorf("%s ended well, but the device has %s and not %s with UUID %s", cmd.Name, now, d.FSType, last(in.UUIDs))
	case err == nil:
		err = probeErr
	}
	if probeErr == nil && !complete {
		in.Failed = err.Error()
		err = errors.Join(err, e.save(in))
	}
	return &api.Error{Op: "format", Path: d.Device.Path, Err: err, Next: "run the same command again"}
}
