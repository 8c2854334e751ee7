package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const setupLong = `Attaches the volume, makes its global mount and publishes it into the pod; what is
done already stays, what the volume does not need is skipped. Killed at any point,
the same command goes on. A blank device is refused (4) unless --format is given,
and one that is not blank is never formatted.`

const setupExample = `  # what would be done
  kvol setup -f pv.yaml -f pod.yaml --dry-run
  # do it, and make the file system on the new disk
  kvol setup -f pv.yaml -f pod.yaml --format`

type setupOptions struct {
	volumeOptions
	dryRun bool
	format bool
}

func newSetupCmd(a *app) *cobra.Command {
	o := &setupOptions{volumeOptions: volumeOptions{needsPod: true}}
	cmd := &cobra.Command{
		Use:     "setup -f FILE",
		Short:   "Carry a volume the whole way up: attach, mount-device, publish",
		Long:    setupLong + exitCodes(verbCodes...),
		Example: setupExample,
		GroupID: lifecycle,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.needsFiles(); err != nil {
				return err
			}
			return a.do(cmd, slowLimit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *setupOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	o.addPodFlag(f)
	f.BoolVar(&o.format, "format", false, "make a file system on a device that is proven blank")
}

func (o *setupOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	req.Format = o.format
	return a.verb(ctx, ops.Setup, req, o.dryRun)
}
