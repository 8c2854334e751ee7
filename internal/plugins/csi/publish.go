package csi

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
)

type mounter struct {
	*plugin
	*wanted
	pod plugins.PodRef
}

func (m *mounter) GetPath() (string, error) {
	return m.host.Layout.PodVolumePath(m.pod.UID, paths.CSIPlugin, m.spec.Name())
}

// SetUp publishes the volume into the pod.
func (m *mounter) SetUp(ctx context.Context, run *act.Runner, args plugins.MounterArgs) error {
	target, err := m.GetPath()
	if err != nil {
		return err
	}
	if err := m.allowed(); err != nil {
		return err
	}
	for _, warning := range m.unserved(m.pod) {
		m.host.Warn(warning)
	}
	is, err := m.published(run, target)
	if err != nil {
		return err
	}
	if is && args.FSGroup == nil && !m.RequiresRemount(m.spec) {
		return nil // the driver is not asked for what the mount table tells
	}
	d, err := m.open(ctx, m.driver)
	if err != nil {
		return err
	}
	defer d.close()
	if !is || m.RequiresRemount(m.spec) {
		if err := m.publish(ctx, run, d, target, args.FSGroup); err != nil {
			return err
		}
	}
	return m.giveToGroup(ctx, run, d, target, args)
}

// published says whether the volume is mounted on its target, and refuses what is not
// it, or not as it is wanted.
func (m *mounter) published(run *act.Runner, target string) (bool, error) {
	top, mounted := run.Table().Top(target)
	if !mounted {
		return false, nil
	}
	d, err := m.readIn(run, metadataOf(target))
	if err != nil {
		return false, err
	}
	if d.state != planned && (d.state != whole || d.volume != m.volume) {
		if v, ok := m.byMount(run.Table(), target); !ok || v != m.volume || d.state == whole {
			return false, notOurs(top, target, m.volume)
		}
		return false, nil // its file system is mounted, and its metadata lost: the driver is asked again
	}
	if want := m.readOnly || slices.Contains(m.flags, "ro"); top.ReadOnly() != want {
		return false, api.Errorf(api.ErrRefused, "it is published there %s already, and %s was asked for", rw(top.ReadOnly()), rw(want)).At(target).
			WithNext("unpublish the volume from this pod first, then publish it again")
	}
	return true, nil
}

func rw(readOnly bool) string {
	if readOnly {
		return "read-only"
	}
	return "read-write"
}

func notOurs(top mounts.Mount, path string, v volume) error {
	return api.Errorf(api.ErrRefused, "something else is mounted there: %s of %s (%s), and no metadata says that it is %s", top.Root, top.Source, top.FSType, v).At(path).
		WithNext("find out whose it is: kvol inspect %s", act.Quote(path))
}

// publish makes what is the node's part, and has the driver mount.
func (m *mounter) publish(ctx context.Context, run *act.Runner, d *driver, target string, group *int64) error {
	staging, err := m.stagedAt(ctx, run, d)
	if err != nil {
		return err
	}
	req, secrets, err := m.publishRequest(ctx, d, staging, target, group)
	if err != nil {
		return err
	}
	if err := emptyTarget(ctx, run, target); err != nil {
		return err
	}
	if req.PublishContext, err = m.publishContext(ctx, run, d, m.wanted); err != nil {
		return err
	}
	made := len(run.Steps())
	if err := run.MkdirAll(ctx, filepath.Dir(target), 0o750, "the volume's directory in the pod"); err != nil {
		return err
	}
	if err := m.keep(ctx, run, metadataOf(target), m.volume, m.ownData(m.volume, m.spec.Name(), m.lifecycle())); err != nil {
		return err
	}
	_, err = run.Do(ctx, m.publishCall(run, d, req, secrets))
	if err != nil {
		m.unmake(ctx, run, made, target, err)
	}
	return err
}

// publishRequest is all of the call but the publish context and the secrets themselves.
func (m *mounter) publishRequest(ctx context.Context, d *driver, staging, target string, group *int64) (*csipb.NodePublishVolumeRequest, map[string]exec.Secret, error) {
	secrets, err := m.secret(m.publishSecret)
	if err != nil {
		return nil, nil, err
	}
	capability, err := m.capability(ctx, d, group)
	return &csipb.NodePublishVolumeRequest{
		VolumeId: m.handle, StagingTargetPath: staging, TargetPath: target,
		VolumeCapability: capability, Readonly: m.readOnly, VolumeContext: m.context(m.pod),
	}, secrets, err
}

