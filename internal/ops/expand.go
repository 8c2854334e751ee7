package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/plugins"
)

// expand grows the volume on this node, where it is mounted: its file system becomes
// as large as its device, or its driver grows it.
func (op *operation) expand(ctx context.Context) (string, error) {
	p, err := plugins.As[plugins.NodeExpandableVolumePlugin](op.plugin)
	if err != nil {
		return "", err
	}
	spec, err := op.specOnNode()
	if err != nil {
		return "", err
	}
	o := plugins.NodeExpandOptions{Spec: spec, NewSize: cmp.Or(op.req.Size, capacity(spec))}
	if n, ok := op.plugin.(plugins.DeviceNamer); ok {
		if o.DevicePath, err = n.DeviceOf(ctx, spec); err != nil {
			return "", err
		}
		if o.DevicePath == "" {
			return "the volume is a directory, and as large as what it lies on", nil
		}
		if err := op.largeEnough(ctx, o.DevicePath); err != nil {
			return "", err
		}
	}
	if op.block {
		return "", op.expandBlock(ctx, p, o)
	}
	if o.DeviceMountPath = op.mountedAt(); o.DeviceMountPath == "" {
		return "", api.Errorf(api.ErrNotMounted, "the volume is not mounted on this node, and a file system grows while it is").
			WithNext("mount it first: kvol mount-device -f FILE (or the whole way with kvol setup)")
	}
	if err := op.lockDevice(ctx, o.DevicePath); err != nil {
		return "", err
	}
	if op.oldSize, err = op.run.FSSize(ctx, o.DeviceMountPath); err != nil {
		return "", err
	}
	if _, err := p.NodeExpand(ctx, op.run, o); err != nil || op.run.DryRun {
		return "", err
	}
	if op.newSize, err = op.run.FSSize(ctx, o.DeviceMountPath); err == nil {
		op.note = fmt.Sprintf("it had %d bytes and has %d", op.oldSize, op.newSize)
	}
	return "", err
}

// expandBlock tells the driver of a raw block volume; of others it has the size of
// its device.
func (op *operation) expandBlock(ctx context.Context, p plugins.NodeExpandableVolumePlugin, o plugins.NodeExpandOptions) error {
	for _, dev := range op.nodeDevices() {
		o.DevicePath = cmp.Or(o.DevicePath, dev.path)
	}
	op.device = o.DevicePath
	_, err := p.NodeExpand(ctx, op.run, o)
	return err
}

// specOnNode is the volume's document, or what the node tells of it.
func (op *operation) specOnNode() (*plugins.Spec, error) {
	if op.req.Spec != nil {
		return op.req.Spec, nil
	}
	err := error(api.Errorf(api.ErrNotFound, "nothing of it is on this node"))
	for _, ref := range op.places() {
		if op.req.Pod.UID != "" && ref.PodUID != "" && ref.PodUID != op.req.Pod.UID {
			continue
		}
		rec, rerr := reconstruct(op.plugin, ref)
		if rerr == nil && !slices.Contains(rec.Missing, "spec.local.path") {
			return rec.Spec, nil
		}
		err = cmp.Or(rerr, err)
	}
	return nil, api.Errorf(api.KindOf(err), "the node does not tell what it is: %w", err).WithNext("give its document: -f FILE")
}

// mountedAt is the volume's global mount, or where a pod has it; "" is nowhere.
func (op *operation) mountedAt() string {
	var inPod string
	for _, ref := range op.mountedRefs() {
		switch {
		case ref.Kind == api.KindGlobalMount:
			return ref.Path
		case op.req.Pod.UID == "" || ref.PodUID == op.req.Pod.UID:
			inPod = cmp.Or(inPod, ref.Path)
		}
	}
	return inPod
}

func (op *operation) mountedRefs() []node.Ref {
	return slices.DeleteFunc(op.places(), func(ref node.Ref) bool {
		_, mounted := op.run.Table().Top(ref.Path)
		return !mounted || ref.Kind != api.KindGlobalMount && ref.Kind != api.KindPodVolume
	})
}

// largeEnough refuses a size that the device does not have: nobody but its storage
// gives it more.
func (op *operation) largeEnough(ctx context.Context, path string) error {
	if op.req.Size == 0 {
		return nil
	}
	dev, err := op.host.Devices.Open(ctx, path)
	if err != nil {
		return err
	}
	defer dev.Close()
	if dev.Size < op.req.Size {
		return api.Errorf(api.ErrRefused, "the device has %d bytes, and --size asks for %d", dev.Size, op.req.Size).At(dev.Path).
			WithNext("make the device larger first; what the kernel has: blockdev --getsize64 %s", act.Quote(dev.Path))
	}
	return nil
}

// capacity is what a PersistentVolume's document says that it has.
func capacity(spec *plugins.Spec) int64 {
	if spec.PersistentVolume == nil {
		return 0
	}
	return spec.PersistentVolume.Spec.Capacity.Storage().Value()
}
