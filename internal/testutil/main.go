// Package testutil gives tests a private mount namespace, real mounts, real loop
// devices and FUSE daemons that can be stopped and killed, each taken down again
// when its test ends.
//
// It is for tests only. It imports nothing of internal, so that every package's
// tests can use it; what it needs of the mount table it reads itself.
package testutil

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// envNS holds the link text of the private mount namespace that Main made, as
// /proc/self/ns/mnt shows it.
const envNS = "KVOL_TEST_MNTNS"

// Main runs a package's tests in a private mount namespace; every package whose
// tests mount has
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
		if err := enterNamespace(); err != nil {
			fmt.Fprintf(os.Stderr, "testutil: no private mount namespace, tests that mount cannot run: %v\n", err)
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

// enterNamespace starts this program again, as the same process, in a new mount
// namespace from which no mount propagates. It returns only on failure.
func enterNamespace() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("not root (uid %d)", os.Geteuid())
	}
	// The thread that calls execve becomes the process, so unsharing it alone is
	// enough; the others end.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	ns, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	if err := os.Setenv(envNS, ns); err != nil {
		return err
	}
	return fmt.Errorf("exec: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// private says whether this process is in the namespace that Main made.
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
