// Package ops has the verbs: a request goes in, results come out. It finds the
// plugin and the volume, takes the locks, opens the journal, hands the runner to
// the plugin rung by rung, and holds the gates that no plugin may pass: nothing
// is unmounted that another pod uses, nothing is detached that anybody uses.
//
// It never prints and never changes the node by itself.
package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
)

// Ops carries out verbs on one machine.
type Ops struct {
	host *host.Host
	mgr  *plugins.VolumePluginMgr
	life *life
	// Hook is called around every action; tests put faults in there.
	Hook act.Hook
	// after is the dry run that the next one goes on from.
	after *act.Runner
}

// New makes an Ops.
func New(h *host.Host, mgr *plugins.VolumePluginMgr) *Ops {
	return &Ops{host: h, mgr: mgr, life: &life{}}
}

// Run carries out a verb. What was done so far is returned beside an error.
func (o *Ops) Run(ctx context.Context, verb Verb, req Request) (*api.List[api.Result], error) {
	results, err := o.runOne(ctx, verb, req)
	return api.NewList("ResultList", results, nil), err
}

func (o *Ops) runOne(ctx context.Context, verb Verb, req Request) ([]api.Result, error) {
	op, err := o.open(ctx, verb, req, false)
	if err != nil {
		return nil, err
	}
	defer op.close()
	err = op.carryOut(ctx)
	op.end(err)
	return op.results, err
}

// Plan says what a verb would do, step by step, and changes nothing.
func (o *Ops) Plan(ctx context.Context, verb Verb, req Request) (*api.Plan, error) {
	op, err := o.planOne(ctx, verb, req)
	if err != nil {
		return nil, err // half a plan is none: nobody must run it
	}
	p := op.run.Plan()
	p.Parts = op.parts(0)
	return p, nil
}

// planOne is a verb in a dry run that has come to its end.
func (o *Ops) planOne(ctx context.Context, verb Verb, req Request) (*operation, error) {
	op, err := o.open(ctx, verb, req, true)
	if err != nil {
		return nil, err
	}
	defer op.close()
	return op, op.carryOut(ctx)
}

// parts are the steps of a dry run rung by rung, their numbers moved on by those of
// the plan before it.
func (op *operation) parts(before int) []api.PlanPart {
	parts := []api.PlanPart{}
	verb := ""
	if op.verb == Setup && len(op.results) > 0 && op.results[0].Outcome != api.OutcomeSkipped {
		verb = string(Setup) // the volume is one that is attached
	}
	for _, r := range op.results {
		if len(r.Steps) == 0 {
			continue
		}
		part := api.PlanPart{Rung: r.Op, Volume: op.name, PodUID: op.req.Pod.UID, Word: op.word(), Verb: verb, Steps: slices.Clone(r.Steps)}
		for i := range part.Steps {
			part.Steps[i].N += before
		}
		parts = append(parts, part)
	}
	return parts
}

// word names the volume to another kvol: among the documents, or as the operator did
// where that says more than the name.
func (op *operation) word() string {
	v := op.req.Volume
	switch {
	case op.req.Spec != nil:
		return cmp.Or(op.req.Word, op.name)
	case strings.HasPrefix(v, op.host.Layout.Root+"/"), strings.Contains(v, "^"):
		return v
	}
	return op.name
}

// operation is one run of one verb on one volume.
type operation struct {
	*Ops
	verb   Verb
	req    Request
	plugin plugins.VolumePlugin // nil when nothing of the volume is on this node
	name   string               // the volume's spec name
	// volumeName is what its plugin calls it, "" when nothing tells.
	volumeName string
	exact      []node.Ref // what the operator's path names
	block      bool
	find       *node.Find
	locks      *act.Locks
	journal    *act.Operation
	run        *act.Runner
	results    []api.Result
	// dryState is the state directory of a dry run, which makes none.
	dryState *safefs.Root
	device   string // where it came to be known
	// note is what came of it, for the result; the sizes are of a volume that grows.
	note             string
	oldSize, newSize int64
	pv               *v1.PersistentVolume // that was provisioned
	// begunWith are the devices that the node had for the volume to begin with.
	begunWith []disk
}

