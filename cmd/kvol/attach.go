package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const attachLong = `Attaches the volume to this node and waits until its device is there, as the
kubelet's attach and WaitForAttach do. A volume that needs no attach (a local
volume, most network shares) is skipped with the reason. With --check it changes
nothing and only tells whether the volume is attached.`

const attachExample = `  # what would be done
  kvol attach -f pv.yaml --dry-run
  # is it attached? 0 yes, 5 no, 8 unknown
  kvol attach -f pv.yaml --check`

func newAttachCmd(a *app) *cobra.Command {
	cmd, o := a.upCmd(ops.Attach, slowLimit)
	cmd.Use, cmd.Short = "attach -f FILE", "Attach a volume to this node"
	cmd.Long, cmd.Example = attachLong+cmd.Long, attachExample
	o.addPublishContext(cmd.Flags())
	cmd.Flags().BoolVar(&o.check, "check", false, "change nothing; tell whether it is attached: 0 yes, 5 no, 8 unknown")
	return cmd
}
