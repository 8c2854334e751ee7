package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const teardownLong = `Unpublishes the volume from the pod, takes its global mount away and detaches it.
While another pod has the volume published the last two are skipped and the pods
are named; anything else that is busy is 9. Killed at any point, the same command
goes on. VOLUME is a PV or spec name, driver^handle, a device or a path. With --all
it is everything that the pods of --pod-uid have on this node, or the volumes of the
pods in the documents, one after another; one that fails keeps no other (3).`

const teardownExample = `  # take the volume data down
  kvol teardown data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2
  # as a script for bash, for a node without kvol
  kvol teardown data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2 --dry-run -o shell
  # everything that the pod has
  kvol teardown --all --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2`

func newTeardownCmd(a *app) *cobra.Command {
	cmd, o := a.downCmd(ops.Teardown)
	cmd.Use, cmd.Short = "teardown [VOLUME]", "Carry a volume the whole way down: unpublish, unmount-device, detach"
	cmd.Long, cmd.Example = teardownLong+cmd.Long, teardownExample
	o.addPod(cmd.Flags())
	o.addAll(cmd.Flags())
	o.addUnmount(cmd.Flags())
	o.addWithoutDriver(cmd.Flags())
	o.addDiscard(cmd.Flags())
	return cmd
}
