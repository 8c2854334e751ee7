package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// shortest is the least --interval: it is not the way to see a change at once.
const shortest = 100 * time.Millisecond

const listMountsLong = `Lists every volume mount below the kubelet's root, of whatever plugin, and every
other mount there as other. Each file system is asked once how it is, and one that
does not answer within --probe-timeout is unresponsive: the command itself never
hangs. It takes no lock and may run at any time.

Meanwhile kubelet, container runtime and API server (--pods-from) are asked whose the
pods are, within the same time. Owner is live where one of them names the pod, gone
where its death is proven as for gc-orphans, and unknown otherwise.

States: ok, stale (it answers with an error), disconnected (its server or daemon is
gone), unresponsive, denied, readonly (it turned read-only by itself), deleted (what
was mounted is unlinked), unmounted (the directory is there, the mount is not),
unknown.

What several filters ask for has to hold together; of one that is given several times,
any. --kind, --state, --owner, --plugin, --pod and --namespace also take a list (a,b).
What --volume and --device name may have a comma in it, and is taken as it is. A name
that nothing has gives an empty list. --pod takes a UID, at least 8 characters that one
begins with, a name, or namespace/name. --device takes the path of a device, or its
number (8:16), and finds the mounts of its file system, raw block volumes, and what is
on partitions, device mapper, md and loop devices over it.

--watch shows what there is, and then what was added, modified or removed, an event a
line: in json and jsonl an object (kind MountEvent) with type, time and object, in a
table EVENT in front. Of mounts the kernel tells at once; what comes and goes within a
moment may not be told, but how it ends is. It ends at --timeout, with 0, when its
reader is gone, or by a signal.`

const listMountsExample = `  kvol list-mounts
  # what is not well
  kvol ls --state stale,disconnected,unresponsive
  # what the pods of a namespace have, and what one pod has
  kvol ls --namespace shop -o wide
  kvol ls --pod shop/web-0
  # what is on a disk and on what is built on it, before it is detached
  kvol ls --device /dev/sdb
  # what pods that are gone left
  kvol ls --orphans -o json
  # what changes in a pod, an object a line
  kvol ls --watch --pod shop/web-0 -o jsonl
  # the paths of all mounts, safe for any name
  kvol ls -o name -0 | xargs -0 -n1 echo`

// The words that --kind, --state and --owner take.
var (
	mountKinds = []api.MountKind{api.KindPodVolume, api.KindGlobalMount, api.KindPodDevice,
		api.KindGlobalMapDevice, api.KindSubPath, api.KindOther}
	mountStates = []api.State{api.StateOK, api.StateStale, api.StateDisconnected, api.StateUnresponsive,
		api.StateDenied, api.StateReadOnly, api.StateDeleted, api.StateUnmounted, api.StateUnknown}
	mountOwners = []api.Owner{api.OwnerLive, api.OwnerGone, api.OwnerUnknown}
)

type listMountsOptions struct {
	kinds, states, owners []string
	filter                node.ListOptions
	noProbe               bool
	watch                 bool
	interval              time.Duration
}

func newListMountsCmd(a *app) *cobra.Command {
	o := &listMountsOptions{}
	cmd := &cobra.Command{
		Use:     "list-mounts",
		Aliases: []string{"ls"},
		Short:   "List every volume mount on the node and how it is",
		Long:    listMountsLong + exitCodes(readCodes...),
		Example: listMountsExample,
		GroupID: inspecting,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("--kind", o.kinds, mountKinds); err != nil {
				return err
			}
			if err := oneOf("--state", o.states, mountStates); err != nil {
				return err
			}
			if err := oneOf("--owner", o.owners, mountOwners); err != nil {
				return err
			}
			o.filter.Kinds, o.filter.States, o.filter.Owners = as[api.MountKind](o.kinds), as[api.State](o.states), as[api.Owner](o.owners)
			o.filter.Probe = !o.noProbe
			if err := o.filter.Check(); err != nil {
				return err
			}
			if cmd.Flags().Changed("interval") && !o.watch {
				return api.Errorf(api.ErrUsage, "--interval is how often --watch asks anew").WithNext("give both, or neither")
			}
			if o.interval < shortest {
				return api.Errorf(api.ErrUsage, "--interval is %s; it has to be at least %s", o.interval, shortest)
			}
			limit := readLimit
			if o.watch {
				limit = endless
			}
			return a.do(cmd, limit, o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *listMountsOptions) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.kinds, "kind", nil, "only these `KINDS`: "+words(mountKinds))
	f.StringSliceVar(&o.states, "state", nil, "only these `STATES`: "+words(mountStates))
	f.Var((*namesFlag)(&o.filter.Plugin), "plugin", "only these `PLUGINS`, as kubernetes.io/nfs or nfs")
	f.StringArrayVar(&o.filter.Volume, "volume", nil, "only this `VOLUME`: a name, or driver^handle (repeatable)")
	f.StringVar(&o.filter.PodUID, "pod-uid", "", "only the pod with this `UID`")
	f.Var((*namesFlag)(&o.filter.Pod), "pod", "only these `PODS`: a UID or how it begins, a name, or namespace/name")
	f.Var((*namesFlag)(&o.filter.Namespace), "namespace", "only the pods of these `NAMESPACES`")
	f.StringArrayVar(&o.filter.Device, "device", nil, "only what is on this `DEVICE`: a path, or major:minor (repeatable)")
	f.StringSliceVar(&o.owners, "owner", nil, "only where the pod is one of these `OWNERS`: "+words(mountOwners))
	f.BoolVar(&o.filter.Orphans, "orphans", false, "only what is of pods that are proven gone")
	f.BoolVar(&o.filter.Duplicates, "duplicates", false, "only where more than one mount lies on the path")
	f.BoolVar(&o.noProbe, "no-probe", false, "do not ask the file systems how they are, nor anybody whose the pods are")
	f.BoolVarP(&o.watch, "watch", "w", false, "show what there is, then each change, until --timeout or a signal")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "with --watch: how often states, and what is not mounted, are asked anew")
}

func (o *listMountsOptions) run(ctx context.Context, a *app) error {
	a.podUIDs = []string{o.filter.PodUID}
	if o.watch {
		return o.follow(ctx, a)
	}
	return showList(a, render.Mounts(), onNode(a, func(m *machine) (*api.List[api.Mount], error) {
		o.filter.Pods = a.pods()
		return node.List(ctx, m.host, o.filter)
	}))
}

// pods are the sources of live pods, and what the operator says of them.
func (a *app) pods() alive.Options {
	return alive.Options{From: a.podsFrom, AssertNoPods: a.assertNoPods}
}

// oneOf refuses a word that is none of the allowed ones.
func oneOf[T ~string](flag string, given []string, allowed []T) error {
	for _, word := range given {
		if !slices.Contains(allowed, T(word)) {
			return api.Errorf(api.ErrUsage, "%s %q is none of: %s", flag, word, words(allowed))
		}
	}
	return nil
}

func words[T ~string](list []T) string { return strings.Join(as[string](list), ", ") }

// as turns words of one type into words of another.
func as[T, F ~string](list []F) []T {
	var out []T
	for _, word := range list {
		out = append(out, T(word))
	}
	return out
}
