package ops

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/plugins"
)

// checkSpec refuses a volume that cannot be published, before anything is made for it.
func (op *operation) checkSpec() error {
	if p, ok := op.plugin.(plugins.SpecChecker); ok && (op.verb == Setup || op.verb == Publish) {
		return p.CheckSpec(op.req.Spec, op.req.Pod)
	}
	return nil
}

// attach brings the volume's device to this node.
func (op *operation) attach(ctx context.Context) (string, error) {
	can, err := op.attachable()
	if err != nil {
		return "", err
	}
	if can == nil {
		return op.unattached(), nil
	}
	attacher, err := can.NewAttacher()
	if err != nil {
		return "", err
	}
	attached, err := attacher.Attach(ctx, op.run, op.req.Spec, op.host.NodeName)
	if err != nil {
		return "", err
	}
	if attached.PublishContext != nil {
		op.req.Spec.PublishContext = attached.PublishContext
	}
	dev, err := attacher.WaitForAttach(ctx, op.run, op.req.Spec, attached.DevicePath, op.req.Pod)
	op.device = dev.String()
	return "", err
}

// attachable is the plugin as one that attaches, nil when this volume is not
// attached.
func (op *operation) attachable() (plugins.AttachableVolumePlugin, error) {
	p, err := plugins.As[plugins.AttachableVolumePlugin](op.plugin)
	if errors.Is(err, api.ErrNotSupported) {
		return nil, nil
	}
	can, err := p.CanAttach(op.req.Spec)
	if err != nil || !can {
		return nil, err
	}
	return p, nil
}

// unattached says why there is nothing to attach.
func (op *operation) unattached() string {
	if _, err := plugins.As[plugins.AttachableVolumePlugin](op.plugin); err == nil {
		return "this volume of " + op.plugin.GetPluginName() + " needs no attaching"
	}
	return "volumes of " + op.plugin.GetPluginName() + " need no attaching"
}

// CheckAttached says whether a volume is attached to this node. A volume that
// needs no attaching is there when its source is.
func (o *Ops) CheckAttached(ctx context.Context, req Request) (*api.List[api.Result], error) {
	op := &operation{Ops: o, verb: Attach, req: req}
	none := api.NewList[api.Result]("ResultList", nil, nil)
	if err := op.check(); err != nil {
		return none, op.wrap(err)
	}
	if err := op.fromSpec(); err != nil {
		return none, op.wrap(err)
	}
	r := api.Result{
		Op: "attach --check", Plugin: op.plugin.GetPluginName(), Volume: op.name, Paths: op.paths(ctx),
		Outcome: api.OutcomeAlready, Steps: []api.Step{},
	}
	p, err := op.attachable()
	switch {
	case err != nil:
	case p == nil:
		r.Outcome, r.Reason = api.OutcomeSkipped, op.unattached()
		if d, derr := plugins.As[plugins.DeviceMountableVolumePlugin](op.plugin); derr == nil {
			_, _, err = d.CanDeviceMount(ctx, req.Spec)
		}
	default:
		err = checkAttacher(ctx, p, req, o.host.NodeName)
	}
	if err != nil {
		return none, op.wrap(err)
	}
	return api.NewList("ResultList", []api.Result{r}, nil), nil
}

func checkAttacher(ctx context.Context, p plugins.AttachableVolumePlugin, req Request, nodeName string) error {
	attacher, err := p.NewAttacher()
	if err != nil {
		return err
	}
	all, err := attacher.VolumesAreAttached(ctx, []*plugins.Spec{req.Spec}, nodeName)
	if errors.Is(err, api.ErrMissingTool) {
		return api.Errorf(api.ErrUncertain, "whether it is attached cannot be known: %w", err)
	}
	if err != nil {
		return err
	}
	is, known := all[req.Spec]
	switch {
	case !known:
		return api.Errorf(api.ErrUncertain, "whether it is attached cannot be known: nobody here tells").
			WithNext("ask the cluster: kubectl get volumeattachments; its document can be given with -f")
	case !is:
		return api.Errorf(api.ErrNotFound, "it is not attached to node %s", nodeName).WithNext("attach it: kvol attach -f FILE")
	}
	return nil
}

