package csi

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// A raw block volume: the driver puts the device's node at the publish path, which
// the steps that all such volumes have in common (internal/ops) bind, link and hold.

// ConstructBlockVolumeSpec reads the metadata in the volume's data directory.
func (p *plugin) ConstructBlockVolumeSpec(podUID, name, _ string) (plugins.Reconstructed, error) {
	file, err := p.host.Layout.CSIBlockMetadataPath(name)
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	d := p.read(file)
	if d.state != whole {
		return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "the metadata of the volume is %s", d.state).At(file).WithNext("give its document: -f FILE")
	}
	return reconstructed(d, name, podUID, false, true), nil
}

func (p *plugin) NewBlockVolumeMapper(spec *plugins.Spec, pod plugins.PodRef) (plugins.BlockVolumeMapper, error) {
	w, err := p.want(spec, pod.UID)
	if err == nil && w.inline {
		err = api.Errorf(api.ErrInput, "an inline volume cannot be a raw block volume")
	}
	if err != nil {
		return nil, err
	}
	return &mapper{block{p, spec.Name(), pod.UID}, w, pod}, nil
}

func (p *plugin) NewBlockVolumeUnmapper(ref plugins.Ref, podUID string) (plugins.BlockVolumeUnmapper, error) {
	return &unmapper{block{p, ref.Name, podUID}, ref}, paths.ValidVolumeName(ref.Name)
}

type block struct {
	*plugin
	name, podUID string
}

func (b block) GetGlobalMapPath() (string, error) { return b.host.Layout.CSIBlockMapPath(b.name) }

func (b block) GetPodDeviceMapPath() (dir, name string, err error) {
	link, err := b.host.Layout.PodDeviceMapPath(b.podUID, paths.CSIPlugin, b.name)
	return filepath.Dir(link), filepath.Base(link), err
}

// blockInUse says that a pod has the volume, or that the driver mounted something to
// stage it.
func (p *plugin) blockInUse(run *act.Runner, w *wanted) (bool, error) {
	at, err := p.host.Layout.CSIBlock(w.spec.Name())
	if err != nil {
		return false, err
	}
	d, err := p.readIn(run, at.Metadata)
	if err != nil || d.state != whole && d.state != planned {
		return false, err
	}
	if d.state == whole && d.volume != w.volume {
		return false, api.Errorf(api.ErrRefused, "it is of %s, and not of %s", d.volume, w.volume).At(at.Metadata).
			WithNext("find out whose it is: kvol inspect %s", act.Quote(w.spec.Name()))
	}
	return len(run.Table().Under(at.Staging)) > 0 || len(run.Table().Under(at.Publishes)) > 0, nil
}

type mapper struct {
	block
	*wanted
	pod plugins.PodRef
}

// SetUpDevice stages the volume, if the driver does that.
func (m *mapper) SetUpDevice(ctx context.Context, run *act.Runner) (bool, error) {
	if err := m.allowed(); err != nil {
		return false, err
	}
	if is, err := m.blockInUse(run, m.wanted); err != nil || is {
		return is, err
	}
	at, err := m.host.Layout.CSIBlock(m.name)
	if err != nil {
		return false, err
	}
	d, err := m.open(ctx, m.driver)
	if err != nil {
		return false, err
	}
	defer d.close()
	if stages, err := d.stages(ctx); err != nil || !stages {
		return false, err
	}
	req, secrets, err := m.stageRequest(ctx, d, m.wanted, at.Staging, nil)
	if err != nil {
		return false, err
	}
	if req.PublishContext, err = m.publishContext(ctx, run, d, m.wanted); err != nil {
		return false, err
	}
	made := len(run.Steps())
	if err := m.keepData(ctx, run, at); err != nil {
		return false, err
	}
	if err := run.MkdirAll(ctx, at.Staging, 0o750, "the volume's staging directory"); err != nil {
		return false, err
	}
	if _, err = run.Do(ctx, stageCall(run, d, m.wanted, req, secrets)); err != nil {
		m.unmake(ctx, run, made, at.Staging, err)
	}
	return true, err
}

