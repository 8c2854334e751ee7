package ops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/node"
)

// CleanOrphans takes away what pods that are proven gone left on the node: what a plan
// made now says, and of that only what also req.Plan says, where there is one. Each
// leftover is looked at again right before its turn. The list is given also beside
// an error.
func (o *Ops) CleanOrphans(ctx context.Context, req OrphanRequest) (*api.List[api.Orphan], error) {
	g, err := o.gc(req)
	if err != nil {
		return nil, err
	}
	if err := g.ofThisNode(); err != nil {
		return nil, err
	}
	first, err := g.plan(ctx)
	if err != nil {
		if first == nil {
			return nil, err
		}
		return first.List, err
	}
	if !slices.ContainsFunc(first.Items, goes) && req.Plan == nil {
		settleAll(first.Items)
		return first.List, errPartly(first.Items)
	}
	if err := g.lock(ctx); err != nil {
		return first.List, err
	}
	defer g.locks.Release()
	second, err := g.plan(ctx)
	if err != nil {
		if second == nil {
			return first.List, err
		}
		return second.List, err
	}
	inBoth(first.Items, second.Items)
	items := second.Items
	if req.Plan != nil {
		items = g.byPlan(req.Plan, items)
	}
	second.Items = items
	g.carryOut(ctx, items)
	settleAll(items)
	return second.List, errPartly(items)
}

// goes says that something of a leftover can go.
func goes(o api.Orphan) bool { return o.Verdict == api.VerdictOrphan && len(o.Steps) > 0 }

// lock takes the lock of the root, which others can share.
func (g *gc) lock(ctx context.Context) error {
	run, err := g.host.OwnRun()
	if err != nil {
		return api.Errorf(api.ErrRefused, "no lock can be taken, so nothing is changed: %w", err).
			WithNext("name a directory that can be written: --run-dir DIR")
	}
	if g.state, err = g.host.OwnState(); err != nil {
		g.host.Warn(err.Error()) // the journal goes to the run directory, and says what that means
	}
	g.run, g.locks = run, act.NewLocks(run, g.host.LockTimeout)
	return g.locks.Take(ctx, act.LockRoot, g.host.Layout.Root, true)
}

// journal begins the record of one leftover.
func (g *gc) journal(o *api.Orphan) *act.Operation {
	return act.Journal{State: g.state, Run: g.run}.Begin(api.Entry{
		Verb: GCOrphans, Plugin: o.Plugin, Volume: o.Volume, PodUID: o.PodUID, Risks: g.req.risks(), User: login(),
	}, g.host.Warn)
}

// leftAlone says why a leftover's turn did not come.
func leftAlone(o *api.Orphan, why string) {
	o.Outcome, o.Reason, o.Steps = string(api.OutcomeSkipped), "not begun: "+why, []api.Step{}
}

// settleAll gives an outcome to the orphans of which nothing could go to begin with.
func settleAll(items []api.Orphan) {
	for i := range items {
		if o := &items[i]; o.Verdict == api.VerdictOrphan && o.Outcome == "" {
			o.Outcome = string(api.OutcomeRefused)
		}
	}
}

// inBoth doubts what only the second of two looks takes for an orphan.
func inBoth(first, second []api.Orphan) {
	for i := range second {
		o := &second[i]
		was := slices.IndexFunc(first, func(f api.Orphan) bool { return f.Kind == o.Kind && f.Path == o.Path })
		if o.Verdict != api.VerdictOrphan || was >= 0 && first[was].Verdict == api.VerdictOrphan {
			continue
		}
		o.Verdict, o.Reason, o.Steps = api.VerdictUnknown, "a look just before did not find it gone", []api.Step{}
	}
}

// exactPath is the path of a plan's item with the bytes that are no text, which its facts
// have.
func exactPath(p api.Orphan) string {
	for about := range byAbout(p.Facts) {
		if api.Text(about) == p.Path {
			return about
		}
	}
	return p.Path
}

// byPlan is what a plan made before has, as it is now.
func (g *gc) byPlan(plan, now []api.Orphan) []api.Orphan {
	out := []api.Orphan{}
	for _, p := range plan {
		if p.Verdict != api.VerdictOrphan {
			continue
		}
		p.Path = exactPath(p)
		i := slices.IndexFunc(now, func(o api.Orphan) bool { return o.Kind == p.Kind && o.Path == p.Path })
		if i < 0 {
			p.Steps, p.Outcome, p.Reason = []api.Step{}, string(api.OutcomeAlready), "it is not there any more"
			if _, err := g.conf.Root.Stat(p.Path); !errors.Is(err, fs.ErrNotExist) {
				p.Outcome, p.Reason = string(api.OutcomeRefused), "nothing that a pod left is there by now"+errText(err)
			}
			out = append(out, whole(p))
			continue
		}
		o := now[i]
		if why := changed(p, api.AsText(o)); len(why) > 0 {
			o.Verdict, o.Outcome = p.Verdict, string(api.OutcomeRefused)
			o.Reason, o.Steps = "it is not any more as the plan has it: "+strings.Join(why, "; "), []api.Step{}
			o.Next = "make a new plan: kvol gc-orphans -o json > plan.json"
		}
		out = append(out, o)
	}
	return out
}

