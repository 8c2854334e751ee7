package mounts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse gives Parse any bytes: each line is a mount or is reported, a good
// line is never hidden by what is around it, and what was read is the same when
// it is printed and read again.
func FuzzParse(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("36 35 98:0 /a\\040b//deleted /\\134040 ro shared:1 - tmpfs  rw\nbad\n\n1 1 0:1 / / rw - t s rw,a=\"x,y\",b=\\054")
	f.Add("1 2 3:4 / / rw - a b rw,c=\"d,e\"\n2 1 3:4 // / rw  - a - \\")
	f.Fuzz(func(t *testing.T, text string) {
		const good = "4242 1 0:77 /g\\040g /good rw - tmpfs good rw"
		for _, table := range []string{good + "\n" + text + "\n" + good + "\n", text + "\n" + good + "\n", good + "\n" + text} {
			got := parse(t, table)
			if !slices.ContainsFunc(got.Mounts, func(m Mount) bool { return m.ID == 4242 && m.MountPoint == "/good" && m.Root == "/g g" }) {
				t.Fatalf("the good line is lost: %+v", got)
			}
		}
		got := parse(t, text+"\n")
		want := strings.Count(text, "\n") + 1
		if len(got.Mounts)+len(got.Bad) != want {
			t.Fatalf("%d lines gave %d mounts and %d bad", want, len(got.Mounts), len(got.Bad))
		}
		for _, m := range got.Mounts {
			again := parse(t, line(m))
			if len(again.Mounts) != 1 || len(again.Bad) > 0 {
				t.Fatalf("%+v printed as %q is %+v", m, line(m), again)
			}
			if diff := cmp.Diff(m, again.Mounts[0]); diff != "" {
				t.Fatal(diff)
			}
		}
		// Whatever the parents say, the questions end and agree with each other.
		for _, m := range got.Mounts {
			if filepath.Clean(m.MountPoint) != m.MountPoint {
				continue // not what the kernel prints
			}
			at := got.At(m.MountPoint)
			if len(at) == 0 || len(at) > len(got.Under(m.MountPoint)) {
				t.Fatalf("%d mounts at %q, %d under it", len(at), m.MountPoint, len(got.Under(m.MountPoint)))
			}
			if top, ok := got.Top(m.MountPoint); ok != got.Visible(at[len(at)-1]) || ok && top.ID != at[len(at)-1].ID {
				t.Fatalf("top of %q is %+v, at %+v", m.MountPoint, top, at)
			}
		}
	})
}

// FuzzMount prints any mount as the kernel would and reads it back.
func FuzzMount(f *testing.F) {
	f.Add(36, 35, 98, 0, "/mnt1", "/a b\tc\nd\\e\\040", "noatime", 7, "ext3", "", "errors=continue", true)
	f.Add(1, 1, 0, 5, "net:[1]", "/#,\"", "x", 0, "fuse.a b#", "#\\", `lowerdir=/a,b\:/c "`, false)
	f.Fuzz(func(t *testing.T, id, parent, major, minor int, root, point, option string, group int, fstype, source, super string, deleted bool) {
		for _, n := range []int{id, parent, major, minor, group} {
			if n < 0 || n >= 1<<31 {
				t.Skip("not a number of the kernel")
			}
		}
		if strings.HasSuffix(root, "//deleted") || fstype == "" {
			t.Skip("not what the kernel prints")
		}
		want := Mount{
			ID: id, Parent: parent, Major: major, Minor: minor, Root: root, Deleted: deleted, MountPoint: "/" + point,
			Options: []string{"rw", option}, FSType: fstype, Source: source, SuperOptions: []string{"ro", super, "x"},
		}
		if group > 0 {
			want.PeerGroup = group
			want.Optional = []string{"shared:" + strings.TrimPrefix(Mount{Minor: group}.Device(), "0:")}
		}
		got := parse(t, line(want))
		if len(got.Mounts) != 1 || len(got.Bad) > 0 {
			t.Fatalf("%q: %+v", line(want), got)
		}
		if diff := cmp.Diff(want, got.Mounts[0]); diff != "" {
			t.Fatal(line(want), diff)
		}
	})
}

// FuzzUnescape: unescape undoes the kernel's escape, once and only once.
func FuzzUnescape(f *testing.F) {
	f.Add(`a b\040`)
	f.Add("\\\n\\\\134\xff\\0")
	f.Fuzz(func(t *testing.T, s string) {
		for _, chars := range []string{" \t\n\\", " \t\n\\#", ", \t\n\\"} {
			if got := unescape(escape(s, chars)); got != s {
				t.Fatalf("%q became %q", s, got)
			}
			twice := escape(escape(s, chars), chars)
			if got := unescape(twice); got != escape(s, chars) {
				t.Fatalf("%q: %q was unescaped twice: %q", s, twice, got)
			}
		}
	})
}
