package main

import (
	"io"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/cobra"
)

const completionLong = `Prints a script that completes kvol's commands, flags and what is on this node in bash,
zsh or fish: volumes, pods, plugins and paths, by their names on disk and in the mount
table. No volume is touched for it, and it never waits long.

The packages of kvol bring these scripts along.`

const completionExample = `  # in this shell
  source <(kvol completion bash)
  # in every bash, with the package bash-completion
  kvol completion bash > /etc/bash_completion.d/kvol
  # in every zsh that calls compinit
  kvol completion zsh > /usr/local/share/zsh/site-functions/_kvol
  # in every fish
  kvol completion fish > /etc/fish/completions/kvol.fish`

// shells are those that kvol has a completion script for, scripts what writes it.
var (
	shells  = strings.Fields("bash zsh fish")
	scripts = []func(*cobra.Command, io.Writer) error{
		func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
		(*cobra.Command).GenZshCompletion,
		func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
	}
)

func newCompletionCmd() *cobra.Command {
	return &cobra.Command{
		Use:       "completion " + strings.Join(shells, "|"),
		Short:     "Print the completion script of a shell",
		Long:      completionLong + exitCodes(api.ExitOK, api.ExitFailed, api.ExitUsage),
		Example:   completionExample,
		GroupID:   about,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(shells, args[0]) {
				return nil
			}
			return api.Errorf(api.ErrUsage, "%s takes one SHELL: %s", cmd.CommandPath(), strings.Join(shells, ", "))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return writing(scripts[slices.Index(shells, args[0])](cmd.Root(), cmd.OutOrStdout()))
		},
	}
}
