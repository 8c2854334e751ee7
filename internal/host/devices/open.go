package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Handle is a device that is held open, for reading and not exclusively.
//
// The name of a device is nobody's: udev renames, an administrator or an attacker
// replaces the node. And the number is given to another disk when a disk goes. So
// whoever looks at a device and then changes it does both by one descriptor: while
// it is open the kernel keeps number and disk together (a disk's number is free
// only after its last close, a loop device is detached with its last user).
type Handle struct {
	Device
	// File pins the disk. It is not O_EXCL: a tool that is given it can still
	// claim the device for itself.
	File *os.File

	devices *Devices
}

// Open opens the block device that path leads to, through symlinks. Errors are
// [api.ErrNotFound], also for a drive without a medium, [api.ErrInput] for what is
// no block device, [api.ErrTimeout].
func (d *Devices) Open(ctx context.Context, path string) (*Handle, error) {
	// First by O_PATH: opening a tape rewinds it, and opening a watchdog arms it.
	node, _, err := d.Helper.Open(ctx, path, unix.O_PATH)
	if err != nil {
		return nil, openError(err, path)
	}
	defer node.Close()
	dev, err := d.ByFile(node)
	if err != nil {
		if e, ok := errors.AsType[*api.Error](err); ok {
			err = e.At(path)
		}
		return nil, err
	}
	f, err := d.reopen(ctx, node, unix.O_RDONLY)
	if err != nil {
		return nil, openError(err, path)
	}
	o := &Handle{Device: dev, File: f, devices: d}
	if err := o.Check(); err != nil {
		f.Close()
		return nil, err
	}
	return o, nil
}

// Close lets the device go.
func (o *Handle) Close() error { return o.File.Close() }

// Check asks the kernel whether what the descriptor has open is the device that
// was looked at, with the same size, read-only flag and partitions.
// [api.ErrRefused] when not.
func (o *Handle) Check() error {
	now, err := o.devices.ByFile(o.File)
	if err != nil {
		return err
	}
	seq, err := diskSeq(int(o.File.Fd()))
	if err != nil {
		return fmt.Errorf("%s: %w", o.Path, err)
	}
	same := now.Major == o.Major && now.Minor == o.Minor && now.Size == o.Size && now.DiskSeq == o.DiskSeq &&
		now.ID == o.ID && now.ReadOnly == o.ReadOnly && len(now.Partitions) == len(o.Partitions)
	if !same || seq != 0 && seq != o.DiskSeq {
		return api.Errorf(api.ErrRefused, "the device changed while it was looked at: was %s, is %s (disk sequence number %d)",
			o.Device.describe(), now.describe(), seq).At(o.Path).WithNext("run the command again when nothing else works on %s", o.Path)
	}
	return nil
}

func (d Device) describe() string {
	return fmt.Sprintf("%s %d bytes, disk sequence number %d", d.Number(), d.Size, d.DiskSeq)
}

// Exclusive opens the same device once more with O_EXCL: as long as that
// descriptor is open nothing can mount it, use it as swap or build on it. Flags
// are added (O_DIRECT). [api.ErrBusy] when somebody has such a claim already, in
// whatever mount namespace.
func (o *Handle) Exclusive(ctx context.Context, flags int) (*os.File, error) {
	f, err := o.devices.reopen(ctx, o.File, unix.O_RDONLY|unix.O_EXCL|flags)
	if errors.Is(err, unix.EBUSY) {
		return nil, api.Errorf(api.ErrBusy, "the device is in use: mounted, swap, part of another device, or claimed by a process").
			At(o.Path).WithNext("see who uses it: lsblk %[1]s; fuser -v %[1]s", o.Path)
	}
	if err != nil {
		return nil, openError(err, o.Path)
	}
	return f, nil
}

// reopen opens what f has open once more, whatever its name leads to now. The
// helper does it, because opening a device may wait for it for ever.
func (d *Devices) reopen(ctx context.Context, f *os.File, flags int) (*os.File, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	opened, _, err := d.Helper.Open(ctx, path, flags|unix.O_NONBLOCK)
	return opened, err
}

func openError(err error, path string) error {
	e := &api.Error{Op: "open device", Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOMEDIUM), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		e.Kind = api.ErrNotFound
		e.Next = "check the device path: lsblk"
	}
	return e
}

// diskSeq asks an open block device for its sequence number; 0 where the kernel
// has none (before 5.15). Of a partition it is the disk's.
func diskSeq(fd int) (uint64, error) {
	var seq uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.BLKGETDISKSEQ, uintptr(unsafe.Pointer(&seq)))
	switch errno {
	case 0:
		return seq, nil
	case unix.ENOTTY, unix.EINVAL:
		return 0, nil
	}
	return 0, os.NewSyscallError("BLKGETDISKSEQ", errno)
}
