package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const mountDeviceLong = `Mounts the volume's file system once on this node, at its global mount, from which
it is published into pods; a raw block volume is prepared instead. A device that is
blank is refused (4) unless --format is given, and one that is not blank is never
formatted. A volume that has no global mount is skipped with the reason.`

const mountDeviceExample = `  # what would be done, as a script for bash
  kvol mount-device -f pv.yaml --dry-run -o shell
  # the disk is new: make the file system that the PV names
  kvol mount-device -f pv.yaml --format`

type mountDeviceOptions struct {
	volumeOptions
	dryRun bool
	format bool
}

func newMountDeviceCmd(a *app) *cobra.Command {
	o := &mountDeviceOptions{}
	cmd := &cobra.Command{
		Use:     "mount-device -f FILE",
		Short:   "Make a volume's global mount",
		Long:    mountDeviceLong + exitCodes(verbCodes...),
		Example: mountDeviceExample,
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

func (o *mountDeviceOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	f.BoolVar(&o.format, "format", false, "make a file system on a device that is proven blank")
}

func (o *mountDeviceOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	req.Format = o.format
	return a.verb(ctx, ops.MountDevice, req, o.dryRun)
}
