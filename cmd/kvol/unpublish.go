package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const unpublishLong = `Unmounts the volume from the pod's volume directory, all mounts that are stacked
there, and removes the directory, as the kubelet's TearDown and UnmapPodDevice do.
Only what lies in the pod's own directory counts. VOLUME is the name that the
volume has there. Nothing that holds data is removed. With --all it is every volume
of the pods, each by itself; one that fails keeps no other (3).`

const unpublishExample = `  # take the volume data away from a pod
  kvol unpublish data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2
  # what would be done
  kvol unpublish data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2 --dry-run
  # everything that the pod has
  kvol unpublish --all --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2`

func newUnpublishCmd(a *app) *cobra.Command {
	cmd, o := a.downCmd(ops.Unpublish)
	cmd.Use, cmd.Short = "unpublish [VOLUME]", "Take a volume away from a pod's directory"
	cmd.Long, cmd.Example = unpublishLong+cmd.Long, unpublishExample
	o.addPod(cmd.Flags())
	o.addAll(cmd.Flags())
	o.addUnmount(cmd.Flags())
	o.addWithoutDriver(cmd.Flags())
	o.addDiscard(cmd.Flags())
	return cmd
}
