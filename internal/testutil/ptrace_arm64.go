package testutil

import "golang.org/x/sys/unix"

// EnteredCall is the system call that a traced thread is entering, with its first
// three arguments.
func EnteredCall(tid int) (nr uint64, args [3]uint64, err error) {
	var regs unix.PtraceRegsArm64
	const prStatus = 1 // NT_PRSTATUS of elf.h; arm64 has no PTRACE_GETREGS
	err = unix.PtraceGetRegSetArm64(tid, prStatus, &regs)
	return regs.Regs[8], [3]uint64(regs.Regs[:3]), err
}
