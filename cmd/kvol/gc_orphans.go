package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const gcOrphansLong = `Finds what pods that are gone left on this node: their directories with volumes,
subpaths and metadata, global mounts, CSI staging directories, block maps and their
loop devices. It shows the plan and changes nothing; --apply carries it out.

Something is an orphan only when its pod is proven gone: by two of kubelet, container
runtime and API server, or by your list (--pods-from file:PATH). One word for its life
is enough to leave it alone, and what cannot be proven is unknown and stays.

Nothing is deleted but empty directories and the files that the kubelet, kvol and the
atomic writer keep; a package has the list in /usr/share/doc/kvol/docs/gc-orphans.md.
What else is in the way stays, with what it is, and the rest goes. A driver is called
first, its files go last.`

const gcOrphansExample = `  # what could go, and why the rest stays
  kvol gc-orphans
  # read a plan today, carry out exactly that one later
  kvol gc-orphans -o json > plan.json
  kvol gc-orphans --apply --from-plan plan.json
  # where the sources prove nothing: your own list of live pods
  kubectl get pods -A --field-selector spec.nodeName=node1 -o json > pods.json
  kvol gc-orphans --apply --pods-from file:pods.json`

type gcOrphansOptions struct {
	ops.OrphanRequest
	apply, exitCode bool
	dryRun          bool
	fromPlan        string
}

