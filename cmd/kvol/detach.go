package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const detachLong = `Detaches the volume from this node. Before, also where the volume itself needs no
detach, its device is proven free: no mount in any mount namespace, no process, no
loop, dm or map left on it; otherwise it is busy (9) and the holders are printed.
VOLUME is a PV or spec name, driver^handle, a device or a path.`

const detachExample = `  # detach the volume of this PV, of which only the name is known
  kvol detach data
  # is it free? nothing is changed
  kvol detach /dev/loop3 --dry-run`

type detachOptions struct {
	volumeOptions
	dryRun    bool
	mustExist bool
}

func newDetachCmd(a *app) *cobra.Command {
	o := &detachOptions{}
	cmd := &cobra.Command{
		Use:     "detach [VOLUME]",
		Short:   "Detach a volume from this node",
		Long:    detachLong + exitCodes(verbCodes...),
		Example: detachExample,
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

func (o *detachOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	o.addPluginFlag(f)
	f.BoolVar(&o.mustExist, "must-exist", false, "not found (5) instead of already (0) when there is nothing")
}

func (o *detachOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	req.MustExist = o.mustExist
	return a.verb(ctx, ops.Detach, req, o.dryRun)
}