func (m *mapper) keepData(ctx context.Context, run *act.Runner, at paths.CSIBlock) error {
	if err := run.MkdirAll(ctx, filepath.Dir(at.Metadata), 0o750, "where the volume's metadata is"); err != nil {
		return err
	}
	return m.keep(ctx, run, at.Metadata, m.volume, m.ownData(m.volume, m.name, ""))
}

// MapPodDevice has the driver publish the device's node for the pod.
func (m *mapper) MapPodDevice(ctx context.Context, run *act.Runner) (act.Value, error) {
	if err := m.allowed(); err != nil {
		return act.Value{}, err
	}
	at, err := m.host.Layout.CSIBlock(m.name)
	if err != nil {
		return act.Value{}, err
	}
	target, err := m.host.Layout.CSIBlockPublishPath(m.name, m.pod.UID)
	if err != nil {
		return act.Value{}, err
	}
	if _, err := m.blockInUse(run, m.wanted); err != nil {
		return act.Value{}, err
	}
	if is, err := isNode(run, target); err != nil || is {
		return act.Known(target), err
	}
	return act.Known(target), m.publishDevice(ctx, run, at, target)
}

// publishDevice asks the driver. What else it needs for that is made before.
func (m *mapper) publishDevice(ctx context.Context, run *act.Runner, at paths.CSIBlock, target string) error {
	d, err := m.open(ctx, m.driver)
	if err != nil {
		return err
	}
	defer d.close()
	pod := &mounter{m.plugin, m.wanted, m.pod}
	// The staging path is passed also where nothing was staged, as newer kubelets do.
	req, secrets, err := pod.publishRequest(ctx, d, at.Staging, target, nil)
	if err != nil {
		return err
	}
	if req.PublishContext, err = m.publishContext(ctx, run, d, m.wanted); err != nil {
		return err
	}
	made := len(run.Steps())
	if err := m.keepData(ctx, run, at); err != nil {
		return err
	}
	if err := run.MkdirAll(ctx, at.Publishes, 0o750, "where the driver publishes the volume"); err != nil {
		return err
	}
	call := pod.publishCall(run, d, req, secrets)
	call.File = true
	call.Verify = func(context.Context) error {
		info, err := run.Root.Stat(target)
		if isNotFound(err) || err == nil && info.Type != safefs.BlockDevice {
			return lied(d, "NodePublishVolume", "no device is there", target)
		}
		return err
	}
	if _, err = run.Do(ctx, call); err != nil {
		m.unmake(ctx, run, made, target, err)
	}
	return err
}

// isNode says that a device is at a publish path: bound there, or as a node that the
// driver made.
func isNode(run *act.Runner, target string) (bool, error) {
	if _, mounted := run.Table().Top(target); mounted {
		info, err := run.Root.Stat(target)
		if err == nil && info.Type != safefs.BlockDevice {
			return false, api.Errorf(nil, "what is mounted there is no device but a %s", info.Type).At(target).
				WithNext("find out who mounted it (findmnt --mountpoint %[1]s) and unmount it: umount %[1]s", act.Quote(target))
		}
		if isNotFound(err) { // a dry run has planned it
			err = nil
		}
		return err == nil, err
	}
	e, err := run.Entry(target)
	return e.Present && e.Type == safefs.BlockDevice, err
}

type unmapper struct {
	block
	ref plugins.Ref
}

