package testutil

import (
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// DeviceChanges are the system calls by which mkfs changes a device, or makes sure
// of it.
var DeviceChanges = []uint64{
	unix.SYS_PWRITE64, unix.SYS_WRITE, unix.SYS_PWRITEV, unix.SYS_FSYNC, unix.SYS_FALLOCATE,
}

// UntilCall starts a program of one process, by ptrace, and lets it go on until
// right before the n-th (from 1) of its calls of one of some numbers: exactly there,
// however fast the machine is. The status says whether it is stopped there or ended
// before that.
//
// Only the thread that started a program may trace it: the caller locks itself to
// its thread first, and waits for what it leaves there itself, not with cmd.Wait.
func UntilCall(cmd *exec.Cmd, n int, numbers ...uint64) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return ws, err
	}
	pid := cmd.Process.Pid
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil { // stopped by its execve
		return ws, err
	}
	for i, entering := 0, true; ; entering = !entering {
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			return ws, err
		}
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
			return ws, err
		}
		nr, _, err := EnteredCall(pid)
		if err != nil {
			return ws, err
		}
		if entering && slices.Contains(numbers, nr) {
			if i++; i == n {
				return ws, nil
			}
		}
	}
}
