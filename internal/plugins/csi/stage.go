package csi

import (
	"context"
	"errors"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

type deviceMounter struct{ *plugin }

func (d deviceMounter) GetDeviceMountPath(_ context.Context, spec *plugins.Spec) (string, error) {
	w, err := d.want(spec, "")
	if err != nil || w.inline {
		return "", err
	}
	return d.staging(w)
}

// staging is the volume's staging directory.
func (p *plugin) staging(w *wanted) (string, error) {
	if w.inline {
		return "", api.Errorf(api.ErrNotSupported, "an inline volume is never staged").
			WithNext("publish it into its pod: kvol publish -f pod.yaml")
	}
	if w.block {
		return p.host.Layout.CSIBlockStagingPath(w.spec.Name())
	}
	return p.host.Layout.CSIStagingPath(w.driver, w.handle)
}

// MountDevice makes the staging directory and its metadata, whether the driver stages
// or not, and has it stage. A staging directory with the volume's metadata that is no
// mount may be all that a driver makes of it: that one is asked again.
func (d deviceMounter) MountDevice(ctx context.Context, run *act.Runner, spec *plugins.Spec, _ act.Value, path string, args plugins.DeviceMounterArgs) error {
	w, err := d.want(spec, "")
	if err == nil {
		err = w.allowed()
	}
	if err != nil {
		return err
	}
	is, err := d.staged(ctx, run, w, path)
	if err != nil || is {
		return err
	}
	drv, err := d.open(ctx, w.driver)
	if err != nil {
		return err
	}
	defer drv.close()
	stages, err := drv.stages(ctx)
	if err != nil {
		return err
	}
	if !stages {
		return d.plain(ctx, run, w, path)
	}
	req, secrets, err := d.stageRequest(ctx, drv, w, path, args.FSGroup)
	if err != nil {
		return err
	}
	if req.PublishContext, err = d.publishContext(ctx, run, drv, w); err != nil {
		return err
	}
	made := len(run.Steps())
	if err := d.plain(ctx, run, w, path); err != nil {
		return err
	}
	_, err = run.Do(ctx, stageCall(run, drv, w, req, secrets))
	if err != nil {
		d.unmake(ctx, run, made, path, err)
	}
	return err
}

// staged says whether the volume is staged, for all that the node shows: it is
// mounted, or a pod has it. What is mounted there and is not it is refused.
func (p *plugin) staged(ctx context.Context, run *act.Runner, w *wanted, path string) (bool, error) {
	d, err := p.readIn(run, metadataOf(path))
	if err != nil {
		return false, err
	}
	own := d.state == planned || d.state == whole && d.volume == w.volume
	top, mounted := run.Table().Top(path)
	switch {
	case d.state == whole && !own:
		return false, api.Errorf(api.ErrRefused, "the staging directory's metadata is of %s, and not of %s", d.volume, w.volume).At(path).
			WithNext("find out whose it is: kvol inspect %s", act.Quote(path))
	case mounted && d.state == missing:
		return false, notOurs(top, path, w.volume)
	case mounted && !own:
		return false, nil // its metadata is broken, and the path is the volume's: the driver is asked again
	case !own:
		return false, run.Check(ctx, act.Rmdir{Path: path})
	case mounted:
		return true, nil
	}
	return p.inPod(run, w.volume), nil
}

// inPod says that a pod has the volume published, so that it is staged too, if it can
// be.
func (p *plugin) inPod(run *act.Runner, v volume) bool {
	for _, m := range run.Table().Mounts {
		at := p.host.Layout.Parse(m.MountPoint)
		if at.Kind != paths.PodVolumeMount || at.Rest != "" {
			continue
		}
		if d := p.read(metadataOf(m.MountPoint)); d.state == whole && d.volume == v {
			return true
		}
	}
	return false
}

// plain makes the staging directory with its metadata.
func (d deviceMounter) plain(ctx context.Context, run *act.Runner, w *wanted, path string) error {
	if err := run.MkdirAll(ctx, path, 0o750, "the volume's staging directory"); err != nil {
		return err
	}
	return d.keep(ctx, run, metadataOf(path), w.volume, map[string]string{voldata.Driver: w.driver, voldata.Handle: w.handle})
}

// stageRequest is all of the call but the publish context and the secrets themselves.
func (p *plugin) stageRequest(ctx context.Context, d *driver, w *wanted, path string, group *int64) (*csipb.NodeStageVolumeRequest, map[string]exec.Secret, error) {
	secrets, err := w.secret(w.stageSecret)
	if err != nil {
		return nil, nil, err
	}
	capability, err := w.capability(ctx, d, group)
	return &csipb.NodeStageVolumeRequest{
		VolumeId: w.handle, StagingTargetPath: path, VolumeCapability: capability, VolumeContext: w.attributes,
	}, secrets, err
}

func stageCall(run *act.Runner, d *driver, w *wanted, req *csipb.NodeStageVolumeRequest, secrets map[string]exec.Secret) act.Call {
	path := req.GetStagingTargetPath()
	c := act.Call{
		Name: "NodeStageVolume", Target: path, Args: []string{w.String()}, Reason: "the driver stages the volume on this node",
		Do: func(ctx context.Context) error {
			req.Secrets = revealed(secrets)
			_, err := change(ctx, d, "NodeStageVolume", d.node.NodeStageVolume, req, values(secrets))
			return err
		},
	}
	if !w.block {
		c.Mounts = []string{path} // as most do
	}
	return c
}

// stagedAt is the staging path that a publish call of a file system is given: only
// where the driver stages. That mount-device was there is asked of the others too, as
// with the kubelet, which finds the volume again by what that leaves.
func (m *mounter) stagedAt(ctx context.Context, run *act.Runner, d *driver) (string, error) {
	if m.inline {
		return "", nil
	}
	path, err := m.staging(m.wanted)
	if err != nil {
		return "", err
	}
	data, err := m.readIn(run, metadataOf(path))
	if err != nil {
		return "", err
	}
	top, mounted := run.Table().Top(path)
	own := data.state == planned || data.state == whole && data.volume == m.volume
	switch {
	case mounted && data.state == missing:
		return "", notOurs(top, path, m.volume)
	case !own && !mounted: // where it is mounted its metadata was lost since
		return "", api.Errorf(api.ErrNotMounted, "the volume is not staged on this node").At(path).
			WithNext("stage it first: kvol mount-device -f FILE (or the whole way with kvol setup)")
	}
	if stages, err := d.stages(ctx); err != nil || !stages {
		return "", err
	}
	return path, nil
}

type deviceUnmounter struct{ *plugin }

// GlobalPaths are the staging directories that a volume can have: by the hash of its
// handle and, from kubelets before 1.24, by its name.
func (d deviceUnmounter) GlobalPaths(ref plugins.Ref) ([]string, error) {
	var out []string
	if v, ok := volumeOf(ref.VolumeName); ok {
		path, err := d.host.Layout.CSIStagingPath(v.driver, v.handle)
		if err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	if ref.Name != "" {
		path, err := d.host.Layout.CSIGlobalMountOld(ref.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	return out, nil
}

// UnmountDevice has the driver unstage the volume, if it stages, and removes what is
// left.
func (d deviceUnmounter) UnmountDevice(ctx context.Context, run *act.Runner, ref plugins.Ref, path string) error {
	if k := d.host.Layout.Parse(path); k.Kind != paths.GlobalMount || k.Plugin != paths.CSIPlugin || k.Rest != "" {
		return api.Errorf(api.ErrRefused, "is no staging directory of a CSI volume").At(path).
			WithNext("see what it is: kvol paths %s", act.Quote(path))
	}
	if done, err := d.unaided(ctx, run, path); err != nil || done {
		return err
	}
	v, err := d.identifyGlobal(run, ref, path)
	if err != nil {
		return err
	}
	if err := d.unstage(ctx, run, v, path); err != nil {
		return err
	}
	return clean(ctx, run, path)
}

// unstage asks the driver, if it is one that stages.
func (p *plugin) unstage(ctx context.Context, run *act.Runner, v volume, path string) error {
	if d, err := p.readIn(run, metadataOf(path)); err != nil || d.state == missing {
		// With the metadata gone too, what lies there need not be the driver's.
		if err == nil {
			err = emptyUnmounted(ctx, run, path)
		}
		if err != nil {
			return err
		}
	}
	d, err := p.open(ctx, v.driver)
	if err != nil {
		return err
	}
	defer d.close()
	stages, err := d.stages(ctx)
	if err != nil {
		return err
	}
	if !stages {
		if top, mounted := run.Table().Top(path); mounted {
			return api.Errorf(api.ErrRefused, "%s is mounted there, and CSI driver %s says that it stages nothing", top.Source, v.driver).At(path).
				WithNext("find out whose it is: kvol inspect %s; to unmount it all the same: --without-driver", act.Quote(path))
		}
		return nil
	}
	if err := unstack(ctx, run, path); err != nil {
		return err
	}
	_, err = run.Do(ctx, unstageCall(run, d, v, path))
	return err
}

func unstageCall(run *act.Runner, d *driver, v volume, path string) act.Call {
	return act.Call{
		Name: "NodeUnstageVolume", Target: path, Args: []string{v.String()}, Reason: "the driver takes the volume from this node",
		Do: func(ctx context.Context) error {
			req := &csipb.NodeUnstageVolumeRequest{VolumeId: v.handle, StagingTargetPath: path}
			_, err := change(ctx, d, "NodeUnstageVolume", d.node.NodeUnstageVolume, req, nil)
			return d.refused(ctx, run, path, err)
		},
		Verify: func(context.Context) error { return down(run, d, "NodeUnstageVolume", path) },
		Frees:  []string{path},
	}
}

// isNotFound is for what need not be there.
func isNotFound(err error) bool { return errors.Is(err, api.ErrNotFound) }
