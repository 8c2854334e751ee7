package states

import (
	"path/filepath"
	"slices"
	"strings"
)

// scope is what a run may take away. What is in none of it has to be as it was.
type scope struct {
	below []string        // with everything in them
	at    map[string]bool // only this, with nothing below it
}

func (s *scope) add(dirs ...string) {
	for _, d := range dirs {
		if d != "" {
			s.below = append(s.below, d)
		}
	}
}

func (s *scope) has(path string) bool {
	return s.at[path] || slices.ContainsFunc(s.below, func(d string) bool { return below(path, d) })
}

// changes says that a call is to change anything.
func (c call) changes() bool {
	if c.Verb == "gc-orphans" {
		return c.has("--apply") && !c.has("--dry-run")
	}
	return !c.has("--dry-run") && c.Verb != "list-mounts"
}

// scope is what a call is about, by the generator's own knowledge of the state.
func (b *builder) scope(c call) *scope {
	s := &scope{at: map[string]bool{}}
	switch {
	case !c.changes():
	case c.Verb == "gc-orphans":
		b.orphans(c, s)
	case c.Name == "nothing" || c.Verb == "detach":
	case b.PodsFrom != "" && b.Pods[c.Pod].Life == live && !c.has("--allow-active-pod") && c.Verb != "unmount-device" &&
		b.usedBy(c.Vol, false, func(p int) bool { return p == c.Pod }):
	default:
		v, p := b.Vols[c.Vol], c.Pod
		if c.Verb != "unmount-device" {
			b.inPod(p, v, s)
		}
		if c.Verb != "unpublish" && !b.usedBy(c.Vol, true, func(at int) bool { return at != p || c.Verb == "unmount-device" }) {
			b.globals(v, s)
		}
		if c.Name == "handle" {
			b.misnamed(p, s)
		}
	}
	return s
}

// misnamed adds what has the metadata of another volume: by its handle that is meant.
func (b *builder) misnamed(p int, s *scope) {
	for _, e := range b.Elements {
		if e.Meta == "contradictory" && b.Vols[e.Vol].csi() && e.Pod == p {
			b.inPod(p, b.Vols[e.Vol], s)
		}
		if e.Meta == "contradictory" && b.Vols[e.Vol].csi() && e.Kind == global {
			b.globals(b.Vols[e.Vol], s)
			b.inPod(p, b.Vols[e.Vol], s)
		}
	}
}

// proof says that the death of a pod can be proven, and age lets it go.
func (b *builder) proof(c call) bool { return b.PodsFrom != "" && c.has("--min-age") }

// orphans adds what gc-orphans may take: all of the pods that are gone, and what no
// other pod has of volumes.
func (b *builder) orphans(c call, s *scope) {
	if !b.proof(c) {
		return
	}
	for i, p := range b.Pods {
		if p.Life == gone {
			s.add(b.pod(i))
			for _, v := range b.Vols {
				b.blockOf(i, v, s)
			}
		}
	}
	for n, v := range b.Vols {
		taken := b.Before != nil && b.Before.Vol == n && b.Before.has("--allow-active-pod") // of a live pod, by the operator
		if taken || !b.usedBy(n, false, func(p int) bool { return b.Pods[p].Life != gone }) {
			b.globals(v, s)
		}
	}
	s.add(b.csiDir() + "/pv")
}

// usedBy says that one of some pods has anything of a volume, or has it mounted. What
// is in a pod under the metadata of another volume is that, unless it is seen to be
// of the same device.
func (b *builder) usedBy(vol int, mounted bool, some func(pod int) bool) bool {
	is := func(e element) bool { return e.How != "empty" && !strings.HasSuffix(e.How, "not mounted") }
	device := b.Vols[vol].Kind == csiStaged && slices.ContainsFunc(b.Elements, func(e element) bool { return e.Kind == global && e.Vol == vol && is(e) })
	return slices.ContainsFunc(b.Elements, func(e element) bool {
		there := !mounted || is(e) && e.How != "dead" && e.How != "hung"
		if e.Kind == publish && b.linked(e) {
			there = false
		}
		if b.Vols[vol].csi() && (e.Meta == "contradictory" || mounted && e.Meta != "good") {
			there = device && is(e)
		}
		return (e.Kind == publish || e.Kind == subPath && !mounted && !b.Vols[vol].csi()) && e.Vol == vol && there && some(e.Pod)
	})
}

// linked says that a link is in the place of what was published.
func (b *builder) linked(e element) bool {
	return slices.ContainsFunc(b.Elements, func(l element) bool { return l.Kind == link && l.Pod == e.Pod && l.Vol == e.Vol })
}

// inPod adds the places of a volume in a pod.
func (b *builder) inPod(p int, v volume, s *scope) {
	at, pod := b.at(p, v), b.pod(p)
	if v.csi() {
		at = filepath.Dir(at)
	}
	ready := pod + "/plugins/kubernetes.io~empty-dir"
	s.add(at, pod+"/volume-subpaths/"+v.Name, pod+"/volumeDevices/"+v.plugin()+"/"+v.Name, ready+"/"+v.Name, ready+"/wrapped_"+v.Name)
	for _, dir := range []string{filepath.Dir(at), pod + "/volume-subpaths", pod + "/volumeDevices", pod + "/volumeDevices/" + v.plugin(), ready, filepath.Dir(ready)} {
		s.at[dir] = true
	}
	b.blockOf(p, v, s)
	s.at[b.csiDir()+"/volumeDevices/publish/"+v.Name] = true
}

// blockOf adds what a raw block volume has for a pod outside of it.
func (b *builder) blockOf(p int, v volume, s *scope) {
	if v.raw() {
		s.add(b.globalAt(v) + "/" + b.Pods[p].UID)
	}
	if v.Kind == csiBlock {
		s.add(b.csiDir() + "/volumeDevices/publish/" + v.Name + "/" + b.Pods[p].UID)
	}
}

// globals adds what a volume has beside its pods.
func (b *builder) globals(v volume, s *scope) {
	at := b.globalAt(v)
	switch {
	case at == "":
	case v.Kind == csiBlock:
		base := b.csiDir() + "/volumeDevices/"
		s.add(base+v.Name, base+"staging/"+v.Name, base+"publish/"+v.Name)
		for _, dir := range []string{"staging", "publish", ""} {
			s.at[strings.TrimSuffix(base+dir, "/")] = true
		}
	case v.csi():
		s.add(filepath.Dir(at))
		s.at[filepath.Dir(filepath.Dir(at))] = true // of the driver
	default:
		s.add(at)
	}
}
