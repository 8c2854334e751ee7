package fixture

import (
	"os"
	"os/exec" // refused
	"syscall"

	"golang.org/x/sys/unix"
	utilexec "k8s.io/utils/exec" // refused
)

func f() {
	exec.Command("true")
	utilexec.New()
	os.StartProcess("x", nil, nil)           // refused
	syscall.ForkExec("x", nil, nil)          // refused
	unix.ForkExec("x", nil, nil)             // refused
	unix.StartProcess("x", nil, nil)         // refused
	unix.Exec("x", nil, nil)                 // refused
	unix.Syscall(unix.SYS_EXECVEAT, 0, 0, 0) // refused

	_ = os.Process{}
}
