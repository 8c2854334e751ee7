package render

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		widths, floor []int
		room          int
		want          []int // nil: it cannot be done
	}{
		{[]int{10, 20, 30}, []int{6, 6, 6}, 60, []int{10, 20, 30}},
		{[]int{10, 20, 30}, []int{6, 6, 6}, 50, []int{10, 20, 20}},
		{[]int{10, 20, 30}, []int{6, 6, 6}, 35, []int{10, 13, 12}},
		{[]int{10, 20, 30}, []int{10, 20, 6}, 38, []int{10, 20, 8}},
		{[]int{10, 20, 30}, []int{10, 20, 6}, 36, []int{10, 20, 6}},
		{[]int{10, 20, 30}, []int{10, 20, 6}, 35, nil},
		{[]int{3}, []int{3}, 2, nil},
	} {
		if got, ok := fit(c.widths, c.floor, c.room); !slices.Equal(got, c.want) || ok != (c.want != nil) {
			t.Errorf("%v in %d: %v, want %v", c.widths, c.room, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"data", 4, "data"},
		{"pvc-5b1c2d3e-7f6a", 10, "pvc-5…7f6a"},
		{"/var/lib/kubelet/pods/a/volumes/data", 12, "…olumes/data"},
		{"kubernetes.io/csi", 8, "…/csi"},
		{"kubernetes.io/local-volume", 14, "…/local-volume"},
		{"/r/pods/c/x y", 8, "…/c/x y"},
		{"no answer within 1s", 12, "no answer w…"},
		{"no answer within 1s", 11, "no answer…"},
		{"世界世界世界", 7, "世界…界"},
		{"世界世界世界", 1, ""},
		{"abc", 0, ""},
	} {
		got := cut(c.in, c.most, "…")
		if got != c.want || width(got) > c.most {
			t.Errorf("%q to %d: %q, want %q", c.in, c.most, got, c.want)
		}
	}
	if got := cut("/dev/mapper/name", 9, "..."); got != ".../name" {
		t.Errorf("in ASCII: %q", got)
	}
}

// Nothing is lost but blanks, and no line is wider than there is room.
func TestWrap(t *testing.T) {
	for _, s := range []string{
		"", "a", "the server of it is gone, and nobody else has it",
		"/var/lib/kubelet/pods/0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2/volumes/kubernetes.io~csi/data/mount",
		strings.Repeat("x", 100), strings.Repeat("世", 50), "a " + strings.Repeat("y", 50) + " b",
	} {
		for _, room := range []int{2, 3, 10, 33, 80} {
			lines := wrap(s, room)
			for _, line := range lines {
				if width(line) > room || strings.HasPrefix(line, " ") {
					t.Errorf("%q in %d: %q", s, room, line)
				}
			}
			if strings.ReplaceAll(strings.Join(lines, ""), " ", "") != strings.ReplaceAll(s, " ", "") {
				t.Errorf("%q in %d loses something: %q", s, room, lines)
			}
		}
	}
}

// narrow are the formats that fit a terminal, of every kind of result.
func narrow() map[string]write {
	time.Local = time.UTC
	return map[string]write{
		"mounts": list(Mounts(), mounts()), "tree": list(Mounts(), treeMounts()), "results": list(Results(), results()), "plugins": list(Plugins(), plugins()),
		"operations": list(Operations(), operations()), "pathinfos": list(PathInfos(), infos()), "settings": list(Settings(true), settings()),
		"inspection": document(Inspection(), inspected()), "pathset": document(Paths(), &results().Items[0].Paths),
		"hostile": list(Mounts(), hostile()),
		"orphans": {Orphans(true), func(o Options) (string, error) {
			var b bytes.Buffer
			err := Orphans(true).Write(&b, leftovers(), o)
			return b.String(), err
		}},
		"plan": {Plans(), func(o Options) (string, error) {
			var b bytes.Buffer
			err := Plans().Write(&b, plan(), o)
			return b.String(), err
		}},
	}
}

