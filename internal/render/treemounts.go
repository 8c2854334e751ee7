package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// mountTree is mounts by what they show: a file system or a block device, the global
// mount of it, the pods that have it. They belong together by device number and by the
// directory of the file system, which the kernel tells, and by no name.
type mountTree struct {
	items   []api.Mount
	uid     func(string) string
	mount   *shape // label, state, volume, plugin, path
	system  *shape // source, type, size, used
	twigs   []*branch
	parents []int // of each item, -1 for none
	devices []string
	on      map[string][]int // the items of each device; "" is what is not mounted
	hooks   map[hook][]int   // what others can hang on
}

// hook is what items hang on: mounts of one kind on one device, and of one pod where
// they are a pod's volumes.
type hook struct {
	device string
	kind   api.MountKind
	pod    string
}

func newMountTree(items []api.Mount, o Options) *mountTree {
	t := &mountTree{
		items: items, uid: podUIDs(items, Table, func(m api.Mount) string { return m.PodUID }, o.Pods...),
		mount: &shape{mood: 1, drop: []int{4, 3}}, system: &shape{last: true}, twigs: make([]*branch, len(items)), parents: make([]int, len(items)), on: map[string][]int{}, hooks: map[hook][]int{},
	}
	for i, m := range items {
		t.twigs[i] = t.branch(m)
		key := t.device(i)
		if t.on[key] == nil && key != "" {
			t.devices = append(t.devices, key)
		}
		t.on[key] = append(t.on[key], i)
		h := hook{key, m.Kind, ""}
		if m.Kind == api.KindPodVolume {
			h.pod = m.PodUID
		}
		t.hooks[h] = append(t.hooks[h], i)
	}
	for i := range items {
		t.parents[i] = t.parent(i)
	}
	for i, parent := range t.parents {
		if parent >= 0 {
			t.twigs[parent].add(t.twigs[i])
		}
	}
	return t
}

// mountTreeOf is the tree of list-mounts.
func mountTreeOf(items []api.Mount, o Options) []*branch {
	t := newMountTree(items, o)
	var out []*branch
	for _, device := range t.devices {
		out = append(out, t.top(device))
	}
	return append(out, t.rest()...)
}

// device is the number of the device that a mount shows; "" for what is not mounted.
func (t *mountTree) device(i int) string {
	m := t.items[i]
	if m.Device == "" && m.Mounted {
		return fmt.Sprintf("mount %d", i) // of its own
	}
	return m.Device
}

// top is a device with what hangs on it.
func (t *mountTree) top(device string) *branch {
	b := &branch{shape: t.system}
	dirs := map[string]*branch{}
	for _, i := range t.on[device] {
		m, under := t.items[i], b
		if t.parents[i] >= 0 {
			continue
		}
		if !isBlock(m) && m.Root != "" && m.Root != "/" {
			if dirs[m.Root] == nil {
				dirs[m.Root] = text("directory " + cell(m.Root))
				b.add(dirs[m.Root])
			}
			under = dirs[m.Root]
		}
		under.add(t.twigs[i])
	}
	names, kind, sizes := t.describe(device)
	b.parts = append([]string{cell(firstOf(strings.Join(names, ", "), kind)), cell(kind)}, sizes...)
	return b
}

// describe gives what is told of a device: its names, what is on it, how large and full.
func (t *mountTree) describe(device string) (names []string, kind string, sizes []string) {
	var of api.Mount
	for _, i := range t.on[device] {
		m := t.items[i]
		switch {
		case !isBlock(m):
			kind = m.FSType
		case kind == "":
			kind = "block device"
		}
		if name := sourceOf(m); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		// Another directory of it may have a quota.
		if m.CapacityBytes > 0 && (of.CapacityBytes == 0 || len(m.Root) < len(of.Root)) {
			of = m
		}
	}
	if of.CapacityBytes > 0 {
		percent := float64(of.UsedBytes) * 100 / float64(of.CapacityBytes)
		sizes = []string{size(of.CapacityBytes), fmt.Sprintf("%s used (%.0f%%)", size(of.UsedBytes), percent)}
	}
	return names, kind, sizes
}

