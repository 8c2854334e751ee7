package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

const pluginsLong = `Lists the volume plugins: what each one can do (its rungs), the access modes that it
has, and which of the tools that it needs are missing on this node. The tools that
are there are in -o wide.`

const pluginsExample = `  kvol plugins
  # which tools are missing, and for what
  kvol plugins --columns name,missing --sort-by name`

type pluginsOptions struct{ plugin string }

func newPluginsCmd(a *app) *cobra.Command {
	o := &pluginsOptions{}
	cmd := &cobra.Command{
		Use:     "plugins",
		Short:   "List the plugins, what each can do and the tools it lacks here",
		Long:    pluginsLong + exitCodes(readCodes...),
		Example: pluginsExample,
		GroupID: inspecting,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, readLimit, o)
		},
	}
	cmd.Flags().StringVar(&o.plugin, "plugin", "", "only this `PLUGIN`, as kubernetes.io/nfs or nfs")
	return cmd
}

func (o *pluginsOptions) run(_ context.Context, a *app) error {
	a.anyRoot = true
	return showList(a, render.Plugins(), onNode(a, func(m *machine) (*api.List[api.Info], error) {
		return node.Plugins(m.host, m.mgr, o.plugin), nil
	}))
}
