package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const unmountDeviceLong = `Unmounts the volume's global mount and removes its directory. While a pod still has
the volume published it is refused as busy (9) and the pods are named. VOLUME is a
PV or spec name, driver^handle, a device or a path.`

const unmountDeviceExample = `  # unmount the global mount of the volume data
  kvol unmount-device data
  # the same, by the path
  kvol unmount-device /var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/data`

type unmountDeviceOptions struct {
	volumeOptions
	dryRun            bool
	mustExist         bool
	lazy, forceUmount bool
}

func newUnmountDeviceCmd(a *app) *cobra.Command {
	o := &unmountDeviceOptions{}
	cmd := &cobra.Command{
		Use:     "unmount-device [VOLUME]",
		Short:   "Take a volume's global mount away",
		Long:    unmountDeviceLong + exitCodes(verbCodes...),
		Example: unmountDeviceExample,
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

func (o *unmountDeviceOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	o.addPluginFlag(f)
	f.BoolVar(&o.mustExist, "must-exist", false, "not found (5) instead of already (0) when there is nothing")
	f.BoolVar(&o.lazy, "lazy", false, "risk: detach a busy mount (MNT_DETACH); who uses it goes on")
	f.BoolVar(&o.forceUmount, "force-umount", false, "risk: abort what is under way (MNT_FORCE); unwritten data is lost")
}

func (o *unmountDeviceOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	req.MustExist = o.mustExist
	req.Lazy, req.ForceUmount = o.lazy, o.forceUmount
	return a.verb(ctx, ops.UnmountDevice, req, o.dryRun)
}
