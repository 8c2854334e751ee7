// Package format decides whether a file system may be made on a device, makes it,
// and checks one before it is mounted. It is the only place of kvol that runs mkfs.
//
// The rule: only a device proven blank is formatted, and only when that was asked
// for. A signature that blkid does not see is not proof: a damaged primary
// superblock gives none, and the kubelet formats such a disk. So what blkid finds
// nothing on is read (see [Blank]), with the device claimed exclusively from before
// the first look until mkfs claims it itself.
//
// The one exception is a device on which kvol's own mkfs was killed: see [Intent].
//
// Do not use it to look at what is mounted, nor for block volumes, which are never
// formatted.
package format

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/safefs"
)

// DefaultFSType is what the kubelet makes where no type is given.
const DefaultFSType = "ext4"

// Env is what formatting works with.
type Env struct {
	Exec    exec.Runner
	Devices *devices.Devices // with its Helper
	// State is the state directory, where intents are kept. Nil when it cannot be
	// written: then nothing is formatted.
	State *safefs.Root
	// Look says that nothing is to be made, as in a dry run: a state directory that
	// is not there yet is then no fault.
	Look bool
	// Locks stay open as long as mkfs or fsck runs, also when kvol ends before.
	Locks []*os.File
}

// Verdict is what is to be done with a device before it is mounted.
type Verdict string

// The verdicts. What may not be touched is none of them but an error.
const (
	Mount    Verdict = "mount"    // it has the file system that was asked for
	Adopt    Verdict = "adopt"    // it has the one that kvol's interrupted mkfs made: that is its outcome
	Format   Verdict = "format"   // it is blank
	Continue Verdict = "continue" // kvol's own mkfs on it was killed: it is run again
)

// Decision is the answer of [Prepare]. It holds the device open, for Format and
// Continue also claimed: Close it in every case, after [Make].
type Decision struct {
	Verdict Verdict
	// Make says that [Make] has to be called before the mount: for all but Mount.
	Make      bool
	FSType    string // to mount it with
	Signature Signature
	Device    devices.Device
	// Reason says in words why, with what was looked at and the seed of the
	// samples; for the history.
	Reason string

	handle *devices.Handle
	claim  *os.File
	intent *Intent // the one to go on with
}

// Close lets the device go. It may be called more than once.
func (d Decision) Close() {
	for _, f := range []*os.File{d.claim, d.file()} {
		if f != nil {
			f.Close() // a second time is an error that says so
		}
	}
}

func (d Decision) file() *os.File {
	if d.handle == nil {
		return nil
	}
	return d.handle.File
}

// Prepare looks at the device that path leads to and decides. It changes nothing.
// fsType "" takes whatever file system is there, and makes ext4. allow is --format.
//
// The error is [api.ErrRefused] for what may not be formatted, with what was found
// and where; [api.ErrBusy] where somebody uses a device that would have to be
// formatted, the holders in its details.
func Prepare(ctx context.Context, e Env, path, fsType string, allow bool) (Decision, error) {
	handle, err := e.Devices.Open(ctx, path)
	if err != nil {
		return Decision{}, err
	}
	d := Decision{Device: handle.Device, handle: handle}
	if err := e.decide(ctx, &d, fsType, allow); err != nil {
		d.Close()
		return Decision{}, err
	}
	d.Make = d.Verdict != Mount
	return d, nil
}

func (e Env) decide(ctx context.Context, d *Decision, fsType string, allow bool) error {
	var err error
	if d.Device.Size == 0 {
		return refuse(d.Device, "it has no medium, or a size of 0").WithNext("see what the kernel has of it: lsblk %s", d.Device.Path)
	}
	if d.Signature, err = Probe(ctx, e.Exec, d.handle); err != nil {
		return err
	}
	pending, stale, err := e.pending(d.Device)
	if err != nil {
		return err
	}
	complete := d.Signature.FileSystem()
	if d.Signature.FSType == "xfs" {
		unfinished, err := e.xfsUnfinished(ctx, d.handle)
		if err != nil {
			return err
		}
		complete = complete && !unfinished
	}
	if complete {
		return e.existing(ctx, d, fsType, pending)
	}
	unfinishedXFS := d.Signature.FSType == "xfs"
	if !d.Signature.None() && !unfinishedXFS {
		return refuse(d.Device, "it has %s, which is not a file system that can be mounted", d.Signature).
			WithNext("name the device that is meant: lsblk -f %s", d.Device.Path)
	}
	if err := e.claim(ctx, d); err != nil {
		return err
	}
	if fsType == "" {
		fsType = DefaultFSType
	}
	d.FSType = fsType
	if pending != nil {
		err = e.unfinished(ctx, d, pending, allow)
	} else if unfinishedXFS {
		err = refuse(d.Device, "it has the beginnings of %s from an mkfs.xfs that did not end and was not this command's", d.Signature).
			WithNext("find out whose data that is: blkid -p %s", d.Device.Path)
	} else {
		err = e.blank(ctx, d, allow)
	}
	if e2, ok := errors.AsType[*api.Error](err); ok && stale != "" {
		e2.Details = append(e2.Details, stale)
	}
	return err
}

