package act

import (
	"context"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Call asks a daemon of this node, a CSI driver, for a change. What it does with
// mounts it does in its own time and by its own means, so that the mount table is
// read anew afterwards, and only what the kernel then shows counts as done. It
// cannot be undone by what kvol knows, has no shell form, and may have happened also
// when it failed.
//
// The functions are the plugin's protocol; they get the context of the operation.
type Call struct {
	// Name is the protocol's own: NodeStageVolume.
	Name   string
	Target string
	// Args are for people and the journal: no secrets.
	Args   []string
	Reason string

	// Done asks whether the node is already so; nil always calls.
	Done func(ctx context.Context) (bool, error)
	Do   func(ctx context.Context) error
	// Verify looks at the node after the call; nil believes the daemon.
	Verify func(ctx context.Context) error
	// Makes and Takes are the paths that are there, or are gone, after a call that a
	// dry run only records; Mounts are those of Makes that are then mounted, and Frees
	// the directories that are there and not mounted on any more.
	Makes, Mounts, Takes, Frees []string
	// File says that what it makes are files (a device is bound on one).
	File bool
}

func (a Call) step() api.Step {
	return api.Step{Action: "call", Target: a.Target, Args: append([]string{a.Name}, a.Args...), Reason: a.Reason}
}

func (a Call) irreversible() bool { return true }

func (a Call) done(ctx context.Context, _ *Runner) (bool, string, error) {
	if a.Done == nil {
		return false, "", nil
	}
	is, err := a.Done(ctx)
	return is, "", err
}

func (a Call) do(ctx context.Context, r *Runner) (string, error) {
	before := r.table
	err := a.Do(ctx)
	if rerr := r.Reload(); err == nil {
		err = rerr
	}
	for _, path := range slices.Concat(a.Takes, a.Frees) {
		if len(r.table.At(path)) < len(before.At(path)) {
			r.popped[path] = true
		}
	}
	return "", err
}

func (a Call) verify(ctx context.Context, _ *Runner, _ string) error {
	if a.Verify == nil {
		return nil
	}
	return a.Verify(ctx)
}

func (a Call) settle(r *Runner, _ Value) {
	if !r.DryRun {
		return
	}
	kind := safefs.Dir
	if a.File {
		kind = safefs.File
	}
	for _, path := range slices.Concat(a.Takes, a.Frees) {
		// What is mounted inside goes with it: some drivers mount there.
		for _, m := range r.table.Under(path) {
			r.removed(m)
			r.lay(m.MountPoint, Entry{})
		}
	}
	for _, path := range a.Takes {
		r.lay(path, Entry{})
	}
	for _, path := range a.Frees {
		r.lay(path, Entry{Present: true, Type: safefs.Dir})
	}
	for _, path := range a.Makes {
		r.lay(path, Entry{Present: true, Type: kind})
	}
	for _, path := range a.Mounts {
		m := planned(path)
		r.added(m)
	}
}