// open finds out what the request is about, takes the locks and begins the
// journal. A dry run does neither of the latter.
func (o *Ops) open(ctx context.Context, verb Verb, req Request, dry bool) (*operation, error) {
	req.Volume = o.host.PathOf(req.Volume)
	op := &operation{Ops: o, verb: verb, req: req}
	if err := op.check(); err != nil {
		return nil, op.wrap(err)
	}
	root, err := o.host.Root()
	if err != nil {
		return nil, op.wrap(err)
	}
	if err := op.identify(ctx); err != nil {
		return nil, op.wrap(err)
	}
	conf := act.Config{
		Root: root, Layout: o.host.Layout, Mounts: o.host.Mounts, Helper: o.host.Helper, Exec: o.host.Exec, Devices: o.host.Devices,
		DryRun: dry, Lazy: req.Lazy, ForceUmount: req.ForceUmount, WithoutDriver: req.WithoutDriver, Hook: o.Hook, Warn: o.host.Warn, Progress: o.host.Progress,
		DiscardEphemeral: req.DiscardEphemeral, QuarantineDir: req.Quarantine, After: o.after,
	}
	if dry {
		if conf.State, err = o.host.ReadOwn(o.host.StateDir); err != nil {
			conf.State = nil // nothing was ever written there
		}
		op.dryState = conf.State
	} else {
		if err := op.begin(ctx, &conf); err != nil {
			op.close()
			return nil, op.wrap(err)
		}
	}
	if op.run, err = act.NewRunner(conf); err == nil && !needsSpec[verb] {
		err = op.lookAgain(ctx)
	}
	if err == nil {
		err = op.gateLivePod(ctx)
	}
	if err != nil {
		op.journal.End(api.OutcomeOf(err), err)
		op.close()
		return nil, op.wrap(err)
	}
	return op, nil
}

// lookAgain looks at the node with the locks held: what was found before may be
// gone, and another kvol that was waited for may have brought the volume up. The
// verbs that do that look at its own places only.
func (op *operation) lookAgain(ctx context.Context) error {
	var err error
	if op.locks == nil || op.req.Spec != nil {
		op.find, err = node.NewFind(op.host)
	} else {
		name := op.name
		op.plugin, op.block = nil, false
		if err = op.identify(ctx); err == nil && op.name != name {
			err = api.Errorf(api.ErrUncertain, "it was of volume %s and is of volume %s now", name, op.name).At(op.req.Volume).
				WithNext("run the same command again")
		}
	}
	if err == nil && op.plugin != nil {
		err = op.findVolumeName()
		op.journal.Volume(op.plugin.GetPluginName(), op.name, op.volumeName)
		op.begunWith = op.nodeDevices()
	}
	return err
}

// begin takes the locks, root before volume, and opens the journal.
func (op *operation) begin(ctx context.Context, conf *act.Config) error {
	run, err := op.host.OwnRun()
	if err != nil {
		next := "name a directory that can be written: --run-dir DIR"
		if first := api.NewErrorDoc(err).Next; first != "" {
			next = first + "; or " + next
		}
		return api.Errorf(api.ErrRefused, "no lock can be taken, so nothing is changed: %w", err).WithNext("%s", next)
	}
	op.locks = act.NewLocks(run, op.host.LockTimeout)
	if err := op.locks.Take(ctx, act.LockRoot, op.host.Layout.Root, true); err != nil {
		return err
	}
	if err := op.locks.Take(ctx, act.LockVolume, op.host.Layout.Root+"\x00"+op.name, false); err != nil {
		return err
	}
	state, err := op.host.OwnState()
	if err != nil {
		op.host.Warn(err.Error()) // the journal goes to the run directory, and says what that means
	}
	entry := api.Entry{Verb: string(op.verb), Volume: op.name, VolumeName: op.volumeName, PodUID: op.req.Pod.UID, Risks: op.req.Risks(), User: login()}
	if op.plugin != nil {
		entry.Plugin = op.plugin.GetPluginName()
	}
	op.journal = act.Journal{State: state, Run: run}.Begin(entry, op.host.Warn)
	conf.Journal, conf.Locks = op.journal, op.locks.Files
	if !op.journal.Volatile {
		conf.State = state
	}
	return nil
}

// login is who works here: over sudo the one who called it.
func login() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprint(os.Getuid())
}

func (op *operation) close() {
	if op.run != nil {
		op.run.Close()
	}
	if op.locks != nil {
		op.locks.Release()
	}
	if op.dryState != nil {
		op.dryState.Close()
	}
}

// end records how the verb ended.
func (op *operation) end(err error) {
	result := api.OutcomeOf(err)
	if err == nil && len(op.run.Steps()) == 0 {
		result = api.OutcomeAlready
	}
	op.journal.End(result, err)
}

