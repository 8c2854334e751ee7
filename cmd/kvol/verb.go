package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verbOptions are the options of the lifecycle commands: each has the flags that
// concern its verb.
type verbOptions struct {
	volumeOptions
	verb              ops.Verb
	dryRun            bool
	shellWithKvol     bool
	check             bool
	format            bool
	mustExist         bool
	lazy, forceUmount bool
	discardEphemeral  bool
	quarantine        string
	yesDeleteData     bool
	size              sizeFlag
	activePod         bool
	unmanagedPod      bool
	withoutDriver     bool
	publishContext    map[string]string
	flags             *pflag.FlagSet
}

// upCmd begins the command of a verb that brings a volume up, which takes its
// document. Its Long is the end of the help that all verbs share.
func (a *app) upCmd(verb ops.Verb, limit time.Duration) (*cobra.Command, *verbOptions) {
	cmd, o := a.verbCmd(verb)
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.needsFiles(); err != nil {
			return err
		}
		if _, blank := o.publishContext[""]; blank || o.publishContext != nil && len(o.publishContext) == 0 {
			return api.Errorf(api.ErrUsage, "--publish-context has no key").WithNext("give each entry as KEY=VALUE, as in status.attachmentMetadata of the VolumeAttachment")
		}
		if o.check && o.dryRun {
			return api.Errorf(api.ErrUsage, "--check changes nothing by itself: leave --dry-run away")
		}
		if o.all && o.publishContext != nil {
			return api.Errorf(api.ErrUsage, "--publish-context is of one volume, and --all is every one").
				WithNext("give the VolumeAttachments of the volumes with -f")
		}
		if err := o.checkAll(); err != nil {
			return err
		}
		return a.do(cmd, limit, o)
	}
	return cmd, o
}

// downCmd begins the command of a verb that takes a volume down, for which its
// name is enough.
func (a *app) downCmd(verb ops.Verb) (*cobra.Command, *verbOptions) {
	cmd, o := a.verbCmd(verb)
	cmd.Args = atMostOne("VOLUME")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(o.argument(args), o.checkAll()); err != nil {
			return err
		}
		return a.do(cmd, verbLimit, o)
	}
	o.addPluginFlag(cmd.Flags())
	cmd.Flags().BoolVar(&o.activePod, "allow-active-pod", false, "risk: take the volume from a pod that lives")
	cmd.Flags().BoolVar(&o.mustExist, "must-exist", false, "not found (5) instead of already (0) when there is nothing")
	return cmd, o
}

func (a *app) verbCmd(verb ops.Verb) (*cobra.Command, *verbOptions) {
	o := &verbOptions{verb: verb}
	cmd := &cobra.Command{Long: exitCodes(verbCodes...), GroupID: lifecycle}
	o.addSpecFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	cmd.Flags().BoolVar(&o.shellWithKvol, "shell-with-kvol", false, "with --dry-run -o shell: a kvol line where a step has no shell form")
	o.flags = cmd.Flags()
	return cmd, o
}

func (o *verbOptions) addPod(f *pflag.FlagSet) {
	o.needsPod = true
	o.addPodFlag(f)
}

func (o *verbOptions) addFormat(f *pflag.FlagSet) {
	f.BoolVar(&o.format, "format", false, "make a file system on a device that is proven blank")
}

func (o *verbOptions) addUnmanaged(f *pflag.FlagSet) {
	f.BoolVar(&o.unmanagedPod, "allow-unmanaged-pod", false, "risk: publish for a pod that the kubelet does not know; it will take it apart")
}

func (o *verbOptions) addUnmount(f *pflag.FlagSet) {
	f.BoolVar(&o.lazy, "lazy", false, "risk: detach a busy mount (MNT_DETACH); who uses it goes on")
	f.BoolVar(&o.forceUmount, "force-umount", false, "risk: abort what is under way (MNT_FORCE); unwritten data is lost")
}

func (o *verbOptions) addWithoutDriver(f *pflag.FlagSet) {
	f.BoolVar(&o.withoutDriver, "without-driver", false, "risk: take a CSI volume down on this node without asking its driver, which goes on believing in it")
}

