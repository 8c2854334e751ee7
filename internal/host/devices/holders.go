package devices

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/mounts"
)

// Holder is one user of a device.
type Holder struct {
	Type    string // fd mount loop dm md swap export unknown, as in HolderList
	PID     int    // 0 where it is no process; of a mount: one that is in the mount namespace
	Command string
	MountNS string // "mnt:[4026531841]", of a mount
	Path    string // mount point as that namespace sees it, or device
	Detail  string
}

// NodeBind is the detail of a mount that is a bind of the device's node: as
// containers have it, and the kubelet for a raw block volume.
const NodeBind = "a bind of the device node"

// String says it in one line for the details of an error.
func (h Holder) String() string {
	s := h.Type
	if h.Path != "" {
		s += fmt.Sprintf(" %q", h.Path)
	}
	if h.PID != 0 {
		s += fmt.Sprintf(" by process %d (%s)", h.PID, h.Command)
	}
	if h.MountNS != "" {
		s += " in mount namespace " + h.MountNS
	}
	if h.Detail != "" {
		s += ": " + h.Detail
	}
	return s
}

// Holders looks for everything that uses dev or one of its partitions: mounts of
// it and binds of its node in every mount namespace that a process is in, file
// systems that the kernel still has on it, device mapper and md above it, swap,
// loop devices over it, processes that have it open. This process and its helper
// do not count.
//
// It names the holders; that there is none is proven by [Handle.Exclusive] as far
// as mounts, swap and devices above go. A plain open does not fail O_EXCL, so for
// raw block this look is the only one. The error says what could not be looked at;
// the holders found are given also then.
func (d *Devices) Holders(ctx context.Context, dev Device) ([]Holder, error) {
	same, errSame := d.SameFile(ctx, dev)
	set := d.withPartitions(dev)
	for _, s := range same {
		set = append(set, d.withPartitions(s)...)
	}
	var out []Holder
	for _, s := range set {
		for _, name := range s.Holders {
			out = append(out, Holder{Type: d.kind(name), Path: filepath.Join(d.DevRoot, name), Detail: "built on " + s.Path})
		}
	}
	swaps, errSwap := d.swaps(set)
	mounted, errMounts := d.mounts(set)
	loops, errLoops := d.LoopsOver(ctx, set...)
	openers, errOpeners := d.openers(ctx, set)
	out = slices.Concat(out, swaps, mounted, d.superblocks(set, mounted), loops, openers)
	if err := errors.Join(errSame, errSwap, errMounts, errLoops, errOpeners); err != nil {
		return out, fmt.Errorf("holders of %s: %w", dev.Path, err)
	}
	return out, nil
}

func (d *Devices) withPartitions(dev Device) []Device {
	set := []Device{dev}
	for _, p := range dev.Partitions {
		if part, err := d.read(filepath.Join(d.SysRoot, "class/block", p)); err == nil {
			set = append(set, part)
		}
	}
	return set
}

// kind is the type of a device above another one: dm, md, or unknown (bcache).
func (d *Devices) kind(name string) string {
	switch t := typeOf(filepath.Join(d.SysRoot, "block", name)); t {
	case DM, MD:
		return string(t)
	}
	return "unknown"
}

