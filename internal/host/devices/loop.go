package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/probe"
)

// LoopDevice is a loop device that has a backing file.
type LoopDevice struct {
	Name    string // "loop3"
	Path    string // "/dev/loop3"
	Minor   int
	Backing string // absolute path as the kernel shows it, without its mark " (deleted)"
	Deleted bool   // the backing file is unlinked
	DiskSeq uint64 // of this attachment; 0 where the kernel has none
}

// Loops lists the attached loop devices by number.
func (d *Devices) Loops() ([]LoopDevice, error) {
	entries, err := os.ReadDir(filepath.Join(d.SysRoot, "block"))
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var out []LoopDevice
	for _, e := range entries {
		if l, ok := d.loop(e.Name()); ok {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b LoopDevice) int { return a.Minor - b.Minor })
	return out, nil
}

// loop reads one loop device; false when it is none or has no backing file.
func (d *Devices) loop(name string) (LoopDevice, bool) {
	dir := filepath.Join(d.SysRoot, "block", name)
	if !strings.HasPrefix(name, "loop") || !has(dir, "loop/backing_file") {
		return LoopDevice{}, false
	}
	l := LoopDevice{Name: name, Path: filepath.Join(d.DevRoot, name)}
	// Before and after the backing file: a number that is given to another file
	// meanwhile must not be taken for the one that was looked for.
	seq := attr(dir, "diskseq")
	l.Backing, l.Deleted = backing(dir)
	_, minor, _ := strings.Cut(attr(dir, "dev"), ":")
	l.Minor, _ = strconv.Atoi(minor)
	l.DiskSeq, _ = strconv.ParseUint(seq, 10, 64)
	return l, l.Backing != "" && attr(dir, "diskseq") == seq
}

// backing reads loop/backing_file. The kernel adds " (deleted)" when the file is
// unlinked, or, for a bind of a device node, when the bind is gone.
func backing(dir string) (path string, deleted bool) {
	return strings.CutSuffix(attr(dir, "loop/backing_file"), " (deleted)")
}

// LoopFor finds the first loop device over the file at path, which is absolute
// and free of symlinks; the kubelet looks for its own in the same way. False when
// there is none.
func (d *Devices) LoopFor(path string) (LoopDevice, bool, error) {
	loops, err := d.Loops()
	for _, l := range loops {
		if l.Backing == path {
			return l, true, err
		}
	}
	return LoopDevice{}, false, err
}

// Jobs is what runs in the helper process: give it to probe.Main.
func Jobs() probe.Jobs {
	return probe.Jobs{jobAttach: attachJob, jobDetach: detachJob, jobBackings: backingsJob, jobOpeners: openersJob}
}

// The names of the jobs.
const (
	jobAttach   = "devices.loopAttach"
	jobDetach   = "devices.loopDetach"
	jobBackings = "devices.loopBackings"
	jobOpeners  = "devices.openers"
)

type attachArgs struct {
	DevRoot  string
	ReadOnly bool
	Name     string
}

// AttachLoop puts a free loop device over backing, which is open for reading and,
// unless readOnly, writing. name is what losetup prints for kernels that do not
// know the path, at most 63 bytes of it. When the deadline passes meanwhile the
// error is [api.ErrUncertain].
func (d *Devices) AttachLoop(ctx context.Context, backing *os.File, readOnly bool, name string) (LoopDevice, error) {
	var loopName string
	args := attachArgs{DevRoot: d.DevRoot, ReadOnly: readOnly, Name: name}
	if _, err := d.Helper.Call(ctx, jobAttach, args, []*os.File{backing}, &loopName); err != nil {
		return LoopDevice{}, mutation(err, "attach a loop device", name)
	}
	l, ok := d.loop(loopName)
	if !ok {
		return LoopDevice{}, api.Errorf(api.ErrUncertain, "%s was attached and has no backing file now: something else detached it", loopName).At(name)
	}
	return l, nil
}

// attachJob asks for a free number and takes it. Another process may take the
// same number in between, then the kernel says EBUSY and the next one is asked for.
func attachJob(raw []byte, files []*os.File) (any, []*os.File, error) {
	var a attachArgs
	if err := exact.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, errors.New("one backing file is needed")
	}
	control, err := unix.Open(filepath.Join(a.DevRoot, "loop-control"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open loop-control", err)
	}
	defer unix.Close(control)
	const tries = 64
	for range tries {
		n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		name := "loop" + strconv.Itoa(n)
		err = configure(filepath.Join(a.DevRoot, name), files[0], a)
		switch {
		case errors.Is(err, unix.EBUSY):
			continue
		case err != nil:
			return nil, nil, err
		}
		return name, nil, nil
	}
	return nil, nil, fmt.Errorf("%d free loop devices in a row were taken by others: %w", tries, unix.EBUSY)
}

