package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// unpublish takes the volume from the pod.
func (op *operation) unpublish(ctx context.Context) (string, error) {
	if op.ref().Name == "" { // of the pod's own volumes none is known to be it
		_, err := op.inPod()
		return "", err
	}
	if op.block {
		p, err := plugins.As[plugins.BlockVolumePlugin](op.plugin)
		if err != nil {
			return "", err
		}
		u, err := p.NewBlockVolumeUnmapper(op.ref(), op.req.Pod.UID)
		if err != nil {
			return "", err
		}
		return "", op.unmapDevice(ctx, u)
	}
	u, err := op.plugin.NewUnmounter(op.ref(), op.req.Pod.UID)
	if err != nil {
		return "", err
	}
	if err := op.noSubPaths(); err != nil {
		return "", err
	}
	if b, ok := u.(plugins.RuntimeBound); ok {
		return b.RuntimeBinds(), u.TearDown(ctx, op.run)
	}
	return "", u.TearDown(ctx, op.run)
}

// noSubPaths refuses to take a volume from a pod whose containers still have parts
// of it bound: they hold its file system busy, and the kubelet takes them first.
func (op *operation) noSubPaths() error {
	dir, err := op.host.Layout.SubPathsDir(op.req.Pod.UID)
	if err != nil {
		return err
	}
	var left []string
	for _, m := range op.run.Table().Under(dir) {
		if at := op.host.Layout.Parse(m.MountPoint); at.Kind == paths.SubPath && at.Volume == op.name {
			left = append(left, m.MountPoint)
		}
	}
	if len(left) == 0 {
		return nil
	}
	e := api.Errorf(api.ErrBusy, "%s mounted for the pod's containers", api.Count(len(left), "subpath of the volume is", "subpaths of the volume are")).At(dir)
	e.Details = left
	return e.WithNext("stop the pod's containers first; then unmount the subpaths: umount %s", act.Quote(left[0]))
}

// unmountDevice takes the global mount away, unless a pod uses it.
func (op *operation) unmountDevice(ctx context.Context) (string, error) {
	if op.block {
		return op.tearDownDevice(ctx)
	}
	p, err := plugins.As[plugins.DeviceMountableVolumePlugin](op.plugin)
	if errors.Is(err, api.ErrNotSupported) {
		return "volumes of " + op.plugin.GetPluginName() + " have no global mount", nil
	}
	u, err := p.NewDeviceUnmounter()
	if err != nil {
		return "", err
	}
	globals, err := op.globals(u)
	if err != nil {
		return "", err
	}
	found := false
	for _, path := range globals {
		e, err := op.run.Entry(path)
		if err != nil {
			return "", err
		}
		users := op.usersOf(path)
		if len(users) == 0 && e.Present {
			users = op.published() // a driver that binds into pods at publish only mounts nothing here
		}
		if len(users) > 0 {
			return op.inUse(path, users)
		}
		found = found || e.Present
		if err := u.UnmountDevice(ctx, op.run, op.ref(), path); err != nil {
			return "", err
		}
	}
	if !found {
		if err := op.noCandidate(op.plugin.GetPluginName()); err != nil {
			return "", err
		}
		if users := op.published(); len(users) > 0 && op.volumeName == "" && op.plugin.GetPluginName() == paths.CSIPlugin {
			return op.inUse("", users) // of a global mount that nothing gives a name to
		}
		return op.notDeviceMounted(ctx)
	}
	return "", nil
}

// globals are the volume's global mounts: those that its name gives, and the one
// that was named by its path.
func (op *operation) globals(u plugins.DeviceUnmounter) ([]string, error) {
	all, err := u.GlobalPaths(op.ref())
	if err != nil {
		return nil, err
	}
	if at := op.host.Layout.Parse(op.req.Volume); at.Kind == paths.GlobalMount && at.Rest == "" && !slices.Contains(all, op.req.Volume) {
		all = append(all, op.req.Volume)
	}
	return all, nil
}

// notDeviceMounted says why there is nothing to unmount, where that is by design.
func (op *operation) notDeviceMounted(ctx context.Context) (string, error) {
	if op.req.Spec == nil {
		return "", nil
	}
	p, err := plugins.As[plugins.DeviceMountableVolumePlugin](op.plugin)
	if err != nil {
		return "", err
	}
	// A source that is gone does not keep a volume from being taken down.
	if can, reason, err := p.CanDeviceMount(ctx, op.req.Spec); err == nil && !can {
		return reason, nil
	}
	return "", nil
}

