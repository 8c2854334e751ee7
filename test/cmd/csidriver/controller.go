package main

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/testutil"
)

// tokenKey is the entry of the publish context that NodeStageVolume wants back.
const tokenKey = "token"

// controller is the control of a driver that serves a controller with this
// capability, "" for any.
func (d *driver) controller(capability string) (testutil.CSIControl, error) {
	c, err := d.control()
	if err != nil {
		return c, err
	}
	if len(c.ControllerCaps) == 0 {
		return c, status.Error(codes.Unimplemented, "unknown service csi.v1.Controller")
	}
	if capability != "" && !slices.Contains(c.ControllerCaps, capability) {
		return c, status.Errorf(codes.Unimplemented, "no capability %s", capability)
	}
	return c, nil
}

func (d *driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.controller("CREATE_DELETE_VOLUME")
	if err != nil {
		return nil, err
	}
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, missing("name and volume capabilities")
	}
	if err := demand(c, "CreateVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	bytes := max(r.GetCapacityRange().GetRequiredBytes(), 16<<20)
	v, err := d.volume(r.GetName())
	switch {
	case err == nil && v.Bytes != bytes:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes", v.ID, v.Bytes)
	case err != nil:
		v = testutil.CSIVolume{ID: r.GetName(), Bytes: bytes}
		if err := d.keep(v); err != nil {
			return nil, err
		}
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: r.GetParameters(),
	}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.controller("CREATE_DELETE_VOLUME")
	if err != nil {
		return nil, err
	}
	if r.GetVolumeId() == "" {
		return nil, missing("volume id")
	}
	if err := demand(c, "DeleteVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return &csi.DeleteVolumeResponse{}, nil // gone is what is wanted
	}
	if dev := loopOf(d.image(v)); v.Node != "" || dev != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use: node %q, %s", v.ID, v.Node, dev)
	}
	return &csi.DeleteVolumeResponse{}, os.RemoveAll(d.place(v.ID))
}

func (d *driver) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.controller("PUBLISH_UNPUBLISH_VOLUME")
	if err != nil {
		return nil, err
	}
	if r.GetVolumeId() == "" || r.GetNodeId() == "" {
		return nil, missing("volume id and node id")
	}
	if err := capable(c, r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if err := demand(c, "ControllerPublishVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	switch {
	case r.GetNodeId() != c.NodeID:
		return nil, status.Errorf(codes.NotFound, "no node %q", r.GetNodeId())
	case v.Node != "" && v.Node != r.GetNodeId():
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %q", v.ID, v.Node)
	case v.Node == "":
		v.Node, v.Token = r.GetNodeId(), rand.Text()
		if err := d.keep(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{tokenKey: v.Token}}, nil
}

func (d *driver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.controller("PUBLISH_UNPUBLISH_VOLUME")
	if err != nil {
		return nil, err
	}
	if r.GetVolumeId() == "" {
		return nil, missing("volume id")
	}
	if err := demand(c, "ControllerUnpublishVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil || r.GetNodeId() != "" && r.GetNodeId() != v.Node {
		return &csi.ControllerUnpublishVolumeResponse{}, nil // not attached is what is wanted
	}
	v.Node, v.Token = "", ""
	return &csi.ControllerUnpublishVolumeResponse{}, d.keep(v)
}

// ListVolumes tells all volumes and to which node each is attached, on one page.
func (d *driver) ListVolumes(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	if _, err := d.controller("LIST_VOLUMES"); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(d.dir, "volumes", "*", "volume.json"))
	resp := &csi.ListVolumesResponse{}
	for _, file := range files {
		var v testutil.CSIVolume
		if err := testutil.ReadJSON(file, &v); err != nil {
			return nil, err
		}
		e := &csi.ListVolumesResponse_Entry{
			Volume: &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Bytes}, Status: &csi.ListVolumesResponse_VolumeStatus{},
		}
		if v.Node != "" {
			e.Status.PublishedNodeIds = []string{v.Node}
		}
		resp.Entries = append(resp.Entries, e)
	}
	return resp, err
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, missing("volume id and volume capabilities")
	}
	if _, err := d.volume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}

func (d *driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.controller("EXPAND_VOLUME")
	if err != nil {
		return nil, err
	}
	if r.GetVolumeId() == "" || r.GetCapacityRange() == nil {
		return nil, missing("volume id and capacity range")
	}
	if err := demand(c, "ControllerExpandVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v.Bytes = max(v.Bytes, r.GetCapacityRange().GetRequiredBytes())
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: true}, d.keep(v)
}
