package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const unmountDeviceLong = `Unmounts the volume's global mount and removes its directory. While a pod still has
the volume published it is refused as busy (9) and the pods are named. VOLUME is a
PV or spec name, driver^handle, a device or a path.`

const unmountDeviceExample = `  # unmount the global mount of the volume data
  kvol unmount-device data
  # the same, by the path
  kvol unmount-device /var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/data`

func newUnmountDeviceCmd(a *app) *cobra.Command {
	cmd, o := a.downCmd(ops.UnmountDevice)
	cmd.Use, cmd.Short = "unmount-device [VOLUME]", "Take a volume's global mount away"
	cmd.Long, cmd.Example = unmountDeviceLong+cmd.Long, unmountDeviceExample
	o.addUnmount(cmd.Flags())
	o.addWithoutDriver(cmd.Flags())
	return cmd
}
