package devices

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/exact"
)

// LoopsOver finds loop devices whose backing file is a node of one of set: the
// lock that the kubelet holds on a raw block volume. Its path says little (it is
// any bind of the node), so every loop device is asked for the number behind it.
func (d *Devices) LoopsOver(ctx context.Context, set ...Device) ([]Holder, error) {
	loops, files, err := d.backings(ctx)
	var out []Holder
	for i, l := range loops {
		for _, s := range set {
			if files[i].Rdev == s.rdev() {
				out = append(out, Holder{Type: "loop", Path: l.Path, Detail: "over " + l.Backing})
			}
		}
	}
	return out, err
}

// SameFile finds the other loop devices over the file that backs dev, or dev's
// disk. To the kernel they are different disks: a claim of one does not exclude
// the others, and file systems mounted from two of them destroy each other.
func (d *Devices) SameFile(ctx context.Context, dev Device) ([]Device, error) {
	disk := dev.Name
	if dev.Type == Part && len(dev.Parents) == 1 {
		disk = dev.Parents[0]
	}
	if !strings.HasPrefix(disk, "loop") {
		return nil, nil
	}
	loops, files, err := d.backings(ctx)
	if err != nil {
		return nil, err
	}
	self := slices.IndexFunc(loops, func(l LoopDevice) bool { return l.Name == disk })
	var out []Device
	for i, l := range loops {
		if self < 0 || i == self || files[i].Ino == 0 || files[i] != files[self] {
			continue
		}
		if same, err := d.read(filepath.Join(d.SysRoot, "class/block", l.Name)); err == nil {
			out = append(out, same)
		}
	}
	return out, nil
}

// backingFile is what a loop device is over; zero where it is detached meanwhile.
type backingFile struct {
	Dev, Ino uint64
	Rdev     uint64 // of a device node, else 0
}

// backings asks every loop device for the file behind it.
func (d *Devices) backings(ctx context.Context) ([]LoopDevice, []backingFile, error) {
	loops, err := d.Loops()
	if err != nil || len(loops) == 0 {
		return nil, nil, err
	}
	paths := make([]string, len(loops))
	for i, l := range loops {
		paths[i] = l.Path
	}
	var files []backingFile
	if _, err := d.Helper.Call(ctx, jobBackings, paths, nil, &files); err != nil {
		return nil, nil, fmt.Errorf("loop devices: %w", err)
	}
	if len(files) != len(loops) {
		return nil, nil, fmt.Errorf("%d of %d loop devices tell what backs them", len(files), len(loops))
	}
	return loops, files, nil
}

// backingsJob asks each loop device.
func backingsJob(raw []byte, _ []*os.File) (any, []*os.File, error) {
	var paths []string
	if err := exact.Unmarshal(raw, &paths); err != nil {
		return nil, nil, err
	}
	out := make([]backingFile, len(paths))
	for i, p := range paths {
		fd, err := openLoop(p, unix.O_RDONLY)
		if err != nil {
			return nil, nil, err
		}
		if info, err := unix.IoctlLoopGetStatus64(fd); err == nil {
			out[i] = backingFile{Dev: info.Device, Ino: info.Inode, Rdev: info.Rdevice}
		}
		unix.Close(fd)
	}
	return out, nil, nil
}