// rungs are the steps that each verb is made of.
var rungs = map[Verb][]Verb{
	Attach: {Attach}, MountDevice: {MountDevice}, Publish: {Publish},
	Unpublish: {Unpublish}, UnmountDevice: {UnmountDevice}, Detach: {Detach},
	Setup:    {Attach, MountDevice, Publish},
	Teardown: {Unpublish, UnmountDevice, Detach},
	Expand:   {Expand}, Provision: {Provision}, Recycle: {Recycle}, Delete: {Delete},
}

// carryOut climbs or descends the rungs of the verb, and stops at the first that
// fails.
func (op *operation) carryOut(ctx context.Context) error {
	if op.plugin == nil {
		return op.wrap(op.nothingThere(ctx))
	}
	if err := errors.Join(op.checkSpec(), op.otherMode()); err != nil {
		return op.wrap(err)
	}
	do := map[Verb]func(context.Context) (skipped string, err error){
		Attach: op.attach, MountDevice: op.mountDevice, Publish: op.publish,
		Unpublish: op.unpublish, UnmountDevice: op.unmountDevice, Detach: op.detach,
		Expand: op.expand, Provision: op.provision, Recycle: op.recycle, Delete: op.delete,
	}
	for _, rung := range rungs[op.verb] {
		before := len(op.run.Steps())
		skipped, err := do[rung](ctx)
		op.result(ctx, rung, skipped, err, op.run.Steps()[before:])
		if err != nil {
			return op.wrap(err)
		}
	}
	if op.req.MustExist && len(op.run.Steps()) == 0 {
		return op.wrap(api.Errorf(api.ErrNotFound, "nothing of it was there, and --must-exist was given"))
	}
	return nil
}

func (op *operation) result(ctx context.Context, rung Verb, skipped string, err error, steps []api.Step) {
	r := api.Result{
		Op: string(rung), Plugin: op.plugin.GetPluginName(), Volume: op.name, PodUID: op.req.Pod.UID,
		Paths: op.paths(ctx), DevicePath: op.device, Reason: skipped, Steps: append([]api.Step{}, steps...),
	}
	switch {
	case err != nil:
		r.Outcome, r.Reason = api.OutcomeOf(err), err.Error()
	case skipped != "":
		r.Outcome = api.OutcomeSkipped
	case len(steps) == 0:
		r.Outcome = api.OutcomeAlready
	default:
		r.Outcome, r.Reason = api.OutcomeDone, op.note
	}
	r.OldSize, r.NewSize = op.oldSize, op.newSize
	op.results = append(op.results, r)
}

// paths are the volume's places on this node, by its name. The verbs that need its
// source anyway ask that too, since a directory has no global mount; for the others
// it is told only where there is one, or was one.
func (op *operation) paths(ctx context.Context) api.PathSet {
	where := op.where()
	if op.verb == MountDevice || op.verb == Publish || op.verb == Setup {
		where.Spec = op.req.Spec
		if set, err := where.Paths(ctx, op.host.Layout.Root); err == nil {
			return set
		}
		where.Spec = nil
	}
	set, err := where.Paths(ctx, op.host.Layout.Root)
	if err != nil {
		op.host.Warn(err.Error())
	}
	if op.run != nil {
		if !op.had(set.GlobalMountPath) {
			set.GlobalMountPath = ""
		}
		set.Metadata = slices.DeleteFunc(set.Metadata, func(file string) bool { return !op.had(file) })
	}
	return set
}

// had says that something is at a path, or that this operation took it away.
func (op *operation) had(path string) bool {
	if slices.ContainsFunc(op.run.Steps(), func(s api.Step) bool { return s.Target == path }) {
		return true
	}
	e, err := op.run.Entry(path)
	return err != nil || e.Present
}

func (op *operation) where() plugins.Where {
	return plugins.Where{Plugin: op.plugin, Ref: op.ref(), PodUID: op.req.Pod.UID, Block: op.block}
}

// wrap names the verb, the plugin and the volume in an error, once.
func (op *operation) wrap(err error) error {
	if err == nil {
		return nil
	}
	e := &api.Error{Op: string(op.verb), Volume: op.name, Err: err}
	if op.plugin != nil {
		e.Plugin = op.plugin.GetPluginName()
	}
	if e.Volume == "" {
		e.Volume = op.req.Volume
	}
	return e
}
