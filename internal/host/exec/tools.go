package exec

import (
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// packages names the Debian package of every tool that kvol can ask for
// (packages.debian.org, bookworm).
var packages = map[string]string{
	"blkdiscard":      "util-linux",
	"blkid":           "util-linux",
	"blockdev":        "util-linux",
	"btrfs":           "btrfs-progs",
	"ceph":            "ceph-common",
	"ceph-fuse":       "ceph-fuse",
	"cryptsetup":      "cryptsetup-bin",
	"dmsetup":         "dmsetup",
	"dumpe2fs":        "e2fsprogs",
	"fsck":            "util-linux",
	"fsck.btrfs":      "btrfs-progs",
	"fsck.ext2":       "e2fsprogs",
	"fsck.ext3":       "e2fsprogs",
	"fsck.ext4":       "e2fsprogs",
	"fsck.xfs":        "xfsprogs",
	"iscsiadm":        "open-iscsi",
	"losetup":         "mount",
	"lsblk":           "util-linux",
	"mkfs.btrfs":      "btrfs-progs",
	"mkfs.ext2":       "e2fsprogs",
	"mkfs.ext3":       "e2fsprogs",
	"mkfs.ext4":       "e2fsprogs",
	"mkfs.ntfs":       "ntfs-3g",
	"mkfs.vfat":       "dosfstools",
	"mkfs.xfs":        "xfsprogs",
	"mount":           "mount",
	"mount.ceph":      "ceph-common",
	"mount.cifs":      "cifs-utils",
	"mount.glusterfs": "glusterfs-client",
	"mount.nfs":       "nfs-common",
	"mount.nfs4":      "nfs-common",
	"multipath":       "multipath-tools",
	"multipathd":      "multipath-tools",
	"nvme":            "nvme-cli",
	"rbd":             "ceph-common",
	"rbd-nbd":         "rbd-nbd",
	"resize2fs":       "e2fsprogs",
	"setfacl":         "acl",
	"tune2fs":         "e2fsprogs",
	"udevadm":         "udev",
	"umount":          "mount",
	"umount.nfs":      "nfs-common",
	"xfs_admin":       "xfsprogs",
	"xfs_growfs":      "xfsprogs",
	"xfs_repair":      "xfsprogs",
}

// missing is the error for a tool that is not on this node.
func missing(name string) error {
	err := api.Errorf(api.ErrMissingTool, "%s is not installed on this node", name)
	if pkg := packages[filepath.Base(name)]; pkg != "" {
		return err.WithNext("install %s (Debian and Ubuntu: apt install %s)", filepath.Base(name), pkg)
	}
	if strings.HasPrefix(name, "/") {
		return err.WithNext("put an executable file at %s", name)
	}
	return err.WithNext("install %s", name)
}
