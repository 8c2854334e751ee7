package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

const provisionLong = `Makes a volume for a claim, as the provisioner of its StorageClass does that is
compiled into Kubernetes, and prints its PersistentVolume as YAML, or with -o json
as JSON. The same claim gets the same volume, however often it is asked for. The
provisioner kubernetes.io/host-path makes directories in /tmp/hostpath_pv, for tests.`

const provisionExample = `  kvol provision -f pvc.yaml -f storageclass.yaml > pv.yaml
  # what would be made
  kvol provision -f pvc.yaml -f storageclass.yaml --dry-run`

type provisionOptions struct {
	volumeOptions
	claim  string
	dryRun bool
}

func newProvisionCmd(a *app) *cobra.Command {
	o := &provisionOptions{}
	cmd := &cobra.Command{
		Use: "provision -f FILE", Short: "Make a volume for a claim",
		Long: provisionLong + exitCodes(verbCodes...), Example: provisionExample, GroupID: lifecycle, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.files) == 0 {
				return api.Errorf(api.ErrUsage, "no claim is given").WithNext("give it and its class with -f: kubectl get pvc NAME -o yaml > pvc.yaml")
			}
			return a.do(cmd, verbLimit, o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "`FILE` with a PersistentVolumeClaim, a StorageClass or a List, YAML or JSON; - is standard input (repeatable)")
	f.StringVar(&o.claim, "claim", "", "`NAME` of the claim, when the files have several")
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	return cmd
}

func (o *provisionOptions) run(ctx context.Context, a *app) error {
	docs, err := o.documents(ctx, a)
	if err != nil {
		return err
	}
	var req ops.Request
	if req.PVC, req.Class, err = docs.Claim(o.claim); err != nil {
		return err
	}
	if o.dryRun {
		plan := func(ctx context.Context, op *ops.Ops) (*api.Plan, error) { return op.Plan(ctx, ops.Provision, req) }
		return a.plan(ctx, work{plan: plan, view: render.Plans()})
	}
	return showDocument(a, render.Object(), onNode(a, func(m *machine) (any, error) {
		return m.ops().ProvisionVolume(ctx, req)
	}))
}
