package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/exec"
)

// stopper is a Runner that puts mkfsMain between kvol and mkfs.
type stopper struct {
	exec.Runner
	n int
}

func (s stopper) Run(ctx context.Context, c exec.Cmd) (exec.Result, error) {
	if strings.HasPrefix(c.Name, "mkfs.") {
		path, err := s.LookPath(c.Name)
		if err != nil {
			return exec.Result{}, err
		}
		c.Args = append([]string{mkfsWord, strconv.Itoa(s.n), path}, c.Args...)
		c.Name = "/proc/self/exe"
	}
	return s.Runner.Run(ctx, c)
}

const mkfsWord = "kill-test-mkfs"

// mkfsMain takes the process over when kvol started it as mkfs. It runs the real
// one until right before its n-th change of the device, leaves it there stopped,
// with all that kvol gave it, kills kvol and goes.
func mkfsMain() {
	if len(os.Args) < 4 || os.Args[1] != mkfsWord {
		return
	}
	n, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = runUntil(n, os.Args[3], os.Args[4:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runUntil(n int, path string, args []string) error {
	runtime.LockOSThread() // only the thread that started it may trace it
	kvol := os.Getppid()
	cmd := osexec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// What kvol gave is inherited under the same numbers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil { // stopped by its execve
		return err
	}
	for i, entering := 0, true; ; entering = !entering {
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			return err
		}
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
			return err
		}
		if ws.Exited() {
			os.Exit(ws.ExitStatus())
		}
		if ws.Signaled() {
			return fmt.Errorf("mkfs ended by %v", ws.Signal())
		}
		nr, err := syscallNumber(pid)
		if err != nil {
			return err
		}
		if !entering || !writes[nr] {
			continue
		}
		if i++; i < n {
			continue
		}
		return errors.Join(unix.Kill(pid, unix.SIGSTOP), unix.Kill(kvol, unix.SIGKILL), unix.PtraceDetach(pid))
	}
}

// writes are the system calls by which mkfs changes a device, or makes sure of it.
var writes = map[uint64]bool{
	unix.SYS_PWRITE64: true, unix.SYS_WRITE: true, unix.SYS_PWRITEV: true, unix.SYS_FSYNC: true, unix.SYS_FALLOCATE: true,
}
