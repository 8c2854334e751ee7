package main

import (
	"context"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const configViewLong = `Shows the value of every setting and, with --show-origin, where it comes from. A flag
comes before the environment (KVOL_ROOT_DIR for --root-dir), that before the file
(root-dir: /data/kubelet), that before what a running kubelet was told, and that
before the default. What only one command has, above all its risks, is set by neither
the environment nor the file.`

const configViewExample = `  kvol config view --show-origin
  KVOL_ROOT_DIR=/data/kubelet kvol config view --show-origin -o yaml`

type configViewOptions struct {
	showOrigin bool
	flags      *pflag.FlagSet
}

func newConfigCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Show the configuration",
		Long:    "Commands about kvol's own configuration." + exitCodes(api.ExitOK, api.ExitUsage),
		Example: "  kvol config view --show-origin",
		GroupID: about,
		Args:    noCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigViewCmd(a))
	return cmd
}

func newConfigViewCmd(a *app) *cobra.Command {
	o := &configViewOptions{}
	cmd := &cobra.Command{
		Use:     "view",
		Short:   "Show every setting and where it comes from",
		Long:    configViewLong + exitCodes(readCodes...),
		Example: configViewExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.flags = cmd.Root().PersistentFlags()
			return a.do(cmd, readLimit, o)
		},
	}
	cmd.Flags().BoolVar(&o.showOrigin, "show-origin", false, "where each value comes from; always in json and yaml")
	return cmd
}

func (o *configViewOptions) run(_ context.Context, a *app) error {
	if o.showOrigin && len(a.columns) > 0 && !slices.Contains(a.columns, "origin") {
		a.columns = append(a.columns, "origin")
	}
	return showList(a, render.Settings(o.showOrigin), func() (*api.List[api.Setting], error) {
		if err := a.foresee(); err != nil {
			return nil, err
		}
		return a.settingList(o.flags), nil
	})
}
