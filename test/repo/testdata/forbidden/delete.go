package fixture

import (
	"os"
	sys "syscall"

	"golang.org/x/sys/unix"
)

type remover struct{}

func (remover) Remove(string) {}

func f() {
	os.Remove("x")                           // refused
	os.RemoveAll("x")                        // refused
	remove := os.Remove                      // refused
	os.Rename("x", "y")                      // refused
	os.OpenRoot("x")                         // refused
	os.OpenInRoot("x", "y")                  // refused
	unix.Unlink("x")                         // refused
	unix.Unlinkat(3, "x", unix.AT_REMOVEDIR) // refused
	unix.Rmdir("x")                          // refused
	unix.Renameat2(3, "x", 4, "y", 0)        // refused
	unix.Syscall(unix.SYS_UNLINKAT, 0, 0, 0) // refused
	unix.Syscall(unix.SYS_RMDIR, 0, 0, 0)    // refused
	unix.Syscall(unix.SYS_RENAME, 0, 0, 0)   // refused
	sys.Unlink("x")                          // refused

	// A method of that name is no deletion of a file.
	remover{}.Remove("x")
	var os remover
	os.Remove("x")
	_ = remove
}