// No line is wider than the terminal, and states and kinds are whole.
func TestNarrow(t *testing.T) {
	for name, w := range narrow() {
		for _, f := range []Format{Table, Tree} {
			for _, columns := range []int{40, 60, 80, 120, 200} {
				for _, unicode := range []bool{true, false} {
					got, err := w.to(Options{Format: f, Width: columns, Unicode: unicode})
					if err != nil {
						t.Fatal(err)
					}
					for line := range strings.Lines(got) {
						if line = strings.TrimSuffix(line, "\n"); width(line) > columns || strings.HasSuffix(line, " ") {
							t.Errorf("%s as %s in %d: %d columns: %q", name, f, columns, width(line), line)
						}
						if !unicode && !isASCII(line) && name != "hostile" {
							t.Errorf("%s as %s is not ASCII: %q", name, f, line)
						}
					}
					for _, m := range mounts().Items {
						if name == "mounts" && !strings.Contains(got, string(m.State)) {
							t.Errorf("%s as %s in %d has no %s:\n%s", name, f, columns, m.State, got)
						}
					}
				}
			}
		}
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// What is not cut stays as it is in a pipe, and wide is never cut.
func TestNotCut(t *testing.T) {
	for name, w := range narrow() {
		whole, err := w.to(Options{Format: Wide})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := w.to(Options{Format: Wide, Width: 40, Unicode: true}); got != whole && name != "orphans" {
			t.Errorf("%s as wide is cut in a narrow terminal:\n%s", name, got)
		}
		table, _ := w.to(Options{Format: Table})
		if got, _ := w.to(Options{Format: Table, Width: 1000, Unicode: true}); got != table {
			t.Errorf("%s is another table where there is room:\n%s", name, got)
		}
		for _, f := range []Format{Table, Tree} {
			if got, _ := w.to(Options{Format: f}); strings.Contains(got, "…") || strings.Contains(got, "...") {
				t.Errorf("%s as %s is cut in a pipe:\n%s", name, f, got)
			}
		}
	}
}

func TestNarrowGolden(t *testing.T) {
	for _, name := range []string{"mounts", "tree", "orphans", "operations", "inspection"} {
		for _, f := range []Format{Table, Tree} {
			for columns, suffix := range map[int]string{40: "40", 80: "80"} {
				got, err := narrow()[name].to(Options{Format: f, Width: columns, Unicode: true})
				if err != nil {
					t.Fatal(err)
				}
				golden(t, "narrow-"+name+"."+string(f)+suffix, got)
			}
		}
	}
}

// --columns are what was asked for, so that none of them is left out.
func TestNamedColumnsStay(t *testing.T) {
	got, err := list(Mounts(), mounts()).to(Options{Format: Table, Columns: []string{"volume", "source", "fsType", "path"}, Width: 44, Unicode: true})
	if err != nil || !strings.HasPrefix(got, "VOLUME") || !strings.Contains(got, "SOURCE") || !strings.Contains(got, "FSTYPE") {
		t.Errorf("%v:\n%s", err, got)
	}
}

func TestErrorInATerminal(t *testing.T) {
	err := &api.Error{Op: "unmount-device", Volume: "data", Kind: api.ErrBusy, Err: errors.New("two pods that live on this node use it, and would lose it"),
		Details: []string{"pod a, of which nothing more is known than that it is there"},
		Next:    "end the pods first: kubectl delete pod -n shop web-0; or take the risk: kvol unmount-device data --allow-active-pod --root-dir /var/lib/kubelet"}
	for columns, want := range map[int]string{
		60: `kvol: unmount-device data: two pods that live on this node
      use it, and would lose it
  pod a, of which nothing more is known than that it is
      there
next: end the pods first: kubectl delete pod -n shop web-0;
      or take the risk:
      kvol unmount-device data --allow-active-pod --root-dir /var/lib/kubelet
`,
		0: `kvol: unmount-device data: two pods that live on this node use it, and would lose it
  pod a, of which nothing more is known than that it is there
next: end the pods first: kubectl delete pod -n shop web-0; or take the risk: kvol unmount-device data --allow-active-pod --root-dir /var/lib/kubelet
`,
	} {
		var b bytes.Buffer
		Error(&b, columns, err)
		if b.String() != want {
			t.Errorf("in %d:\n%s", columns, b.String())
		}
	}
}

func TestFold(t *testing.T) {
	page := `Tells what kvol changed on this node
and how it ended.

Exit codes:
  0    done, or nothing to do (an empty list is 0)

Examples:
  kvol history --volume data --since 24h -o json --sort-by time

Flags:
      --since string   only what began since then: 24h, 2026-03-01
  -h, --help           help
`
	want := `Tells what kvol changed on this node and
how it ended.

Exit codes:
  0    done, or nothing to do (an empty
       list is 0)

Examples:
  kvol history --volume data --since 24h -o json --sort-by time

Flags:
      --since string   only what began
          since then: 24h, 2026-03-01
  -h, --help           help
`
	if got := Fold(page, 40); got != want {
		t.Errorf("\n%s", got)
	}
}