// consumer is somebody who has a volume: a pod, or whoever mounted it elsewhere.
type consumer struct {
	pod  string // UID; "" outside of the pods' directories
	path string
}

func (u consumer) String() string {
	if u.pod == "" {
		return u.path
	}
	return fmt.Sprintf("pod %s has it at %s", u.pod, u.path)
}

// consumers makes paths into consumers, each once.
func (op *operation) consumers(at []string) []consumer {
	slices.Sort(at)
	var out []consumer
	for _, path := range slices.Compact(at) {
		out = append(out, consumer{op.host.Layout.Parse(path).PodUID, path})
	}
	return out
}

// usersOf are the mounts of the same file system, or of a part of it, beside a global
// mount. A driver can bind a directory of the node's own file system there.
func (op *operation) usersOf(global string) []consumer {
	table := op.run.Table()
	top, ok := table.Top(global)
	if !ok {
		return nil
	}
	var at []string
	for _, m := range table.SameDevice(top.Major, top.Minor) {
		if m.MountPoint != global && m.PartOf(top) {
			at = append(at, m.MountPoint)
		}
	}
	return op.consumers(at)
}

// inUse refuses, or in a teardown skips: the rest of the way down is for the last
// pod that uses the volume. That it is still in the pod that it was taken from is no
// reason to skip.
func (op *operation) inUse(path string, users []consumer) (string, error) {
	var words []string
	inPods, own := true, false
	for _, u := range users {
		words = append(words, u.String())
		inPods = inPods && u.pod != ""
		own = own || u.pod == op.req.Pod.UID
	}
	if op.verb == Teardown && inPods && !own {
		return "it is still published: " + strings.Join(words, ", "), nil
	}
	e := api.Errorf(api.ErrBusy, "the volume is still in use").At(path)
	e.Details = words
	if inPods {
		return "", e.WithNext("take it from these pods first: kvol unpublish %s --pod-uid %s", act.Quote(op.name), users[0].pod)
	}
	return "", e.WithNext("unmount it there first")
}

// tearDownDevice removes the global map path of a raw block volume, unless a pod
// still has the device mapped.
func (op *operation) tearDownDevice(ctx context.Context) (string, error) {
	p, err := plugins.As[plugins.BlockVolumePlugin](op.plugin)
	if err != nil {
		return "", err
	}
	u, err := p.NewBlockVolumeUnmapper(op.ref(), "")
	if err != nil {
		return "", err
	}
	dir, err := u.GetGlobalMapPath()
	if err != nil {
		return "", err
	}
	if users, err := op.mappedBy(dir); err != nil || len(users) > 0 {
		if err != nil {
			return "", err
		}
		return op.inUse(dir, users)
	}
	if err := u.TearDownDevice(ctx, op.run, dir, op.device); err != nil {
		return "", err
	}
	_, err = op.run.Do(ctx, act.Rmdir{Path: dir, Reason: "the empty global map path"})
	return "", err
}

// mappedBy lists what is bound below a global map path, and the links of pods that
// have it mapped.
func (op *operation) mappedBy(dir string) ([]consumer, error) {
	names, err := op.run.Names(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, uid := range names {
		out = append(out, dir+"/"+uid)
	}
	for _, ref := range op.find.Pods(op.plugin.GetPluginName(), op.ref()) {
		if e, err := op.run.Entry(ref.Path); err == nil && e.Present {
			out = append(out, ref.Path)
		}
	}
	return op.consumers(out), nil
}

// detach lets the device go, once nobody uses it any more. The gate is passed
// also where the plugin has nothing to detach: a script relies on exit code 0. A
// teardown ends well where the volume is detached by others than this node.
func (op *operation) detach(ctx context.Context) (string, error) {
	if skip, err := op.gate(ctx); err != nil || skip != "" {
		return skip, err
	}
	p, err := plugins.As[plugins.AttachableVolumePlugin](op.plugin)
	can := err == nil
	if can && op.req.Spec != nil {
		if can, err = p.CanAttach(op.req.Spec); err != nil {
			return "", err
		}
	}
	if op.isInline() {
		return "nothing uses it any more, and an inline volume is never attached", nil
	}
	if !can {
		return "nothing uses it any more, and volumes of " + op.plugin.GetPluginName() + " need no detaching", nil
	}
	d, err := p.NewDetacher()
	if err != nil {
		return "", err
	}
	err = d.Detach(ctx, op.run, op.ref(), op.host.NodeName)
	if op.verb == Teardown && errors.Is(err, api.ErrNotSupported) {
		return "nothing uses it any more; " + err.Error(), nil
	}
	return "", err
}
