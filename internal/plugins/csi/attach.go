package csi

import (
	"context"
	"maps"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// Attaching is the controller's part, which in a cluster is elsewhere. Where the
// driver serves it on this node's socket too, kvol asks it; else somebody says that
// the volume is attached: a VolumeAttachment, or --publish-context.

const publishes = csipb.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME

type attacher struct{ *plugin }

// Attach has the controller publish the volume to this node, unless it is attached.
func (a attacher) Attach(ctx context.Context, run *act.Runner, spec *plugins.Spec, _ string) (plugins.Attachment, error) {
	w, err := a.want(spec, podOf(spec))
	if err != nil {
		return plugins.Attachment{}, err
	}
	if given, is, err := a.given(w); err != nil || is {
		return plugins.Attachment{PublishContext: given}, err
	}
	if is, err := a.inUse(run, w); err != nil || is {
		return plugins.Attachment{}, err // it is in use here, so it is attached
	}
	d, err := a.open(ctx, w.driver)
	if err != nil {
		return plugins.Attachment{}, err
	}
	defer d.close()
	if can, err := d.controls(ctx, publishes); err != nil || !can {
		if err == nil {
			err = a.elsewhere(w)
		}
		return plugins.Attachment{}, err
	}
	published, err := a.controllerPublish(ctx, run, d, w)
	return plugins.Attachment{PublishContext: published}, err
}

// elsewhere is the refusal to attach what only the cluster's controller can.
func (p *plugin) elsewhere(w *wanted) error {
	return api.Errorf(api.ErrNotSupported, "CSI driver %s serves no controller on this node: the cluster's own attaches the volume", w.driver).
		WithNext("give the VolumeAttachment with -f (kubectl get volumeattachment %s -o yaml), or say with --publish-context KEY=VALUE that it is attached; "+
			"a driver that attaches nothing says so in its CSIDriver: kubectl get csidriver %s -o yaml", p.attachment(w), w.driver)
}

func (p *plugin) attachment(w *wanted) string {
	return paths.CSIAttachmentID(w.handle, w.driver, p.host.NodeName)
}

// given is the publish context that the operator gave, by itself or in a
// VolumeAttachment; is says that the volume is attached.
func (p *plugin) given(w *wanted) (published map[string]string, is bool, err error) {
	if w.spec.PublishContext != nil {
		return w.spec.PublishContext, true, nil
	}
	if w.spec.Objects == nil {
		return nil, false, nil
	}
	va, err := w.spec.Objects.VolumeAttachment(p.attachment(w))
	if isNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	switch {
	case va.DeletionTimestamp != nil:
		return nil, false, api.Errorf(api.ErrRefused, "VolumeAttachment %s is being deleted: the volume is about to be detached", va.Name).
			WithNext("wait until it is gone and attach the volume anew")
	case !va.Status.Attached:
		e := api.Errorf(api.ErrRefused, "VolumeAttachment %s says that the volume is not attached", va.Name)
		if fault := va.Status.AttachError; fault != nil {
			e.Details = []string{"the controller said: " + tame(fault.Message)}
		}
		return nil, false, e.WithNext("wait until the controller has attached it (kubectl get volumeattachment %s -o yaml) and give that document", va.Name)
	}
	if published = va.Status.AttachmentMetadata; published == nil {
		published = map[string]string{}
	}
	return published, true, nil
}

// inUse says that the volume is up on this node.
func (p *plugin) inUse(run *act.Runner, w *wanted) (bool, error) {
	path, err := p.staging(w)
	if err != nil {
		return false, err
	}
	if w.block {
		return p.blockInUse(run, w)
	}
	d, err := p.readIn(run, metadataOf(path))
	if err != nil {
		return false, err
	}
	_, mounted := run.Table().Top(path)
	return mounted && d.state == whole && d.volume == w.volume || p.inPod(run, w.volume), nil
}

// publishContext is what stage and publish are given of the attachment: nothing for a
// volume that is not attached; what the operator gave; or what the controller on this
// socket says again of a volume that is in use here.
func (p *plugin) publishContext(ctx context.Context, run *act.Runner, d *driver, w *wanted) (map[string]string, error) {
	if !w.attachable() {
		return nil, nil
	}
	if given, is, err := p.given(w); err != nil || is {
		return given, err
	}
	can, err := d.controls(ctx, publishes)
	if err != nil {
		return nil, err
	}
	if !can {
		e, _ := p.elsewhere(w).(*api.Error) //nolint:errorlint // just made
		return nil, api.Errorf(api.ErrRefused, "the volume is to be attached first, and nothing says that it is").WithNext("%s", e.Next)
	}
	is, err := p.inUse(run, w)
	if err == nil && !is {
		if is, err = d.attached(ctx, w.volume); err == nil && !is {
			err = api.Errorf(api.ErrRefused, "the volume is to be attached first, and nothing says that it is").
				WithNext("kvol setup attaches it too; or give its VolumeAttachment with -f, or what is in that: --publish-context KEY=VALUE")
		}
	}
	if err != nil {
		return nil, err
	}
	return p.controllerPublish(ctx, run, d, w)
}

// controllerPublish asks the controller, which says the same of a volume that is
// attached already.
func (p *plugin) controllerPublish(ctx context.Context, run *act.Runner, d *driver, w *wanted) (map[string]string, error) {
	secrets, err := w.secret(w.controllerSecret)
	if err != nil {
		return nil, err
	}
	capability, err := w.capability(ctx, d, nil)
	if err != nil {
		return nil, err
	}
	info, err := d.nodeInfo(ctx)
	if err != nil {
		return nil, err
	}
	req := &csipb.ControllerPublishVolumeRequest{
		VolumeId: w.handle, NodeId: info.GetNodeId(), VolumeCapability: capability, VolumeContext: w.attributes,
		Readonly: w.spec.PersistentVolume.Spec.CSI.ReadOnly,
	}
	published, asked := map[string]string{}, false // not nil: attached, also in a dry run
	ask := func(ctx context.Context) error {
		asked, req.Secrets = true, revealed(secrets)
		resp, err := change(ctx, d, "ControllerPublishVolume", d.controller.ControllerPublishVolume, req, values(secrets))
		maps.Copy(published, resp.GetPublishContext())
		return err
	}
	_, err = run.Do(ctx, act.Call{
		Name: "ControllerPublishVolume", Target: d.socket, Args: []string{w.String(), info.GetNodeId()}, Reason: "the controller attaches the volume to this node",
		Done: func(ctx context.Context) (bool, error) { return d.attached(ctx, w.volume) }, Do: ask,
	})
	if err == nil && !asked && !run.DryRun {
		err = ask(ctx) // it is attached: what is wanted is the context, which nobody keeps
	}
	return published, err
}

// attached asks a controller that can tell whether the volume is attached to this
// node.
func (d *driver) attached(ctx context.Context, v volume) (bool, error) {
	is, _, err := d.listed(ctx, v)
	return is, err
}

// listed also says whether the list has the volume. Of one that it has not nothing is
// known: while pages are read a volume may be missed (ListVolumes in the CSI
// specification).
func (d *driver) listed(ctx context.Context, v volume) (attached, is bool, err error) {
	tells, err := d.controls(ctx, csipb.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	if err != nil || !tells {
		return false, false, err
	}
	info, err := d.nodeInfo(ctx)
	if err != nil {
		return false, false, err
	}
	for token := ""; ; {
		resp, err := ask(ctx, d.link, "ListVolumes", d.controller.ListVolumes, &csipb.ListVolumesRequest{StartingToken: token})
		if err != nil {
			return false, false, err
		}
		for _, e := range resp.GetEntries() {
			if e.GetVolume().GetVolumeId() == v.handle {
				return slices.Contains(e.GetStatus().GetPublishedNodeIds(), info.GetNodeId()), true, nil
			}
		}
		if token = resp.GetNextToken(); token == "" {
			return false, false, nil
		}
	}
}

// VolumesAreAttached says of which volumes it is known.
func (a attacher) VolumesAreAttached(ctx context.Context, specs []*plugins.Spec, _ string) (map[*plugins.Spec]bool, error) {
	out := map[*plugins.Spec]bool{}
	for _, spec := range specs {
		is, known, err := a.isAttached(ctx, spec)
		if err != nil {
			return nil, err
		}
		if known {
			out[spec] = is
		}
	}
	return out, nil
}

func (a attacher) isAttached(ctx context.Context, spec *plugins.Spec) (is, known bool, err error) {
	w, err := a.want(spec, podOf(spec))
	if err != nil || !w.attachable() {
		return err == nil, err == nil, err
	}
	if spec.Objects != nil {
		if va, err := spec.Objects.VolumeAttachment(a.attachment(w)); err == nil {
			return va.Status.Attached, true, nil
		}
	}
	d, err := a.open(ctx, w.driver)
	if err != nil {
		return false, false, err
	}
	defer d.close()
	return d.listed(ctx, w.volume)
}

// WaitForAttach has nothing to wait for: attaching a CSI volume gives no device, only
// the context that staging it needs.
func (a attacher) WaitForAttach(context.Context, *act.Runner, *plugins.Spec, act.Value, plugins.PodRef) (act.Value, error) {
	return act.Value{}, nil
}

type detacher struct{ *plugin }

// Detach has the controller on this socket take the volume from the node; without one
// it is ErrNotSupported.
func (d detacher) Detach(ctx context.Context, run *act.Runner, ref plugins.Ref, _ string) error {
	v, ok := volumeOf(ref.VolumeName)
	if !ok || run.WithoutDriver {
		return unasked(ok)
	}
	drv, err := d.open(ctx, v.driver)
	if err != nil {
		return err
	}
	defer drv.close()
	can, err := drv.controls(ctx, publishes)
	if err != nil {
		return err
	}
	if !can {
		return api.Errorf(api.ErrNotSupported, "CSI driver %s serves no controller on this node: the cluster's own detaches the volume once nobody uses it", v.driver).
			WithNext("wait until it is gone: kubectl get volumeattachment %s --watch", paths.CSIAttachmentID(v.handle, v.driver, d.host.NodeName))
	}
	info, err := drv.nodeInfo(ctx)
	if err != nil {
		return err
	}
	_, err = run.Do(ctx, act.Call{
		Name: "ControllerUnpublishVolume", Target: drv.socket, Args: []string{v.String(), info.GetNodeId()}, Reason: "the controller detaches the volume from this node",
		Done: func(ctx context.Context) (bool, error) { return drv.isDetached(ctx, v) },
		Do: func(ctx context.Context) error {
			req := &csipb.ControllerUnpublishVolumeRequest{VolumeId: v.handle, NodeId: info.GetNodeId()}
			_, err := change(ctx, drv, "ControllerUnpublishVolume", drv.controller.ControllerUnpublishVolume, req, nil)
			if unknown(err) {
				return nil // a volume or node that the driver does not know is not attached
			}
			return err
		},
		Verify: func(ctx context.Context) error {
			is, err := drv.attached(ctx, v)
			if err == nil && is {
				err = lied(drv, "ControllerUnpublishVolume", "it is still attached", drv.socket)
			}
			return err
		},
	})
	return err
}

// unasked says why nobody was asked to detach a volume.
func unasked(named bool) error {
	if !named {
		return api.Errorf(api.ErrNotSupported, "which volume of which driver it is cannot be known, so that nobody is asked to detach it").
			WithNext("name it: DRIVER^HANDLE as VOLUME, or -f FILE with its PersistentVolume")
	}
	return api.Errorf(api.ErrNotSupported, "the driver was not asked to detach it, since --without-driver was given").
		WithNext("detach it when the driver is back: kvol detach, without that flag")
}

// isDetached says that the controller tells that the volume is not attached to this
// node.
func (d *driver) isDetached(ctx context.Context, v volume) (bool, error) {
	attached, listed, err := d.listed(ctx, v)
	return err == nil && listed && !attached, err
}
