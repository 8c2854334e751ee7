package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
)

const deleteLong = `Deletes a volume with all that is in it, as Kubernetes does with the volume of a
PersistentVolume whose reclaim policy is Delete: of hostPath only below /tmp. Nothing
behind a link or a mount is touched, and a volume that anybody uses is refused. It
needs --yes-delete-data.`

const deleteExample = `  # what would be deleted
  kvol delete -f pv.yaml --dry-run
  kvol delete -f pv.yaml --yes-delete-data`

func newDeleteCmd(a *app) *cobra.Command {
	cmd, o := a.upCmd(ops.Delete, verbLimit)
	cmd.Use, cmd.Short = "delete -f FILE", "Delete a volume with all that is in it"
	cmd.Long, cmd.Example = deleteLong+cmd.Long, deleteExample
	o.addYes(cmd.Flags())
	return cmd
}
