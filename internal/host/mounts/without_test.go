package mounts

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A table without a mount answers as one that was read after it went.
func TestWithout(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	paths := []string{"/", "/a", "/a/b", "/a/b/c", "/d"}
	for range 300 {
		table := &Table{}
		for id := range 12 {
			path := paths[random.IntN(len(paths))]
			parent := 0
			if at := table.At(path); len(at) > 0 {
				parent = at[len(at)-1].ID
			} else if on, ok := table.Covering(path); ok {
				parent = on.ID
			}
			table = &Table{Mounts: append(slices.Clone(table.Mounts), Mount{ID: id + 1, Parent: parent, MountPoint: path})}
		}
		for len(table.Mounts) > 0 {
			table.indexed()
			m := table.Mounts[random.IntN(len(table.Mounts))]
			table = table.Without(m)
			again := &Table{Mounts: slices.Clone(table.Mounts)}
			for _, p := range paths {
				if diff := cmp.Diff(again.At(p), table.At(p)); diff != "" {
					t.Fatalf("at %s, without %d: %s", p, m.ID, diff)
				}
				want, ok := again.Top(p)
				got, is := table.Top(p)
				if ok != is || want.ID != got.ID {
					t.Fatalf("top of %s: %v %v, want %v %v", p, got, is, want, ok)
				}
			}
		}
	}
	table := &Table{Mounts: []Mount{{ID: 1, MountPoint: "/"}}}
	if table.Without(Mount{ID: 2}) != table {
		t.Error("what is not there was taken out")
	}
}