func newGCOrphansCmd(a *app) *cobra.Command {
	o := &gcOrphansOptions{}
	cmd := &cobra.Command{
		Use:     "gc-orphans",
		Short:   "Clean up what pods that are gone left behind",
		Long:    gcOrphansLong + exitCodes(append([]int{api.ExitFindings}, verbCodes...)...),
		Example: gcOrphansExample,
		GroupID: recovering,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.do(cmd, verbLimit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *gcOrphansOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.apply, "apply", false, "carry the plan out")
	f.BoolVar(&o.dryRun, "dry-run", false, "show the plan and change nothing, as without --apply")
	f.StringVar(&o.fromPlan, "from-plan", "", "with --apply: only what this `FILE` has (kvol gc-orphans -o json), where it still is as it was")
	f.DurationVar(&o.MinAge, "min-age", 10*time.Minute, "leave alone what is younger")
	f.IntVar(&o.Max, "max", 0, "take away at most `N` of them (default: all)")
	f.BoolVar(&o.KeepGoing, "keep-going", false, "go on with the others after one that failed")
	f.BoolVar(&o.exitCode, "exit-code", false, "end a plan with 11 when there are orphans")
	f.BoolVar(&o.DiscardEphemeral, "discard-ephemeral", false, "risk: give up what Memory volumes of gone pods hold; what is on disk needs --quarantine")
	f.StringVar(&o.Quarantine, "quarantine", "", "`DIR` on the same mount, outside of the root, where --discard-ephemeral moves what emptyDirs hold")
	f.BoolVar(&o.WithoutDriver, "without-driver", false, "risk: take CSI volumes down without asking their drivers")
}

func (o *gcOrphansOptions) check() error {
	switch {
	case o.dryRun && o.apply:
		return api.Errorf(api.ErrUsage, "--apply carries the plan out, and --dry-run only shows it").WithNext("give one of the two")
	case o.fromPlan != "" && !o.apply:
		return api.Errorf(api.ErrUsage, "--from-plan goes with --apply")
	case o.exitCode && o.apply:
		return api.Errorf(api.ErrUsage, "--exit-code is for plans; --apply ends with 3 when something stays")
	case o.Max < 0:
		return api.Errorf(api.ErrUsage, "--max %d is negative", o.Max)
	case o.MinAge < 0:
		return api.Errorf(api.ErrUsage, "--min-age %s is negative", o.MinAge)
	}
	return nil
}

func (o *gcOrphansOptions) run(ctx context.Context, a *app) error {
	view := render.Orphans(!o.apply)
	if err := a.quietly(); err != nil && !o.apply {
		return err
	}
	out, err := a.options(view)
	if err != nil {
		return err
	}
	if o.fromPlan != "" {
		if o.Plan, err = a.readPlan(ctx, o.fromPlan); err != nil {
			return err
		}
	}
	h, mgr, err := a.open()
	if err != nil {
		return err
	}
	defer h.Close()
	o.Pods = alive.Options{From: a.podsFrom, AssertNoPods: a.assertNoPods}
	plan := &api.OrphanPlan{}
	if o.apply {
		plan.List, err = ops.New(h, mgr).CleanOrphans(ctx, o.OrphanRequest)
	} else {
		plan, err = ops.New(h, mgr).PlanOrphans(ctx, o.OrphanRequest)
	}
	a.progress.end()
	if plan == nil || plan.List == nil || err != nil && out.Format == render.Shell {
		return err // half a plan is none: nobody must run it
	}
	a.placeSteps(plan.Items)
	out.Pods = a.nodePods
	show := a.list(plan.Warnings, len(plan.Items), view.Empty(), err, out, func(w io.Writer) error { return view.Write(w, plan, out) })
	if show == nil {
		for _, line := range view.Summary(plan.Items, out) {
			render.Note(a.stderr, columns(a.stderr), "%s", line)
		}
	}
	if err == nil && show == nil && o.exitCode {
		err = found(plan.Items)
	}
	return errors.Join(err, show)
}

// placeSteps completes the next steps of the items, as that of an error is.
func (a *app) placeSteps(items []api.Orphan) {
	for i := range items {
		items[i].Next = a.placed(items[i].Next)
		for j := range items[i].Stays {
			items[i].Stays[j].Next = a.placed(items[i].Stays[j].Next)
		}
	}
}

// found is how a plan with orphans ends where that is asked for.
func found(items []api.Orphan) error {
	for _, o := range items {
		if o.Verdict == api.VerdictOrphan {
			return &api.Error{Kind: api.ErrFindings, Err: errors.New("there are orphans"), Next: "the same command with --apply instead of --exit-code"}
		}
	}
	return nil
}

// readPlan reads the file of --from-plan.
func (a *app) readPlan(ctx context.Context, path string) ([]api.Orphan, error) {
	now := func() ([]byte, error) { return readFile(path, maxPlan) }
	if path == "-" {
		now = func() ([]byte, error) { return readAll(a.stdin, maxPlan) }
	}
	raw, err := within(ctx, path, func() ([]byte, error) { return a.files.read(path, now) })
	if errors.Is(err, api.ErrTimeout) {
		return nil, err
	}
	if err == nil && len(raw) > maxPlan {
		err = fmt.Errorf("it is larger than %d MiB", maxPlan>>20)
	}
	if err != nil {
		return nil, (&api.Error{Kind: api.ErrInput, Path: path, Err: err}).WithNext("make one: kvol gc-orphans -o json > plan.json")
	}
	items, err := parsePlan(raw)
	if err != nil {
		return nil, (&api.Error{Kind: api.ErrInput, Path: path, Err: err}).WithNext("make one: kvol gc-orphans -o json > plan.json")
	}
	return items, nil
}

// parsePlan takes a document that kvol printed, and says what is wrong with any other.
func parsePlan(raw []byte) ([]api.Orphan, error) {
	var l api.List[api.Orphan]
	dec := json.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&l); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // which speaks of Go's types
			return nil, fmt.Errorf("it is no plan in JSON: at byte %d is a %s, which does not belong there", wrong.Offset, wrong.Value)
		}
		return nil, fmt.Errorf("it is no plan in JSON: %w", err)
	}
	switch {
	case dec.More():
		return nil, fmt.Errorf("there is more after the plan, at byte %d", dec.InputOffset())
	case l.APIVersion != api.Version || l.Kind != "OrphanList":
		return nil, fmt.Errorf("it is a %s of %q, not an OrphanList of %s", kindOr(l.Kind), l.APIVersion, api.Version)
	case l.Items == nil:
		return nil, errors.New("it has no items")
	}
	seen := map[string]int{}
	for i, o := range l.Items {
		key := string(o.Kind) + " " + o.Path
		switch {
		case o.Kind == "" || o.Path == "":
			return nil, fmt.Errorf("item %d has no kind or no path", i+1)
		case o.Verdict == "":
			return nil, fmt.Errorf("item %d (%q) has no verdict", i+1, o.Path)
		case o.Outcome != "":
			return nil, fmt.Errorf("item %d (%q) has the outcome %q: it is the result of --apply, not a plan", i+1, o.Path, o.Outcome)
		case seen[key] > 0:
			return nil, fmt.Errorf("items %d and %d are the same: %q", seen[key], i+1, o.Path)
		}
		seen[key] = i + 1
	}
	return l.Items, nil
}

func kindOr(kind string) string {
	if kind == "" {
		return "document without a kind"
	}
	return fmt.Sprintf("%q", kind)
}

// maxPlan is far more than the plan of a node with the 1,000 pods that it can have.
const maxPlan = 256 << 20
