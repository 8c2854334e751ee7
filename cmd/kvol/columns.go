package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

// listOf is the view of the list that a command shows with the flags that it has been
// given; nil for one that shows none.
func listOf(cmd *cobra.Command) render.Lister {
	on := func(flag string) bool {
		is, err := cmd.Flags().GetBool(flag)
		return is && err == nil
	}
	switch name := cmd.Name(); {
	case name == "list-mounts":
		return render.Mounts()
	case name == "paths" && !cmd.Flags().Changed("filename"):
		return render.PathInfos()
	case name == "plugins":
		return render.Plugins()
	case name == "wait":
		return render.Waits()
	case name == "limits":
		return render.Limits()
	case name == "history":
		return render.Operations()
	case name == "view":
		return render.Settings(on("show-origin"))
	case name == "gc-orphans":
		return render.Orphans(!on("apply"))
	case cmd.GroupID == lifecycle && on("dry-run"), name == "recover" && !on("apply"):
		return render.Plans()
	case cmd.GroupID == lifecycle && name != "provision", name == "recover":
		return render.Results()
	}
	return nil
}

// columnsOptions are those of --list-columns, which stands for what a command does.
type columnsOptions struct{ of *cobra.Command }

// offerColumns gives a command and those below it their --list-columns.
func (a *app) offerColumns(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.offerColumns(c)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.listColumns {
			if f := cmd.Flags().Lookup("watch"); f != nil && f.Changed {
				return api.Errorf(api.ErrUsage, "--list-columns lists the columns once, and --watch goes on").WithNext("leave one of the two out")
			}
			return a.do(cmd, readLimit, &columnsOptions{cmd})
		}
		return run(cmd, args)
	}
}

func (o *columnsOptions) run(_ context.Context, a *app) error {
	view := listOf(o.of)
	if view == nil {
		return api.Errorf(api.ErrUsage, "%s shows no list, so it has no columns", o.of.CommandPath())
	}
	return showList(a, render.Columns(), func() (*api.List[api.Column], error) {
		return api.NewList("ColumnList", view.Columns(), nil), nil
	})
}
