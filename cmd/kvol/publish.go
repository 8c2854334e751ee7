package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const publishLong = `Mounts the volume into the pod's volume directory from its global mount, or maps a
raw block volume, as the kubelet's SetUp and MapPodDevice do. The pod comes from a
Pod document of -f, which also says fsGroup and readOnly, or from --pod-uid. With --all
it is every volume of the pods, each by itself; one that fails keeps no other (3).`

const publishExample = `  # into the pod of a document
  kvol publish -f pv.yaml -f pvc.yaml -f pod.yaml
  # into a pod of which only the UID is known
  kvol publish -f pv.yaml --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2
  # every volume of a pod
  kvol publish --all -f pvs.yaml -f pvcs.yaml -f pod.yaml`

func newPublishCmd(a *app) *cobra.Command {
	cmd, o := a.upCmd(ops.Publish, verbLimit)
	cmd.Use, cmd.Short = "publish -f FILE", "Mount a volume into a pod's directory"
	cmd.Long, cmd.Example = publishLong+cmd.Long, publishExample
	o.addPod(cmd.Flags())
	o.addUnmanaged(cmd.Flags())
	o.addAll(cmd.Flags())
	o.addPublishContext(cmd.Flags())
	return cmd
}
