package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const detachLong = `Detaches the volume from this node. Before, also where the volume itself needs no
detach, its device is proven free: no mount in any mount namespace, no process, no
loop, dm or map left on it; otherwise it is busy (9) and the holders are printed.
VOLUME is a PV or spec name, driver^handle, a device or a path.`

const detachExample = `  # detach the volume of this PV, of which only the name is known
  kvol detach data
  # is it free? nothing is changed
  kvol detach /dev/sdb --dry-run`

func newDetachCmd(a *app) *cobra.Command {
	cmd, o := a.downCmd(ops.Detach)
	cmd.Use, cmd.Short = "detach [VOLUME]", "Detach a volume from this node"
	cmd.Long, cmd.Example = detachLong+cmd.Long, detachExample
	o.addWithoutDriver(cmd.Flags())
	return cmd
}
