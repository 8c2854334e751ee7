package mounts

import (
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Table is one reading of a mount table. It may be asked by many at once, and
// must not be changed once it was asked.
type Table struct {
	// Mounts are in the order of the kernel, which is none to rely on: since Linux
	// 6.8 by the time of making, wherever a mount was moved since.
	Mounts []Mount
	// Bad are the lines that are not in Mounts, and a last line without a newline.
	Bad []BadLine
	// Changed means that the namespace changed during each of the tries: a mount
	// that came or went meanwhile may be missing or still there. (Before Linux 5.8
	// a reader could lose its place, so there any mount may be missing.)
	Changed bool

	once  sync.Once
	index index // made on the first question about a path
}

// At gives the mounts on exactly the path p, those hidden too, the lowest first
// and last the one that a lookup finds, unless all are hidden (see Top). Mounted
// over "/" is found by no lookup, so there the root directory itself is last.
// Links in p are not followed.
func (t *Table) At(p string) []Mount {
	x := t.indexed()
	i, ok := x.top[filepath.Clean(p)]
	var out []Mount
	for ; ok && i != none; i = x.below[i] {
		out = append(out, t.Mounts[i])
	}
	slices.Reverse(out)
	return out
}

// Stack gives the last that [Table.At] gives for a clean path, nil where nothing is mounted,
// and how many there are: without a copy, for who asks for thousands. Do not write to it.
func (t *Table) Stack(p string) (top *Mount, n int) {
	x := t.indexed()
	i, ok := x.top[p]
	if !ok {
		return nil, 0
	}
	top = &t.Mounts[i]
	for ; i != none; i = x.below[i] {
		n++
	}
	return top, n
}

// Top gives the mount that a lookup of p finds there; none where nothing is
// mounted on exactly p, or where all that is lies hidden under a mount higher up.
func (t *Table) Top(p string) (Mount, bool) {
	i, ok := t.indexed().top[filepath.Clean(p)]
	if !ok || !t.Visible(t.Mounts[i]) {
		return Mount{}, false
	}
	return t.Mounts[i], true
}

// Covering gives the mount that a lookup of the absolute path p ends on: the one on
// p, or on the nearest directory above it. Links in p are not followed.
func (t *Table) Covering(p string) (Mount, bool) {
	for p = filepath.Clean(p); ; p = filepath.Dir(p) {
		if m, ok := t.Top(p); ok || p == "/" {
			return m, ok
		}
	}
}

// On gives the mounts whose mount point is the directory or file root of the file
// system on that device, by whatever path this table has it.
func (t *Table) On(major, minor int, root string) []Mount {
	at := map[int]Mount{}
	for _, m := range t.Mounts {
		at[m.ID] = m
	}
	var out []Mount
	for _, m := range t.Mounts {
		on, ok := at[m.Parent]
		if ok && on.Major == major && on.Minor == minor && filepath.Join(on.Root, strings.TrimPrefix(m.MountPoint, on.MountPoint)) == root {
			out = append(out, m)
		}
	}
	return out
}

// Visible says whether a lookup of m's mount point finds m, a mount of this
// table. It does not where another mount lies on the same path or, made later,
// on a directory above it.
func (t *Table) Visible(m Mount) bool {
	x := t.indexed()
	i, ok := x.top[m.MountPoint]
	if !ok || t.Mounts[i].ID != m.ID {
		return false
	}
	for p := m.MountPoint; p != "/"; {
		p = p[:max(1, strings.LastIndexByte(p, '/'))]
		if above, ok := x.top[p]; ok && x.rank[above] > x.rank[i] {
			return false
		}
	}
	return true
}

// Under gives the mounts on p and on what lies below it by name, those hidden
// too, in the order of Mounts.
func (t *Table) Under(p string) []Mount {
	var out []Mount
	for m := range t.Below(p) {
		out = append(out, *m)
	}
	return out
}

// Below is Under without a copy. Do not write to the mounts.
func (t *Table) Below(p string) iter.Seq[*Mount] {
	p = filepath.Clean(p)
	below := strings.TrimSuffix(p, "/") + "/"
	return func(yield func(*Mount) bool) {
		for i := range t.Mounts {
			m := &t.Mounts[i]
			if (m.MountPoint == p || strings.HasPrefix(m.MountPoint, below)) && !yield(m) {
				return
			}
		}
	}
}

// SameRoot gives the other mounts of the same part of the same file system: what
// the kubelet calls the references of a mount. They are told by device and root,
// never by source (any text) or by asking the paths (which hangs).
func (t *Table) SameRoot(m Mount) []Mount {
	return t.where(func(o *Mount) bool {
		return o.ID != m.ID && o.Major == m.Major && o.Minor == m.Minor && o.Root == m.Root && o.Deleted == m.Deleted
	})
}

// SameDevice gives the mounts of the file system with this device number,
// whatever part of it they show.
func (t *Table) SameDevice(major, minor int) []Mount {
	return t.where(func(m *Mount) bool { return m.Major == major && m.Minor == minor })
}

func (t *Table) where(keep func(*Mount) bool) []Mount {
	var out []Mount
	for i := range t.Mounts {
		if keep(&t.Mounts[i]) {
			out = append(out, t.Mounts[i])
		}
	}
	return out
}

// index orders the mounts by who covers whom. Mounts are named by their place in
// Table.Mounts.
type index struct {
	rank  []int32          // the place in coverOrder
	top   map[string]int32 // mount point → the last one there
	below []int32          // the one before it on the same mount point
}

func (t *Table) indexed() *index {
	t.once.Do(func() {
		n := len(t.Mounts)
		x := index{rank: make([]int32, n), top: make(map[string]int32, n), below: make([]int32, n)}
		for rank, i := range coverOrder(t.Mounts) {
			p := t.Mounts[i].MountPoint
			x.rank[i], x.below[i] = int32(rank), none
			if under, ok := x.top[p]; ok {
				x.below[i] = under
			}
			x.top[p] = i
		}
		t.index = x
	})
	return &t.index
}

// Without gives the table without one mount. What lies on what is known of the rest
// already: who takes thousands of mounts off one by one need not find it out again
// each time.
func (t *Table) Without(m Mount) *Table {
	gone := slices.IndexFunc(t.Mounts, func(o Mount) bool { return o.ID == m.ID })
	if gone < 0 {
		return t
	}
	out := &Table{Mounts: slices.Delete(slices.Clone(t.Mounts), gone, gone+1), Bad: t.Bad, Changed: t.Changed}
	if slices.ContainsFunc(out.Mounts, func(o Mount) bool { return o.Parent == m.ID }) {
		return out // what lay on it has no parent now, and is ordered anew
	}
	x, out32 := t.indexed(), int32(gone)
	moved := func(i int32) int32 {
		if i > out32 {
			return i - 1
		}
		return i
	}
	out.once.Do(func() {
		n := index{
			rank: slices.Delete(slices.Clone(x.rank), gone, gone+1), below: slices.Delete(slices.Clone(x.below), gone, gone+1),
			top: make(map[string]int32, len(x.top)),
		}
		for i, b := range n.below {
			if b == out32 {
				b = x.below[gone]
			}
			n.below[i] = moved(b)
		}
		for path, i := range x.top {
			if i == out32 {
				i = x.below[gone]
			}
			if i != none {
				n.top[path] = moved(i)
			}
		}
		out.index = n
	})
	return out
}
