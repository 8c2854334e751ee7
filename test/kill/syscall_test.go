package kill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/testutil"
)

// Killed right before a system call by which kvol, its helper or a tool of it
// changes something, alone or with all that it started (as a service manager
// does), kvol comes to the right end when the same command is run again. Which
// calls is drawn by lot; KVOL_TEST_KILL_SEED says otherwise than 1.
func TestEverySystemCall(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("KVOL_TEST_KILL_SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	before := points.Load()
	for _, m := range []mode{
		{name: "directory with fsGroup", fsGroup: v1.FSGroupChangeAlways},
		{name: "ext4", fs: "ext4"},
		{name: "blank for ext4", fs: "ext4", blank: true},
		{name: "blank for xfs", fs: "xfs", blank: true},
		{name: "raw block", block: true},
	} {
		if m.fs == "xfs" && !allPoints {
			continue // it takes the longest
		}
		t.Run(m.name, func(t *testing.T) {
			n := newNode(t, m)
			for _, s := range []step{
				{verb: ops.Setup},
				{verb: ops.Teardown, before: []ops.Verb{ops.Setup}, down: true, named: true},
			} {
				n.everyCall(s, rand.New(rand.NewPCG(seed, 0)))
			}
		})
	}
	t.Logf("%d kill points, seed %d", points.Load()-before, seed)
}

const someCalls = 2 // of each verb and mode, by default

func (n *node) everyCall(s step, lot *rand.Rand) {
	n.t.Helper()
	n.prepare(s.before, s.down)
	clean := n.trace(s.call(n), 0, false)
	if clean.Code != 0 {
		n.t.Fatalf("%s without a kill: %v", s, clean)
	}
	want := n.look()
	calls := lot.Perm(len(clean.calls))
	if !allPoints {
		calls = calls[:min(someCalls, len(calls))]
	}
	for _, i := range calls {
		for _, tree := range []bool{false, true} {
			n.prepare(s.before, s.down)
			first := n.trace(s.call(n), i+1, tree)
			if !first.killed {
				continue // it did with fewer calls this time
			}
			points.Add(1)
			what := fmt.Sprintf("%s killed (tree %t) before call %d, %s", s, tree, i+1, first.calls[i])
			second := s.call(n).run(n.t)
			if second.Code != 0 {
				n.t.Fatalf("%s: the same command again: %v\n%s", what, second, n.look())
			}
			n.sameEnd(what, want)
			n.told(s, what)
		}
	}
	n.t.Logf("%s: %d of %d calls", s, len(calls), len(clean.calls))
}

// told says that the history has the second run as one that ended, and the first
// as one that did not, or had just ended, or had not begun.
func (n *node) told(s step, what string) {
	n.t.Helper()
	n.entries()
	good := []string{string(api.OutcomeDone), string(api.OutcomeAlready)}
	all := slices.DeleteFunc(n.history(), func(o api.Operation) bool { return o.Verb != string(s.verb) })
	if len(all) == 0 || len(all) > 2 || !slices.Contains(good, all[len(all)-1].Outcome) {
		n.t.Errorf("%s: history: %+v", what, all)
	}
	if len(all) == 2 && !slices.Contains(append(good, "interrupted"), all[0].Outcome) {
		n.t.Errorf("%s: history of the killed run: %+v", what, all[0])
	}
}

// traced is how a traced run ended, and the changes that it came to.
type traced struct {
	outcome
	calls []string
}

// trace runs a verb and kills it, or all that it started too, right before the
// at-th change (from 1; 0 is never). It returns when all of them have ended.
func (n *node) trace(c call, at int, tree bool) traced {
	n.t.Helper()
	cmd, _ := c.command(n.t)
	out, err := os.CreateTemp(n.dir, "out")
	n.must(err)
	defer out.Close()
	cmd.Stdout, cmd.SysProcAttr = out, &syscall.SysProcAttr{Ptrace: true}
	tr := tracer{at: at, tree: tree, inside: map[int]bool{}, gone: map[int]bool{}}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // only the thread that started it may trace it
		defer runtime.UnlockOSThread()
		done <- tr.follow(cmd)
	}()
	n.must(<-done)
	if tr.end.Signaled() {
		return traced{outcome{killed: true}, tr.calls}
	}
	raw, err := os.ReadFile(out.Name())
	n.must(err)
	return traced{ended(n.t, c, nil, string(raw)), tr.calls}
}

// tracer follows a process and all that it starts.
type tracer struct {
	at   int
	tree bool

	kvol   int
	pids   []int
	inside map[int]bool // of all threads that are there: is it in a system call
	gone   map[int]bool // threads that ended
	calls  []string
	killed bool
	end    unix.WaitStatus
}

