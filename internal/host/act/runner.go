// Package act is the one door through which kvol changes a node. A change is a
// value, an [Action]; the [Runner] asks whether it is already done, records the
// intent, does it, verifies it in the kernel's own tables and records the
// outcome. A dry run is the same path with a runner that only records: what it
// reads afterwards is the node with the recorded changes laid over it.
//
// Only internal/ops makes runners. Do not use this package to read: the facts
// that it gives are those that a change needs.
package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// Action is one change to the node.
type Action interface {
	// step describes the change; N is set by the runner.
	step() api.Step
	// done asks whether the node is already as the action would make it, and
	// refuses what would not be safe. The value is what a done action gives.
	done(ctx context.Context, r *Runner) (is bool, value string, err error)
	// do changes the node and gives the value, if it makes one.
	do(ctx context.Context, r *Runner) (value string, err error)
	// verify asks the kernel whether it happened.
	verify(ctx context.Context, r *Runner, value string) error
	// settle lays the change over what the runner believes of the node.
	settle(r *Runner, value Value)
}

// Optional sides of an action.
type (
	// facter has a shell test that holds once the action is done.
	facter interface{ fact() string }
	// valuer makes a value that only exists afterwards.
	valuer interface{ makesValue() bool }
	// irreversible actions need a journal on disk before them.
	irreversible interface{ irreversible() bool }
)

// Point is a moment around an action, for fault injection in tests.
type Point string

// The moments at which a hook is called.
const (
	Before Point = "before" // the intent is recorded, nothing is done
	After  Point = "after"  // it is done and verified, the outcome not yet recorded
)

// Hook is called around every action of a live runner. The error of a hook
// fails the action.
type Hook func(p Point, n int, s api.Step) error

// Config is what a runner works with.
type Config struct {
	Root    *safefs.Root
	Layout  paths.Layout
	Mounts  func() (*mounts.Table, error)
	Helper  *probe.Helper
	Exec    exec.Runner
	Devices *devices.Devices
	// State is where format keeps its intents; nil when it cannot be written.
	State *safefs.Root
	// Journal records the operation; nil in a dry run.
	Journal *Operation
	// Locks are kept open by what must not be overtaken: the helper and mkfs.
	Locks func() []*os.File
	// DryRun records and changes nothing.
	DryRun bool
	// Lazy and ForceUmount are the operator's risks for unmount actions.
	Lazy, ForceUmount bool
	// WithoutDriver is the operator's risk of taking a CSI volume down on the node
	// without asking its driver.
	WithoutDriver bool
	// DiscardEphemeral is the operator's risk of losing what is in an emptyDir: in
	// memory it is unmounted, on disk moved to QuarantineDir.
	DiscardEphemeral bool
	QuarantineDir    string
	Hook             Hook
	Warn             func(string)
	// Progress is told what the runner is busy with, before it may take long; nil
	// tells nobody.
	Progress func(what string)
	// Elsewhere is what other mount namespaces have, for runners that follow one
	// another; nil looks anew for this one.
	Elsewhere *Elsewhere
	// After is a dry run that this one goes on from: it sees the node as that one
	// would have left it.
	After *Runner
}

// Runner carries actions out, or records them.
type Runner struct {
	Config
	table *mounts.Table
	over  map[string]overlay
	laid  map[string]map[string]bool // the names in over, by directory
	// What a dry run attached, by backing path, and the loop devices it detached.
	loops    map[string]string
	detached []string
	popped   map[string]bool // paths that a mount was taken off
	steps    []api.Step
	facts    []string
	noShell  string
	refs     int
	sources  map[string]*Source
	before   int             // steps of the dry runs that this one goes on from
	targets  map[string]bool // of the steps that a dry run recorded
}

// NewRunner reads the mount table once and gives a runner that keeps it up to
// date with what it does.
func NewRunner(c Config) (*Runner, error) {
	t, err := c.Mounts()
	if err != nil {
		return nil, err
	}
	r := &Runner{
		Config: c, table: t, over: map[string]overlay{}, laid: map[string]map[string]bool{}, loops: map[string]string{}, sources: map[string]*Source{},
		popped: map[string]bool{}, targets: map[string]bool{},
	}
	if c.Elsewhere == nil {
		r.Elsewhere = &Elsewhere{}
	}
	if a := c.After; a != nil {
		r.table, r.over, r.laid, r.loops, r.detached, r.popped, r.targets = a.table, a.over, a.laid, a.loops, a.detached, a.popped, a.targets
		r.refs, r.before = a.refs, a.before+len(a.steps)
	}
	return r, nil
}

// Close lets go of the descriptors that the runner keeps.
func (r *Runner) Close() {
	for _, s := range r.sources {
		s.file.Close()
	}
}

// Steps are the changes made, or planned, so far.
func (r *Runner) Steps() []api.Step { return r.steps }

// Plan is what a dry run recorded.
func (r *Runner) Plan() *api.Plan {
	return &api.Plan{List: api.NewList("StepList", r.steps, nil), Facts: r.facts, NoShell: r.noShell}
}

// Do carries out one action, or records it. The value is what the action makes;
// in a dry run it may be symbolic.
func (r *Runner) Do(ctx context.Context, a Action) (Value, error) {
	s := a.step()
	if s.Args == nil {
		s.Args = []string{}
	}
	if err := ctx.Err(); err != nil {
		return Value{}, r.fail(s, fmt.Errorf("not begun: %w", err))
	}
	is, value, err := a.done(ctx, r)
	if err != nil {
		return Value{}, r.fail(s, err)
	}
	if is {
		if f, ok := a.(facter); ok {
			r.restsOn(s.Target, f.fact())
		}
		return Known(value), nil
	}
	s.N = len(r.steps) + 1
	if r.DryRun {
		return r.record(a, s), nil
	}
	return r.carryOut(ctx, a, s)
}