// mountDevice makes the global mount, or readies the device of a raw block volume.
func (op *operation) mountDevice(ctx context.Context) (string, error) {
	if op.block {
		return op.setUpDevice(ctx)
	}
	p, err := plugins.As[plugins.DeviceMountableVolumePlugin](op.plugin)
	if errors.Is(err, api.ErrNotSupported) {
		return "volumes of " + op.plugin.GetPluginName() + " have no global mount", nil
	}
	can, reason, err := p.CanDeviceMount(ctx, op.req.Spec)
	if err != nil || !can {
		return reason, err
	}
	d, err := p.NewDeviceMounter()
	if err != nil {
		return "", err
	}
	path, err := d.GetDeviceMountPath(ctx, op.req.Spec)
	if err != nil {
		return "", err
	}
	dev, err := op.specDevice(ctx)
	if err == nil {
		err = op.lockDevice(ctx, dev)
	}
	if err != nil {
		return "", err
	}
	if _, mounted := op.run.Table().Top(path); !mounted && op.device != "" {
		if err := op.notMapped(ctx, op.device); err != nil {
			return "", err
		}
	}
	return "", d.MountDevice(ctx, op.run, op.req.Spec, act.Known(op.device), path, plugins.DeviceMounterArgs{
		Format: op.req.Format, FSGroup: op.req.Pod.FSGroup,
	})
}

// lockDevice locks the device behind the volume: two PersistentVolumes can name
// one disk, and only one of two kvols may look whether it is blank.
func (op *operation) lockDevice(ctx context.Context, dev string) error {
	if dev == "" {
		return nil
	}
	src, err := op.run.Source(ctx, dev)
	if err != nil {
		return err
	}
	op.device = src.Path
	if op.locks == nil {
		return nil
	}
	if mark, _, err := op.diskMark(src.Device()); err == nil {
		op.journal.Disk(mark)
	}
	return op.locks.Take(ctx, act.LockDevice, src.Device(), false)
}

func (op *operation) setUpDevice(ctx context.Context) (string, error) {
	p, err := plugins.As[plugins.BlockVolumePlugin](op.plugin)
	if err != nil {
		return "", err
	}
	m, err := p.NewBlockVolumeMapper(op.req.Spec, op.req.Pod)
	if err != nil {
		return "", err
	}
	did, err := m.SetUpDevice(ctx, op.run)
	if err == nil && !did {
		return "a raw block volume of " + op.plugin.GetPluginName() + " needs nothing node-wide before it is published", nil
	}
	return "", err
}

// publish gives the volume to the pod.
func (op *operation) publish(ctx context.Context) (string, error) {
	if op.block {
		return "", op.mapDevice(ctx)
	}
	m, err := op.plugin.NewMounter(op.req.Spec, op.req.Pod)
	if err != nil {
		return "", err
	}
	before := len(op.run.Steps())
	err = m.SetUp(ctx, op.run, plugins.MounterArgs{
		FSGroup: op.req.Pod.FSGroup, FSGroupChangePolicy: op.req.Pod.FSGroupChangePolicy,
	})
	if b, ok := m.(plugins.RuntimeBound); ok && err == nil && len(op.run.Steps()) == before {
		return b.RuntimeBinds(), nil
	}
	return "", err
}

