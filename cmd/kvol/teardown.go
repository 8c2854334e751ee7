package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const teardownLong = `Unpublishes the volume from the pod, takes its global mount away and detaches it.
While another pod has the volume published the last two are skipped and the pods
are named; anything else that is busy is 9. Killed at any point, the same command
goes on. VOLUME is a PV or spec name, driver^handle, a device or a path.`

const teardownExample = `  # take the volume data down
  kvol teardown data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2
  # as a script for bash, for a node without kvol
  kvol teardown data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2 --dry-run -o shell`

type teardownOptions struct {
	volumeOptions
	dryRun            bool
	mustExist         bool
	lazy, forceUmount bool
}

func newTeardownCmd(a *app) *cobra.Command {
	o := &teardownOptions{volumeOptions: volumeOptions{needsPod: true}}
	cmd := &cobra.Command{
		Use:     "teardown [VOLUME]",
		Short:   "Carry a volume the whole way down: unpublish, unmount-device, detach",
		Long:    teardownLong + exitCodes(verbCodes...),
		Example: teardownExample,
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

func (o *teardownOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	o.addPodFlag(f)
	o.addPluginFlag(f)
	f.BoolVar(&o.mustExist, "must-exist", false, "not found (5) instead of already (0) when there is nothing")
	f.BoolVar(&o.lazy, "lazy", false, "risk: detach a busy mount (MNT_DETACH); who uses it goes on")
	f.BoolVar(&o.forceUmount, "force-umount", false, "risk: abort what is under way (MNT_FORCE); unwritten data is lost")
}

func (o *teardownOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	req.MustExist = o.mustExist
	req.Lazy, req.ForceUmount = o.lazy, o.forceUmount
	return a.verb(ctx, ops.Teardown, req, o.dryRun)
}
