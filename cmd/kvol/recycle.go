package main

import (
	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const recycleLong = `Deletes all that is in a volume, so that it can be claimed again, as Kubernetes'
recycler does for hostPath. The directory itself stays. Nothing behind a link or a
mount is touched, and a volume that anybody uses, that is a part of the system, or
that has another mount inside is refused. It needs --yes-delete-data.`

const recycleExample = `  # what would be deleted
  kvol recycle -f pv.yaml --dry-run
  kvol recycle -f pv.yaml --yes-delete-data`

func newRecycleCmd(a *app) *cobra.Command {
	cmd, o := a.upCmd(ops.Recycle, verbLimit)
	cmd.Use, cmd.Short = "recycle -f FILE", "Delete all that is in a volume, so that it can be claimed again"
	cmd.Long, cmd.Example = recycleLong+cmd.Long, recycleExample
	o.addYes(cmd.Flags())
	return cmd
}

func (o *verbOptions) addYes(f *pflag.FlagSet) {
	f.BoolVar(&o.yesDeleteData, "yes-delete-data", false, "risk: the volume's data is deleted for good")
}
