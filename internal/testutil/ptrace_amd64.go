package testutil

import "golang.org/x/sys/unix"

// EnteredCall is the system call that a traced thread is entering, with its first
// three arguments.
func EnteredCall(tid int) (nr uint64, args [3]uint64, err error) {
	var regs unix.PtraceRegs
	err = unix.PtraceGetRegs(tid, &regs)
	return regs.Orig_rax, [3]uint64{regs.Rdi, regs.Rsi, regs.Rdx}, err
}
