// Package testutil gives tests a private mount namespace, real mounts, real loop
// devices and FUSE daemons that can be stopped and killed, each taken down again
// when its test ends.
//
// It is for tests only. It imports nothing of internal, so that every package's
// tests can use it; what it needs of the mount table it reads itself.
package testutil

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// envNS holds the link text of the private mount namespace that Main made, as
	// /proc/self/ns/mnt shows it.
	envNS = "KVOL_TEST_MNTNS"
	// envFirst is set for the first process of the namespaces that Main makes.
	envFirst = "KVOL_TEST_FIRST"
)

// Main runs a package's tests in a private mount namespace, and sees no processes but
// theirs; every package whose tests mount has
//
//	func TestMain(m *testing.M) { testutil.Main(m, probe.Main) }
//
// The hooks run first, in every process that the test binary is started as: one
// that was started as a helper takes the process over, the others return. Without
// root the tests run where they are and those that call [Root] skip, said once on
// standard error; when CI is set that is a failure.
func Main(m *testing.M, hooks ...func()) {
	for _, hook := range hooks {
		hook()
	}
	FUSEDaemon()
	if !private() {
		enter := enterNamespaces
		if os.Getenv(envFirst) != "" {
			enter = firstProcess
		}
		if err := enter(); err != nil {
			fmt.Fprintf(os.Stderr, "testutil: no private namespaces, tests that mount cannot run: %v\n", err)
			if inCI() {
				os.Exit(1)
			}
		}
	}
	code := m.Run()
	for _, f := range atExit {
		f()
	}
	os.Exit(code)
}

var atExit []func()

// AtExit has something done after the last test, when no test's own end is right.
func AtExit(f func()) { atExit = append(atExit, f) }

// enterNamespaces runs this program again in a mount namespace from which no mount
// propagates and in a process namespace: the tests of another package that run at the
// same time are no kubelets, holders or live pods here, and whatever a test leaves
// running ends with the tests. It returns only on failure.
func enterNamespaces() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("not root (uid %d)", os.Geteuid())
	}
	if err := os.Setenv(envFirst, "1"); err != nil {
		return err
	}
	return again(&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID})
}

// firstProcess is the one with number 1 in the new namespace: it gives the tests their
// /proc and waits for them, and for every process that lost its parent.
func firstProcess() error {
	if err := os.Unsetenv(envFirst); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	ns, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if err := os.Setenv(envNS, ns); err != nil {
		return err
	}
	return again(&syscall.SysProcAttr{})
}

// again runs this program as a child and ends as it does.
func again(attr *syscall.SysProcAttr) error {
	// The child gets this signal when the thread that started it ends.
	runtime.LockOSThread()
	attr.Pdeathsig = syscall.SIGKILL
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = child.Signal(s)
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case pid != child.Pid:
		case status.Signaled():
			os.Exit(128 + int(status.Signal()))
		default:
			os.Exit(status.ExitStatus())
		}
	}
}

// private says whether this process is in the namespaces that Main made.
func private() bool {
	ns, err := os.Readlink("/proc/self/ns/mnt")
	return err == nil && ns == os.Getenv(envNS)
}

func inCI() bool { return os.Getenv("CI") != "" }

// Root skips the test when it cannot mount: not root, or TestMain does not call
// [Main].
func Root(t testing.TB) {
	t.Helper()
	if !private() {
		Skip(t, "needs root and a TestMain that calls testutil.Main")
	}
}

// Skip skips the test, and fails it when CI is set: there everything is installed.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if inCI() {
		t.Fatalf("would skip, which CI does not allow: "+format, args...)
	}
	t.Skipf(format, args...)
}
