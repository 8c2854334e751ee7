package mounts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/kvol/kvol/internal/testutil"
	"github.com/moby/sys/mountinfo"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func parse(t *testing.T, text string) *Table {
	t.Helper()
	table, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// line prints a mount as the kernel does (fs/proc_namespace.c: show_mountinfo).
func line(m Mount) string {
	root := escape(m.Root, " \t\n\\")
	if m.Deleted {
		root += "//deleted"
	}
	f := []string{
		strconv.Itoa(m.ID), strconv.Itoa(m.Parent), m.Device(), root, escape(m.MountPoint, " \t\n\\"),
		options(m.Options),
	}
	f = append(f, m.Optional...)
	return strings.Join(append(f, "-", escape(m.FSType, " \t\n\\#"), escape(m.Source, " \t\n\\#"), options(m.SuperOptions)), " ") + "\n"
}

// options escapes quotes too, which the kernel does not, so that any list can be
// printed: see splitOptions.
func options(l []string) string {
	var out []string
	for _, o := range l {
		out = append(out, escape(o, ", \t\n\\\""))
	}
	return strings.Join(out, ",")
}

// escape is the kernel's seq_escape.
func escape(s, chars string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(chars, s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func TestParseLine(t *testing.T) {
	base := Mount{
		ID: 36, Parent: 35, Major: 98, Minor: 1, Root: "/mnt1", MountPoint: "/mnt2", Options: []string{"rw", "noatime"},
		FSType: "ext3", Source: "/dev/root", SuperOptions: []string{"rw", "errors=continue"},
	}
	with := func(f func(*Mount)) Mount { m := base; f(&m); return m }
	long := "lowerdir+=/" + strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		name, line string
		want       Mount
	}{
		{"plain", "36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw,errors=continue", base},
		{
			"propagation", "36 35 98:1 /mnt1 /mnt2 rw,noatime shared:7 master:12 propagate_from:3 - ext3 /dev/root rw,errors=continue",
			with(func(m *Mount) { m.Optional, m.PeerGroup = []string{"shared:7", "master:12", "propagate_from:3"}, 7 }),
		},
		{
			"an optional field of the future", "36 35 98:1 /mnt1 /mnt2 rw,noatime idmapped shared: - ext3 /dev/root rw,errors=continue",
			with(func(m *Mount) { m.Optional = []string{"idmapped", "shared:"} }),
		},
		{"empty source", "36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3  rw,errors=continue", with(func(m *Mount) { m.Source = "" })},
		{"source is a dash", "36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 - rw,errors=continue", with(func(m *Mount) { m.Source = "-" })},
		{
			"odd names", `36 35 98:1 /a\040b /a\011b\012c\134d\134040\043 rw,noatime - fuse.a\040b \134\043x rw,errors=continue`,
			with(func(m *Mount) {
				m.Root, m.MountPoint, m.FSType, m.Source = "/a b", "/a\tb\nc\\d\\040#", "fuse.a b", `\#x`
			}),
		},
		{
			"what is not an escape stays", `36 35 98:1 /\ /\04/\048/\400/\x rw,noatime - ext3 \777 rw,user=A\b`,
			with(func(m *Mount) {
				m.Root, m.MountPoint, m.Source, m.SuperOptions = `/\`, `/\04/\048/\400/\x`, `\777`, []string{"rw", `user=A\b`}
			}),
		},
		{"high bytes", "36 35 98:1 /mnt1 /\\377\xfe rw,noatime - ext3 /dev/root rw,errors=continue", with(func(m *Mount) { m.MountPoint = "/\xff\xfe" })},
		{"deleted root", `36 35 98:1 /mnt1//deleted /mnt2 rw,noatime - ext3 /dev/root rw,errors=continue`, with(func(m *Mount) { m.Deleted = true })},
		{"not deleted", `36 35 98:1 /mnt1/deleted /mnt2 rw,noatime - ext3 /dev/root rw,errors=continue`, with(func(m *Mount) { m.Root = "/mnt1/deleted" })},
		{"root that is no path", "36 35 98:1 net:[4026531840] /mnt2 rw,noatime - ext3 /dev/root rw,errors=continue", with(func(m *Mount) { m.Root = "net:[4026531840]" })},
		{
			"commas in options", `36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 /dev/root ro,lowerdir=/a\054b:/c\134:,context="u:r:s0:c1,c2",seclabel`,
			with(func(m *Mount) {
				m.SuperOptions = []string{"ro", `lowerdir=/a,b:/c\:`, `context="u:r:s0:c1,c2"`, "seclabel"}
			}),
		},
		{"quote at the end", `36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw,c="1,2"`, with(func(m *Mount) { m.SuperOptions = []string{"rw", `c="1,2"`} })},
		{"quote without end", `36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw,d="/a,d="/b,x`, with(func(m *Mount) { m.SuperOptions = []string{"rw", `d="/a`, `d="/b`, "x"} })},
		{"plain blanks in options", "36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw,unc=//srv/My Docs,x", with(func(m *Mount) { m.SuperOptions = []string{"rw", "unc=//srv/My Docs", "x"} })},
		{"100 KB", "36 35 98:1 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw," + long, with(func(m *Mount) { m.SuperOptions = []string{"rw", long} })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Between two others, so that what is carried over would show.
			other := "7 1 0:5 / /o rw - tmpfs t rw\n"
			got := parse(t, other+tt.line+"\n"+other)
			if len(got.Bad) > 0 || len(got.Mounts) != 3 {
				t.Fatalf("%d mounts, bad: %v", len(got.Mounts), got.Bad)
			}
			if diff := cmp.Diff(tt.want, got.Mounts[1]); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(got.Mounts[0], got.Mounts[2]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseBadLine(t *testing.T) {
	good := "36 35 98:1 /mnt1 /mnt2 rw,noatime shared:1 - ext3 /dev/root rw,errors=continue\n"
	for _, tt := range []struct {
		name, line string
		reason     error
	}{
		{"empty", "", errID},
		{"text", "hello world", errID},
		{"signed id", "+36 35 98:1 / /m rw - ext3 d rw", errID},
		{"leading blank", " 36 35 98:1 / /m rw - ext3 d rw", errID},
		{"huge id", "99999999999999999999 35 98:1 / /m rw - ext3 d rw", errID},
		{"no parent", "36 x 98:1 / /m rw - ext3 d rw", errParent},
		{"no colon", "36 35 98 / /m rw - ext3 d rw", errDevice},
		{"two colons", "36 35 98:1:2 / /m rw - ext3 d rw", errDevice},
		{"relative", "36 35 98:1 / m rw - ext3 d rw", errPath},
		{"no options", "36 35 98:1 / /m  - ext3 d rw", errOptions},
		{"no separator", "36 35 98:1 / /m rw shared:1 ext3 d rw", errSeparator},
		{"nothing after the separator", "36 35 98:1 / /m rw -", errFS},
		{"no type", "36 35 98:1 / /m rw -  d rw", errFS},
		{"no super options", "36 35 98:1 / /m rw - ext3 d", errFS},
		{"empty super options", "36 35 98:1 / /m rw - ext3 d ", errFS},
		{"too long", "36 35 98:1 / /m rw - ext3 d rw," + strings.Repeat("x", maxLine), errTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse(t, good+tt.line+"\n"+good)
			if len(got.Mounts) != 2 || len(got.Bad) != 1 {
				t.Fatalf("%d mounts, bad: %v", len(got.Mounts), got.Bad)
			}
			text := strconv.Quote(tt.line)
			if len(tt.line) > 120 {
				text = strconv.Quote(tt.line[:120]) + "..."
			}
			if want := (BadLine{Line: 2, Reason: tt.reason.Error(), Text: text}); got.Bad[0] != want {
				t.Errorf("got %v\nwant %v", got.Bad[0], want)
			}
			// At the end of the table, with no newline after it.
			if tt.line != "" {
				if got := parse(t, good+tt.line); len(got.Mounts) != 1 || len(got.Bad) != 1 {
					t.Errorf("as the last line: %d mounts, bad: %v", len(got.Mounts), got.Bad)
				}
			}
		})
	}
}

// TestParseCut cuts a table after each of its bytes: all that is whole is there,
// and what is cut is always said.
func TestParseCut(t *testing.T) {
	text := "1 0 98:1 / / rw - ext3 /dev/root rw\n" + `2 1 0:5 /a\040b /c\134d rw shared:1 - tmpfs  rw,size=1k` + "\n"
	for n := range len(text) + 1 {
		got := parse(t, text[:n])
		whole := strings.Count(text[:n], "\n")
		cut := n > 0 && text[n-1] != '\n'
		if len(got.Mounts) < whole || cut != (len(got.Bad) == 1) {
			t.Fatalf("%q: %d mounts, bad: %v", text[:n], len(got.Mounts), got.Bad)
		}
		if cut && got.Bad[0].Reason != errCut.Error() {
			t.Fatalf("%q: %v", text[:n], got.Bad)
		}
		if len(got.Mounts) > whole && got.Mounts[whole].MountPoint != `/c\d` && got.Mounts[whole].MountPoint != "/" {
			t.Fatalf("%q: made up %+v", text[:n], got.Mounts[whole])
		}
	}
}

func TestParseLineNumbers(t *testing.T) {
	got := parse(t, "bad\n"+generate(1)+"worse\n\n"+generate(2)+"cut")
	var at []int
	for _, b := range got.Bad {
		at = append(at, b.Line)
	}
	if want := []int{1, 3, 4, 7}; !slices.Equal(at, want) || len(got.Mounts) != 3 {
		t.Fatalf("bad lines %v, want %v; %d mounts", at, want, len(got.Mounts))
	}
	if s := got.Bad[1].String(); !strings.Contains(s, "line 3") || !strings.Contains(s, `"worse"`) {
		t.Error(s)
	}
}

// TestParseReader reads through readers of every awkward kind.
func TestParseReader(t *testing.T) {
	text := generate(50) + "bad\n" + generate(1) + "51 1 0:9 / /long rw - overlay o rw,l=" + strings.Repeat("x", 200_000) + "\n" + generate(3)
	want := parse(t, text)
	for name, r := range map[string]io.Reader{
		"byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		"half":         iotest.HalfReader(strings.NewReader(text)),
		"data and EOF": iotest.DataErrReader(strings.NewReader(text)),
	} {
		got, err := Parse(r)
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Table{})); diff != "" {
			t.Error(name, diff)
		}
	}
	broken := errors.New("broken")
	for _, at := range []int{0, 10, 1000, 100_000} {
		if got, err := Parse(io.MultiReader(strings.NewReader(text[:at]), iotest.ErrReader(broken))); got != nil || !errors.Is(err, broken) {
			t.Errorf("an error after %d bytes gave %v, %v", at, got, err)
		}
	}
}

// generate makes a table like that of a node with pods: one line a mount, with
// unique peer groups.
func generate(n int) string {
	var b strings.Builder
	for i := range n {
		pod := fmt.Sprintf("/var/lib/kubelet/pods/52a4fa2e-7e24-44be-a5e5-%012d/volumes/", i/3)
		switch i % 3 {
		case 0:
			fmt.Fprintf(&b, "%d 66 7:3 /mnt/local%d %skubernetes.io~local-volume/local-fs rw,relatime shared:1 - ext4 /dev/loop3 rw\n", 100+i, i, pod)
		case 1:
			fmt.Fprintf(&b, "%d 66 0:%d / %skubernetes.io~projected/kube-api-access-9ptcj rw,relatime - tmpfs tmpfs rw,size=24581692k,noswap\n", 100+i, i, pod)
		case 2:
			fmt.Fprintf(&b, "%d 66 7:%d / %skubernetes.io~csi/pvc-80140b17-75e3-4b79-9037-%012d/mount rw,relatime shared:%d master:%d - ext4 /dev/loop%d rw\n", 100+i, i, pod, i, i, i+1, i)
		}
	}
	return b.String()
}

func TestParse100000Lines(t *testing.T) {
	const n = 100_000
	text := generate(n)
	got := parse(t, text)
	if len(got.Mounts) != n || len(got.Bad) > 0 {
		t.Fatalf("%d mounts, %d bad", len(got.Mounts), len(got.Bad))
	}
	i := 0
	for want := range strings.Lines(text) {
		if have := line(got.Mounts[i]); have != want {
			t.Fatalf("line %d\n%s was read as\n%s", i+1, want, have)
		}
		i++
	}
	if top, ok := got.Top(got.Mounts[n-1].MountPoint); !ok || top.ID != 100+n-1 {
		t.Error("the last one is not found")
	}
}

// TestParseRealNode reads the tables of a real node. On those, which have none of
// what blinds it, moby's parser must see the same.
func TestParseRealNode(t *testing.T) {
	for name, count := range map[string]int{"mountinfo.txt": 66, "mountinfo-kubelet-root.txt": 27} {
		file := filepath.Join("../../../testdata/real-node", name)
		got, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Mounts) != count || len(got.Bad) > 0 || got.Changed {
			t.Errorf("%s: %d mounts, want %d; changed %v; bad: %v", name, len(got.Mounts), count, got.Changed, got.Bad)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sameAsMoby(t, string(text), got)
		var printed strings.Builder
		for _, m := range got.Mounts {
			printed.WriteString(line(m))
		}
		if diff := cmp.Diff(string(text), printed.String()); diff != "" {
			t.Error(name, diff)
		}
	}
}

func sameAsMoby(t *testing.T, text string, got *Table) {
	t.Helper()
	infos, err := mountinfo.GetMountsFromReader(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []mountinfo.Info
	for _, i := range infos {
		want = append(want, *i)
	}
	var have []mountinfo.Info
	for _, m := range got.Mounts {
		have = append(have, info(m))
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func info(m Mount) mountinfo.Info {
	root := m.Root
	if m.Deleted {
		root += "//deleted"
	}
	return mountinfo.Info{
		ID: m.ID, Parent: m.Parent, Major: m.Major, Minor: m.Minor, Root: root, Mountpoint: m.MountPoint,
		Options: strings.Join(m.Options, ","), Optional: strings.Join(m.Optional, " "), FSType: m.FSType, Source: m.Source,
		VFSOptions: strings.Join(m.SuperOptions, ","),
	}
}
