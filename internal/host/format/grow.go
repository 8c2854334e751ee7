package format

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/exec"
)

// grower is how the mounted file system of a type is measured and grown. The
// arguments of growing are those of k8s.io/mount-utils (ResizeFs.Resize); device and
// mount point are given by descriptor, as the tool's third.
type grower struct {
	size     exec.Cmd // prints the size
	ofDevice bool     // size looks at the device
	// unit and count are the words before the size of a block and their number; a
	// count without unit is of bytes.
	unit, count string
	grow        exec.Cmd
	growDevice  bool // grow takes the device, not the mount point
}

var growers = map[string]grower{
	"ext4": {
		size: exec.Cmd{Name: "dumpe2fs", Args: []string{"-h", selfFD}}, ofDevice: true, unit: "Block size:", count: "Block count:",
		grow: exec.Cmd{Name: "resize2fs", Args: []string{selfFD}}, growDevice: true,
	},
	"xfs": {
		size: exec.Cmd{Name: "xfs_growfs", Args: []string{"-n", selfFD}}, unit: "data = bsize=", count: "blocks=",
		grow: exec.Cmd{Name: "xfs_growfs", Args: []string{"-d", selfFD}},
	},
	"btrfs": {
		size: exec.Cmd{Name: "btrfs", Args: []string{"inspect-internal", "dump-super", selfFD}}, ofDevice: true, count: "dev_item.total_bytes",
		grow: exec.Cmd{Name: "btrfs", Args: []string{"filesystem", "resize", "max", selfFD}},
	},
}

// leftOver is what a file system that was grown may leave of its device: xfs makes no
// allocation group of less than 64 blocks (XFS_MIN_AG_BLOCKS), ext4 no block group
// that has no room for its own tables.
const leftOver = 1 << 20

// CanGrow says how much larger the mounted file system of a device can become, 0 where
// it fills the device.
func CanGrow(ctx context.Context, e Env, path, fsType string, mount *os.File) (int64, error) {
	dev, err := e.Devices.Open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer dev.Close()
	g, err := growerOf(fsType, dev)
	if err != nil {
		return 0, err
	}
	now, err := g.measure(ctx, e, dev, mount)
	if err != nil {
		return 0, err
	}
	if more := dev.Size - now; more > leftOver {
		return more, nil
	}
	return 0, nil
}

func growerOf(fsType string, dev *devices.Handle) (grower, error) {
	if fsType == "ext3" {
		fsType = "ext4"
	}
	g, ok := growers[fsType]
	switch {
	case !ok:
		return g, api.Errorf(api.ErrNotSupported, "a mounted %s cannot be grown by kvol: ext3, ext4, xfs and btrfs can", fsType).At(dev.Path).
			WithNext("grow it with its own tool; what it is: blkid -p %s", dev.Path)
	case dev.ReadOnly:
		return g, api.Errorf(api.ErrRefused, "the device is read-only, so its file system cannot grow").At(dev.Path).
			WithNext("see why: blockdev --report %s", dev.Path)
	}
	return g, nil
}

func (g grower) measure(ctx context.Context, e Env, dev *devices.Handle, mount *os.File) (int64, error) {
	cmd := g.size
	cmd.Files = []*os.File{mount}
	if g.ofDevice {
		cmd.Files = []*os.File{dev.File}
	}
	res, err := e.Exec.Run(ctx, cmd)
	if err == nil {
		err = res.Check(cmd)
	}
	if err != nil {
		return 0, fmt.Errorf("measure the file system on %s: %w", dev.Path, err)
	}
	text, unit := strings.Join(strings.Fields(string(res.Stdout)), " "), int64(1)
	if g.unit != "" {
		_, after, _ := strings.Cut(text, g.unit)
		unit = number(after)
		if g.ofDevice { // dumpe2fs has the count before the size
			after = text
		}
		text = after
	}
	_, after, _ := strings.Cut(text, g.count)
	if n := number(after); n > 0 && unit > 0 {
		return n * unit, nil
	}
	return 0, fmt.Errorf("measure the file system on %s: %s tells no size", dev.Path, cmd.Name)
}

// number is the one that a text begins with, 0 for none.
func number(text string) int64 {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	n, _ := strconv.ParseInt(text[:end], 10, 64) // not a number is 0
	return n
}

// Grow grows the mounted file system of a device to the device's size.
func Grow(ctx context.Context, e Env, path, fsType string, mount *os.File) error {
	dev, err := e.Devices.Open(ctx, path)
	if err != nil {
		return err
	}
	defer dev.Close()
	g, err := growerOf(fsType, dev)
	if err != nil {
		return err
	}
	before, err := g.measure(ctx, e, dev, mount)
	if err != nil {
		return err
	}
	cmd := g.grow
	cmd.Files, cmd.Inherit = []*os.File{mount}, e.Locks
	if g.growDevice {
		cmd.Files = []*os.File{dev.File}
	}
	res, err := e.Exec.Run(ctx, cmd)
	if err == nil {
		err = res.Check(cmd)
	}
	if err != nil {
		return api.Errorf(nil, "the file system was not grown: %w", err).At(dev.Path).WithNext("the kernel says why: dmesg | tail")
	}
	after, err := g.measure(ctx, e, dev, mount)
	if err == nil && after <= before {
		err = api.Errorf(api.ErrUncertain, "%s ended well and the file system has %d bytes, as before", cmd.Name, after).At(dev.Path).
			WithNext("see how large the device is (blockdev --getsize64 %s), and what the kernel says: dmesg | tail", dev.Path)
	}
	return err
}