func (tr *tracer) follow(cmd *osexec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	tr.kvol = cmd.Process.Pid
	tr.pids, tr.inside[tr.kvol] = []int{tr.kvol}, false
	var ws unix.WaitStatus
	if _, err := unix.Wait4(tr.kvol, &ws, unix.WALL, nil); err != nil { // stopped by its execve
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(tr.kvol, options); err != nil {
		return err
	}
	tid := tr.kvol
	for sig := 0; ; {
		if err := tr.resume(tid, sig); err != nil {
			return err
		}
		var err error
		// Not the children of other threads: they are waited for elsewhere.
		if tid, err = unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil); err != nil {
			return err
		}
		if sig, err = tr.stopped(tid, ws); err != nil || len(tr.inside) == 0 {
			return err
		}
	}
}

func (tr *tracer) resume(tid, sig int) error {
	err := error(nil)
	switch {
	case sig < 0: // it is gone
	case tr.killed:
		err = unix.PtraceCont(tid, sig)
	default:
		err = unix.PtraceSyscall(tid, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil // killed meanwhile
	}
	return err
}

// stopped handles one report and gives the signal to go on with, -1 for an end.
func (tr *tracer) stopped(tid int, ws unix.WaitStatus) (int, error) {
	if ws.Exited() || ws.Signaled() {
		delete(tr.inside, tid)
		tr.gone[tid] = true
		if tid == tr.kvol {
			tr.end = ws
		}
		return -1, nil
	}
	switch sig := ws.StopSignal(); sig {
	case unix.SIGTRAP | 0x80:
		tr.inside[tid] = !tr.inside[tid]
		if tr.inside[tid] && !tr.killed {
			return 0, tr.entering(tid)
		}
		return 0, nil
	case unix.SIGTRAP:
		return 0, tr.started(tid, ws.TrapCause())
	case unix.SIGSTOP:
		tr.inside[tid] = false // a new thread or process
		return 0, nil
	default:
		return int(sig), nil
	}
}

// started takes note of a new thread or process.
func (tr *tracer) started(tid, cause int) error {
	process := cause == unix.PTRACE_EVENT_FORK || cause == unix.PTRACE_EVENT_VFORK
	if !process && cause != unix.PTRACE_EVENT_CLONE {
		return nil
	}
	id, err := unix.PtraceGetEventMsg(tid)
	if errors.Is(err, unix.ESRCH) {
		return nil // killed meanwhile
	}
	if _, seen := tr.inside[int(id)]; err == nil && !seen && !tr.gone[int(id)] {
		tr.inside[int(id)] = false
	}
	if process {
		tr.pids = append(tr.pids, int(id))
	}
	return err
}

// entering looks at a system call that is about to be made, and kills.
func (tr *tracer) entering(tid int) error {
	nr, args, err := testutil.EnteredCall(tid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil || !changes(tid, nr, args) {
		return err
	}
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	tr.calls = append(tr.calls, fmt.Sprintf("%d of %s", nr, strings.TrimSpace(string(comm))))
	if len(tr.calls) != tr.at {
		return nil
	}
	tr.killed = true
	victims := []int{tr.kvol}
	if tr.tree {
		victims = tr.pids
	}
	for _, pid := range victims {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// Of linux/loop.h.
const (
	loopClrFD     = 0x4C01
	loopConfigure = 0x4C0A
)

// changes says whether a system call changes something that outlives the process,
// or asks another process to.
func changes(tid int, nr uint64, args [3]uint64) bool {
	switch nr {
	case unix.SYS_MKDIRAT, unix.SYS_SYMLINKAT, unix.SYS_MKNODAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2,
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_FTRUNCATE, unix.SYS_FSYNC,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FLOCK, unix.SYS_EXECVE, unix.SYS_SENDMSG:
		return true
	case unix.SYS_IOCTL:
		return args[1] == loopClrFD || args[1] == loopConfigure
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, args[0]))
		return err == nil && strings.HasPrefix(to, "/") && to != os.DevNull && !strings.HasPrefix(to, "/memfd:")
	case unix.SYS_OPENAT:
		return args[2]&unix.O_CREAT != 0
	case unix.SYS_OPENAT2:
		var how [8]byte // the flags of struct open_how
		_, err := unix.PtracePeekData(tid, uintptr(args[2]), how[:])
		return err == nil && binary.NativeEndian.Uint64(how[:])&unix.O_CREAT != 0
	}
	return false
}
