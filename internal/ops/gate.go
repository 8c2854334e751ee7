package ops

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/plugins"
)

// gate is what every detach passes: it proves that nobody on this node uses the
// volume, in whatever mount namespace, and names who does. In a teardown a volume
// that another pod has published is skipped instead.
func (op *operation) gate(ctx context.Context) (skip string, err error) {
	if users := op.published(); len(users) > 0 {
		return op.inUse("", users)
	}
	if paths, err := op.globallyMounted(); err != nil || len(paths) > 0 {
		if err != nil {
			return "", err
		}
		return "", api.Errorf(api.ErrBusy, "its global mount is still there").At(paths[0]).
			WithNext("kvol unmount-device %s", act.Quote(op.name))
	}
	devs, err := op.devices(ctx)
	if err != nil {
		return "", err
	}
	if len(devs) == 0 {
		// A directory, or a volume of which nothing is left.
		return "", op.noCandidate(op.plugin.GetPluginName())
	}
	for _, path := range devs {
		if err := op.unused(ctx, path); err != nil {
			return "", err
		}
	}
	return "", nil
}

// published are the pods that have the volume, as the runner sees it.
func (op *operation) published() []consumer {
	var out []string
	for _, ref := range op.find.Pods(op.plugin.GetPluginName(), op.ref()) {
		_, mounted := op.run.Table().Top(ref.Path)
		e, err := op.run.Entry(ref.Path)
		if mounted || ref.Block && err == nil && e.Present {
			out = append(out, ref.Path)
		}
	}
	return op.consumers(out)
}

func (op *operation) globallyMounted() ([]string, error) {
	p, err := plugins.As[plugins.DeviceMountableVolumePlugin](op.plugin)
	if errors.Is(err, api.ErrNotSupported) {
		return nil, nil
	}
	u, err := p.NewDeviceUnmounter()
	if err != nil {
		return nil, err
	}
	all, err := op.globals(u)
	return slices.DeleteFunc(all, func(path string) bool {
		_, mounted := op.run.Table().Top(path)
		return !mounted
	}), err
}

// devices finds the volume's device: from the spec, from where the volume was
// when this operation began, from other mount namespaces that still have it, and,
// where nothing else tells, from what kvol itself mounted last under that name.
func (op *operation) devices(ctx context.Context) ([]string, error) {
	out := append(op.kept(), op.elsewhere(ctx)...)
	if op.req.Spec != nil {
		dev, err := op.specDevice(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, dev)
	}
	dev, err := op.namedDevice(ctx)
	if err != nil {
		return nil, err
	}
	out = append(out, dev)
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(s string) bool { return s == "" })
	if len(out) == 0 && op.req.Spec == nil {
		if dev := op.lastDevice(); dev != "" {
			out = append(out, dev)
		}
	}
	return out, nil
}

// namedDevice is the device that the request itself names, "" when it names none.
func (op *operation) namedDevice(ctx context.Context) (string, error) {
	word := filepath.Clean(op.req.Volume)
	if op.req.Spec != nil || !strings.HasPrefix(word, "/") || strings.HasPrefix(word, op.host.Layout.Root+"/") {
		return "", nil
	}
	src, err := act.OpenSource(ctx, op.host.Helper, word)
	if err != nil {
		return "", err
	}
	defer src.Close()
	if !src.IsBlock() {
		return "", nil
	}
	return src.Path, nil
}

// nodeDevices are the devices that the node itself shows for the volume: of its
// global mount, and of its map as a raw block device. A pod's mount does not tell:
// the file system of a local directory is the whole node's.
func (op *operation) nodeDevices() []disk {
	var out []disk
	for _, ref := range op.places() {
		switch ref.Kind {
		case api.KindGlobalMount:
			if m, ok := op.find.Table().Top(ref.Path); ok && !op.onNodesDisk(m) {
				out = append(out, op.disk(sourceDevice(m), m.Major, m.Minor))
			}
		case api.KindGlobalMapDevice:
			info, err := op.run.Root.Stat(ref.Path)
			if err != nil || info.Type != safefs.BlockDevice {
				continue
			}
			major, minor := int(unix.Major(info.Rdev)), int(unix.Minor(info.Rdev))
			if d, err := op.host.Devices.ByNumber(major, minor); err == nil {
				out = append(out, op.disk(d.Path, major, minor))
			}
		}
	}
	return out
}

// onNodesDisk says that a mount is a directory of a file system that the node itself
// lives on, which a driver can bind: that disk is not the volume's.
func (op *operation) onNodesDisk(m mounts.Mount) bool {
	return m.Root != "/" && slices.ContainsFunc([]string{"/", op.host.Layout.Root}, func(path string) bool {
		on, ok := op.find.Table().Covering(path)
		return ok && on.Device() == m.Device()
	})
}

// disk is a device and, where its number tells, the disk that it was then.
type disk struct {
	path string
	mark api.DiskMark
}

func (op *operation) disk(path string, major, minor int) disk {
	mark, _, err := op.diskMark(fmt.Sprintf("%d:%d", major, minor))
	if err != nil { // a number of no device: the file system has several
		return disk{path: path}
	}
	return disk{path, mark}
}

// kept are the devices that the node had for the volume to begin with, without those
// that a driver has let go of since: their names may be another volume's already.
func (op *operation) kept() []string {
	var out []string
	for _, d := range op.begunWith {
		now, _, err := op.diskMark(d.mark.Number)
		if err != nil || now == d.mark {
			out = append(out, d.path)
		}
	}
	return out
}

