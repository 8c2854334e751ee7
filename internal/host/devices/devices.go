// Package devices knows the block devices of the node: what sysfs says of them,
// loop devices, and who holds one.
//
// Facts come from sysfs, /proc and ioctls on descriptors that are open already,
// none of which waits for a medium. What may wait (opening a device, attaching and
// detaching a loop device) runs in the helper process of host/probe.
//
// Do not use it for what is on a device (host/format) or to mount anything.
package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/probe"
)

// Devices looks at the devices of one view of the machine.
type Devices struct {
	SysRoot  string // "/sys"
	DevRoot  string // "/dev"
	ProcRoot string // "/proc"
	// Helper opens devices; methods that take a context need it.
	Helper *probe.Helper
}

// New makes a Devices; an empty root is the machine's own.
func New(sysRoot, devRoot, procRoot string, h *probe.Helper) *Devices {
	or := func(v, d string) string {
		if v == "" {
			return d
		}
		return filepath.Clean(v)
	}
	return &Devices{SysRoot: or(sysRoot, "/sys"), DevRoot: or(devRoot, "/dev"), ProcRoot: or(procRoot, "/proc"), Helper: h}
}

// Type is what kind of block device something is.
type Type string

// The types of a Device.
const (
	Disk Type = "disk"
	Part Type = "part"
	Loop Type = "loop"
	DM   Type = "dm"
	MD   Type = "md"
)

// Device is one block device as sysfs shows it. The fields together tell a disk
// from another one that got its name or number: see [Device.Same].
type Device struct {
	Name  string // the kernel's: "sda1", "dm-0"
	Path  string // "/dev/sda1"
	Major int
	Minor int
	Type  Type
	Size  int64 // bytes
	// DiskSeq is the disk's sequence number, never given twice in one boot
	// (Linux 5.15); 0 where the kernel has none. A partition has its disk's.
	DiskSeq uint64
	// ID is what the hardware or device mapper calls it: a WWID or a dm UUID, with the partition's number and first sector; empty where
	// there is none.
	ID       string
	ReadOnly bool
	Backing  string // of a loop device, without " (deleted)"
	// Partitions, Parents (a partition's disk, the slaves of a dm or md device)
	// and Holders (dm, md, bcache above it) are kernel names.
	Partitions []string
	Parents    []string
	Holders    []string
}

// Number is "major:minor".
func (d Device) Number() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// Same says whether both are the same piece of the same disk, within one boot.
// Without a sequence number and without an ID that cannot be known, so it is false.
func (d Device) Same(o Device) bool {
	return d.Major == o.Major && d.Minor == o.Minor && d.Size == o.Size &&
		d.DiskSeq == o.DiskSeq && d.ID == o.ID && (d.DiskSeq != 0 || d.ID != "")
}

// ByNumber finds a device by its number; [api.ErrNotFound] when there is none.
func (d *Devices) ByNumber(major, minor int) (Device, error) {
	link := filepath.Join(d.SysRoot, "dev/block", fmt.Sprintf("%d:%d", major, minor))
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Device{}, api.Errorf(api.ErrNotFound, "no block device has the number %d:%d", major, minor).
				WithNext("see which there are: lsblk")
		}
		return Device{}, fmt.Errorf("device %d:%d: %w", major, minor, err)
	}
	return d.read(dir)
}

// Nodeless says whether the kernel has the device that path, in /dev, is the name
// of, although nothing is there: this /dev is another than the machine's, as in a
// container. A loop device without a backing file does not count.
func (d *Devices) Nodeless(path string) bool {
	name, ok := strings.CutPrefix(filepath.Clean(path), d.DevRoot+"/")
	if !ok {
		return false
	}
	dev, err := d.read(filepath.Join(d.SysRoot, "class/block", strings.ReplaceAll(name, "/", "!")))
	return err == nil && dev.Size > 0
}

