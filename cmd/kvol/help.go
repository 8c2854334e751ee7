package main

import (
	"strings"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/cobra"
)

const helpExample = `  kvol help setup
  kvol help config view`

func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Long:    "Shows the help of a command, as its --help does." + exitCodes(api.ExitOK, api.ExitUsage),
		Example: helpExample,
		GroupID: about,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return api.Errorf(api.ErrUsage, "there is no command %q to help with", strings.Join(args, " ")).
					WithNext("kvol help")
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}
