package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/cobra"
)

// How long a command may take without --timeout. To attach and to make a file
// system takes longest; who only reads is never kept waiting.
const (
	slowLimit = 5 * time.Minute
	verbLimit = 2 * time.Minute
	readLimit = 10 * time.Second
)

// The groups of the commands in help.
const (
	inspecting = "inspect"
	lifecycle  = "lifecycle"
	recovering = "recover"
	about      = "about"
)

// commands is every command of kvol but help, which cobra wants to be given apart.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newListMountsCmd(a),
		newInspectCmd(a),
		newWaitCmd(a),
		newPathsCmd(a),
		newPluginsCmd(a),
		newLimitsCmd(a),
		newHistoryCmd(a),

		newAttachCmd(a),
		newDetachCmd(a),
		newMountDeviceCmd(a),
		newUnmountDeviceCmd(a),
		newPublishCmd(a),
		newUnpublishCmd(a),
		newSetupCmd(a),
		newTeardownCmd(a),
		newExpandCmd(a),
		newProvisionCmd(a),
		newRecycleCmd(a),
		newDeleteCmd(a),

		newGCOrphansCmd(a),
		newRecoverCmd(a),

		newConfigCmd(a),
		newCompletionCmd(),
		newVersionCmd(a),
	}
}

// root is kvol itself: without a command it shows its help.
func (a *app) root() *cobra.Command {
	told := false
	root := &cobra.Command{
		Use:   "kvol",
		Short: "Carry Kubernetes volumes up and down by hand on a node",
		Long: `kvol runs on a Kubernetes node and needs neither the kubelet nor the API server.
It carries a volume through its life by hand (attach, mount-device, publish, and
back), tells which volumes are mounted for whom and how they are, and recovers.
It says what it would do with --dry-run, and deletes no data, but for recycle and
delete, whose purpose it is.

What to do when something is broken is in /usr/share/doc/kvol/docs/README.md, and
/usr/share/doc/kvol/examples/recover-a-node.sh recovers a whole node, where a package
was installed; else it is at https://github.com/kvol/kvol/tree/main/docs.`,
		Example: `  kvol list-mounts
  kvol setup -f pv.yaml -f pod.yaml --dry-run
  kvol setup -f pv.yaml -f pod.yaml
  kvol teardown data --pod-uid 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // noCommand makes them
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:               noCommand,
		PersistentPreRunE:  noEmptyFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if told {
				return a.do(cmd, readLimit, &versionOptions{})
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&told, "version", false, "tell the version, as kvol version does")
	root.Long += exitCodes(api.ExitOK, api.ExitUsage)
	root.AddGroup(
		&cobra.Group{ID: inspecting, Title: "Inspection Commands:"},
		&cobra.Group{ID: lifecycle, Title: "Lifecycle Commands:"},
		&cobra.Group{ID: recovering, Title: "Recovery Commands:"},
		&cobra.Group{ID: about, Title: "Other Commands:"},
	)
	a.addFlags(root.PersistentFlags())
	root.AddCommand(commands(a)...)
	root.SetHelpCommand(newHelpCmd())
	a.offerColumns(root)
	if !completing(a.args) { // where the library reads them twice
		onlyOnce(root)
	}
	a.foldHelp(root)
	return root
}

// noCommand refuses words where a command should be.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	err := api.Errorf(api.ErrUsage, "%s has no command %q", cmd.CommandPath(), args[0])
	like := cmd.SuggestionsFor(args[0])
	for _, c := range cmd.Commands() {
		for _, alias := range c.Aliases {
			if distance(args[0], alias) == 1 {
				like = append(like, alias)
			}
		}
	}
	if len(like) > 0 {
		return err.WithNext("did you mean %s %s?", cmd.CommandPath(), strings.Join(like, " or "))
	}
	return err
}

// noArgs refuses arguments, and names the flag that was meant where there is one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return api.Errorf(api.ErrUsage, "%s takes no argument, but got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// atMostOne takes one argument or none; it is called what in the message.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return api.Errorf(api.ErrUsage, "%s takes one %s, but got %d", cmd.CommandPath(), what, len(args))
		}
		if len(args) == 1 && args[0] == "" {
			return api.Errorf(api.ErrUsage, "%s: the %s is empty", cmd.CommandPath(), what)
		}
		return nil
	}
}

// meanings are the exit codes in words, the same in every help and in
// docs/exit-codes.md.
var meanings = map[int]string{
	api.ExitOK:           "done, or nothing to do (an empty list and a plain plan are 0)",
	api.ExitFailed:       "failed",
	api.ExitUsage:        "bad usage or bad input (also a missing -f file)",
	api.ExitPartly:       "partly done: some items done, some not",
	api.ExitRefused:      "refused for safety",
	api.ExitNotFound:     "not found: volume, pod, path, device, plugin",
	api.ExitNotSupported: "not supported by the plugin, the driver or the kernel",
	api.ExitMissingTool:  "a tool or driver that it needs is missing",
	api.ExitUncertain:    "timed out, or the outcome is uncertain",
	api.ExitBusy:         "busy: something still uses it (the holders are printed)",
	api.ExitLocked:       "another kvol holds the lock (after --lock-timeout)",
	api.ExitFindings:     "findings or differences",
	api.ExitInterrupted:  "interrupted",
}

// verbCodes are those that every verb can end with.
var verbCodes = []int{
	api.ExitOK, api.ExitFailed, api.ExitUsage, api.ExitPartly, api.ExitRefused, api.ExitNotFound,
	api.ExitNotSupported, api.ExitMissingTool, api.ExitUncertain, api.ExitBusy, api.ExitLocked, api.ExitInterrupted,
}

// readCodes are those of the commands that look at the node and change nothing,
// selfCodes of those that tell about kvol only.
var (
	readCodes = []int{
		api.ExitOK, api.ExitFailed, api.ExitUsage, api.ExitRefused, api.ExitNotFound, api.ExitUncertain, api.ExitInterrupted,
	}
	selfCodes = []int{api.ExitOK, api.ExitFailed, api.ExitUsage, api.ExitUncertain, api.ExitInterrupted}
)

// exitCodes is the end of a command's help.
func exitCodes(codes ...int) string {
	var b strings.Builder
	b.WriteString("\n\nExit codes:\n")
	for _, c := range slices.Sorted(slices.Values(codes)) {
		fmt.Fprintf(&b, "  %-3d  %s\n", c, meanings[c])
	}
	return strings.TrimSuffix(b.String(), "\n")
}
