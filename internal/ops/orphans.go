package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/node/alive"
)

// GCOrphans is the verb of gc-orphans in the history.
const GCOrphans = "gc-orphans"

// OrphanRequest is what an operator asks of gc-orphans.
type OrphanRequest struct {
	Pods   alive.Options
	MinAge time.Duration
	// Max is how many leftovers are taken away at most; 0 is all.
	Max int
	// KeepGoing goes on after one that failed.
	KeepGoing bool
	// DiscardEphemeral gives up what Memory volumes hold, and moves away what
	// emptyDirs on disk hold, to Quarantine.
	DiscardEphemeral bool
	Quarantine       string
	// WithoutDriver takes CSI volumes down without asking their drivers.
	WithoutDriver bool
	// Plan is what --from-plan names: nothing but this is done. nil is no plan.
	Plan []api.Orphan
}

func (r OrphanRequest) risks() []string {
	out := Request{WithoutDriver: r.WithoutDriver}.Risks()
	if r.DiscardEphemeral {
		out = append(out, "--discard-ephemeral")
	}
	if r.Pods.AssertNoPods {
		out = append(out, "--assert-no-pods")
	}
	return out
}

// gc is one run of gc-orphans.
type gc struct {
	*Ops
	req        OrphanRequest
	sets       *alive.Sets
	taken      time.Time     // when the look began
	took       time.Duration // and how long it took
	left       *node.Leftovers
	conf       act.Config
	locks      *act.Locks // of the root, held for the whole run
	state, run *safefs.Root
}

// PlanOrphans finds what pods that are gone left on the node, and says step by step
// how it would be taken away. It changes nothing. The plan is given also beside an
// error that says why none of it may be carried out.
func (o *Ops) PlanOrphans(ctx context.Context, req OrphanRequest) (*api.OrphanPlan, error) {
	g, err := o.gc(req)
	if err != nil {
		return nil, err
	}
	return g.plan(ctx)
}

func (o *Ops) gc(req OrphanRequest) (*gc, error) {
	root, err := o.host.Root()
	if err != nil {
		return nil, err
	}
	if req.Quarantine != "" && !req.DiscardEphemeral {
		return nil, api.Errorf(api.ErrUsage, "--quarantine is where --discard-ephemeral moves to").WithNext("give both, or neither")
	}
	return &gc{Ops: o, req: req, conf: act.Config{
		Root: root, Layout: o.host.Layout, Mounts: o.host.Mounts, Helper: o.host.Helper, Exec: o.host.Exec, Devices: o.host.Devices,
		WithoutDriver: req.WithoutDriver, Hook: o.Hook, Warn: o.host.Warn, Progress: o.host.Progress,
		Elsewhere: &act.Elsewhere{},
	}}, nil
}

// busyWith tells a person what takes long.
func (g *gc) busyWith(format string, args ...any) {
	if g.host.Progress != nil {
		g.host.Progress(fmt.Sprintf(format, args...))
	}
}

// askTime is how long each source may take: on a node in trouble, where everything is
// slow, one that is not waited for makes all that it could veto unknown.
const askTime = 5 * time.Second

// look asks who lives and what there is.
func (g *gc) look(ctx context.Context) error {
	g.busyWith("asking which pods live here")
	g.taken = time.Now()
	ask := g.req.Pods
	ask.Timeout = cmp.Or(ask.Timeout, askTime)
	sets, err := alive.Look(ctx, g.host, ask)
	if err != nil {
		return err
	}
	g.sets = sets
	g.busyWith("looking at what is on the node")
	g.left, err = node.NewLeftovers(ctx, g.host, sets, g.req.MinAge)
	g.took = time.Since(g.taken)
	return err
}

// proven refuses where nobody's death can be proven, and where it would be everybody's.
func (g *gc) proven() error {
	if len(g.left.Items) == 0 {
		return nil
	}
	if err := g.sets.Proof(); err != nil {
		return &api.Error{Op: GCOrphans, Err: err}
	}
	all, gone := g.left.Pods()
	if all == 0 || gone < all || g.req.Pods.AssertNoPods {
		return nil
	}
	e := api.Errorf(api.ErrRefused, "every pod directory here (%d) would be an orphan: it is as likely that the sources speak of another node", all)
	for _, r := range g.sets.Reports() {
		e.Details = append(e.Details, fmt.Sprintf("%s: %s; %s", r.Source, api.Count(len(r.Pods), "pod", "pods"), r.Reason))
	}
	e.Op = GCOrphans
	return e.WithNext("see with kubectl or crictl that no pod lives on node %s; if that is so: --assert-no-pods", g.host.NodeName)
}

