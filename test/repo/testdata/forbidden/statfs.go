package fixture

import (
	"os"

	"golang.org/x/sys/unix"
)

func f() {
	unix.Statfs("x", nil)                  // refused
	unix.Fstatfs(3, nil)                   // refused
	unix.Lstat("x", nil)                   // refused
	os.Lstat("x")                          // refused
	unix.Syscall(unix.SYS_STATFS, 0, 0, 0) // refused

	var st unix.Statfs_t
	_ = st
}
