package states

import (
	"slices"
	"strings"
)

// cleaned wants the pods to be gone that are proven gone and have nothing in the way: a
// clean-up that does nothing loses nothing either.
func (b *builder) cleaned(v *verdict, c call, o outcome, after snapshot) {
	if c.Verb != "gc-orphans" || !c.changes() || !b.proof(c) || o.code != 0 && o.code != 3 {
		return
	}
	if b.Before != nil || c.With != "" || c.has("--max") || !c.has("--keep-going") {
		return
	}
	for i, p := range b.Pods {
		if p.Life != gone || b.busy(i) || slices.ContainsFunc(b.Elements, func(e element) bool { return e.Pod == i && !b.clean(e) }) {
			continue
		}
		d := &verdict{}
		b.nothingAt(d, after, b.pod(i))
		for _, f := range d.faults {
			v.add(ruleLazy, "%s", f)
		}
	}
}

// clean says that an element is as a kubelet leaves it, and that nothing keeps it.
func (b *builder) clean(e element) bool {
	if e.Kind == podDir {
		return !strings.Contains(e.How, "user") && !strings.Contains(e.How, "link in") && !strings.Contains(e.How, "fifo")
	}
	if e.Kind != publish && e.Kind != subPath {
		return false
	}
	v := b.Vols[e.Vol]
	switch {
	case strings.Contains(v.Name, "odd") || strings.Contains(e.How, "user") || e.How == "hung" || e.How == "content half written":
		return false
	case e.Meta == "contradictory" || e.Meta == "a link":
		return false
	case v.csi():
		return e.Meta == "good" && v.Driver == driverName && (b.Driver == "serves" || b.Driver == "registered") && !v.raw()
	case v.Kind == emptyDisk || v.Kind == emptyMem:
		return e.How == "empty" || e.How == "mounted"
	}
	return true
}
