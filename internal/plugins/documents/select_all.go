package documents

import (
	"fmt"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
)

// Item is one of several volumes that are selected together.
type Item struct {
	Spec *plugins.Spec
	Pod  plugins.PodRef
	// Word selects it alone among the same documents: its name, or where that is
	// taken the pod's own name for it; "" where neither is enough.
	Word string
}

// SelectAll gives every volume of the pods in the documents, or of those with the
// UIDs, claims resolved as [Documents.Select] does. Without a pod's document it
// gives every PersistentVolume to each of the UIDs. The warnings name
// PersistentVolumes that are left out, since none of the pods has them.
//
// A claim that cannot be resolved, and documents that disagree, are
// [api.ErrInput]: whoever asks for all must not get some.
func (d *Documents) SelectAll(podUIDs []string) (items []Item, warnings []string, err error) {
	if len(podUIDs) == 0 {
		for _, p := range d.Pods {
			podUIDs = append(podUIDs, uidOnDisk(p))
		}
	}
	if len(podUIDs) == 0 {
		return nil, nil, d.noPod()
	}
	ix := d.index()
	used := map[*v1.PersistentVolume]bool{}
	for _, uid := range podUIDs {
		ofPod, err := ix.ofPod(uid)
		if err != nil {
			return nil, nil, err
		}
		for _, item := range ofPod {
			used[item.Spec.PersistentVolume] = true
		}
		items = append(items, ofPod...)
	}
	if len(items) == 0 && len(d.Pods) == 0 {
		return nil, nil, noVolume()
	}
	for _, pv := range d.PVs {
		if !used[pv] {
			warnings = append(warnings, fmt.Sprintf("PersistentVolume %s is left out: none of these pods has it", pv.Name))
		}
	}
	return items, warnings, nil
}

func noVolume() error {
	return api.Errorf(api.ErrUsage, "the input holds no volume").
		WithNext("give a PersistentVolume, or a pod that has volumes, with -f")
}

func (d *Documents) noPod() error {
	sel := &Selection{}
	if _, err := d.selectPod("", sel); err != nil {
		return err
	}
	return sel.NoPod
}

// ofPod are the volumes of one pod; without any pod's document all there are.
func (ix *index) ofPod(uid string) ([]Item, error) {
	sel := &Selection{}
	pod, err := ix.selectPod(uid, sel)
	if err != nil {
		return nil, err
	}
	if sel.NoPod != nil {
		return nil, sel.NoPod
	}
	all := ix.candidates(pod, nil)
	those := all
	if pod != nil {
		those = all[len(all)-len(pod.Spec.Volumes):]
	} else if err := ix.checkClaims(); err != nil {
		return nil, err
	}
	var items []Item
	seen := map[string]candidate{} // by source and name: a directory in the pod each
	for _, c := range those {
		if c.err != nil {
			return nil, c.err
		}
		id := c.spec.Source() + " " + c.name()
		if first, twice := seen[id]; twice {
			if !allSame([]candidate{first, c}) {
				return nil, ix.origins[pod].bad("say which with --volume, instead of --all",
					"PersistentVolume %q is in the pod as %q and as %q, with another access", c.name(), first.alias, c.alias)
			}
			continue
		}
		seen[id] = c
		if pv := c.spec.PersistentVolume; pv != nil {
			if err := ix.checkAgree(pv); err != nil {
				return nil, err
			}
		}
		c.spec.Objects = ix.Documents
		if pod != nil {
			c.spec.Namespace = namespace(pod.Namespace)
		}
		items = append(items, Item{Spec: c.spec, Pod: sel.Pod, Word: wordFor(all, c)})
	}
	return items, nil
}

// wordFor is what [choose] takes a candidate by, "" where no word is enough.
func wordFor(all []candidate, c candidate) string {
	if got, err := choose(all, c.name()); err != nil || got.spec != c.spec {
		return c.alias
	}
	return c.name()
}

// Given is every volume that the documents describe by itself: PersistentVolumes,
// and the inline volumes of pods, each with its pod's UID. Nothing is resolved.
func (d *Documents) Given() []Item {
	var items []Item
	for _, pv := range d.PVs {
		items = append(items, Item{Spec: plugins.NewSpecFromPersistentVolume(pv, false), Word: pv.Name})
	}
	for _, pod := range d.Pods {
		for i := range pod.Spec.Volumes {
			v := &pod.Spec.Volumes[i]
			if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
				items = append(items, Item{Spec: plugins.NewSpecFromVolume(v), Pod: podRef(pod), Word: v.Name})
			}
		}
	}
	return items
}