// rest is what nothing is mounted on.
func (t *mountTree) rest() []*branch {
	b := text("not mounted")
	for _, i := range t.on[""] {
		b.add(t.twigs[i])
	}
	if len(b.children) == 0 {
		return nil
	}
	return []*branch{b}
}

func isBlock(m api.Mount) bool {
	return m.Kind == api.KindGlobalMapDevice || m.Kind == api.KindPodDevice
}

// sourceOf names the device of a mount. That of a bound device node is the file system
// of all nodes, whose directory is the node.
func sourceOf(m api.Mount) string {
	if m.Kind == api.KindGlobalMapDevice && m.FSType == "devtmpfs" {
		return "/dev" + m.Root
	}
	return m.Source
}

// branch is the line of one mount.
func (t *mountTree) branch(m api.Mount) *branch {
	b := &branch{shape: t.mount, parts: []string{t.label(m), cell(string(m.State)), cell(m.Volume), cell(m.Plugin), cell(m.Path)}}
	if m.Kind == api.KindOther {
		b.parts = []string{b.parts[0], b.parts[1], b.parts[4]}
	}
	var notes []string
	if m.State != api.StateOK && m.StateReason != "" {
		notes = append(notes, m.StateReason)
	}
	if m.Stacked > 1 {
		notes = append(notes, fmt.Sprintf("%d mounts lie on this path", m.Stacked))
	}
	b.note = Line(strings.Join(notes, "; "))
	return b
}

func (t *mountTree) label(m api.Mount) string {
	switch m.Kind {
	case api.KindGlobalMount:
		return "global mount"
	case api.KindGlobalMapDevice:
		return "global map"
	case api.KindSubPath:
		return "subPath " + cell(path.Join(path.Base(path.Dir(m.Path)), path.Base(m.Path)))
	case api.KindPodVolume, api.KindPodDevice:
		pod := t.uid(m.PodUID)
		if m.PodName != "" {
			pod = m.Namespace + "/" + m.PodName
		}
		pod = "pod " + cell(pod)
		if m.Owner == api.OwnerGone {
			pod += " (gone)"
		}
		return pod
	}
	return "other mount"
}

// parent finds the item that another one hangs on: what a pod has on the global mount of
// the same, and a subPath on its pod's volume. -1 is none.
func (t *mountTree) parent(i int) int {
	m := &t.items[i]
	switch m.Kind {
	case api.KindPodVolume:
		return t.best(i, api.KindGlobalMount, "")
	case api.KindPodDevice:
		return t.best(i, api.KindGlobalMapDevice, "")
	case api.KindSubPath:
		if of := t.best(i, api.KindPodVolume, m.PodUID); of >= 0 {
			return of
		}
		return t.best(i, api.KindGlobalMount, "")
	}
	return -1
}

// best is the one of a kind on the same device that shows the least more than an item
// does, and of such the one of the same pod or of the same volume.
func (t *mountTree) best(i int, kind api.MountKind, pod string) int {
	m, found, score := &t.items[i], -1, 0
	device := t.device(i)
	if device == "" {
		return -1
	}
	for _, j := range t.hooks[hook{device, kind, pod}] {
		p, points := &t.items[j], 1
		if !isBlock(*m) {
			if !within(m.Root, p.Root) {
				continue
			}
			points += 8 * len(p.Root)
		}
		if p.PodUID == m.PodUID {
			points += 4
		}
		if p.Volume == m.Volume {
			points += 2
		}
		if p.Plugin == m.Plugin {
			points++
		}
		if points > score {
			found, score = j, points
		}
	}
	return found
}

// within says whether a directory is another one or below it.
func within(dir, of string) bool {
	return dir == of || of == "/" || strings.HasPrefix(dir, of+"/")
}
