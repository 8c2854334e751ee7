package csi

import (
	"context"
	"errors"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/plugins"
)

// limitPrefix begins the name by which a node's allocatable counts a driver's volumes
// (GetCSIAttachLimitKey in pkg/volume/util/attach_limit.go; a longer one is hashed
// there, which kvol, that shows it, does not do).
const limitPrefix = "attachable-volumes-csi-"

// GetVolumeLimits asks every driver that is registered how many volumes this node can
// have; 0 is any number. One that does not answer does not keep the others from it.
func (p *plugin) GetVolumeLimits(ctx context.Context) (map[string]int64, error) {
	all, err := p.registrations(ctx, "")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	var faults []error
	for _, r := range all {
		name := r.info.GetName()
		d, err := p.open(ctx, name)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		info, err := d.nodeInfo(ctx)
		d.close()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out[limitPrefix+name] = info.GetMaxVolumesPerNode()
	}
	return out, errors.Join(faults...)
}

func (p *plugin) VolumeLimitKey(spec *plugins.Spec) string {
	w, err := p.want(spec, podOf(spec))
	if err != nil || w.inline {
		return ""
	}
	return limitPrefix + w.driver
}

// NodeExpand has the driver grow the volume where it is staged or published: the
// DeviceMountPath of the options, or the device of a raw block volume.
func (p *plugin) NodeExpand(ctx context.Context, run *act.Runner, o plugins.NodeExpandOptions) (bool, error) {
	w, err := p.want(o.Spec, podOf(o.Spec))
	if err != nil {
		return false, err
	}
	if w.inline {
		return false, api.Errorf(api.ErrNotSupported, "an inline volume cannot be expanded").
			WithNext("it has the size that its pod asked for: make the pod anew with another")
	}
	d, err := p.open(ctx, w.driver)
	if err != nil {
		return false, err
	}
	defer d.close()
	can, err := d.can(ctx, csipb.NodeServiceCapability_RPC_EXPAND_VOLUME)
	if err != nil || !can {
		if err == nil {
			err = api.Errorf(api.ErrNotSupported, "CSI driver %s does not expand volumes on the node", w.driver).
				WithNext("the driver's controller does it by itself: ask for the size in the claim (kubectl edit pvc NAME)")
		}
		return false, err
	}
	secrets, err := w.secret(w.expandSecret)
	if err != nil {
		return false, err
	}
	capability, err := w.capability(ctx, d, nil)
	if err != nil {
		return false, err
	}
	req := &csipb.NodeExpandVolumeRequest{
		VolumeId: w.handle, VolumePath: o.DeviceMountPath, VolumeCapability: capability,
		CapacityRange: &csipb.CapacityRange{RequiredBytes: o.NewSize},
	}
	if w.block {
		req.VolumePath = o.DevicePath
	}
	if stages, err := d.stages(ctx); err != nil {
		return false, err
	} else if stages {
		if req.StagingTargetPath, err = p.staging(w); err != nil {
			return false, err
		}
	}
	_, err = run.Do(ctx, act.Call{
		Name: "NodeExpandVolume", Target: req.GetVolumePath(), Args: []string{w.String()}, Reason: "the driver grows the volume on this node",
		Do: func(ctx context.Context) error {
			req.Secrets = revealed(secrets)
			_, err := change(ctx, d, "NodeExpandVolume", d.node.NodeExpandVolume, req, values(secrets))
			return err
		},
	})
	return err == nil, err
}
