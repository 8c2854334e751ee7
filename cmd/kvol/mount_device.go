package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const mountDeviceLong = `Mounts the volume's file system once on this node, at its global mount, from which
it is published into pods; a raw block volume is prepared instead. A device that is
blank is refused (4) unless --format is given, and one that is not blank is never
formatted. A volume that has no global mount is skipped with the reason.`

const mountDeviceExample = `  # what would be done, as a script for bash
  kvol mount-device -f pv.yaml --dry-run -o shell
  # the disk is new: make the file system that the PV names
  kvol mount-device -f pv.yaml --format`

func newMountDeviceCmd(a *app) *cobra.Command {
	cmd, o := a.upCmd(ops.MountDevice, slowLimit)
	cmd.Use, cmd.Short = "mount-device -f FILE", "Make a volume's global mount"
	cmd.Long, cmd.Example = mountDeviceLong+cmd.Long, mountDeviceExample
	o.addFormat(cmd.Flags())
	o.addPublishContext(cmd.Flags())
	return cmd
}
