package node

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node/alive"
)

// askOwners begins to ask whose the pods are, while the file systems are asked how
// they are, and gives what tells it of the items. Where nobody is there to ask it
// costs nothing.
func (s *snapshot) askOwners(ctx context.Context, o ListOptions) func([]api.Mount) error {
	type answer struct {
		sets *alive.Sets
		err  error
	}
	from := make(chan answer, 1)
	known := o.memory.knows(s.places)
	if known {
		from <- answer{sets: o.memory.sets}
	} else if !o.Probe || !alive.Anybody(ctx, s.host, s.host.FilesBy(s.table), o.Pods) {
		from <- answer{}
	} else {
		o.Pods.Timeout = s.host.ProbeTimeout
		go func() {
			sets, err := alive.Look(ctx, s.host, o.Pods)
			from <- answer{sets, err}
		}()
	}
	return func(items []api.Mount) error {
		a := <-from
		if a.err != nil {
			return a.err
		}
		proof := errors.New("nobody was there to ask")
		if o.memory != nil && !known {
			o.memory.keep(a.sets, s.places)
		}
		if a.sets != nil {
			s.own(items, a.sets)
			proof = a.sets.Proof()
		}
		s.warnLeftOut(o, items, proof)
		return nil
	}
}

// own says of each item whose it is.
func (s *snapshot) own(items []api.Mount, sets *alive.Sets) {
	root, err := s.host.Root()
	if err != nil {
		return
	}
	type owner struct {
		pod alive.Pod
		is  api.Owner
	}
	known := map[string]owner{}
	for i := range items {
		m := &items[i]
		if m.PodUID == "" {
			continue
		}
		own, ok := known[m.PodUID]
		if !ok {
			own.is = api.OwnerUnknown
			own.pod, _ = sets.Pod(m.PodUID)
			// The age counts beside a list in a file; a directory without one is unknown.
			info, _ := root.Stat(filepath.Join(root.Path(), "pods", m.PodUID))
			if lives, _ := sets.Lives(m.PodUID); lives {
				own.is = api.OwnerLive
			} else if verdict, _ := sets.Verdict(m.PodUID, info.Birth); verdict == api.VerdictOrphan {
				own.is = api.OwnerGone
			}
			known[m.PodUID] = own
		}
		m.PodName, m.Namespace, m.Owner = own.pod.Name, own.pod.Namespace, own.is
	}
}
