package main

import (
	"context"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const historyLong = `Tells what kvol changed on this node and how it ended, oldest first: the verb, the
volume, the pod, the outcome, and how many steps it took. An operation that never
came to its end (killed, or the node went down) is interrupted; the same command
again goes on from there. All the steps of each operation are in -o json.`

const historyExample = `  kvol history
  # the last day of one volume, with every step
  kvol history --volume data --since 24h -o json`

type historyOptions struct {
	volume, podUID, pod, plugin string
	since                       time.Time
	limit                       int
}

func newHistoryCmd(a *app) *cobra.Command {
	o := &historyOptions{}
	var since string
	cmd := &cobra.Command{
		Use:     "history",
		Short:   "Tell what kvol changed here and how it ended",
		Long:    historyLong + exitCodes(readCodes...),
		Example: historyExample,
		GroupID: inspecting,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.limit < 0 {
				return api.Errorf(api.ErrUsage, "--limit %d is negative; 0 shows all", o.limit)
			}
			if o.pod != "" && !node.LikeUID(o.pod) {
				return api.Errorf(api.ErrUsage, "--pod %q is no UID, nor the first 8 characters of one, and the history has no names of pods", o.pod).
					WithNext("find the UID: kvol list-mounts --pod %s; of a pod that is gone: kvol history -o wide", act.Quote(o.pod))
			}
			if o.since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			return a.do(cmd, readLimit, o)
		},
	}
	o.addFlags(cmd.Flags(), &since)
	return cmd
}

func (o *historyOptions) addFlags(f *pflag.FlagSet, since *string) {
	f.StringVar(&o.volume, "volume", "", "only the volume with this `NAME`")
	f.StringVar(&o.podUID, "pod-uid", "", "only the pod with this `UID`")
	f.StringVar(&o.pod, "pod", "", "only the pod whose `UID` this is, or begins so")
	f.StringVar(&o.plugin, "plugin", "", "only this `PLUGIN`, as kubernetes.io/nfs or nfs")
	f.StringVar(since, "since", "", "only what began since this `TIME`: 24h, 2026-03-01 or 2026-03-01T10:00:00Z")
	f.IntVar(&o.limit, "limit", 50, "only the last `N`; 0 shows all")
}

func (o *historyOptions) run(ctx context.Context, a *app) error {
	a.anyRoot = true
	return showList(a, render.Operations(), onNode(a, func(m *machine) (*api.List[api.Operation], error) {
		a.nodePods = node.PodDirs(m.host)
		return m.ops().History(ctx, ops.HistoryFilter{
			Volume: o.volume, PodUID: o.podUID, Pod: o.pod, Plugin: o.plugin, Since: o.since, Limit: o.limit,
		})
	}))
}

// parseSince reads how long ago, or a time; "" is always.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, api.Errorf(api.ErrUsage, "--since %q is neither how long ago (24h) nor a time (2026-03-01T10:00:00Z)", s)
}