// configure attaches backing to the loop device at path and makes sure, from the
// kernel's own answer, that it did.
func configure(path string, backing *os.File, a attachArgs) error {
	mode := unix.O_RDWR
	info := unix.LoopInfo64{}
	if a.ReadOnly {
		mode, info.Flags = unix.O_RDONLY, unix.LO_FLAGS_READ_ONLY
	}
	copy(info.File_name[:len(info.File_name)-1], a.Name)
	fd, err := openLoop(path, mode)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.IoctlLoopConfigure(fd, &unix.LoopConfig{Fd: uint32(backing.Fd()), Info: info})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) {
		err = setFD(fd, backing, &info) // before Linux 5.8
	}
	if err != nil {
		return os.NewSyscallError("attach "+path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(backing.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	got, err := unix.IoctlLoopGetStatus64(fd)
	if err != nil {
		return os.NewSyscallError("LOOP_GET_STATUS64", err)
	}
	if got.Inode != st.Ino {
		return fmt.Errorf("%s is backed by inode %d and not by %d, which it was given", path, got.Inode, st.Ino)
	}
	return nil
}

// setFD is the older way in two steps. That loop device is ours from the first
// step on, so a failing second one takes it back.
func setFD(fd int, backing *os.File, info *unix.LoopInfo64) error {
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		return err
	}
	err := unix.IoctlLoopSetStatus64(fd, info)
	if err != nil {
		_ = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
	}
	return err
}

// loopMajor is LOOP_MAJOR of linux/major.h.
const loopMajor = 7

// openLoop opens a loop device and nothing else: DevRoot may hold anything.
func openLoop(path string, mode int) (int, error) {
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("open "+path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFBLK || unix.Major(st.Rdev) != loopMajor) {
		err = fmt.Errorf("%s is not a loop device: %w", path, unix.ENOTTY)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// detachPoll is how often a detached loop device is looked at again.
const detachPoll = 5 * time.Millisecond

// detachWait is how long a detached loop device may stay. udev opens a device for
// a moment whenever it changes.
const detachWait = 2 * time.Second

// DetachLoop detaches l, if it is still what it was when it was listed, and waits
// until it is gone. Since Linux 3.7 the kernel detaches when the last user goes:
// a device that is still there after two seconds is [api.ErrBusy], and goes with
// its last user. One that is gone already, or is another's now, is no error.
func (d *Devices) DetachLoop(ctx context.Context, l LoopDevice) error {
	if _, err := d.Helper.Call(ctx, jobDetach, l, nil, nil); err != nil && !errors.Is(err, unix.ENXIO) {
		return mutation(err, "detach the loop device", l.Path)
	}
	end := time.Now().Add(detachWait)
	for {
		now, ok := d.loop(l.Name)
		if !ok || !now.is(l) {
			return nil
		}
		if time.Now().After(end) {
			return api.Errorf(api.ErrBusy, "%s was told to go and is still attached to %s: something has it open or mounted", l.Path, l.Backing).
				At(l.Path).WithNext("see who uses it: lsblk %[1]s; fuser -v %[1]s", l.Path)
		}
		select {
		case <-ctx.Done():
			return mutation(ctx.Err(), "detach the loop device", l.Path)
		case <-time.After(detachPoll):
		}
	}
}

// is says whether both are one attachment.
func (l LoopDevice) is(o LoopDevice) bool {
	return l.Minor == o.Minor && l.DiskSeq == o.DiskSeq && (l.DiskSeq != 0 || l.Backing == o.Backing)
}

// detachJob gives ENXIO when the device is not attached, or no longer to what the
// caller saw.
func detachJob(raw []byte, _ []*os.File) (any, []*os.File, error) {
	var l LoopDevice
	if err := exact.Unmarshal(raw, &l); err != nil {
		return nil, nil, err
	}
	fd, err := openLoop(l.Path, unix.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	if l.DiskSeq != 0 {
		// While it is open the attachment cannot become another one.
		seq, err := diskSeq(fd)
		if err == nil && seq != l.DiskSeq {
			err = unix.ENXIO
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, os.NewSyscallError("LOOP_CLR_FD", unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0))
}

// mutation makes of a deadline that passed during a change what it is: unknown.
func mutation(err error, what, path string) error {
	kind, next := error(nil), ""
	switch {
	case errors.Is(err, api.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		kind = api.ErrUncertain
	case errors.Is(err, unix.EBUSY):
		kind, next = api.ErrBusy, "see what uses it (lsblk "+path+"), end that, then run the same command again"
	case errors.Is(err, unix.ENOENT):
		kind = api.ErrNotFound
	}
	return &api.Error{Op: what, Path: path, Kind: kind, Err: err, Next: next}
}