func (o *verbOptions) addPublishContext(f *pflag.FlagSet) {
	f.StringToStringVar(&o.publishContext, "publish-context", nil, "`KEY=VALUE` that attaching a CSI volume gave: your word that it is attached (repeatable)")
}

func (o *verbOptions) addDiscard(f *pflag.FlagSet) {
	f.BoolVar(&o.discardEphemeral, "discard-ephemeral", false, "risk: what is in an emptyDir in memory is lost, and what is in one on disk is moved to --quarantine")
	f.StringVar(&o.quarantine, "quarantine", "", "`DIR` on the same mount, of root alone, that the content of an emptyDir on disk is moved to")
}

func (o *verbOptions) run(ctx context.Context, a *app) error {
	if o.shellWithKvol {
		if err := o.checkScript(a); err != nil {
			return err
		}
	}
	w := work{dryRun: o.dryRun, view: render.Plans(), instruct: "the same command with --dry-run"}
	if o.shellWithKvol {
		w.instead = func(p api.PlanPart) (string, error) { return o.command(a, p) }
	}
	if o.all {
		return o.runAll(ctx, a, w)
	}
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	if o.check {
		return a.carry(ctx, work{run: func(ctx context.Context, op *ops.Ops) (*api.List[api.Result], error) {
			return op.CheckAttached(ctx, req)
		}})
	}
	o.ask(a, &req)
	w.run = func(ctx context.Context, op *ops.Ops) (*api.List[api.Result], error) { return op.Run(ctx, o.verb, req) }
	w.plan = func(ctx context.Context, op *ops.Ops) (*api.Plan, error) { return op.Plan(ctx, o.verb, req) }
	return a.carry(ctx, w)
}

// runAll is run for every volume of some pods: of their documents, or without any of
// what is on disk.
func (o *verbOptions) runAll(ctx context.Context, a *app, w work) error {
	like := ops.Request{Plugin: o.plugin}
	o.ask(a, &like)
	a.podUIDs = o.uids()
	warnings := []string{}
	requests := func(op *ops.Ops) ([]ops.Request, error) { return op.OnDisk(like, o.uids()) }
	if len(o.files) > 0 {
		docs, err := o.documents(ctx, a)
		if err != nil {
			return err
		}
		a.podUIDs = slices.DeleteFunc(o.uids(), docs.HasPod)
		items, left, err := docs.SelectAll(o.uids())
		if err != nil {
			return err
		}
		warnings = append(warnings, left...)
		requests = func(*ops.Ops) (reqs []ops.Request, _ error) {
			for _, item := range items {
				req := like
				req.Spec, req.Pod, req.Word = item.Spec, item.Pod, item.Word
				reqs = append(reqs, req)
			}
			return reqs, nil
		}
	}
	w.run = func(ctx context.Context, op *ops.Ops) (*api.List[api.Result], error) {
		reqs, err := requests(op)
		if err != nil {
			return nil, err
		}
		l, err := op.RunAll(ctx, o.verb, reqs)
		l.Warnings = append(l.Warnings, warnings...)
		return l, err
	}
	w.plan = func(ctx context.Context, op *ops.Ops) (*api.Plan, error) {
		reqs, err := requests(op)
		if err != nil {
			return nil, err
		}
		p, err := op.PlanAll(ctx, o.verb, reqs)
		p.Warnings = append(p.Warnings, warnings...)
		return p, err
	}
	return a.carry(ctx, w)
}

// ask puts the flags of the verb into a request.
func (o *verbOptions) ask(a *app, req *ops.Request) {
	req.Format, req.MustExist = o.format, o.mustExist
	req.Lazy, req.ForceUmount, req.WithoutDriver = o.lazy, o.forceUmount, o.withoutDriver
	if req.Spec != nil && o.publishContext != nil {
		req.Spec.PublishContext = o.publishContext
	}
	req.DiscardEphemeral, req.Quarantine = o.discardEphemeral, o.quarantine
	req.YesDeleteData, req.Size = o.yesDeleteData, o.size.bytes
	req.AllowActivePod, req.AllowUnmanagedPod, req.PodsFrom = o.activePod, o.unmanagedPod, a.podsFrom
}
