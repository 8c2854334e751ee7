package mounts

import (
	"cmp"
	"slices"
)

// none ends the lists of coverOrder.
const none = int32(-1)

// coverOrder sorts the mounts, given by their places, so that of two on one path,
// or of which one lies on the way to the other, the later one covers the former.
//
// It walks the tree of parents: a mount comes after its parent, whose root it may
// cover, and of two mounts on one parent the one with the longer path comes first,
// with all that lies on it. If the shorter path leads to the longer one, its
// mount was made later (otherwise the other would lie on it) and covers it. Ids
// and the order of the table say nothing: mounts are moved, ids are used again.
//
// Stacks of tens of thousands of mounts on one path have been seen
// (kubernetes#75401), so nothing here is recursive or looks up a chain of parents.
func coverOrder(mounts []Mount) []int32 {
	n := len(mounts)
	child, next := make([]int32, n), make([]int32, n)
	byID := make(map[int]int32, n)
	order := make([]int32, n)
	for i := range mounts {
		child[i], order[i] = none, int32(i)
		byID[mounts[i].ID] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(len(mounts[b].MountPoint), len(mounts[a].MountPoint))
	})

	parent := func(i int32) int32 {
		// The root of a namespace is its own parent.
		if p, ok := byID[mounts[i].Parent]; ok && p != i {
			return p
		}
		return none
	}
	// Each list is built from its end.
	roots, overRoot := none, none
	for _, i := range slices.Backward(order) {
		list := &roots
		if p := parent(i); p != none {
			list = &child[p]
			if parent(p) == none && mounts[i].MountPoint == "/" {
				list = &overRoot
			}
		}
		next[i], *list = *list, i
	}

	// A mount over "/" is found by no lookup: each starts at the root directory of
	// the process, which is the mount below.
	walk := []int32{roots, overRoot}
	seen := make([]bool, n)
	order = order[:0]
	for len(walk) > 0 {
		i := walk[len(walk)-1]
		walk = walk[:len(walk)-1]
		if i == none {
			continue
		}
		order, seen[i] = append(order, i), true
		walk = append(walk, next[i], child[i])
	}

	// Parents in a circle, which no kernel prints: no lookup finds them.
	var lost []int32
	for i := range mounts {
		if !seen[i] {
			lost = append(lost, int32(i))
		}
	}
	return append(lost, order...)
}