// restsOn adds to the facts that a script checks before its first step. What an
// earlier step of the plan makes is none of them: it is not there yet.
func (r *Runner) restsOn(path, fact string) {
	if _, planned := r.over[path]; !planned && !r.targets[path] {
		r.facts = append(r.facts, fact)
	}
}

func (r *Runner) record(a Action, s api.Step) Value {
	v := Value{}
	if m, ok := a.(valuer); ok && m.makesValue() {
		r.refs++
		v.ref = fmt.Sprintf("DEV%d", r.refs)
		s.Shell = strings.ReplaceAll(s.Shell, refMark, v.ref)
	}
	if s.Shell == "" && r.noShell == "" {
		r.noShell = s.String()
	}
	r.steps = append(r.steps, s)
	r.targets[s.Target] = true
	a.settle(r, v)
	return v
}

func (r *Runner) carryOut(ctx context.Context, a Action, s api.Step) (Value, error) {
	_, once := a.(irreversible)
	if err := r.Journal.Intent(s, once); err != nil {
		return Value{}, r.fail(s, err)
	}
	if err := r.hook(Before, s); err != nil {
		return Value{}, r.fail(s, err)
	}
	r.busyWith("%s %s", s.Action, s.Target)
	value, err := a.do(ctx, r)
	if err == nil {
		err = a.verify(ctx, r, value)
	}
	if err == nil {
		err = r.hook(After, s)
	}
	r.Journal.Outcome(s, value, err)
	if err != nil {
		return Value{}, r.fail(s, err)
	}
	if m, ok := a.(valuer); ok && m.makesValue() {
		s.Shell = strings.ReplaceAll(s.Shell, refMark, "DEV")
	}
	r.steps = append(r.steps, s)
	a.settle(r, Known(value))
	return Known(value), nil
}

// Check refuses what [Runner.Do] would refuse before it does anything.
func (r *Runner) Check(ctx context.Context, a Action) error {
	if _, _, err := a.done(ctx, r); err != nil {
		return r.fail(a.step(), err)
	}
	return nil
}

// refMark stands in a step's shell form for the variable of its value, which
// the runner names.
const refMark = "\x00REF"

func (r *Runner) hook(p Point, s api.Step) error {
	if r.Hook == nil {
		return nil
	}
	return r.Hook(p, s.N, s)
}

// fail names the step in an error, once.
func (r *Runner) fail(s api.Step, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Op != "" {
		return err
	}
	out := &api.Error{Op: s.Action, Path: s.Target, Err: err}
	if e, ok := err.(*api.Error); ok { //nolint:errorlint // only an outermost api.Error is merged
		merged := *e
		merged.Op = s.Action
		if merged.Path == "" {
			merged.Path = s.Target
		}
		out = &merged
	}
	return out
}

func (r *Runner) busyWith(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

func (r *Runner) warn(format string, args ...any) {
	if r.Warn != nil {
		r.Warn(fmt.Sprintf(format, args...))
	}
}

// MkdirAll makes the missing directories of a path below the root, outermost
// first, as one action each.
func (r *Runner) MkdirAll(ctx context.Context, path string, perm uint32, reason string) error {
	var missing []string
	for p := path; p != r.Layout.Root && len(p) > len(r.Layout.Root); p = filepath.Dir(p) {
		e, err := r.Entry(p)
		if err != nil {
			return err // it names the path and what is in the way
		}
		if e.Present {
			if e.Type != safefs.Dir {
				return notDir(p, e.Type)
			}
			break
		}
		missing = append(missing, p)
	}
	if len(missing) == 0 {
		r.restsOn(path, "[ -d "+Quote(path)+" ]")
		return nil
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if _, err := r.Do(ctx, Mkdir{Path: missing[i], Perm: perm, Reason: reason}); err != nil {
			return err
		}
	}
	return nil
}

// Bind makes the target directory, with what is missing above it, and binds on it.
func (r *Runner) Bind(ctx context.Context, b Bind, perm uint32) error {
	if len(r.table.At(b.Target)) == 0 {
		if err := r.MkdirAll(ctx, b.Target, perm, "where the volume is mounted"); err != nil {
			return err
		}
	}
	_, err := r.Do(ctx, b)
	return err
}

// UnmountAll pops every mount that lies on path, one action each, and gives
// their count.
func (r *Runner) UnmountAll(ctx context.Context, path, reason string) (int, error) {
	n := 0
	for ; len(r.table.At(path)) > 0; n++ {
		if n > maxStack {
			return n, api.Errorf(api.ErrRefused, "more than %d mounts lie on one path: somebody mounts there again and again", maxStack).At(path).
				WithNext("see who does that: findmnt --poll --mountpoint %s", Quote(path))
		}
		// What a mount lies on cannot be looked into before it is gone.
		top, _ := r.table.Top(path)
		hidden := n > 0 && IsMemory(top) && !r.DiscardEphemeral
		pop := Unmount{Path: path, Lazy: r.Lazy, Force: r.ForceUmount, Blind: hidden, Reason: reason}
		err := r.Check(ctx, pop)
		if err == nil && (!hidden || !r.DryRun) {
			err = r.keepsMemory(ctx, path)
		}
		if err == nil {
			_, err = r.Do(ctx, pop)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// maxStack bounds a loop over a stack that somebody else keeps growing; 32,767
// mounts on one path have been seen (needs.md A14).
const maxStack = 100000
