package fixture

import (
	"golang.org/x/sys/unix"
	mount "k8s.io/mount-utils"
)

func f() {
	unix.Unmount("x", 0)                    // refused
	unix.Syscall(unix.SYS_UMOUNT2, 0, 0, 0) // refused
	mount.UnmountMountPoint("x")            // refused
	_ = []string{"umount", "x"}             // refused
	_ = "/bin/umount"                       // refused
	_ = "umount -l"                         // refused
	_ = `umount`                            // refused

	_ = "cannot umount that"
	_ = "unmount"
}