// sourceDevice is the device that a mount is of, "" when it is of none.
func sourceDevice(m mounts.Mount) string {
	if strings.HasPrefix(m.Source, "/dev/") {
		return m.Source
	}
	return ""
}

// specDevice asks the plugin where the volume's device is, "" for a directory. A
// source that is gone uses nothing.
func (op *operation) specDevice(ctx context.Context) (string, error) {
	p, ok := op.plugin.(plugins.DeviceNamer)
	if !ok {
		return "", nil
	}
	dev, err := p.DeviceOf(ctx, op.req.Spec)
	if errors.Is(err, api.ErrNotFound) {
		return op.gone(err), nil
	}
	return dev, err
}

// gone is the device that was not found, if it is only this /dev that does not
// have it.
func (op *operation) gone(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok && op.host.Devices.Nodeless(e.Path) {
		return e.Path
	}
	return ""
}

// elsewhere looks for the volume's global mount in every mount namespace. A table that
// cannot be read is no proof of anything here; the look for holders says so.
func (op *operation) elsewhere(ctx context.Context) []string {
	set, err := op.where().Paths(ctx, op.host.Layout.Root)
	if err != nil || set.GlobalMountPath == "" {
		return nil
	}
	var out []string
	_ = op.host.Devices.EachMountNamespace(func(_ int, _ string, t *mounts.Table) {
		if m, ok := t.Top(set.GlobalMountPath); ok && !op.onNodesDisk(m) {
			out = append(out, sourceDevice(m))
		}
	})
	return out
}

// settle is how long a device is asked again that is busy without a holder, or only
// open: what just let go of it may still be on its way out of the kernel, and udev,
// blkid and mkfs of other disks open every device for a moment.
const settle = 2 * time.Second

// unused proves that nobody uses a device.
func (op *operation) unused(ctx context.Context, path string) error {
	dev, err := op.host.Devices.Open(ctx, path)
	if errors.Is(err, api.ErrNotFound) {
		return op.nodeless(path)
	}
	if err != nil {
		return err
	}
	defer dev.Close()
	var holders []devices.Holder
	var claimed error
	deadline := time.Now().Add(settle)
	for {
		holders, err = op.host.Devices.Holders(ctx, dev.Device)
		if err != nil {
			return api.Errorf(api.ErrUncertain, "who uses the device cannot be known: %w", err).At(path)
		}
		var planned bool
		holders, planned = op.unplanned(holders)
		if claimed = nil; !planned { // the kernel cannot be asked about a plan
			claimed = op.claim(ctx, dev)
		}
		if len(holders) == 0 && claimed == nil {
			return nil
		}
		if claimed != nil && !errors.Is(claimed, api.ErrBusy) {
			return claimed
		}
		lasting := slices.ContainsFunc(holders, func(h devices.Holder) bool { return h.Type != "fd" })
		if lasting || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(holders) == 0 {
		holders = []devices.Holder{{Type: "unknown", Detail: "the kernel says that the device is claimed, and nothing that kvol can look at says by whom"}}
	}
	return op.stillHeld(path, holders)
}

// nodeless passes a device that is not there: it is used by nobody. That is not
// known of one that only this /dev does not have.
func (op *operation) nodeless(path string) error {
	if !op.host.Devices.Nodeless(path) {
		return nil
	}
	return api.Errorf(api.ErrUncertain, "the kernel has this device and there is no node for it, so who uses it cannot be known").At(path).
		WithNext("run the same command where /dev is the machine's own: nsenter -t 1 -m kvol …")
}

// stillHeld refuses a detach with the names of the holders.
func (op *operation) stillHeld(path string, holders []devices.Holder) error {
	e := api.Errorf(api.ErrBusy, "the device is still in use; detaching it now could damage what is on it").At(path)
	for _, h := range holders {
		e.Details = append(e.Details, "holder "+op.holder(h))
	}
	return e.WithNext("end what uses it and run the same command again; see also: lsof %[1]s; lsblk %[1]s", act.Quote(path))
}

// unplanned leaves out the holders that the steps of a dry run take away, and says
// whether there were any.
func (op *operation) unplanned(holders []devices.Holder) ([]devices.Holder, bool) {
	if !op.run.DryRun {
		return holders, false
	}
	own := op.host.Devices.OwnMountNamespace()
	left := slices.DeleteFunc(slices.Clone(holders), func(h devices.Holder) bool {
		here := h.Type == "loop" || h.Type == "mount" && h.MountNS == own
		return here && op.run.PlannedAway(h.Path)
	})
	return left, len(left) < len(holders)
}

func (op *operation) claim(ctx context.Context, dev *devices.Handle) error {
	f, err := dev.Exclusive(ctx, 0)
	if err == nil {
		f.Close()
	}
	return err
}

// holder names a holder and, where its path tells, the pod that it is of.
func (op *operation) holder(h devices.Holder) string {
	path := filepath.Clean(h.Path)
	if h.Type == "loop" {
		path = strings.TrimPrefix(h.Detail, "over ") // its own name says nothing
	}
	if at := op.host.Layout.Parse(path); at.PodUID != "" {
		return h.String() + " (pod " + at.PodUID + ")"
	}
	return h.String()
}
