package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const setupLong = `Attaches the volume, makes its global mount and publishes it into the pod; what is
done already stays, what the volume does not need is skipped. Killed at any point,
the same command goes on. A blank device is refused (4) unless --format is given,
and one that is not blank is never formatted. With --all it is every volume of the
pods in the documents, one after another; one that fails keeps no other, and 3 says
that some did.`

const setupExample = `  # what would be done
  kvol setup -f pv.yaml -f pod.yaml --dry-run
  # do it, and make the file system on the new disk
  kvol setup -f pv.yaml -f pod.yaml --format
  # everything of two pods, their claims resolved by the other documents
  kvol setup --all -f pvs.yaml -f pvcs.yaml -f pods.yaml
  # a script, which calls kvol only where bash has no way
  kvol setup -f pv.yaml -f pod.yaml --format --dry-run -o shell --shell-with-kvol`

func newSetupCmd(a *app) *cobra.Command {
	cmd, o := a.upCmd(ops.Setup, slowLimit)
	cmd.Use, cmd.Short = "setup -f FILE", "Carry a volume the whole way up: attach, mount-device, publish"
	cmd.Long, cmd.Example = setupLong+cmd.Long, setupExample
	o.addPod(cmd.Flags())
	o.addUnmanaged(cmd.Flags())
	o.addAll(cmd.Flags())
	o.addFormat(cmd.Flags())
	o.addPublishContext(cmd.Flags())
	return cmd
}
