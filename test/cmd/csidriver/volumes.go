package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/testutil"
)

func missing(what string) error {
	return status.Errorf(codes.InvalidArgument, "%s missing in request", what)
}

// place is the directory of a volume.
func (d *driver) place(id string) string {
	return filepath.Join(d.dir, "volumes", fmt.Sprintf("%x", sha256.Sum256([]byte(id))))
}

func (d *driver) image(v testutil.CSIVolume) string { return filepath.Join(d.place(v.ID), "image") }

// volume is the volume of a handle: NotFound when there is none.
func (d *driver) volume(id string) (testutil.CSIVolume, error) {
	var v testutil.CSIVolume
	err := testutil.ReadJSON(filepath.Join(d.place(id), "volume.json"), &v)
	if !errors.Is(err, os.ErrNotExist) {
		return v, err
	}
	if c, err := d.control(); err != nil || !c.AnyVolume {
		return v, status.Errorf(codes.NotFound, "no volume %q", id)
	}
	v = testutil.CSIVolume{ID: id, Bytes: 16 << 20}
	return v, d.keep(v)
}

// keep writes a volume down.
func (d *driver) keep(v testutil.CSIVolume) error {
	if err := os.MkdirAll(d.place(v.ID), 0o700); err != nil {
		return err
	}
	return testutil.WriteJSON(filepath.Join(d.place(v.ID), "volume.json"), v)
}

// demand wants the secrets of a method to be those that control.json names.
func demand(c testutil.CSIControl, method string, got map[string]string) error {
	for key, want := range c.Secrets[method] {
		switch have, ok := got[key]; {
		case !ok:
			return status.Errorf(codes.InvalidArgument, "secret %q missing in request", key)
		case have != want:
			return status.Errorf(codes.Unauthenticated, "secret %q is wrong", key)
		}
	}
	return nil
}

// capable checks a volume capability as csi-sanity has it.
func capable(c testutil.CSIControl, v *csi.VolumeCapability) error {
	switch {
	case v == nil, v.GetMount() == nil && v.GetBlock() == nil:
		return missing("volume capability with an access type")
	case v.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN:
		return missing("access mode")
	}
	switch v.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		if !slices.Contains(c.NodeCaps, "SINGLE_NODE_MULTI_WRITER") {
			return status.Error(codes.InvalidArgument, "access mode needs the capability SINGLE_NODE_MULTI_WRITER")
		}
	}
	if v.GetMount().GetVolumeMountGroup() != "" && !slices.Contains(c.NodeCaps, "VOLUME_MOUNT_GROUP") {
		return status.Error(codes.InvalidArgument, "volume mount group needs the capability VOLUME_MOUNT_GROUP")
	}
	return nil
}

// attach makes the image and gives its loop device.
func (d *driver) attach(v testutil.CSIVolume) (string, error) {
	img := d.image(v)
	if dev := loopOf(img); dev != "" {
		return dev, nil
	}
	f, err := os.OpenFile(img, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return "", err
	} else if info.Size() < v.Bytes {
		if err := f.Truncate(v.Bytes); err != nil {
			return "", err
		}
	}
	return testutil.AttachLoop(img)
}

// format makes the file system of a blank image.
func format(fs, dev string) error {
	if _, err := tool("blkid", "-p", dev); err == nil {
		return nil
	}
	args := []string{"-q", "-F", dev}
	if fs == "xfs" || fs == "btrfs" {
		args[1] = "-f"
	}
	_, err := tool("mkfs."+fs, args...)
	return err
}

// fsType is what is wanted, else the volume's own.
func fsType(v testutil.CSIVolume, wanted string) string {
	for _, fs := range []string{wanted, v.FSType} {
		if fs != "" {
			return fs
		}
	}
	return "ext4"
}

// loopOf is the loop device of a file, "" when it has none.
func loopOf(img string) string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSuffix(string(b), "\n") == img {
			return "/dev/" + strings.Split(f, "/")[3]
		}
	}
	return ""
}

// release detaches the loop device of a volume when nothing is mounted of it.
func (d *driver) release(v testutil.CSIVolume) error {
	dev := loopOf(d.image(v))
	if dev == "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(dev, &st); err != nil {
		return err
	}
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Major == int(unix.Major(st.Rdev)) && m.Minor == int(unix.Minor(st.Rdev)) || m.Root == "/"+filepath.Base(dev) {
			return nil
		}
	}
	_, err = tool("losetup", "-d", dev)
	return err
}

// mounted is the topmost mount on a path.
func mounted(path string) *mountinfo.Info {
	all, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	if err != nil || len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// unmount takes every mount off a path; somebody's use of it is FailedPrecondition.
func unmount(path string) error {
	for mounted(path) != nil {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return status.Errorf(codes.FailedPrecondition, "unmount %s: %v", path, err)
		}
	}
	return nil
}

// bind bind-mounts, read-only if so wanted.
func bind(src, dst string, ro bool) error {
	err := unix.Mount(src, dst, "", unix.MS_BIND, "")
	if err == nil && ro {
		err = unix.Mount("", dst, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return status.Errorf(codes.Internal, "bind %s on %s: %v", src, dst, err)
	}
	return nil
}

// tool runs a program and gives what it printed.
func tool(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", status.Errorf(codes.Internal, "%s %s: %v: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}
