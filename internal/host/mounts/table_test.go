package mounts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestQuestions(t *testing.T) {
	table := parse(t, strings.Join([]string{
		"1 0 8:1 / / rw - ext4 /dev/sda1 rw",
		"2 1 7:5 / /k/global ro - ext4 /dev/loop5 rw",
		"3 1 7:5 / /k/pod rw - ext4 /dev/loop5 rw",
		"4 1 7:5 /sub /k/pod2 rw - ext4 /dev/loop5 rw",
		"5 1 7:5 /sub//deleted /k/pod3 rw - ext4 /dev/loop5 rw",
		"6 3 0:9 / /k/pod rw - tmpfs over ro",
		"7 1 0:10 / /k rw - tmpfs /dev/loop5 rw",
		"8 7 8:1 / /k/pod rw - ext4 /dev/sda1 rw",
		"9 1 7:6 / /kk rw - ext4 /dev/loop5 rw",
	}, "\n")+"\n")
	mount := func(id int) Mount { return table.Mounts[id-1] }
	for what, tt := range map[string]struct {
		got  []Mount
		want []int
	}{
		"under /":              {table.Under("/"), []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"under /k":             {table.Under("/k"), []int{2, 3, 4, 5, 6, 7, 8}},
		"under /k/":            {table.Under("/k/"), []int{2, 3, 4, 5, 6, 7, 8}},
		"under /k/po":          {table.Under("/k/po"), nil},
		"under nothing":        {table.Under(""), nil},
		"at /k/pod":            {table.At("/k/pod"), []int{3, 6, 8}},
		"at //k/./pod/":        {table.At("//k/./pod/"), []int{3, 6, 8}},
		"at /k/po":             {table.At("/k/po"), nil},
		"same root":            {table.SameRoot(mount(2)), []int{3}},
		"same root, deleted":   {table.SameRoot(mount(5)), nil},
		"same root, a bind":    {table.SameRoot(mount(4)), nil},
		"same device":          {table.SameDevice(7, 5), []int{2, 3, 4, 5}},
		"same device as none":  {table.SameDevice(5, 7), nil},
		"same root as another": {table.SameRoot(Mount{Major: 8, Minor: 1, Root: "/"}), []int{1, 8}},
	} {
		if !slices.Equal(ids(tt.got), tt.want) {
			t.Errorf("%s: %v, want %v", what, ids(tt.got), tt.want)
		}
	}
	for path, want := range map[string]int{"/": 1, "/k/pod": 3, "/k": 1, "/k/po": 0} {
		top, n := table.Stack(path)
		if at := table.At(path); n != want || n > 0 && top.ID != at[n-1].ID || n == 0 && top != nil {
			t.Errorf("stack on %s: %+v, %d; want %v", path, top, n, ids(at))
		}
	}
	var visible []int
	for _, m := range table.Mounts {
		if table.Visible(m) {
			visible = append(visible, m.ID)
		}
	}
	if want := []int{1, 7, 8, 9}; !slices.Equal(visible, want) {
		t.Errorf("visible: %v, want %v", visible, want)
	}
	if table.Visible(Mount{ID: 99, MountPoint: "/k"}) || table.Visible(Mount{ID: 1, MountPoint: "/gone"}) {
		t.Error("a mount of another table is visible")
	}
	m, o := mount(2), mount(6)
	if !m.ReadOnly() || m.SuperReadOnly() || o.ReadOnly() || !o.SuperReadOnly() || m.Device() != "7:5" {
		t.Errorf("%+v %+v", m, o)
	}
	if (Mount{}).ReadOnly() {
		t.Error("a mount of which nothing is known is read-only")
	}
}

// TestOddParents: part of a table, a root that is its own parent, ids used twice,
// circles. Every mount is still found by its path.
func TestOddParents(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string // ID PARENT MOUNTPOINT
		path  string
		at    []int
		top   int
	}{
		"own parent":          {[]string{"1 1 /", "2 1 /a", "3 2 /a"}, "/a", []int{2, 3}, 3},
		"over it":             {[]string{"1 1 /", "2 1 /", "3 2 /a"}, "/", []int{2, 1}, 1},
		"on what lies over":   {[]string{"1 1 /", "2 1 /", "3 2 /a", "4 1 /a"}, "/a", []int{3, 4}, 4},
		"twice over it":       {[]string{"1 0 /", "2 1 /", "3 2 /"}, "/", []int{2, 3, 1}, 1},
		"parents missing":     {[]string{"5 66 /a", "6 66 /a/b", "7 66 /c"}, "/a/b", []int{6}, 0},
		"stack, upside down":  {[]string{"4 3 /a", "3 2 /a", "2 1 /a", "1 0 /"}, "/a", []int{2, 3, 4}, 4},
		"a circle":            {[]string{"1 0 /", "2 3 /a", "3 2 /a"}, "/a", []int{2, 3}, 0},
		"a circle and a root": {[]string{"2 3 /a", "3 2 /a", "1 0 /", "4 1 /a"}, "/a", []int{2, 3, 4}, 4},
		"an id twice":         {[]string{"1 0 /", "2 1 /a", "2 1 /b"}, "/a", []int{2}, 2},
		"nothing":             {nil, "/", nil, 0},
	} {
		var text strings.Builder
		for _, l := range tt.lines {
			f := strings.Fields(l)
			fmt.Fprintf(&text, "%s %s 0:1 / %s rw - tmpfs t rw\n", f[0], f[1], f[2])
		}
		table := parse(t, text.String())
		if at := ids(table.At(tt.path)); !slices.Equal(at, tt.at) {
			t.Errorf("%s: at %v, want %v", name, at, tt.at)
		}
		if top, _ := table.Top(tt.path); top.ID != tt.top {
			t.Errorf("%s: top %d, want %d", name, top.ID, tt.top)
		}
	}
}

func TestTallStack(t *testing.T) {
	const n = 75_000
	var text strings.Builder
	text.WriteString("1 0 0:1 / / rw - tmpfs t rw\n")
	for i := range n {
		fmt.Fprintf(&text, "%d %d 0:1 / /a/b rw - tmpfs t rw\n", i+2, i+1)
	}
	table := parse(t, text.String())
	at := table.At("/a/b")
	if len(at) != n || !slices.IsSortedFunc(at, func(a, b Mount) int { return a.ID - b.ID }) {
		t.Errorf("%d mounts, or not in order", len(at))
	}
	if top, ok := table.Top("/a/b"); !ok || top.ID != n+1 {
		t.Errorf("top %d, %v", top.ID, ok)
	}
}