// BootID names the running boot: device numbers and sequence numbers mean nothing
// in another one.
func (d *Devices) BootID() (string, error) {
	raw, err := os.ReadFile(filepath.Join(d.ProcRoot, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// ByFile finds the device that f is a node of. f is open, also by O_PATH.
func (d *Devices) ByFile(f *os.File) (Device, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Device{}, fmt.Errorf("fstat %s: %w", f.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, api.Errorf(api.ErrInput, "not a block device but %s", fileType(st.Mode)).At(f.Name())
	}
	return d.ByNumber(int(unix.Major(st.Rdev)), int(unix.Minor(st.Rdev)))
}

// List is every block device with a size, partitions after their disk, by name.
func (d *Devices) List() ([]Device, error) {
	entries, err := os.ReadDir(filepath.Join(d.SysRoot, "block"))
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var out []Device
	for _, e := range entries {
		dir := filepath.Join(d.SysRoot, "block", e.Name())
		disk, err := d.read(dir)
		if err != nil || disk.Size == 0 {
			continue // gone meanwhile, or a drive or loop device with nothing in it
		}
		out = append(out, disk)
		for _, p := range disk.Partitions {
			if part, err := d.read(filepath.Join(dir, p)); err == nil {
				out = append(out, part)
			}
		}
	}
	return out, nil
}

// read makes a Device of its directory in sysfs.
func (d *Devices) read(dir string) (Device, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Device{}, fmt.Errorf("sysfs: %w", err)
	}
	dev := Device{Name: strings.ReplaceAll(filepath.Base(dir), "!", "/"), Holders: names(dir, "holders"), Parents: names(dir, "slaves")}
	if _, err := fmt.Sscanf(attr(dir, "dev"), "%d:%d", &dev.Major, &dev.Minor); err != nil {
		return Device{}, fmt.Errorf("sysfs: %s/dev: %w", dir, err)
	}
	dev.Path = filepath.Join(d.DevRoot, dev.Name)
	disk := dir
	if has(dir, "partition") {
		disk = filepath.Dir(dir)
		dev.Parents = []string{strings.ReplaceAll(filepath.Base(disk), "!", "/")}
	}
	dev.Type = typeOf(dir)
	sectors, _ := strconv.ParseInt(attr(dir, "size"), 10, 64)
	dev.Size = sectors * 512
	dev.DiskSeq, _ = strconv.ParseUint(attr(disk, "diskseq"), 10, 64)
	dev.ReadOnly = attr(dir, "ro") == "1"
	dev.Backing, _ = backing(dir)
	dev.ID = hardwareID(disk)
	if dev.Type == Part && dev.ID != "" {
		dev.ID += " part " + attr(dir, "partition") + " at " + attr(dir, "start")
	}
	if dev.Type != Part {
		dev.Partitions = partitions(dir)
	}
	return dev, nil
}

func typeOf(dir string) Type {
	switch {
	case has(dir, "partition"):
		return Part
	case has(dir, "dm"):
		return DM
	case has(dir, "md"):
		return MD
	case strings.HasPrefix(filepath.Base(dir), "loop"):
		return Loop
	}
	return Disk
}

// hardwareID takes the first of the names that are unique in the world: of NVMe
// (wwid), SCSI (device/wwid), device mapper. Virtio's serial is whatever the
// hypervisor was told, often the same for every disk, so it is none.
func hardwareID(disk string) string {
	for _, a := range []string{"wwid", "device/wwid", "dm/uuid"} {
		if v := attr(disk, a); v != "" {
			return v
		}
	}
	return ""
}

// partitions are the subdirectories of a disk that are partitions, by number.
func partitions(dir string) []string {
	var out []string
	for _, n := range names(dir, ".") {
		if has(dir, n, "partition") {
			out = append(out, n)
		}
	}
	num := func(n string) int { v, _ := strconv.Atoi(attr(dir, filepath.Join(n, "partition"))); return v }
	slices.SortFunc(out, func(a, b string) int { return num(a) - num(b) })
	return out
}

// attr is the value of a sysfs attribute, "" where there is none. Only the final
// newline is not part of it: a backing file's name may end in blanks.
func attr(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

func has(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

// names lists a directory of sysfs; none there is an empty list.
func names(dir, sub string) []string {
	entries, err := os.ReadDir(filepath.Join(dir, sub))
	if err != nil {
		return nil
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out
}

func fileType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFREG:
		return "a regular file"
	case unix.S_IFCHR:
		return "a character device"
	case unix.S_IFLNK:
		return "a symlink"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFIFO:
		return "a fifo"
	}
	return fmt.Sprintf("of mode %o", mode)
}