// plan looks at the node and has a dry run take away all that can go.
func (g *gc) plan(ctx context.Context) (*api.OrphanPlan, error) {
	if err := g.look(ctx); err != nil {
		return nil, err
	}
	refused := g.proven()
	conf := g.conf
	conf.DryRun = true
	run, err := act.NewRunner(conf)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	for i := range g.left.Items {
		o := &g.left.Items[i]
		if refused != nil && o.Verdict == api.VerdictOrphan {
			o.Verdict, o.Reason = api.VerdictUnknown, "every pod here would be an orphan"
		}
		if o.Verdict == api.VerdictOrphan {
			g.busyWith("planning %s", o.Path)
			if err := g.planItem(ctx, run, o); err != nil {
				return nil, err
			}
		}
	}
	items := []api.Orphan{}
	for i := range g.left.Items {
		items = append(items, whole(g.left.Items[i].Orphan))
	}
	steps := run.Plan()
	for _, o := range items {
		if goes(o) {
			steps.Facts = append(steps.Facts, g.shellFacts(o)...)
		}
	}
	return &api.OrphanPlan{List: api.NewList("OrphanList", items, g.left.Warnings()), Plan: steps}, refused
}

// shellFacts are tests that a leftover's directory is still the one that was looked
// at, or gone: the name of a static pod's comes again.
func (g *gc) shellFacts(o api.Orphan) []string {
	info, err := g.conf.Root.Stat(o.Path)
	if err != nil || info.MountRoot {
		return nil
	}
	return []string{fmt.Sprintf(`[ ! -e %[1]s ] || [ "$(stat -c %%i -- %[1]s)" = %[2]d ]`, act.Quote(o.Path), info.Ino)}
}

// planItem records the steps of one leftover, and what they rest on.
func (g *gc) planItem(ctx context.Context, run *act.Runner, o *node.Leftover) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the plan is not complete: %w", err)
	}
	before := len(run.Steps())
	c := &cleaner{gc: g, run: run, o: o}
	c.clean(ctx)
	o.Steps = numbered(run.Steps()[before:])
	o.Stays = c.stays
	if len(c.stays) > 0 {
		o.BlockedBy, o.Next = c.stays[0].BlockedBy, c.stays[0].Next
	}
	o.Facts = g.facts(o, g.left.Table())
	return nil
}

func (c *cleaner) clean(ctx context.Context) {
	if c.o.Kind == api.OrphanPodDir {
		c.sweep(ctx, c.o.Path)
		return
	}
	c.wide(ctx)
}

// numbered counts the steps of one leftover from 1: what comes before it in a plan
// says nothing of it.
func numbered(steps []api.Step) []api.Step {
	out := slices.Clone(steps)
	for i := range out {
		out[i].N = i + 1
	}
	return out
}

// whole has no field that is null in JSON.
func whole(o api.Orphan) api.Orphan {
	if o.Evidence == nil {
		o.Evidence = []api.Evidence{}
	}
	if o.Stays == nil {
		o.Stays = []api.Stay{}
	}
	if o.Facts == nil {
		o.Facts = []string{}
	}
	if o.Steps == nil {
		o.Steps = []api.Step{}
	}
	return o
}

// errPartly is how a run ends in which something proven gone stayed.
func errPartly(items []api.Orphan) error {
	n, stays := 0, 0
	for _, o := range items {
		if o.Verdict != api.VerdictOrphan {
			continue
		}
		n++
		if o.Outcome != string(api.OutcomeDone) && o.Outcome != string(api.OutcomeAlready) {
			stays++
		}
	}
	if stays == 0 {
		return nil
	}
	return &api.Error{Op: GCOrphans, Kind: api.ErrPartly, Err: fmt.Errorf("orphans that stay: %d of %d", stays, n),
		Next: "the reason stands beside each; what to do about it: kvol gc-orphans -o wide"}
}
