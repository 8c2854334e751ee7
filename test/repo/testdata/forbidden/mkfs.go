package fixture

func f() {
	_ = "mkfs"                 // refused
	_ = "mkfs." + "ext4"       // refused
	_ = "/sbin/mkfs.xfs"       // refused
	_ = "mke2fs"               // refused
	_ = "mkswap"               // refused
	_ = "wipefs"               // refused
	_ = "/usr/sbin/blkdiscard" // refused

	_ = "killed in the middle of mkfs"
}
