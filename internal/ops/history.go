package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
)

// HistoryFilter narrows the history; an empty field takes everything.
type HistoryFilter struct {
	Volume string
	PodUID string
	Pod    string // a UID, or at least 8 characters that one begins with
	Plugin string
	Since  time.Time
	Limit  int // the newest so many; 0 is all
}

// History is what kvol changed on this node, oldest first.
func (o *Ops) History(_ context.Context, f HistoryFilter) (*api.List[api.Operation], error) {
	entries, warnings, err := o.entries()
	if err != nil {
		return nil, err
	}
	all := operations(entries)
	if err := node.WholeUID(f.PodUID, append(podsOf(all), node.PodDirs(o.host)...)); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(op api.Operation) bool {
		return f.Volume != "" && op.Volume != api.Text(f.Volume) || f.PodUID != "" && op.PodUID != f.PodUID || op.Time.Before(f.Since) ||
			f.Plugin != "" && op.Plugin != f.Plugin || f.Pod != "" && !node.IsUID(op.PodUID, f.Pod)
	})
	if err := onePod(f.Pod, all); err != nil {
		return nil, err
	}
	if f.Limit > 0 && len(all) > f.Limit {
		all = all[len(all)-f.Limit:]
	}
	return api.NewList("OperationList", all, warnings), nil
}

func podsOf(all []api.Operation) (uids []string) {
	for _, op := range all {
		uids = append(uids, op.PodUID)
	}
	return uids
}

// onePod refuses the beginning of several UIDs.
func onePod(word string, all []api.Operation) error {
	var uids []string
	for _, op := range all {
		if op.PodUID == word {
			return nil
		}
		if word != "" && !slices.Contains(uids, op.PodUID) {
			uids = append(uids, op.PodUID)
		}
	}
	if len(uids) < 2 {
		return nil
	}
	err := api.Errorf(api.ErrUsage, "--pod %q could be any of %d pods in the history", word, len(uids))
	err.Details = api.Few(uids)
	return err.WithNext("name one by its whole UID: --pod-uid UID")
}

// entries reads the journal without making its directories.
func (o *Ops) entries() ([]api.Entry, []string, error) {
	var dirs []*safefs.Root
	for _, path := range []string{o.host.StateDir, o.host.RunDir} {
		dir, err := o.host.ReadOwn(path)
		if errors.Is(err, api.ErrNotFound) {
			continue // nothing was ever written there
		}
		if err != nil {
			return nil, nil, err
		}
		defer dir.Close()
		dirs = append(dirs, dir)
	}
	entries, bad, err := act.ReadJournal(dirs...)
	if err != nil {
		return nil, nil, err
	}
	var warnings []string
	if bad > 0 {
		warnings = append(warnings, api.Count(bad, "line", "lines")+" of the journal cannot be read, cut short by a crash or a full disk")
	}
	return entries, warnings, nil
}

// operations gathers entries by the operation that wrote them.
func operations(entries []api.Entry) []api.Operation {
	var out []api.Operation
	at := map[string]int{}
	for _, e := range entries {
		i, ok := at[e.Op]
		if !ok {
			i = len(out)
			at[e.Op] = i
			out = append(out, api.Operation{
				Time: e.Time, ID: e.Op, Verb: e.Verb, PodUID: e.PodUID, Outcome: "interrupted", Risks: []string{}, Steps: []api.Step{},
			})
		}
		out[i] = with(out[i], e)
	}
	return out
}

// with adds one entry to what is known of an operation.
func with(op api.Operation, e api.Entry) api.Operation {
	op.Plugin, op.Volume = max(op.Plugin, e.Plugin), max(op.Volume, e.Volume)
	switch e.Phase {
	case "begin":
		op.PID, op.User = e.PID, e.User
		op.Risks = append(op.Risks, e.Risks...)
	case "intent":
		op.Steps = append(op.Steps, api.Step{N: e.N, Action: e.Action, Target: e.Target, Args: append([]string{}, e.Args...), Reason: "begun, outcome unknown"})
	case "outcome":
		for i := range op.Steps {
			if op.Steps[i].N == e.N {
				op.Steps[i].Reason = strings.TrimSpace(e.Outcome + " " + e.Error)
			}
		}
	case "end":
		op.Outcome, op.Error = e.Outcome, e.Error
	}
	return op
}

// lastEntry is the newest entry of a volume that names its plugin.
func (o *Ops) lastEntry(volume string) (api.Entry, bool) {
	entries, _, err := o.entries()
	if err != nil {
		return api.Entry{}, false
	}
	for _, e := range slices.Backward(entries) {
		if e.Volume == volume && e.Plugin != "" {
			return e, true
		}
	}
	return api.Entry{}, false
}

// lastDevice is the disk that kvol last had this volume on, if it is still the same
// disk: a number that another one got since says nothing.
func (op *operation) lastDevice() string {
	entries, _, err := op.entries()
	if err != nil {
		return ""
	}
	for _, e := range slices.Backward(entries) {
		if e.Volume != op.name || e.Device == nil {
			continue
		}
		now, path, err := op.diskMark(e.Device.Number)
		if err != nil || now != *e.Device {
			return ""
		}
		return path
	}
	return ""
}

// diskMark identifies the disk that has a number now.
func (op *operation) diskMark(number string) (api.DiskMark, string, error) {
	var major, minor int
	if _, err := fmt.Sscanf(number, "%d:%d", &major, &minor); err != nil {
		return api.DiskMark{}, "", err
	}
	dev, err := op.host.Devices.ByNumber(major, minor)
	if err != nil {
		return api.DiskMark{}, "", err
	}
	boot, err := op.host.Devices.BootID()
	return api.DiskMark{Number: number, DiskSeq: dev.DiskSeq, BootID: boot}, dev.Path, err
}
