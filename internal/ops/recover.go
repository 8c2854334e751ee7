package ops

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/documents"
)

// Recover is the verb under which recover is in the history.
const Recover Verb = "recover"

// RecoverRequest is what an operator asks to be recovered.
type RecoverRequest struct {
	// Word is a path of the volume's, its name, or driver^handle.
	Word string
	// Given are the volumes of the documents of -f.
	Given []documents.Item
	// NodeName is the node's name where somebody gave it; the host's own name is no
	// such.
	NodeName string
}

// PlanRecover says which metadata of CSI volumes cannot be read, and with what it
// would be rebuilt. Beside an error it is the plan of what can be.
func (o *Ops) PlanRecover(ctx context.Context, req RecoverRequest) (*api.Plan, error) {
	all := together{verb: Recover}
	plan := &api.Plan{}
	var steps []api.Step
	err := o.eachVolData(ctx, req, func(e *evidence, v node.VolData) error {
		op, err := o.recovering(ctx, e, v, true)
		if err == nil {
			defer op.close()
			err = op.rebuild(ctx, e, v)
		}
		all.add(Request{Volume: v.File}, err)
		if err != nil {
			return nil
		}
		for _, s := range op.run.Steps() {
			s.N = len(steps) + 1
			steps = append(steps, s)
		}
		plan.Facts = append(plan.Facts, op.run.Plan().Facts...)
		if len(op.run.Steps()) > 0 {
			plan.Facts = append(plan.Facts, stillSo(v, op.content))
		}
		return nil
	})
	plan.List = api.NewList("StepList", steps, o.recoverWarnings(steps))
	if err != nil {
		return nil, err
	}
	return plan, all.err()
}

// Recover rebuilds the metadata of CSI volumes that cannot be read.
//
// A running kubelet does not mind: the file is what it would have written itself, in
// the same place and with the same keys. One that has the volume in its memory reads
// the file anew at every try to take it down (NewUnmounter), and goes on as soon as it
// is there; one that has not reads it at its next start. To take a file away beside it
// is the dangerous thing, and is not done here.
func (o *Ops) Recover(ctx context.Context, req RecoverRequest) (*api.List[api.Result], error) {
	all := together{verb: Recover}
	var results []api.Result
	err := o.eachVolData(ctx, req, func(e *evidence, v node.VolData) error {
		r, err := o.recoverOne(ctx, req, e, v)
		results = append(results, r)
		all.add(Request{Volume: v.File}, err)
		return nil
	})
	if err == nil && len(results) == 0 {
		results = []api.Result{{
			Op: string(Recover), Volume: req.Word, Outcome: api.OutcomeAlready, Reason: nothingBroken,
			Paths: api.PathSet{Volume: req.Word, Metadata: []string{}}, Steps: []api.Step{},
		}}
	}
	if err == nil {
		err = all.err()
	}
	return api.NewList("ResultList", results, nil), err
}

const nothingBroken = "nothing of its metadata is broken"

func (o *Ops) recoverOne(ctx context.Context, req RecoverRequest, e *evidence, v node.VolData) (api.Result, error) {
	r := api.Result{
		Op: string(Recover), Plugin: paths.CSIPlugin, Volume: e.label(v), PodUID: v.PodUID, Outcome: api.OutcomeAlready, Steps: []api.Step{},
		Reason: nothingBroken, Paths: api.PathSet{Plugin: paths.CSIPlugin, Volume: e.label(v), Metadata: []string{v.File}},
	}
	switch v.Kind {
	case paths.PodVolumeMetadata:
		r.Paths.PodVolumePath = v.Target
	case paths.GlobalMetadata:
		r.Paths.GlobalMountPath = v.Target
	}
	err := ctx.Err()
	var op *recovery
	if err == nil {
		op, err = o.recovering(ctx, e, v, false)
	}
	if err == nil {
		defer op.close()
		// With the lock held: another kvol may have been here meanwhile.
		if e, err = o.gather(req); err == nil {
			v, err = e.now(v)
		}
		if err == nil {
			err = op.rebuild(ctx, e, v)
		}
		op.end(err)
		r.Steps = append(r.Steps, op.run.Steps()...)
	}
	switch {
	case err != nil:
		r.Outcome, r.Reason = api.OutcomeOf(err), err.Error()
	case len(r.Steps) > 0:
		r.Outcome, r.Reason = api.OutcomeDone, ""
	}
	return r, err
}

