package format

import "github.com/kvol/kvol/internal/api"

// Tools are the programs that it takes to look at a device, and to check and make
// its file system.
func Tools() []api.Tool {
	return []api.Tool{
		{Name: "blkid", Needed: "to see what is on a device"},
		{Name: "fsck.ext4", Needed: "to check an ext4 file system before it is mounted"},
		{Name: "mkfs.ext4", Needed: "for --format with ext4, the default"},
		{Name: "mkfs.xfs", Needed: "for --format with xfs"},
		{Name: "mkfs.btrfs", Needed: "for --format with btrfs"},
	}
}
