package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/testutil"
)

func stages(c testutil.CSIControl) bool { return slices.Contains(c.NodeCaps, "STAGE_UNSTAGE_VOLUME") }

// attached wants the publish context that ControllerPublishVolume gave.
func attached(c testutil.CSIControl, v testutil.CSIVolume, context map[string]string) error {
	if c.NeedAttach && (v.Token == "" || context[tokenKey] != v.Token) {
		return status.Errorf(codes.FailedPrecondition, "volume %s: the publish context is not that of ControllerPublishVolume", v.ID)
	}
	return nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.control()
	if err != nil {
		return nil, err
	}
	staging := r.GetStagingTargetPath()
	switch {
	case !stages(c):
		return nil, status.Error(codes.Unimplemented, "no capability STAGE_UNSTAGE_VOLUME")
	case r.GetVolumeId() == "" || staging == "":
		return nil, missing("volume id and staging target path")
	}
	if err := capable(c, r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if err := demand(c, "NodeStageVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := attached(c, v, r.GetPublishContext()); err != nil {
		return nil, err
	}
	// The CO makes the directory.
	if info, err := os.Stat(staging); err != nil || !info.IsDir() {
		return nil, status.Errorf(codes.Internal, "staging target path %s is no directory: %v", staging, err)
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodeStageVolumeResponse{}, d.stageBlock(c, v, staging)
	}
	if c.PlainStage {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	return &csi.NodeStageVolumeResponse{}, d.mount(v, staging, r.GetVolumeCapability().GetMount())
}

// stageBlock attaches the device; some drivers bind its node into the directory too.
func (d *driver) stageBlock(c testutil.CSIControl, v testutil.CSIVolume, staging string) error {
	dev, err := d.attach(v)
	if err != nil || !c.StageDevice {
		return err
	}
	return bindDevice(dev, filepath.Join(staging, filepath.Base(d.place(v.ID))), false)
}

// mount mounts the volume's file system on a path, where it may be already.
func (d *driver) mount(v testutil.CSIVolume, path string, m *csi.VolumeCapability_MountVolume) error {
	fs := fsType(v, m.GetFsType())
	if at := mounted(path); at != nil && at.FSType != fs {
		return status.Errorf(codes.AlreadyExists, "%s has %s, not %s", path, at.FSType, fs)
	} else if at != nil {
		return nil
	}
	dev, err := d.attach(v)
	if err != nil {
		return err
	}
	if err := format(fs, dev); err != nil {
		return err
	}
	args := []string{"-t", fs}
	if flags := m.GetMountFlags(); len(flags) > 0 {
		args = append(args, "-o", strings.Join(flags, ","))
	}
	if _, err := tool("mount", append(args, dev, path)...); err != nil {
		return err
	}
	if gid, err := strconv.Atoi(m.GetVolumeMountGroup()); err == nil {
		return errors.Join(os.Chown(path, -1, gid), os.Chmod(path, 0o2775))
	}
	return nil
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.control()
	if err != nil {
		return nil, err
	}
	staging := r.GetStagingTargetPath()
	switch {
	case !stages(c):
		return nil, status.Error(codes.Unimplemented, "no capability STAGE_UNSTAGE_VOLUME")
	case r.GetVolumeId() == "" || staging == "":
		return nil, missing("volume id and staging target path")
	}
	file := filepath.Join(staging, filepath.Base(d.place(r.GetVolumeId())))
	if err := unmount(file); err != nil {
		return nil, err
	}
	if err := unmount(staging); err != nil {
		return nil, err
	}
	if err := remove(file); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return &csi.NodeUnstageVolumeResponse{}, nil // nothing is left of it
	}
	return &csi.NodeUnstageVolumeResponse{}, d.release(v)
}

func (d *driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.work.Lock()
	defer d.work.Unlock()
	c, err := d.control()
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(c.NodeCaps, "EXPAND_VOLUME"):
		return nil, status.Error(codes.Unimplemented, "no capability EXPAND_VOLUME")
	case r.GetVolumeId() == "" || r.GetVolumePath() == "":
		return nil, missing("volume id and volume path")
	}
	if err := demand(c, "NodeExpandVolume", r.GetSecrets()); err != nil {
		return nil, err
	}
	v, err := d.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	at, dev := mounted(r.GetVolumePath()), loopOf(d.image(v))
	if at == nil || dev == "" {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", v.ID, r.GetVolumePath())
	}
	if want := r.GetCapacityRange().GetRequiredBytes(); want > v.Bytes {
		v.Bytes = want
		if err := d.keep(v); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, d.grow(v, dev, at.FSType, r.GetVolumePath())
}

// grow gives the image, the device and the file system on it the volume's size.
func (d *driver) grow(v testutil.CSIVolume, dev, fs, path string) error {
	info, err := os.Stat(d.image(v))
	if err != nil {
		return err
	}
	if info.Size() < v.Bytes {
		if err := os.Truncate(d.image(v), v.Bytes); err != nil {
			return err
		}
	}
	if _, err := tool("losetup", "-c", dev); err != nil {
		return err
	}
	switch fs {
	case "xfs":
		_, err = tool("xfs_growfs", "-d", path)
	case "btrfs":
		_, err = tool("btrfs", "filesystem", "resize", "max", path)
	case "ext4":
		_, err = tool("resize2fs", dev)
	}
	return err
}

func (d *driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, missing("volume id and volume path")
	}
	if _, err := d.volume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &st); err != nil {
		return nil, status.Errorf(codes.NotFound, "%s: %v", r.GetVolumePath(), err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{
		Unit: csi.VolumeUsage_BYTES, Total: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize,
	}}}, nil
}
