package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

const limitsLong = `Counts the volumes that this node has against what their drivers allow on one node.
A CSI driver is asked for its limit at its socket; one that does not answer is told
on standard error, and its volumes are counted all the same; its limit is unknown.`

const limitsExample = `  kvol limits
  # which volumes are counted
  kvol limits -o wide`

type limitsOptions struct{ plugin string }

func newLimitsCmd(a *app) *cobra.Command {
	o := &limitsOptions{}
	cmd := &cobra.Command{
		Use:     "limits",
		Short:   "Count the attached volumes against the limit of their driver",
		Long:    limitsLong + exitCodes(readCodes...),
		Example: limitsExample,
		GroupID: inspecting,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, readLimit, o)
		},
	}
	cmd.Flags().StringVar(&o.plugin, "plugin", "", "only this `PLUGIN`, as kubernetes.io/csi or csi")
	return cmd
}

func (o *limitsOptions) run(ctx context.Context, a *app) error {
	return showList(a, render.Limits(), onNode(a, func(m *machine) (*api.List[api.Limit], error) {
		return node.Limits(ctx, m.host, m.mgr, o.plugin)
	}))
}