// UnmapPodDevice has the driver take the node away, if anything is at the publish
// path. Up to about Kubernetes 1.16 that path was one for all pods, and goes with the
// last of their maps.
func (u *unmapper) UnmapPodDevice(ctx context.Context, run *act.Runner) error {
	at, err := u.host.Layout.CSIBlock(u.name)
	if err != nil {
		return err
	}
	target, err := u.host.Layout.CSIBlockPublishPath(u.name, u.podUID)
	if err != nil {
		return err
	}
	if e, err := run.Entry(at.Publishes); err != nil {
		return err
	} else if e.Present && e.Type != safefs.Dir {
		target = at.Publishes
		if others, err := u.mappedByOthers(run); err != nil || others {
			return err
		}
	}
	e, err := run.Entry(target)
	if err != nil || !e.Present {
		return err
	}
	if run.WithoutDriver {
		err = u.alone(ctx, run, target)
	} else {
		var v volume
		if v, err = u.identify(run, u.ref, at.Metadata, target); err == nil {
			err = u.unpublish(ctx, run, v, target)
		}
	}
	if err == nil {
		_, err = run.Do(ctx, unlinkTarget(target))
	}
	return err
}

// mappedByOthers says that another pod still has the device mapped, or a link to it.
func (b block) mappedByOthers(run *act.Runner) (bool, error) {
	dir, err := b.GetGlobalMapPath()
	if err != nil {
		return false, err
	}
	uids, err := run.Names(dir)
	if err != nil || slices.ContainsFunc(uids, func(uid string) bool { return uid != b.podUID }) {
		return true, err
	}
	dir, err = b.host.Layout.Build(paths.Path{Kind: paths.PodsDir})
	if err != nil {
		return false, err
	}
	pods, err := run.Names(dir)
	for _, uid := range pods {
		link, invalid := b.host.Layout.PodDeviceMapPath(uid, paths.CSIPlugin, b.name)
		if uid == b.podUID || invalid != nil {
			continue // what has no pod's name is no pod
		}
		if e, err := run.Entry(link); err != nil || e.Present {
			return true, err
		}
	}
	return false, err
}

// TearDownDevice has the driver unstage the volume and removes its directories, the
// metadata last: as long as anything else is left it says whose that is.
func (u *unmapper) TearDownDevice(ctx context.Context, run *act.Runner, global, _ string) error {
	at, err := u.host.Layout.CSIBlock(u.name)
	if err != nil {
		return err
	}
	e, err := run.Entry(at.Staging)
	if err != nil {
		return err
	}
	if e.Present {
		if err := u.unstageBlock(ctx, run, at); err != nil {
			return err
		}
	}
	if err := emptyStaging(ctx, run, at.Staging); err != nil {
		return err
	}
	for _, dir := range []struct{ path, reason string }{
		{at.Staging, "the empty staging directory"}, {at.Publishes, "where the driver published the volume"}, {global, "the empty global map path"},
	} {
		if _, err := run.Do(ctx, act.Rmdir{Path: dir.path, Reason: dir.reason}); err != nil {
			return err
		}
	}
	if err := cleanData(ctx, run, filepath.Dir(at.Metadata)); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(at.Metadata), at.Dir} {
		if _, err := run.Do(ctx, act.Rmdir{Path: dir, Reason: "the volume's empty directory"}); err != nil {
			return err
		}
	}
	return nil
}

// emptyStaging removes what a driver leaves of the targets that it bound devices on;
// a kubelet deletes the whole directory.
func emptyStaging(ctx context.Context, run *act.Runner, staging string) error {
	names, err := run.Names(staging)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(staging, name)
		e, err := run.Entry(path)
		if err == nil {
			_, err = run.Do(ctx, removal(e, path))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unmapper) unstageBlock(ctx context.Context, run *act.Runner, at paths.CSIBlock) error {
	if run.WithoutDriver {
		return u.alone(ctx, run, at.Staging)
	}
	v, err := u.identify(run, u.ref, at.Metadata, at.Staging)
	if err != nil {
		return err
	}
	d, err := u.open(ctx, v.driver)
	if err != nil {
		return err
	}
	defer d.close()
	stages, err := d.stages(ctx)
	if err != nil || !stages {
		return err
	}
	_, err = run.Do(ctx, unstageCall(run, d, v, at.Staging))
	return err
}
