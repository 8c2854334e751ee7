package plugintest

import (
	"context"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/plugins"
)

// as gives the plugin of the node as a rung, nil where it is none.
func as[T plugins.VolumePlugin](n *node) (T, bool) {
	p, err := plugins.As[T](n.plugin)
	return p, err == nil
}

// up carries the volume up into a pod: attach, mount-device, publish.
func (n *node) up(pod plugins.PodRef, w way) outcome {
	n.Helper()
	return n.do("setup", w, func(ctx context.Context, run *act.Runner) error {
		if err := n.stage(ctx, run, pod); err != nil {
			return err
		}
		return n.setUp(ctx, run, pod)
	})
}

// publish is the pod's part of up alone.
func (n *node) publish(pod plugins.PodRef, w way) outcome {
	n.Helper()
	return n.do("publish", w, func(ctx context.Context, run *act.Runner) error { return n.setUp(ctx, run, pod) })
}

func (n *node) setUp(ctx context.Context, run *act.Runner, pod plugins.PodRef) error {
	m, err := n.plugin.NewMounter(n.spec, pod)
	if err != nil {
		return err
	}
	return m.SetUp(ctx, run, plugins.MounterArgs{FSGroup: pod.FSGroup, FSGroupChangePolicy: pod.FSGroupChangePolicy})
}

// stage is the node's part of up.
func (n *node) stage(ctx context.Context, run *act.Runner, pod plugins.PodRef) error {
	device, err := n.attach(ctx, run, pod)
	if err != nil {
		return err
	}
	p, ok := as[plugins.DeviceMountableVolumePlugin](n)
	if !ok {
		return nil
	}
	if can, _, err := p.CanDeviceMount(ctx, n.spec); err != nil || !can {
		return err
	}
	d, err := p.NewDeviceMounter()
	if err != nil {
		return err
	}
	path, err := d.GetDeviceMountPath(ctx, n.spec)
	if err != nil {
		return err
	}
	return d.MountDevice(ctx, run, n.spec, device, path, plugins.DeviceMounterArgs{Format: n.ex.Format})
}

func (n *node) attach(ctx context.Context, run *act.Runner, pod plugins.PodRef) (act.Value, error) {
	p, ok := as[plugins.AttachableVolumePlugin](n)
	if !ok {
		return act.Value{}, nil
	}
	if can, err := p.CanAttach(n.spec); err != nil || !can {
		return act.Value{}, err
	}
	a, err := p.NewAttacher()
	if err != nil {
		return act.Value{}, err
	}
	n.spec.PublishContext = nil // each command begins without
	attached, err := a.Attach(ctx, run, n.spec, n.host.NodeName)
	if err != nil {
		return act.Value{}, err
	}
	n.spec.PublishContext = attached.PublishContext
	return a.WaitForAttach(ctx, run, n.spec, attached.DevicePath, pod)
}

// ref names the volume for the way down.
func (n *node) ref() plugins.Ref {
	n.Helper()
	name, err := n.plugin.GetVolumeName(n.spec)
	if err != nil {
		n.Fatal(err)
	}
	return plugins.Ref{Name: volumeName, VolumeName: name}
}

// down takes the volume from the pod and, when last, from the node: unpublish,
// unmount-device, detach.
func (n *node) down(pod plugins.PodRef, last bool, w way) outcome {
	n.Helper()
	return n.do("teardown", w, func(ctx context.Context, run *act.Runner) error {
		u, err := n.plugin.NewUnmounter(n.ref(), pod.UID)
		if err != nil {
			return err
		}
		if err := u.TearDown(ctx, run); err != nil || !last {
			return err
		}
		return n.unstage(ctx, run)
	})
}

// unstage is the node's part of down.
func (n *node) unstage(ctx context.Context, run *act.Runner) error {
	if p, ok := as[plugins.DeviceMountableVolumePlugin](n); ok {
		u, err := p.NewDeviceUnmounter()
		if err != nil {
			return err
		}
		paths, err := u.GlobalPaths(n.ref())
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := u.UnmountDevice(ctx, run, n.ref(), path); err != nil {
				return err
			}
		}
	}
	p, ok := as[plugins.AttachableVolumePlugin](n)
	if !ok {
		return nil
	}
	if can, err := p.CanAttach(n.spec); err != nil || !can {
		return err
	}
	d, err := p.NewDetacher()
	if err != nil {
		return err
	}
	return d.Detach(ctx, run, n.ref(), n.host.NodeName)
}

// target is the volume's directory in a pod.
func (n *node) target(pod plugins.PodRef) string {
	n.Helper()
	m, err := n.plugin.NewMounter(n.spec, pod)
	if err != nil {
		n.Fatal(err)
	}
	path, err := m.GetPath()
	if err != nil {
		n.Fatal(err)
	}
	return path
}

// global is the volume's global mount, "" when it has none below the root.
func (n *node) global() string {
	n.Helper()
	p, ok := as[plugins.DeviceMountableVolumePlugin](n)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	can, _, err := p.CanDeviceMount(ctx, n.spec)
	if err != nil {
		n.Fatal(err)
	}
	if !can {
		return ""
	}
	d, err := p.NewDeviceMounter()
	if err != nil {
		n.Fatal(err)
	}
	path, err := d.GetDeviceMountPath(ctx, n.spec)
	if err != nil {
		n.Fatal(err)
	}
	return path
}