func (m *mounter) publishCall(run *act.Runner, d *driver, req *csipb.NodePublishVolumeRequest, secrets map[string]exec.Secret) act.Call {
	target := req.GetTargetPath()
	return act.Call{
		Name: "NodePublishVolume", Target: target, Args: []string{m.String()}, Reason: "the driver publishes the volume into the pod",
		Do: func(ctx context.Context) error {
			req.Secrets = revealed(secrets)
			_, err := change(ctx, d, "NodePublishVolume", d.node.NodePublishVolume, req, values(secrets))
			return err
		},
		Verify: func(context.Context) error {
			top, mounted := run.Table().Top(target)
			switch {
			case !mounted:
				return lied(d, "NodePublishVolume", "nothing is mounted there", target)
			case m.readOnly && !top.ReadOnly():
				return lied(d, "NodePublishVolume", "it is mounted read-write, and read-only was asked for", target)
			}
			return nil
		},
		Makes: []string{target}, Mounts: []string{target},
	}
}

// lied is a call that ended well and did not do what it is for.
func lied(d *driver, method, found, path string) *api.Error {
	return api.Errorf(nil, "CSI driver %s said that %s is done, and %s", d.name, method, found).At(path).
		WithNext("see what the driver logs, then run the same command again")
}

// emptyTarget refuses a target in which there is something: a mount would hide it.
func emptyTarget(ctx context.Context, run *act.Runner, target string) error {
	if _, mounted := run.Table().Top(target); mounted {
		return nil
	}
	return run.Check(ctx, act.Rmdir{Path: target})
}

// keep writes a metadata file, unless it names the volume already.
func (p *plugin) keep(ctx context.Context, run *act.Runner, file string, v volume, content map[string]string) error {
	w, need, err := p.write(run, file, v, content)
	if err != nil || !need {
		return err
	}
	_, err = run.Do(ctx, w)
	return err
}

// unmake takes away what this run made for a call that failed for good. What may have
// happened, or is mounted all the same, keeps its files: they take it down.
func (p *plugin) unmake(ctx context.Context, run *act.Runner, since int, mounted string, failed error) {
	if !ended(failed) || len(run.Table().Under(mounted)) > 0 {
		return
	}
	for _, s := range slices.Backward(slices.Clone(run.Steps()[since:])) {
		var undo act.Action
		switch s.Action {
		case "mkdir":
			undo = act.Rmdir{Path: s.Target, Reason: "it was made for a call that failed"}
		case "write":
			undo = unlinkData(s.Target)
		default:
			continue
		}
		if _, err := run.Do(ctx, undo); err != nil {
			return // what cannot be removed is left: it is empty, or not kvol's
		}
	}
}

// giveToGroup gives the volume's files to the pod's group, where the driver does not.
func (m *mounter) giveToGroup(ctx context.Context, run *act.Runner, d *driver, target string, args plugins.MounterArgs) error {
	if args.FSGroup == nil || !m.groups() {
		return nil
	}
	if gives, err := d.can(ctx, csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP); err != nil || gives {
		return err
	}
	if other := m.otherPod(run, target); other != "" {
		m.host.Warn(fmt.Sprintf("volume %s is published into pod %s too, so its files keep the group that they have", m.spec.Name(), other))
		return nil
	}
	_, err := run.Do(ctx, act.FSGroup{Path: target, GID: *args.FSGroup, OnRootMismatch: args.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch})
	return err
}

// otherPod is another pod that has the same part of the same file system.
func (m *mounter) otherPod(run *act.Runner, target string) string {
	top, ok := run.Table().Top(target)
	if !ok || top.Major < 0 {
		return ""
	}
	for _, other := range run.Table().SameRoot(top) {
		if at := m.host.Layout.Parse(other.MountPoint); at.Kind == paths.PodVolumeMount && at.PodUID != m.pod.UID {
			return at.PodUID
		}
	}
	return ""
}