// carryOut takes the leftovers away, one after the other.
func (g *gc) carryOut(ctx context.Context, items []api.Orphan) {
	done, stopped := 0, ""
	for i := range items {
		o := &items[i]
		if !goes(*o) || o.Outcome != "" {
			continue
		}
		switch {
		case stopped != "":
			leftAlone(o, stopped)
			continue
		case g.req.Max > 0 && done == g.req.Max:
			leftAlone(o, fmt.Sprintf("--max %d", g.req.Max))
			continue
		case ctx.Err() != nil:
			leftAlone(o, "the time is up")
			continue
		}
		done++
		g.busyWith("%s (%d of %d)", o.Path, i+1, len(items))
		g.item(ctx, o)
		if !g.req.KeepGoing && (o.Outcome == string(api.OutcomeFailed) || o.Outcome == string(api.OutcomeUncertain)) {
			stopped = o.Path + " failed, and --keep-going was not given"
		}
	}
}

// itemTime is the most that one leftover may take; storage that does not answer must
// not use up the time of the others. Nor may it take more than half of what is left.
const itemTime = 30 * time.Second

func (g *gc) item(ctx context.Context, o *api.Orphan) {
	limit := itemTime
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l, table, err := g.again(ctx, o)
	if err == nil {
		err = g.takeAway(ctx, o, l, table)
	}
	if err != nil {
		doc := api.NewErrorDoc(err)
		o.Outcome, o.Reason, o.Next = string(api.OutcomeOf(err)), doc.Message, doc.Next
		if o.BlockedBy = api.BlockedByError; errors.Is(err, api.ErrLocked) {
			o.BlockedBy, o.Outcome = api.BlockedByLock, string(api.OutcomeRefused)
		}
		o.Steps = []api.Step{}
	}
}

// lookAge is how old a look at who lives may be when something is taken away, or five
// times what the look took, whichever is more: on a node with a thousand leftovers
// kvol would do nothing else.
const lookAge = 2 * time.Second

// again looks at one leftover right before its turn, and gives the mount table that
// it was held against.
func (g *gc) again(ctx context.Context, o *api.Orphan) (*node.Leftover, *mounts.Table, error) {
	if time.Since(g.taken) > max(lookAge, 5*g.took) {
		if err := g.look(ctx); err != nil {
			return nil, nil, err
		}
	}
	l, ok := g.left.Find(o.Kind, o.Path)
	switch {
	case !ok:
		return nil, nil, api.Errorf(api.ErrRefused, "it has gone meanwhile").At(o.Path).WithNext("look again: kvol gc-orphans")
	case l.Verdict != api.VerdictOrphan:
		return nil, nil, api.Errorf(api.ErrRefused, "it is %s now: %s", l.Verdict, l.Reason).At(o.Path).WithNext("look again: kvol gc-orphans")
	}
	table, err := g.host.Mounts()
	if err != nil {
		return nil, nil, err
	}
	planned := *l
	planned.Steps = o.Steps
	if why := factsChanged(o.Facts, g.facts(&planned, table)); len(why) > 0 {
		return nil, nil, api.Errorf(api.ErrRefused, "it has changed since it was looked at: %s", strings.Join(why, "; ")).At(o.Path).
			WithNext("look again: kvol gc-orphans")
	}
	return l, table, nil
}

// takeAway carries the planned steps of one leftover out, with its volumes locked.
func (g *gc) takeAway(ctx context.Context, o *api.Orphan, l *node.Leftover, table *mounts.Table) error {
	locks := act.NewLocks(g.run, g.host.LockTimeout)
	defer locks.Release()
	volumes := slices.Clone(l.Volumes)
	slices.Sort(volumes)
	for _, v := range slices.Compact(volumes) {
		if err := locks.Take(ctx, act.LockVolume, g.host.Layout.Root+"\x00"+v, false); err != nil {
			return err
		}
	}
	conf := g.conf
	conf.Hook = onlyPlanned(o.Steps, g.Hook)
	conf.Locks = func() []*os.File { return append(slices.Clone(g.locks.Files()), locks.Files()...) }
	conf.Journal = g.journal(o)
	conf.Mounts = func() (*mounts.Table, error) {
		if first := table; first != nil {
			table = nil
			return first, nil
		}
		return g.host.Mounts()
	}
	run, err := act.NewRunner(conf)
	if err != nil {
		return err
	}
	defer run.Close()
	c := &cleaner{gc: g, run: run, o: l}
	c.clean(ctx)
	o.Steps, o.Stays = numbered(run.Steps()), append([]api.Stay{}, c.stays...)
	o.BlockedBy, o.Next = "", ""
	outcome := api.OutcomeDone
	switch {
	case len(c.stays) > 0:
		o.BlockedBy, o.Next = c.stays[0].BlockedBy, c.stays[0].Next
		if outcome = api.OutcomeRefused; c.err != nil {
			outcome = api.OutcomeOf(c.err)
		}
	case len(o.Steps) == 0:
		outcome = api.OutcomeAlready
	}
	o.Outcome = string(outcome)
	why := c.err
	if why == nil && len(c.stays) > 0 {
		why = api.Errorf(api.ErrRefused, "stays: %s", c.stays[0].Reason).At(c.stays[0].Path).WithNext("look again: kvol gc-orphans")
	}
	conf.Journal.End(outcome, why)
	return nil
}