// existing decides about a complete file system.
func (e Env) existing(ctx context.Context, d *Decision, fsType string, pending *Intent) error {
	found := d.Signature.FSType
	if len(d.Device.Partitions) > 0 {
		return refuse(d.Device, "it has %s and also partitions (%s)", d.Signature, api.Words(d.Device.Partitions)).
			WithNext("name the partition or volume that is meant: lsblk -f %s", d.Device.Path)
	}
	if fsType != "" && !mountsAs(found, fsType) {
		return refuse(d.Device, "it has %s and the file system asked for is %s", d.Signature, fsType).
			WithNext("if that is the right device, ask for %s (fsType)", found)
	}
	d.FSType, d.Verdict, d.Reason = found, Mount, "it has "+d.Signature.String()
	if fsType != "" {
		d.FSType = fsType
	}
	if pending == nil {
		return nil
	}
	if !slices.Contains(pending.UUIDs, d.Signature.UUID) {
		return refuse(d.Device, "it has %s, but kvol began to make %s with UUID %s on it and never saw the end: somebody else made this one",
			d.Signature, pending.FSType, last(pending.UUIDs)).
			WithNext("look into it; if it is the right one, remove kvol's intent %s/%s and run the command again", e.State.Path(), intentName(d.Device))
	}
	d.Verdict, d.intent = Adopt, pending
	d.Reason = "it has " + d.Signature.String() + ", which kvol made in a run that was interrupted"
	return e.claim(ctx, d) // not while that mkfs still runs
}

// mountsAs says whether a file system that is there can be mounted as the type
// asked for: one kernel driver mounts all ext types.
func mountsAs(found, asked string) bool {
	ext := []string{"ext2", "ext3", "ext4"}
	return found == asked || slices.Contains(ext, asked) && slices.Index(ext, found) >= 0 && slices.Index(ext, found) < slices.Index(ext, asked)
}

// patience is how long a device may be busy for no lasting reason: udev opens one
// whenever it changes, and whoever attaches a loop device claims, for a moment, also
// the one that another process was faster to attach.
const patience = 2 * time.Second

// claim takes the device for this process alone and makes sure that nobody uses
// it in a way which the claim does not exclude: by a plain open (a virtual
// machine), by the loop device that holds a raw block volume.
func (e Env) claim(ctx context.Context, d *Decision) error {
	for end := time.Now().Add(patience); ; {
		holders, err := e.Devices.Holders(ctx, d.Device)
		if err != nil {
			return err
		}
		d.claim, err = d.handle.Exclusive(ctx, unix.O_DIRECT)
		if err != nil && !errors.Is(err, api.ErrBusy) {
			return err
		}
		if err == nil && len(holders) == 0 {
			break
		}
		if err == nil {
			d.claim.Close()
		}
		lasting := slices.ContainsFunc(holders, func(h devices.Holder) bool { return h.Type != "fd" })
		if lasting || time.Now().After(end) {
			return inUse(d.Device, holders)
		}
		select {
		case <-ctx.Done():
			return inUse(d.Device, holders)
		case <-time.After(50 * time.Millisecond):
		}
	}
	// What was seen before the claim may be of before somebody else's change.
	if err := d.handle.Check(); err != nil {
		return err
	}
	now, err := Probe(ctx, e.Exec, d.handle)
	if err == nil && now != d.Signature {
		err = refuse(d.Device, "it had %s and now has %s: somebody is working on it", d.Signature, now).
			WithNext("see who: lsblk %[1]s; fuser -v %[1]s", d.Device.Path)
	}
	return err
}

func inUse(dev devices.Device, holders []devices.Holder) error {
	what := "something that could not be found has claimed it"
	if len(holders) > 0 {
		what = holders[0].String()
	}
	err := api.Errorf(api.ErrBusy, "the device is in use: %s", what).At(dev.Path).WithNext("see who uses it: lsblk %[1]s; fuser -v %[1]s", dev.Path)
	for _, h := range holders {
		err.Details = append(err.Details, h.String())
	}
	return err
}