// eachVolData finds the places that are meant. None is no error where the volume is
// there and has no such metadata.
func (o *Ops) eachVolData(ctx context.Context, req RecoverRequest, do func(*evidence, node.VolData) error) error {
	req.Word = o.host.PathOf(req.Word)
	if err := validWord(req.Word); err != nil {
		return err
	}
	e, err := o.gather(req)
	if err != nil {
		return err
	}
	meant, err := e.meant(ctx, req.Word)
	if err != nil {
		return err
	}
	for _, v := range meant {
		if err := do(e, v); err != nil {
			return err
		}
	}
	return nil
}

// recovery is an operation on one file.
type recovery struct {
	*operation
	content []byte
}

// recovering takes the locks and opens the journal, but in a dry run.
func (o *Ops) recovering(ctx context.Context, e *evidence, v node.VolData, dry bool) (*recovery, error) {
	op := &operation{Ops: o, verb: Recover, name: e.label(v), volumeName: e.volumeName(v)}
	op.req.Pod.UID = v.PodUID
	op.plugin, _ = o.mgr.FindPluginByName(paths.CSIPlugin) // the file is a kubelet's, whatever this kvol can carry
	root, err := o.host.Root()
	if err != nil {
		return nil, err
	}
	conf := act.Config{
		Root: root, Layout: o.host.Layout, Mounts: o.host.Mounts, Helper: o.host.Helper, Exec: o.host.Exec, Devices: o.host.Devices,
		DryRun: dry, Hook: o.Hook, Warn: o.host.Warn, Progress: o.host.Progress,
	}
	if !dry {
		if err := op.begin(ctx, &conf); err != nil {
			op.close()
			return nil, op.wrap(err)
		}
	}
	if op.run, err = act.NewRunner(conf); err != nil {
		op.journal.End(api.OutcomeOf(err), err)
		op.close()
		return nil, op.wrap(err)
	}
	return &recovery{operation: op}, nil
}

// rebuild writes the file anew if it cannot be read and all that it has to say is
// known.
func (op *recovery) rebuild(ctx context.Context, e *evidence, v node.VolData) error {
	values, err := e.values(v)
	if err != nil || v.Wrong == "" {
		return op.wrap(err)
	}
	object := map[string]string{}
	for _, f := range values {
		object[f.Key] = f.Value
	}
	text, err := json.Marshal(object)
	if err != nil {
		return op.wrap(err)
	}
	op.content = append(text, '\n') // as the kubelet's encoder ends it
	if err := op.run.MkdirAll(ctx, filepath.Dir(v.File), 0o750, "where the metadata of a raw block volume is"); err != nil {
		return op.wrap(err)
	}
	// What cannot be read is replaced; that it is nothing else was looked at.
	_, err = op.run.Do(ctx, act.WriteFile{Path: v.File, Content: op.content, Perm: 0o644, Replace: true, Reason: v.Wrong})
	if steps := op.run.Steps(); err == nil && len(steps) > 0 {
		steps[len(steps)-1].Values = values
	}
	return op.wrap(err)
}

// stillSo is the fact that the file is empty, as it was found, or rebuilt already.
func stillSo(v node.VolData, content []byte) string {
	return fmt.Sprintf("[ ! -s %[1]s ] || sha256sum <%[1]s | grep -qE '^(%x|%x) '", act.Quote(v.File), sha256.Sum256(v.Raw), sha256.Sum256(content))
}

// recoverWarnings says where the file may be the longer way.
func (o *Ops) recoverWarnings(steps []api.Step) []string {
	table, err := o.host.Mounts()
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range steps {
		at := o.host.Layout.Parse(s.Target)
		if _, mounted := table.Top(filepath.Dir(s.Target) + "/mount"); at.Kind == paths.PodVolumeMetadata && !mounted {
			out = append(out, fmt.Sprintf("nothing is mounted beside %s: where the pod is gone, its directory is free sooner without the file (kvol teardown %s --pod-uid %s); with it a kubelet takes the volume down at its next start",
				s.Target, act.Quote(at.Volume), at.PodUID))
		}
	}
	return out
}
