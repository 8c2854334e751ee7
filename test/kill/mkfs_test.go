package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/testutil"
)

// kvol is killed while mkfs writes. As long as mkfs is there it has the locks, and
// the same command says so; when it has ended, well or by a kill, the same command
// finishes.
func TestInTheMiddleOfMkfs(t *testing.T) {
	for _, c := range []struct {
		fs   string
		step int
	}{{"ext4", 41}, {"xfs", 19}, {"btrfs", 23}} {
		t.Run(c.fs, func(t *testing.T) {
			n := newNode(t, mode{fs: c.fs, blank: true})
			if allPoints {
				c.step = 1
			}
			n.prepare(nil, false)
			if clean := n.call(ops.Setup).run(t); clean.Code != 0 {
				t.Fatal(clean)
			}
			want, killed := n.look(), 0
			for i := 1; n.inMkfs(i, middles[killed%len(middles)], want); i += c.step {
				killed++
				points.Add(1)
			}
			t.Logf("%d kill points", killed)
			if killed < 3 {
				t.Errorf("mkfs was stopped %d times only", killed)
			}
		})
	}
}

// middle is what becomes of mkfs once kvol is dead.
type middle string

var middles = []middle{"killed too", "goes on while kvol waits", "ends, and data is written"}

// inMkfs gives false when mkfs had ended before its i-th change.
func (n *node) inMkfs(i int, m middle, want string) bool {
	n.t.Helper()
	what := fmt.Sprintf("before change %d of mkfs, which %s", i, m)
	n.prepare(nil, false)
	c := n.call(ops.Setup)
	c.MkfsN = i
	if first := c.run(n.t); !first.killed {
		if first.Code != 0 {
			n.t.Fatalf("%s: %v", what, first)
		}
		return false
	}
	mkfs := n.mkfs(what)
	c = n.call(ops.Setup)
	c.LockTimeout = 100 * time.Millisecond
	if a := c.run(n.t); a.Code != api.ExitLocked || !strings.Contains(a.Error, fmt.Sprintf("pid %d: ", mkfs)) {
		n.t.Errorf("%s: pid %d is not named as what holds the lock: %v", what, mkfs, a)
	}
	c = n.call(ops.Setup)
	switch m {
	case "killed too":
		n.must(unix.Kill(mkfs, unix.SIGKILL))
	case "goes on while kvol waits":
		n.waits(c, what, func() { n.must(unix.Kill(mkfs, unix.SIGCONT)) })
	case "ends, and data is written":
		n.must(unix.Kill(mkfs, unix.SIGCONT))
		testutil.Poll(n.t, "mkfs has ended", func() bool { return len(n.processes()) == 0 })
		n.inside(func(dir string) { fill(n, dir) })
		if a := c.run(n.t); a.Code != 0 {
			n.t.Fatalf("%s: %v", what, a)
		}
		if !strings.Contains(n.look(), `"./a/b/data"`) {
			n.t.Fatalf("%s: the data is lost:\n%s", what, n.look())
		}
		n.quiet()
		return true
	}
	if a := c.run(n.t); a.Code != 0 {
		n.t.Fatalf("%s: the same command again: %v", what, a)
	}
	n.sameEnd(what, want)
	return true
}

// mkfs is the pid of the one process that is left of a killed kvol.
func (n *node) mkfs(what string) int {
	n.t.Helper()
	var left []process
	if !eventually(func() bool { left = n.processes(); return len(left) == 1 && strings.HasPrefix(left[0].comm, "mk") }) {
		n.t.Fatalf("%s: no mkfs alone: %v", what, left)
	}
	return left[0].pid
}

// waits starts a run, and does f once it waits for the locks; it must then end well.
func (n *node) waits(c call, what string, f func()) {
	n.t.Helper()
	cmd, out := c.command(n.t)
	n.must(cmd.Start())
	testutil.Poll(n.t, "kvol waits for the lock", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		for _, f := range files {
			if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, n.runDir+"/volume-") {
				return true
			}
		}
		return false
	})
	f()
	if a := ended(n.t, c, cmd.Wait(), out.String()); a.Code != 0 {
		n.t.Fatalf("%s: the command that waited: %v", what, a)
	}
}

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
	runtime.LockOSThread()
	kvol := os.Getppid()
	cmd := osexec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// What kvol gave is inherited under the same numbers.
	ws, err := testutil.UntilCall(cmd, n, testutil.DeviceChanges...)
	switch {
	case err != nil:
		return err
	case ws.Exited():
		os.Exit(ws.ExitStatus())
	case ws.Signaled():
		return fmt.Errorf("mkfs ended by %v", ws.Signal())
	}
	mkfs := cmd.Process.Pid
	return errors.Join(unix.Kill(mkfs, unix.SIGSTOP), unix.Kill(kvol, unix.SIGKILL), unix.PtraceDetach(mkfs))
}
