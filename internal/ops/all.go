package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
)

// RunAll carries out a verb on several volumes, one after another and each as an
// operation of its own: it takes its own locks, has its own place in the history, and
// what goes wrong with it does not keep the others. The results are in the order of
// the pods, and of the volumes in them.
func (o *Ops) RunAll(ctx context.Context, verb Verb, reqs []Request) (*api.List[api.Result], error) {
	all := together{verb: verb}
	var results []api.Result
	for _, req := range o.ordered(reqs) {
		one, err := o.oneOf(ctx, verb, req, o.runOne)
		if err != nil && len(one) == 0 {
			one = []api.Result{notBegun(verb, req, err)}
		}
		results = append(results, one...)
		all.add(req, err)
	}
	return api.NewList("ResultList", results, nil), all.err()
}

// PlanAll says what RunAll would do: one plan, in which each volume finds the node
// as those before it would leave it. Beside an error it is that of the others.
func (o *Ops) PlanAll(ctx context.Context, verb Verb, reqs []Request) (*api.Plan, error) {
	all := together{verb: verb}
	plan := &api.Plan{Parts: []api.PlanPart{}}
	var steps []api.Step
	on := *o
	for _, req := range o.ordered(reqs) {
		_, err := o.oneOf(ctx, verb, req, func(ctx context.Context, verb Verb, req Request) ([]api.Result, error) {
			op, err := on.planOne(ctx, verb, req)
			if err != nil {
				return nil, err
			}
			on.after = op.run
			p := op.run.Plan()
			for _, fact := range p.Facts {
				if !slices.Contains(plan.Facts, fact) {
					plan.Facts = append(plan.Facts, fact)
				}
			}
			for _, part := range op.parts(len(steps)) {
				plan.Parts, steps = append(plan.Parts, part), append(steps, part.Steps...)
			}
			return nil, nil
		})
		all.add(req, err)
	}
	plan.List = api.NewList("StepList", steps, nil)
	return plan, all.err()
}

// oneOf does one of several volumes. A volume of a plugin that this kvol has not is
// not supported where it is to be brought up; where it is to be taken down it may be
// that nothing of it is there.
func (o *Ops) oneOf(ctx context.Context, verb Verb, req Request, do func(context.Context, Verb, Request) ([]api.Result, error)) ([]api.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("not begun: %w", err)
	}
	switch {
	case req.Spec == nil && req.Volume == "":
		return nothingOfPod(verb, req)
	case req.Spec == nil:
		return do(ctx, verb, req)
	}
	_, err := o.mgr.FindPluginBySpec(req.Spec)
	switch {
	case !errors.Is(err, api.ErrNoPlugin):
	case needsSpec[verb]:
		return nil, api.Errorf(api.ErrNotSupported, "this kvol has no plugin for a volume of source %s", req.Spec.Source()).
			WithNext("kvol plugins lists what it has; leave the volume to the kubelet")
	default:
		req.Volume, req.Spec = req.Spec.Name(), nil
	}
	return do(ctx, verb, req)
}

// nothingOfPod answers for a pod that has nothing on disk.
func nothingOfPod(verb Verb, req Request) ([]api.Result, error) {
	if req.MustExist {
		return nil, api.Errorf(api.ErrNotFound, "nothing of pod %s is on this node, and --must-exist was given", req.Pod.UID).
			WithNext("see what there is: kvol list-mounts")
	}
	r := bare(verb, req)
	r.Outcome, r.Reason = api.OutcomeAlready, "nothing of this pod is on this node"
	return []api.Result{r}, nil
}

// notBegun is the result of a volume of which not even the first rung was tried.
func notBegun(verb Verb, req Request, err error) api.Result {
	r := bare(verb, req)
	r.Outcome, r.Reason = api.OutcomeOf(err), err.Error()
	return r
}

func bare(verb Verb, req Request) api.Result {
	return api.Result{
		Op: string(verb), Plugin: req.Plugin, Volume: nameOf(req), PodUID: req.Pod.UID, Steps: []api.Step{},
		Paths: api.PathSet{Plugin: req.Plugin, Volume: nameOf(req), Metadata: []string{}},
	}
}

func nameOf(req Request) string {
	if req.Spec != nil {
		return req.Spec.Name()
	}
	return req.Volume
}

// ordered sorts volumes as their paths in the pods' directories are, and leaves out
// those of other plugins than the one that was named.
func (o *Ops) ordered(reqs []Request) []Request {
	plugin := func(r Request) string {
		if p, err := o.mgr.FindPluginBySpec(r.Spec); err == nil {
			return p.GetPluginName()
		}
		return r.Spec.Source()
	}
	key := func(r Request) string {
		if r.Spec == nil {
			return r.Volume // the path itself
		}
		return paths.EscapePlugin(plugin(r)) + "/" + r.Spec.Name()
	}
	reqs = slices.DeleteFunc(slices.Clone(reqs), func(r Request) bool {
		return r.Spec != nil && r.Plugin != "" && plugin(r) != r.Plugin
	})
	slices.SortStableFunc(reqs, func(a, b Request) int {
		return cmp.Or(strings.Compare(a.Pod.UID, b.Pod.UID), strings.Compare(key(a), key(b)))
	})
	return reqs
}

// OnDisk makes the requests that take down everything that some pods have on this
// node: each by its path, with the flags of the given one. A pod that has nothing is
// one without a volume.
func (o *Ops) OnDisk(like Request, podUIDs []string) ([]Request, error) {
	for _, uid := range podUIDs {
		if err := paths.ValidPodUID(uid); err != nil {
			return nil, err
		}
	}
	find, err := node.NewFind(o.host)
	if err != nil {
		return nil, err
	}
	var reqs []Request
	for _, uid := range podUIDs {
		refs := find.OfPod(uid, like.Plugin)
		if len(refs) == 0 {
			refs = []node.Ref{{}}
		}
		for _, ref := range refs {
			req := like
			req.Volume, req.Pod.UID = ref.Path, uid
			reqs = append(reqs, req)
		}
	}
	return reqs, nil
}

// together gathers how several volumes ended.
type together struct {
	verb   Verb
	total  int
	failed []error
	lines  []string
}

func (t *together) add(req Request, err error) {
	t.total++
	if err == nil {
		return
	}
	doc := api.NewErrorDoc(err)
	line := err.Error()
	if doc.Volume == "" {
		line = nameOf(req) + ": " + line
	}
	if req.Pod.UID != "" && !strings.Contains(line, req.Pod.UID) {
		line += " (pod " + req.Pod.UID + ")"
	}
	t.lines = append(t.lines, line)
	for _, d := range doc.Details {
		t.lines = append(t.lines, "  "+d)
	}
	if doc.Next != "" {
		t.lines = append(t.lines, "  next: "+doc.Next)
	}
	t.failed = append(t.failed, err)
}

// err is nil where all went well, the one error of one volume, the kind of all where
// they ended alike, and otherwise that the command is partly done.
func (t *together) err() error {
	if len(t.failed) == 0 {
		return nil
	}
	if t.total == 1 {
		return t.failed[0]
	}
	kind := api.ErrPartly
	code := api.ExitCode(t.failed[0])
	if len(t.failed) == t.total && !slices.ContainsFunc(t.failed, func(err error) bool { return api.ExitCode(err) != code }) {
		kind = api.KindOf(t.failed[0])
	}
	e := api.Errorf(kind, "%d of %d volumes failed", len(t.failed), t.total)
	e.Op, e.Details = string(t.verb), t.lines
	return e.WithNext("do what stands below each; then run the same command again, which leaves alone what is done")
}
