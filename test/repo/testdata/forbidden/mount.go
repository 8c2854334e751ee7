package fixture

import "golang.org/x/sys/unix"

func f() {
	unix.Mount("a", "b", "", 0, "")            // refused
	unix.MountSetattr(3, "", 0, nil)           // refused
	unix.MoveMount(3, "", 4, "", 0)            // refused
	unix.OpenTree(3, "", 0)                    // refused
	unix.Fsopen("ext4", 0)                     // refused
	unix.Fsmount(3, 0, 0)                      // refused
	unix.PivotRoot("a", "b")                   // refused
	unix.Syscall(unix.SYS_MOUNT, 0, 0, 0)      // refused
	unix.Syscall(unix.SYS_MOVE_MOUNT, 0, 0, 0) // refused

	_ = unix.MS_BIND
}
