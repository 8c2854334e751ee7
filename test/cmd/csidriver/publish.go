package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/testutil"
)

func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.control()
	if err != nil {
		return nil, err
	}
	inline := r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true"
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, missing("volume id and target path")
	}
	if err := capable(c, r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if r.GetStagingTargetPath() == "" && stages(c) && !inline {
		return nil, status.Error(codes.FailedPrecondition, "staging target path missing in request")
	}
	if err := demand(c, "NodePublishVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	if inline {
		return &csi.NodePublishVolumeResponse{}, d.publishInline(r)
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := attached(c, v, r.GetPublishContext()); err != nil {
		return nil, err
	}
	if at := mounted(r.GetTargetPath()); at != nil {
		if ro := strings.HasPrefix(at.Options, "ro"); ro != r.GetReadonly() {
			return nil, status.Errorf(codes.AlreadyExists, "%s is published with the options %s", r.GetTargetPath(), at.Options)
		}
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodePublishVolumeResponse{}, d.publishBlock(c, v, r)
	}
	return &csi.NodePublishVolumeResponse{}, d.publishMount(c, v, r)
}

// publishInline makes an ephemeral volume, which is a tmpfs.
func (d *driver) publishInline(r *csi.NodePublishVolumeRequest) error {
	if mounted(r.GetTargetPath()) != nil {
		return nil
	}
	if err := d.keep(testutil.CSIVolume{ID: r.GetVolumeId(), Ephemeral: true}); err != nil {
		return err
	}
	if err := makeTarget(r.GetTargetPath(), os.ModeDir); err != nil {
		return err
	}
	var flags uintptr
	if r.GetReadonly() {
		flags = unix.MS_RDONLY
	}
	return unix.Mount("tmpfs", r.GetTargetPath(), "tmpfs", flags, "size=1m,mode=0777")
}

func (d *driver) publishMount(c testutil.CSIControl, v testutil.CSIVolume, r *csi.NodePublishVolumeRequest) error {
	target, staging := r.GetTargetPath(), r.GetStagingTargetPath()
	if stages(c) && !c.PlainStage && mounted(staging) == nil {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", v.ID, staging)
	}
	if err := makeTarget(target, os.ModeDir); err != nil {
		return err
	}
	switch {
	case c.PlainStage:
		data := filepath.Join(d.place(v.ID), "data")
		if err := os.MkdirAll(data, 0o777); err != nil {
			return err
		}
		return bind(data, target, r.GetReadonly())
	case stages(c):
		return bind(staging, target, r.GetReadonly())
	}
	if err := d.mount(v, target, r.GetVolumeCapability().GetMount()); err != nil || !r.GetReadonly() {
		return err
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

func (d *driver) publishBlock(c testutil.CSIControl, v testutil.CSIVolume, r *csi.NodePublishVolumeRequest) error {
	dev := loopOf(d.image(v))
	if dev == "" && stages(c) {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not staged", v.ID)
	}
	if dev == "" {
		var err error
		if dev, err = d.attach(v); err != nil {
			return err
		}
	}
	return bindDevice(dev, r.GetTargetPath(), r.GetReadonly())
}

// bindDevice binds a device node on a file that it makes.
func bindDevice(dev, file string, ro bool) error {
	if mounted(file) != nil {
		return nil
	}
	if err := makeTarget(file, 0); err != nil {
		return err
	}
	return bind(dev, file, ro)
}

// makeTarget makes the target, and nothing above it: that is the CO's to do.
func makeTarget(path string, kind os.FileMode) error {
	var err error
	if kind == os.ModeDir {
		err = os.Mkdir(path, 0o750)
	} else {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o660); err == nil {
			f.Close()
		}
	}
	if err == nil {
		return nil
	}
	if info, e := os.Lstat(path); e == nil && info.Mode().Type() == kind {
		return nil
	}
	return status.Errorf(codes.Internal, "target path: %v", err)
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.control()
	if err != nil {
		return nil, err
	}
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, missing("volume id and target path")
	}
	if err := unmount(r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := remove(r.GetTargetPath()); err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	v, err := d.volume(r.GetVolumeId())
	switch {
	case err != nil:
		return &csi.NodeUnpublishVolumeResponse{}, nil // nothing is left of it
	case v.Ephemeral:
		return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(d.place(v.ID))
	case !stages(c):
		return &csi.NodeUnpublishVolumeResponse{}, d.release(v)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
