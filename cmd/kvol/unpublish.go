package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const unpublishLong = `Unmounts the volume from the pod's volume directory, all mounts that are stacked
there, and removes the directory, as the kubelet's TearDown and UnmapPodDevice do.
Only what lies in the pod's own directory counts. VOLUME is the name that the
volume has there. Nothing that holds data is removed.`

const unpublishExample = `  # take the volume data away from a pod
  kvol unpublish data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2
  # what would be done
  kvol unpublish data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2 --dry-run`

type unpublishOptions struct {
	volumeOptions
	dryRun            bool
	mustExist         bool
	lazy, forceUmount bool
}

func newUnpublishCmd(a *app) *cobra.Command {
	o := &unpublishOptions{volumeOptions: volumeOptions{needsPod: true}}
	cmd := &cobra.Command{
		Use:     "unpublish [VOLUME]",
		Short:   "Take a volume away from a pod's directory",
		Long:    unpublishLong + exitCodes(verbCodes...),
		Example: unpublishExample,
		GroupID: lifecycle,
		Args:    atMostOne("VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.argument(args); err != nil {
				return err
			}
			return a.do(cmd, verbLimit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *unpublishOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	o.addPodFlag(f)
	o.addPluginFlag(f)
	f.BoolVar(&o.mustExist, "must-exist", false, "not found (5) instead of already (0) when there is nothing")
	f.BoolVar(&o.lazy, "lazy", false, "risk: detach a busy mount (MNT_DETACH); who uses it goes on")
	f.BoolVar(&o.forceUmount, "force-umount", false, "risk: abort what is under way (MNT_FORCE); unwritten data is lost")
}

func (o *unpublishOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	req.MustExist = o.mustExist
	req.Lazy, req.ForceUmount = o.lazy, o.forceUmount
	return a.verb(ctx, ops.Unpublish, req, o.dryRun)
}
