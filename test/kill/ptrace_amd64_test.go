package kill

import "golang.org/x/sys/unix"

func syscallNumber(pid int) (uint64, error) {
	var regs unix.PtraceRegs
	err := unix.PtraceGetRegs(pid, &regs)
	return regs.Orig_rax, err
}