// formattable refuses what is never formatted, blank or not.
func (e Env) formattable(d *Decision) error {
	switch {
	case !slices.Contains(makers, d.FSType):
		return api.Errorf(api.ErrNotSupported, "kvol makes %s, not %q", api.Words(makers), d.FSType).At(d.Device.Path).
			WithNext("make the file system yourself: it is then mounted as it is")
	case d.Device.ReadOnly:
		return refuse(d.Device, "it is read-only, so no file system can be made on it").
			WithNext("see why, and whether it is the right one: blockdev --report %s", d.Device.Path)
	case len(d.Device.Partitions) > 0:
		return refuse(d.Device, "it has partitions (%s)", api.Words(d.Device.Partitions)).WithNext("name the partition that is meant: lsblk %s", d.Device.Path)
	case e.State == nil && !e.Look:
		return refuse(d.Device, "the state directory cannot be written, and without a record on disk nothing is formatted").
			WithNext("free or repair the state directory, or name another with --state-dir")
	}
	_, err := e.Exec.LookPath("mkfs." + d.FSType)
	return err
}

// blank decides about a device without any signature.
func (e Env) blank(ctx context.Context, d *Decision, allow bool) error {
	if allow {
		if err := e.formattable(d); err != nil {
			return err
		}
	}
	found, proof, err := Blank(ctx, e.Devices.Helper, d.claim, d.Device.Size, rand.Uint64())
	if err != nil {
		return &api.Error{Path: d.Device.Path, Kind: kindOfLook(err), Err: fmt.Errorf("refused: whether it is blank cannot be seen: %w", err),
			Next: "find out what is wrong with the device: dmesg | tail"}
	}
	if found != nil {
		return refuse(d.Device, "it has no signature that blkid knows and is not blank: %s", found).
			WithNext("find out whose data that is; only its owner may decide to zero the device (blkdiscard -z %s), then run the command again", d.Device.Path)
	}
	if !allow {
		return refuse(d.Device, "it is blank (%s) and --format was not given", proof).WithNext("run the command again with --format to make %s on it", d.FSType)
	}
	d.Verdict, d.Reason = Format, "it is blank: no signature, "+proof.String()
	return nil
}

// kindOfLook: a device that fails to read is refused; one that does not answer in
// time is a time-out.
func kindOfLook(err error) error {
	if errors.Is(err, api.ErrTimeout) || errors.Is(err, context.Canceled) || errors.Is(err, api.ErrUncertain) {
		return nil // it has its kind
	}
	return api.ErrRefused
}

// unfinished decides about a device on which this command's mkfs did not end.
func (e Env) unfinished(ctx context.Context, d *Decision, pending *Intent, allow bool) error {
	if pending.FSType != d.FSType {
		return refuse(d.Device, "kvol began to make %s on it and was interrupted; now %s is asked for", pending.FSType, d.FSType).
			WithNext("run the first command again, with %s", pending.FSType)
	}
	if !allow {
		return refuse(d.Device, "kvol began to make %s on it and was interrupted", pending.FSType).WithNext("run the command again with --format to finish it")
	}
	if err := e.formattable(d); err != nil {
		return err
	}
	if d.Signature.FSType == "xfs" && !slices.Contains(pending.UUIDs, d.Signature.UUID) {
		return refuse(d.Device, "it has the beginnings of %s from an mkfs.xfs that was not this command's", d.Signature).
			WithNext("find out whose data that is: blkid -p %s", d.Device.Path)
	}
	if pending.Failed == "" {
		reason, err := e.ended(ctx, d, pending)
		if err != nil {
			return &api.Error{Path: d.Device.Path, Kind: kindOfLook(err), Err: fmt.Errorf("refused: what is on it cannot be read: %w", err),
				Next: "find out what is wrong with the device: dmesg | tail"}
		}
		if reason != "" {
			return refuse(d.Device, "its %s was complete and is damaged, so it may hold data: %s", pending.FSType, reason).
				WithNext("find out what damaged it; then repair it with the backups, while it is mounted nowhere: fsck.%s %s", pending.FSType, d.Device.Path)
		}
	}
	d.Verdict, d.intent = Continue, pending
	d.Reason = fmt.Sprintf("kvol's own mkfs.%s on it, begun at %s in this boot, did not end", pending.FSType, pending.Time.Format(time.RFC3339))
	return nil
}

// ended asks for the reason to believe that the interrupted mkfs came to its end.
func (e Env) ended(ctx context.Context, d *Decision, pending *Intent) (reason string, err error) {
	args := endedArgs{FSType: pending.FSType, UUID: last(pending.UUIDs), Size: d.Device.Size}
	_, err = e.Devices.Helper.Call(ctx, jobEnded, args, []*os.File{d.handle.File}, &reason)
	return reason, err
}

// xfsUnfinished asks whether the xfs on a device is one whose mkfs did not end.
func (e Env) xfsUnfinished(ctx context.Context, dev *devices.Handle) (is bool, err error) {
	_, err = e.Devices.Helper.Call(ctx, jobXFS, nil, []*os.File{dev.File}, &is)
	return is, err
}

func refuse(dev devices.Device, format string, args ...any) *api.Error {
	return api.Errorf(api.ErrRefused, format, args...).At(dev.Path)
}

func last(s []string) string { return s[len(s)-1] }