// swaps reads /proc/swaps: a header, then name, type, size, used and priority.
func (d *Devices) swaps(set []Device) ([]Holder, error) {
	f, err := os.Open(filepath.Join(d.ProcRoot, "swaps"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without swap
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Holder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[1] != "partition" {
			continue // the header, or a swap file: that is a mount's holder
		}
		// The kernel shows the path by which it was opened; a partition's may be a
		// symlink, and its node lies on devtmpfs, which does not hang.
		var st unix.Stat_t
		err := unix.Stat(fields[0], &st)
		for _, s := range set {
			if fields[0] == s.Path || err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == s.rdev() {
				out = append(out, Holder{Type: "swap", Path: fields[0]})
			}
		}
	}
	return out, lines.Err()
}

func (d Device) rdev() uint64 { return unix.Mkdev(uint32(d.Major), uint32(d.Minor)) }

// mounts reads the table of every mount namespace once.
func (d *Devices) mounts(set []Device) ([]Holder, error) {
	var out []Holder
	err := d.EachMountNamespace(func(pid int, ns string, table *mounts.Table) {
		for _, m := range table.Mounts {
			if detail, ok := d.uses(m, set); ok {
				dir := filepath.Join(d.ProcRoot, strconv.Itoa(pid))
				out = append(out, Holder{Type: "mount", PID: pid, Command: command(dir), MountNS: ns, Path: m.MountPoint, Detail: detail})
			}
		}
	})
	return out, err
}

// uses says whether m is a file system on one of set, or a bind of its node. A
// btrfs mount has an anonymous number, so there the source and sysfs say it.
func (d *Devices) uses(m mounts.Mount, set []Device) (detail string, ok bool) {
	for _, s := range set {
		switch {
		case m.Major == s.Major && m.Minor == s.Minor:
			return m.FSType + " on " + s.Path, true
		case m.FSType == "btrfs" && m.Major == 0 && slices.Contains(d.BtrfsOf(m.Source), s.Name):
			return "btrfs on " + s.Path, true
		case m.FSType == "devtmpfs" && m.Root == "/"+s.Name:
			return NodeBind, true
		}
	}
	return "", false
}

// Shows says whether a mount is of the device with a number ("7:5") and path. The
// number tells: a source is a name that anybody can give, and that another disk has
// once the mounted one is pulled. btrfs and bcachefs mounts have an anonymous
// number, so that only the source tells, of btrfs any one of its devices.
func (d *Devices) Shows(m mounts.Mount, number, path string) bool {
	switch m.FSType {
	case "btrfs":
		return m.Source == path || slices.Contains(d.BtrfsOf(m.Source), filepath.Base(path))
	case "bcachefs":
		return m.Source == path
	}
	return m.Device() == number
}

// BtrfsOf gives the kernel names of all devices of the btrfs whose mount has that
// source, which names one of them only.
func (d *Devices) BtrfsOf(source string) []string {
	dirs, _ := filepath.Glob(filepath.Join(d.SysRoot, "fs/btrfs/*/devices"))
	name := filepath.Base(source)
	var st unix.Stat_t
	if unix.Stat(source, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		if dev, err := d.ByNumber(int(unix.Major(st.Rdev)), int(unix.Minor(st.Rdev))); err == nil {
			name = dev.Name
		}
	}
	for _, dir := range dirs {
		if members := names(dir, "."); slices.Contains(members, name) {
			return members
		}
	}
	return nil
}

// superblocks are the file systems that the kernel has on a device although no
// mount table shows them: mounted in a namespace without a process, or detached
// lazily and still in use.
func (d *Devices) superblocks(set []Device, mounted []Holder) []Holder {
	if slices.ContainsFunc(mounted, func(h Holder) bool { return h.Detail != NodeBind }) {
		return nil
	}
	var out []Holder
	for _, s := range set {
		for _, pattern := range []string{"fs/ext4/" + s.Name, "fs/xfs/" + s.Name, "fs/btrfs/*/devices/" + s.Name} {
			found, _ := filepath.Glob(filepath.Join(d.SysRoot, pattern))
			for _, p := range found {
				out = append(out, Holder{
					Type: "unknown", Path: p,
					Detail: "the kernel still has a file system on " + s.Path + "; no process's mount table shows it: unmounted lazily and in use, or in a namespace without a process",
				})
			}
		}
	}
	return out
}

type openersArgs struct {
	ProcRoot string
	Rdevs    []uint64
	Except   int
}

// openers finds the processes that have one of set open. In the helper, because
// following /proc/PID/fd/N into a dead NFS mount waits.
func (d *Devices) openers(ctx context.Context, set []Device) ([]Holder, error) {
	args := openersArgs{ProcRoot: d.ProcRoot, Except: os.Getpid()}
	for _, s := range set {
		args.Rdevs = append(args.Rdevs, s.rdev())
	}
	var out []Holder
	_, err := d.Helper.Call(ctx, jobOpeners, args, nil, &out)
	if err != nil {
		err = fmt.Errorf("processes: %w", err)
	}
	return out, err
}

func openersJob(raw []byte, _ []*os.File) (any, []*os.File, error) {
	var a openersArgs
	if err := exact.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	d := &Devices{ProcRoot: a.ProcRoot}
	pids, err := d.pids()
	if err != nil {
		return nil, nil, err
	}
	out := []Holder{}
	for _, pid := range pids {
		if pid == a.Except || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join(a.ProcRoot, strconv.Itoa(pid))
		for _, fd := range names(dir, "fd") {
			link := filepath.Join(dir, "fd", fd)
			if opensDevice(link, a.Rdevs) && !isPath(filepath.Join(dir, "fdinfo", fd)) {
				path, _ := os.Readlink(link)
				out = append(out, Holder{Type: "fd", PID: pid, Command: command(dir), Path: path, Detail: "descriptor " + fd})
			}
		}
	}
	return out, nil, nil
}

func opensDevice(link string, rdevs []uint64) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK &&
		slices.Contains(rdevs, unix.Mkdev(st.Rdev_major, st.Rdev_minor))
}

// isPath says that a descriptor is O_PATH: that names the node and does not hold
// the device.
func isPath(fdinfo string) bool {
	info, err := os.ReadFile(fdinfo)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64)
			return err == nil && flags&unix.O_PATH != 0
		}
	}
	return false
}

// pids lists the processes, lowest first.
func (d *Devices) pids() ([]int, error) {
	entries, err := os.ReadDir(d.ProcRoot)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out, nil
}

func command(procDir string) string {
	return attr(procDir, "comm")
}
