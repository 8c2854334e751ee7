package testutil

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// FUSEMode says how the daemon behind a mount behaves.
type FUSEMode string

// A live mount holds the file hello with the text "alive\n"; the kernel is told
// to cache nothing, so every look asks the daemon.
const (
	FUSEAlive FUSEMode = "alive"
	// FUSEDead has lost its daemon: the kernel answers ENOTCONN.
	FUSEDead FUSEMode = "dead"
	// FUSEHung has a daemon that is stopped (SIGSTOP): nothing is answered.
	FUSEHung FUSEMode = "hung"
	// FUSEMute has a daemon that answered INIT and then nothing more.
	FUSEMute FUSEMode = "mute"
	// FUSESlow has a daemon that takes SlowDelay for each answer.
	FUSESlow FUSEMode = "slow"
)

// SlowDelay is how long a [FUSESlow] daemon takes for each answer.
const SlowDelay = 200 * time.Millisecond

// FUSEMount is a FUSE file system and the process behind it.
type FUSEMount struct {
	Path string
	PID  int

	t    testing.TB
	proc *os.Process
	done chan struct{} // closed when the process is gone and reaped
}

// FUSE mounts a FUSE file system of the type fuse.kvoltest on dst. At the end of
// the test the daemon is killed, which frees all that wait for it, and the mount
// taken off.
func FUSE(t testing.TB, dst string, mode FUSEMode) *FUSEMount {
	t.Helper()
	m := FUSEWithDelay(t, dst, mode, SlowDelay)
	switch mode {
	case FUSEDead:
		m.Kill()
	case FUSEHung:
		m.Stop()
	}
	return m
}

// FUSEWithDelay is [FUSE] with the time that a [FUSESlow] daemon takes.
func FUSEWithDelay(t testing.TB, dst string, mode FUSEMode, delay time.Duration) *FUSEMount {
	t.Helper()
	Root(t)
	m := &FUSEMount{Path: dst, t: t, done: make(chan struct{})}
	line, err := m.start(mode, delay)
	// The daemon may have mounted before it failed.
	t.Cleanup(func() {
		m.Kill()
		detach(t, dst)
	})
	if err != nil || line != "ready" {
		m.Kill()
		t.Fatalf("FUSE daemon on %s: %s %v", dst, line, err)
	}
	return m
}

// start starts the daemon and gives the line that it says first.
func (m *FUSEMount) start(mode FUSEMode, delay time.Duration) (string, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envFUSE+"="+strings.Join([]string{string(mode), delay.String(), m.Path}, " "))
	// A daemon must not outlive the tests, and one that is stopped cannot see that
	// they ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	spawn(func() { err = cmd.Start() })
	if err != nil {
		close(m.done)
		return "", err
	}
	m.PID, m.proc = cmd.Process.Pid, cmd.Process
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = cmd.Wait() // killed, as it must end
		close(m.done)
	}()
	return strings.TrimSuffix(line, "\n"), err
}

// spawn runs f on the one thread that starts daemons: the kernel sends the parent
// death signal when the thread that started a process ends, and this one lives as
// long as the tests.
func spawn(f func()) {
	spawner.Do(func() {
		go func() {
			runtime.LockOSThread()
			for f := range spawns {
				f()
			}
		}()
	})
	done := make(chan struct{})
	spawns <- func() { f(); close(done) }
	<-done
}

var (
	spawner sync.Once
	spawns  = make(chan func())
)

// Kill kills the daemon and returns when it is gone: the mount is then dead
// (ENOTCONN), and all that waited for an answer has been given an error.
func (m *FUSEMount) Kill() {
	if m.proc != nil {
		_ = m.proc.Kill() // gone already is what is wanted
	}
	<-m.done
}

// Stop stops the daemon and returns when it is stopped: nothing is answered until
// Continue.
func (m *FUSEMount) Stop() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
	Poll(m.t, "the FUSE daemon is stopped", func() bool { return m.state() == "T" })
}

// Continue lets a stopped daemon go on.
func (m *FUSEMount) Continue() {
	m.t.Helper()
	m.signal(syscall.SIGCONT)
	Poll(m.t, "the FUSE daemon goes on", func() bool { return m.state() != "T" })
}

func (m *FUSEMount) signal(sig syscall.Signal) {
	m.t.Helper()
	if err := m.proc.Signal(sig); err != nil {
		m.t.Fatalf("FUSE daemon %d: %v", m.PID, err)
	}
}

// state is the one letter of proc_pid_stat(5).
func (m *FUSEMount) state() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID))
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}
