package main

import (
	"context"

	"github.com/kvol/kvol/internal/ops"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const publishLong = `Mounts the volume into the pod's volume directory from its global mount, or maps a
raw block volume, as the kubelet's SetUp and MapPodDevice do. The pod comes from a
Pod document of -f, which also says fsGroup and readOnly, or from --pod-uid.`

const publishExample = `  # into the pod of a document
  kvol publish -f pv.yaml -f pvc.yaml -f pod.yaml
  # into a pod of which only the UID is known
  kvol publish -f pv.yaml --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2`

type publishOptions struct {
	volumeOptions
	dryRun bool
}

func newPublishCmd(a *app) *cobra.Command {
	o := &publishOptions{volumeOptions: volumeOptions{needsPod: true}}
	cmd := &cobra.Command{
		Use:     "publish -f FILE",
		Short:   "Mount a volume into a pod's directory",
		Long:    publishLong + exitCodes(verbCodes...),
		Example: publishExample,
		GroupID: lifecycle,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.needsFiles(); err != nil {
				return err
			}
			return a.do(cmd, verbLimit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *publishOptions) addFlags(f *pflag.FlagSet) {
	o.addSpecFlags(f)
	f.BoolVar(&o.dryRun, "dry-run", false, "show the steps and do nothing")
	o.addPodFlag(f)
}

func (o *publishOptions) run(ctx context.Context, a *app) error {
	req, err := o.request(ctx, a)
	if err != nil {
		return err
	}
	return a.verb(ctx, ops.Publish, req, o.dryRun)
}
