package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

const waitLong = `Waits until a volume, a path, a device or a pod is as --for says: at once where it is so
already, else until it comes to be so; of several until all are at the same time. At
the time-out (--timeout, 2m) it ends with 8 and tells how each is then. What is not
known is not reached: nothing here is guessed.

mounted    a volume: in a pod, and in every pod that has a directory of it, or the one of
           --pod-uid. A pod: every volume that it has, where the plugin mounts. A path:
           something is mounted exactly there. A device: it is mounted somewhere.
unmounted  nothing of it is mounted any more: no pod's mount, no global mount, no mapped
           device, and no mount that could be its own but does not tell its name (as for
           unmount-device). With --pod-uid only what that pod has counts. A path: nothing
           is mounted there or below. A device: nor what is built on it, and in no mount
           namespace of any process; of all else only in the one that kvol runs in.
attached   the volume's device is there, as attach --check tells; a device: it is there.
           Where nobody can tell it is refused at once.
healthy    it has mounts, and all of them are ok.

VOLUME is a name or driver^handle, POD a pod's UID. -f names the volume of a document,
in the pod of a Pod document.`

const waitExample = `  # until the kubelet has unmounted everything of a pod
  kvol wait 0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2 --for=unmounted --timeout 5m
  # until two volumes are mounted and well
  kvol wait data logs --for=healthy -q
  # until nothing of a disk is mounted, then until a volume's device has come
  kvol wait /dev/sdb --for=unmounted
  kvol wait -f pv.yaml --for=attached`

var conditions = []api.Condition{api.ConditionMounted, api.ConditionUnmounted, api.ConditionAttached, api.ConditionHealthy}

type waitOptions struct {
	volumeOptions
	subjects  []string
	condition string
}

func newWaitCmd(a *app) *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:     "wait [VOLUME|PATH|POD]... --for=CONDITION",
		Short:   "Wait until a volume, path or pod is mounted, unmounted, attached or healthy",
		Long:    waitLong + exitCodes(append([]int{api.ExitNotSupported}, readCodes...)...),
		Example: waitExample,
		GroupID: inspecting,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.subjects = args
			if err := o.check(); err != nil {
				return err
			}
			return a.do(cmd, verbLimit, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.condition, "for", "", "`CONDITION` to wait for: "+words(conditions))
	f.StringVar(&o.podUID, "pod-uid", "", "`UID` of the pod that is meant, of a volume that several may have")
	o.addSpecFlags(f)
	o.addPluginFlag(f)
	return cmd
}

func (o *waitOptions) check() error {
	switch {
	case o.condition == "":
		return api.Errorf(api.ErrUsage, "what to wait for is not said").WithNext("say it with --for: %s", words(conditions))
	case len(o.subjects) == 0 && len(o.files) == 0:
		return api.Errorf(api.ErrUsage, "nothing to wait for is named").WithNext("give a VOLUME, PATH or POD, or a volume's document with -f")
	case len(o.subjects) > 0 && len(o.files) > 0:
		return api.Errorf(api.ErrUsage, "%q and a document are named", o.subjects[0]).WithNext("give one of the two")
	case o.volume != "" && len(o.files) == 0:
		return api.Errorf(api.ErrUsage, "--volume picks one of the volumes in the documents of -f").WithNext("give the volume as an argument: kvol wait %s", act.Quote(o.volume))
	}
	return oneOf("--for", []string{o.condition}, conditions)
}

func (o *waitOptions) run(ctx context.Context, a *app) error {
	return showList(a, render.Waits(), func() (*api.List[api.Wait], error) {
		a.podUIDs = o.uids()
		req := node.WaitRequest{Condition: api.Condition(o.condition)}
		for _, word := range o.subjects {
			req.Subjects = append(req.Subjects, node.WaitSubject{Word: word, Plugin: o.plugin, PodUID: o.podUID})
		}
		if len(o.files) > 0 {
			of, err := o.request(ctx, a)
			if err != nil {
				return nil, err
			}
			req.Subjects = []node.WaitSubject{{Spec: of.Spec, Plugin: o.plugin, PodUID: of.Pod.UID}}
		}
		h, mgr, err := a.open()
		if err != nil {
			return nil, err
		}
		defer h.Close()
		req.Attached = func(ctx context.Context, spec *plugins.Spec, podUID string) error {
			_, err := ops.New(h, mgr).CheckAttached(ctx, ops.Request{Spec: spec, Pod: plugins.PodRef{UID: podUID}})
			return err
		}
		w, err := node.NewWaiter(h, mgr, req)
		if err != nil {
			return nil, err
		}
		defer w.Close()
		return until(ctx, w, a.showsAll())
	})
}

// until looks until all is as waited for, or the time is over.
func until(ctx context.Context, w *node.Waiter, told bool) (last *api.List[api.Wait], err error) {
	for met := false; !met; {
		var l *api.List[api.Wait]
		if l, met, err = w.Look(ctx); err == nil {
			last = l
		}
		if err == nil && !met {
			err = w.Wait(ctx)
		}
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded) && !met:
			return last, late(last, told)
		case err != nil:
			return nil, err
		}
	}
	return last, nil
}

// late says how it is when the time is over, as far as the list does not tell it.
func late(l *api.List[api.Wait], told bool) error {
	if l == nil {
		return api.Errorf(api.ErrTimeout, "how it is could not be found out in time")
	}
	not := slices.DeleteFunc(slices.Clone(l.Items), func(w api.Wait) bool { return w.Met })
	var names, details []string
	for _, w := range not {
		names = append(names, w.Subject)
		if !told {
			details = append(details, fmt.Sprintf("%s: %s", w.Subject, w.Reason))
		}
		for _, m := range w.Mounts {
			if is := m.Path + " " + isNow(w.Condition, m); is != w.Reason {
				details = append(details, is)
			}
		}
	}
	err := api.Errorf(api.ErrTimeout, "not %s in time: %s", not[0].Condition, strings.Join(names, ", "))
	err.Details = details
	return err.WithNext("see what there is of it: kvol inspect %s", act.Quote(names[0]))
}

// isNow tells of a mount what is waited for: how it is was asked for healthy only.
func isNow(c api.Condition, m api.Mount) string {
	switch {
	case c == api.ConditionHealthy:
		return strings.TrimSuffix(fmt.Sprintf("is %s: %s", m.State, m.StateReason), ": ")
	case m.Mounted:
		return "is mounted"
	}
	return "is there, and nothing is mounted on it"
}