// mapDevice is the kubelet's common map of a raw block volume: the device node
// bound under the global map path, the pod's link to the device, and a loop
// device that holds the bind open so that the device's name is not given away.
func (op *operation) mapDevice(ctx context.Context) error {
	p, err := plugins.As[plugins.BlockVolumePlugin](op.plugin)
	if err != nil {
		return err
	}
	m, err := p.NewBlockVolumeMapper(op.req.Spec, op.req.Pod)
	if err != nil {
		return err
	}
	dev, err := m.MapPodDevice(ctx, op.run)
	if err != nil {
		return err
	}
	if dev.Empty() {
		return api.Errorf(nil, "the plugin gave no device to map")
	}
	op.device = dev.String()
	target, link, err := mapPaths(m, op.req.Pod.UID)
	if err != nil {
		return err
	}
	text, known := dev.Text()
	if !known {
		return api.Errorf(api.ErrNotSupported, "a device that is not attached yet cannot be planned to be mapped").
			WithNext("attach the volume first (kvol attach -f FILE), or run the command without --dry-run")
	}
	if op.plannedPath(text) {
		return op.mapAt(ctx, text, target, link)
	}
	if err := op.lockDevice(ctx, text); err != nil {
		return err
	}
	if _, mapped := op.run.Table().Top(target); !mapped {
		if err := op.notMounted(ctx, text); err != nil {
			return err
		}
	}
	return op.mapAt(ctx, text, target, link)
}

// plannedPath says that a device is one that a step of this dry run puts there: there
// is nothing to look at yet.
func (op *operation) plannedPath(path string) bool {
	if !op.run.DryRun || !strings.HasPrefix(path, op.host.Layout.Root+"/") {
		return false
	}
	info, err := op.run.Root.Stat(path)
	return err != nil || info.Type != safefs.BlockDevice
}

// mapAt links, binds and holds. The pod's link comes first, and goes last in
// unmapDevice: it is in the pod's directory and holds the volume's name, so that a
// run that was cut short is found again by name.
func (op *operation) mapAt(ctx context.Context, dev, target, link string) error {
	steps := []act.Action{
		act.Symlink{Target: act.Known(dev), Path: link, Reason: "the pod's link to its device"},
		act.CreateFile{Path: target, Perm: 0o750, Reason: "what the device node is bound on"},
		act.Bind{Source: dev, Target: target, Reason: "map the device for the pod"},
		act.LoopAttach{Backing: target, Reason: "hold the device open, as the kubelet does"},
	}
	for _, a := range steps {
		if err := op.run.Check(ctx, a); err != nil {
			return err // before anything is made
		}
	}
	if err := op.run.GiveRaw(ctx, dev); err != nil {
		return err
	}
	if err := op.run.MkdirAll(ctx, filepath.Dir(target), 0o750, "the global map path"); err != nil {
		return err
	}
	if err := op.run.MkdirAll(ctx, filepath.Dir(link), 0o750, "the pod's block volumes"); err != nil {
		return err
	}
	for _, a := range steps {
		if _, err := op.run.Do(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// mapPaths are the bind of the device for a pod, and the pod's link.
func mapPaths(b plugins.BlockVolume, podUID string) (target, link string, err error) {
	global, err := b.GetGlobalMapPath()
	if err != nil {
		return "", "", err
	}
	dir, name, err := b.GetPodDeviceMapPath()
	return filepath.Join(global, podUID), filepath.Join(dir, name), err
}

// unmapDevice is mapDevice backwards.
func (op *operation) unmapDevice(ctx context.Context, u plugins.BlockVolumeUnmapper) error {
	target, link, err := mapPaths(u, op.req.Pod.UID)
	if err != nil {
		return err
	}
	if _, err := op.run.Do(ctx, act.LoopDetach{Backing: target, Reason: "let the device go"}); err != nil {
		return err
	}
	if _, err := op.run.UnmountAll(ctx, target, "take the device from the pod"); err != nil {
		return err
	}
	if _, err := op.run.Do(ctx, act.Unlink{Path: target, What: safefs.BindTarget, Reason: "the empty bind target"}); err != nil {
		return err
	}
	if err := u.UnmapPodDevice(ctx, op.run); err != nil {
		return err
	}
	_, err = op.run.Do(ctx, act.Unlink{Path: link, What: safefs.DeviceLink, Reason: "the pod's link to the device"})
	return err
}
