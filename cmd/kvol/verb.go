package main

import (
	"context"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verbOptions are the options of the lifecycle commands: each has the flags that
// concern its verb.
type verbOptions struct {
	volumeOptions
	verb              ops.Verb
	dryRun            bool
	check             bool
	format            bool
	mustExist         bool
	lazy, forceUmount bool
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
		if o.check && o.dryRun {
			return api.Errorf(api.ErrUsage, "--check changes nothing by itself: leave --dry-run away")
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
		if err := o.argument(args); err != nil {
			return err
		}
		return a.do(cmd, verbLimit, o)
	}
	o.addPluginFlag(cmd.Flags())
	cmd.Flags().BoolVar(&o.mustExist, "must-exist", false, "not found (5) instead of already (0) when there is nothing")
	return cmd, o
}

func (a *app) verbCmd(verb ops.Verb) (*cobra.Command, *verbOptions) {
	o := &verbOptions{verb: verb}
	cmd := &cobra.Command{Long: exitCodes(verbCodes...), GroupID: lifecycle}
	o.addSpecFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	return cmd, o
}

func (o *verbOptions) addPod(f *pflag.FlagSet) {
	o.needsPod = true
	o.addPodFlag(f)
}

func (o *verbOptions) addFormat(f *pflag.FlagSet) {
	f.BoolVar(&o.format, "format", false, "make a file system on a device that is proven blank")
}

func (o *verbOptions) addUnmount(f *pflag.FlagSet) {
	f.BoolVar(&o.lazy, "lazy", false, "risk: detach a busy mount (MNT_DETACH); who uses it goes on")
	f.BoolVar(&o.forceUmount, "force-umount", false, "risk: abort what is under way (MNT_FORCE); unwritten data is lost")
}

func (o *verbOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	if o.check {
		return a.checkAttached(ctx, req)
	}
	req.Format, req.MustExist = o.format, o.mustExist
	req.Lazy, req.ForceUmount = o.lazy, o.forceUmount
	return a.carry(ctx, o.verb, req, o.dryRun)
}
