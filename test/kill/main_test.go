// Package kill kills kvol at every moment that can be named and runs the same
// command again: it must come to the same end as one that was never killed.
//
// KVOL_TEST_ALL_KILL_POINTS=1 takes every kill point of the tests that sample them
// by default, and runs every second command in a process of its own.
package kill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/testutil"
)

// The helper of a kvol that is a test process inherits its environment, so
// host.Main comes before verbMain; mkfsMain needs its descriptors as they are.
func TestMain(m *testing.M) { testutil.Main(m, mkfsMain, host.Main, verbMain) }

const (
	// envCall makes the test binary a kvol that carries out one verb.
	envCall = "KVOL_TEST_KILL_CALL"
	// envNode marks all processes that work on one scratch node; its name is none
	// that kvol keeps from the tools that it runs.
	envNode = "VOLUMETEST_NODE"
)

// allPoints says that nothing is to be left out.
var allPoints = os.Getenv("KVOL_TEST_ALL_KILL_POINTS") != ""

// points counts the kill points of all tests.
var points atomic.Int64

// call is one run of kvol.
type call struct {
	Root, State, Run string
	LockTimeout      time.Duration // 0 is 30 s
	Timeout          time.Duration // 0 is a minute

	Verb     ops.Verb
	PV       *v1.PersistentVolume // nil when the volume is only named
	ReadOnly bool
	Volume   string
	Pod      plugins.PodRef
	Format   bool

	// KillAt and KillN kill it around its n-th action; 0 never.
	KillAt act.Point
	KillN  int
	// MkfsN kills it before the n-th change that mkfs makes, which is stopped
	// there; see mkfsMain.
	MkfsN int
}

func (c call) request() ops.Request {
	req := ops.Request{Volume: c.Volume, Pod: c.Pod, Format: c.Format}
	if c.PV != nil {
		req.Spec = plugins.NewSpecFromPersistentVolume(c.PV, c.ReadOnly)
	}
	return req
}

// answer is what a run that was not killed says.
type answer struct {
	Code     int
	Error    string
	Items    []api.Result
	Warnings []string
}

func (a answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "code %d %s %v\n", a.Code, a.Error, a.Warnings)
	for _, r := range a.Items {
		fmt.Fprintf(&b, "  %s %s %s\n", r.Op, r.Outcome, r.Reason)
		for _, s := range r.Steps {
			fmt.Fprintf(&b, "    %d %s %s\n", s.N, s.Action, s.Target)
		}
	}
	return b.String()
}

// verbMain takes the process over when it was started as a kvol.
func verbMain() {
	raw, ok := os.LookupEnv(envCall)
	if !ok {
		return
	}
	var c call
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	a := c.carryOut(nil)
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		os.Exit(99)
	}
	os.Exit(a.Code)
}

// carryOut is what cmd/kvol does with a command line; on h, or a host of its own.
func (c call) carryOut(h *host.Host) (a answer) {
	fail := func(err error) answer {
		a.Code, a.Error = api.ExitCode(err), fmt.Sprint(err)
		if err == nil {
			a.Error = ""
		}
		return a
	}
	if h == nil {
		var err error
		if h, err = c.host(func(s string) { a.Warnings = append(a.Warnings, s) }); err != nil {
			return fail(err)
		}
		defer h.Close()
	}
	mgr := plugins.NewManager()
	if err := mgr.InitPlugins(all.All(), nil, h); err != nil {
		return fail(err)
	}
	o := ops.New(h, mgr)
	if c.KillN > 0 {
		begun := 0
		o.Hook = func(p act.Point, n int, _ api.Step) error {
			if p == act.Before {
				begun++
			}
			if c.Verb == ops.GCOrphans {
				n = begun // each orphan counts its own from 1
			}
			if p == c.KillAt && n == c.KillN {
				return unix.Kill(os.Getpid(), unix.SIGKILL)
			}
			return nil
		}
	}
	if c.MkfsN > 0 {
		h.Exec = stopper{h.Exec, c.MkfsN}
	}
	limit := time.Minute
	if c.Timeout > 0 {
		limit = c.Timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if c.Verb == ops.GCOrphans {
		_, err := o.CleanOrphans(ctx, ops.OrphanRequest{Pods: alive.Options{From: []string{"file:" + c.Volume}, AssertNoPods: true}})
		return fail(err)
	}
	l, err := o.Run(ctx, c.Verb, c.request())
	if l != nil {
		a.Items = l.Items
	}
	return fail(err)
}

func (c call) host(warn func(string)) (*host.Host, error) {
	wait := c.LockTimeout
	if wait == 0 {
		wait = 30 * time.Second
	}
	return host.New(host.Options{RootDir: c.Root, StateDir: c.State, RunDir: c.Run, LockTimeout: wait, Warn: warn})
}

// outcome is how a run ended.
type outcome struct {
	answer
	killed bool
}

// command is the call as a process that can be started.
func (c call) command(t testing.TB) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{"kvol", string(c.Verb)}
	cmd.Env = append(os.Environ(), envCall+"="+string(raw), envNode+"="+c.Root)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	return cmd, &out
}

// run runs a verb in a process of its own and waits for its end.
func (c call) run(t testing.TB) outcome {
	t.Helper()
	cmd, out := c.command(t)
	return ended(t, c, cmd.Run(), out.String())
}

// again runs a verb after a kill: on a host that is open already, which saves the start
// of kvol and of its helper at each kill point, and with allPoints in a process of its
// own.
func (c call) again(t testing.TB, h *host.Host) outcome {
	t.Helper()
	if allPoints {
		return c.run(t)
	}
	return outcome{answer: c.carryOut(h)}
}

// ended makes sense of how a process ended.
func ended(t testing.TB, c call, err error, out string) outcome {
	t.Helper()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if err != nil && exit == nil {
		t.Fatalf("%s: %v", c.Verb, err)
	}
	if exit != nil {
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			if ws.Signal() != syscall.SIGKILL {
				t.Fatalf("%s ended by %v", c.Verb, ws.Signal())
			}
			return outcome{killed: true}
		}
	}
	var a answer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("%s: %v\n%s", c.Verb, err, out)
	}
	return outcome{answer: a}
}
