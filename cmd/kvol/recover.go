package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

const recoverLong = `Finds metadata of CSI volumes that a kubelet cannot read (vol_data.json missing,
empty, cut short, damaged) and shows what the file would hold and who tells each
value: the other copies, the mount table, the names of the directories, the documents
of -f, what kvol did here. With --apply it is written. A file that can be read is
never touched; where two of these disagree, or something is told by none, it is
refused (4). PATH is the file, the volume's directory, the mount or the staging
directory; VOLUME is a PV or spec name or driver^handle, and means all its files.`

const recoverExample = `  # what is broken, and what would be written
  kvol recover pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f
  # nothing on the node knows the handle: its PersistentVolume does
  kubectl get pv pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f -o yaml > pv.yaml
  kvol recover pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f -f pv.yaml --apply`

type recoverOptions struct {
	volumeOptions
	apply bool
}

func newRecoverCmd(a *app) *cobra.Command {
	o := &recoverOptions{}
	cmd := &cobra.Command{
		Use:     "recover [PATH|VOLUME]",
		Short:   "Rebuild metadata of CSI volumes that cannot be read",
		Long:    recoverLong + exitCodes(verbCodes...),
		Example: recoverExample,
		GroupID: recovering,
		Args:    atMostOne("PATH or VOLUME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.argument(args); err != nil {
				return err
			}
			return a.do(cmd, verbLimit, o)
		},
	}
	o.addSpecFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.apply, "apply", false, "write what is shown without it")
	return cmd
}

func (o *recoverOptions) run(ctx context.Context, a *app) error {
	req := ops.RecoverRequest{Word: o.volume}
	if len(o.files) > 0 {
		docs, err := o.documents(ctx, a)
		if err != nil {
			return err
		}
		req.Given = docs.Given()
		if len(req.Given) == 1 && req.Word == "" {
			req.Word = req.Given[0].Word
		}
	}
	if req.Word == "" {
		return api.Errorf(api.ErrUsage, "there are %d volumes in the input", len(req.Given)).WithNext("say which: kvol recover VOLUME -f FILE")
	}
	host := func() {
		if a.given("node-name") {
			req.NodeName = a.nodeName
		}
	}
	return a.carry(ctx, work{
		dryRun: !o.apply, view: render.Recoveries(), instruct: "the same command without --apply",
		run: func(ctx context.Context, op *ops.Ops) (*api.List[api.Result], error) {
			host()
			return op.Recover(ctx, req)
		},
		plan: func(ctx context.Context, op *ops.Ops) (*api.Plan, error) {
			host()
			return op.PlanRecover(ctx, req)
		},
	})
}
