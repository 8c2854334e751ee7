package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kvol/kvol/internal/api"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func mounts() *api.List[api.Mount] {
	pod := func(uid, volume, path string, state api.State) api.Mount {
		return api.Mount{
			Kind: api.KindPodVolume, Plugin: "kubernetes.io/local", Volume: volume, PodUID: uid, Path: path, Source: "/dev/loop3",
			FSType: "ext4", Options: []string{"rw", "relatime"}, MountID: 231, Device: "7:3", Root: "/", Mounted: true, Stacked: 1,
			State: state, Owner: api.OwnerUnknown,
		}
	}
	stale := pod("0a8e9c5e-4444-4bd5-8f4e-1c3ad3a0a1f2", "web", "/r/pods/b/volumes/kubernetes.io~nfs/web", api.StateStale)
	stale.StateReason, stale.Namespace, stale.PodName = "ESTALE", "shop", "web-0"
	hostile := pod("9b1f04c4-9a53-4f4e-9a57-6a6a1b8a2d11", "a\nb\x1b[31m  \u202ec", "/r/pods/c/x y", api.StateUnmounted)
	hostile.MountID, hostile.Mounted, hostile.Stacked, hostile.Options = 0, false, 0, nil
	return api.NewList("MountList", []api.Mount{
		pod("0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2", "data", "/r/pods/a/volumes/kubernetes.io~local-volume/data", api.StateOK),
		stale, hostile,
		{Kind: api.KindGlobalMount, Plugin: "kubernetes.io/local", Volume: "data", Path: "/r/plugins/kubernetes.io/local-volume/mounts/data",
			Source: "", FSType: "ext4", State: api.StateOK, Mounted: true, Stacked: 2, MountID: 7, ReadOnly: true, Owner: api.OwnerLive, Options: []string{"ro"}},
	}, []string{"line 7 of the mount table was skipped"})
}

func results() *api.List[api.Result] {
	set := api.PathSet{Plugin: "kubernetes.io/local", Volume: "data", GlobalMountPath: "/r/plugins/mounts/data",
		PodVolumePath: "/r/pods/a/volumes/l/data", Metadata: []string{}}
	return api.NewList("ResultList", []api.Result{
		{Op: "attach", Plugin: set.Plugin, Volume: "data", Paths: set, Outcome: api.OutcomeSkipped, Reason: "local volumes need no attach", Steps: []api.Step{}},
		{Op: "mount-device", Plugin: set.Plugin, Volume: "data", Paths: set, DevicePath: "/dev/loop3", Outcome: api.OutcomeDone, Steps: make([]api.Step, 3)},
		{Op: "publish", Plugin: set.Plugin, Volume: "data", PodUID: "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2", Paths: set, Outcome: api.OutcomeAlready, Steps: []api.Step{}},
	}, nil)
}

func plan() *api.Plan {
	return &api.Plan{
		List: api.NewList("StepList", []api.Step{
			{N: 1, Action: "mkdir", Target: "/r/a", Args: []string{"0750"}, Shell: "[ -d /r/a ] || mkdir -m 0750 /r/a", Reason: "the global mount\nrm -rf /"},
			{N: 2, Action: "bind", Target: "/r/b", Args: []string{"/r/a"}, Shell: "mountpoint -q /r/b || mount --bind /r/a /r/b", Reason: "into the pod"},
		}, nil),
		Facts: []string{"test -d /r", "[ \"$(cat '/r/it'\\''s')\" = 1 ]"},
	}
}

func inspected() *api.Inspection {
	return &api.Inspection{
		APIVersion: api.Version, Kind: "Inspection", Subject: "data", SubjectKind: "volume",
		Path:    &api.PathInfo{Path: "/r/x", Kind: "globalMount", Plugin: "kubernetes.io/local", Volume: "data", Index: -1},
		Volumes: []api.PathSet{results().Items[0].Paths}, Mounts: mounts().Items[:1],
		Devices: []api.Device{{Name: "loop3", Path: "/dev/loop3", Number: "7:3", Type: "loop", Size: 1 << 26, Backing: "/img"}},
		Specs: []api.SpecInfo{{Plugin: "kubernetes.io/local-volume", Volume: "data", PodUID: "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2",
			Fields: map[string]string{"spec.local.path": "/dev/sdb", "spec.volumeMode": "Filesystem"}, Missing: []string{"spec.local.fsType"}}},
		Metadata: []api.Metadata{{Path: "/r/vol_data.json", State: "broken", Data: map[string]string{"driver": "d", "a": "x\ty"}}},
		Plugins:  plugins().Items,
		Warnings: []string{"the helper did not answer"},
	}
}

func plugins() *api.List[api.Info] {
	return api.NewList("PluginList", []api.Info{{
		Name: "kubernetes.io/local", Description: "a directory or a disk of this node", AccessModes: []string{"ReadWriteOnce"},
		Rungs: []string{"DeviceMountable", "Block"}, Since: "1.7",
		Tools: []api.Tool{{Name: "mkfs.ext4", Path: "/usr/sbin/mkfs.ext4", Present: true}, {Name: "mkfs.xfs"}},
	}}, nil)
}

func operations() *api.List[api.Operation] {
	return api.NewList("OperationList", []api.Operation{{
		Time: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), ID: "01", Verb: "teardown", Plugin: "kubernetes.io/local", Volume: "data",
		PodUID: "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2", Outcome: "interrupted", Risks: []string{"--lazy"}, User: "root", PID: 41, Steps: make([]api.Step, 2),
	}}, nil)
}

func infos() *api.List[api.PathInfo] {
	return api.NewList("PathInfoList", []api.PathInfo{
		{Path: "/r/pods/a/volume-subpaths/v/c/0", Kind: "subPath", Volume: "v", PodUID: "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2", Container: "c"},
		{Path: "/etc", Kind: "none", Index: -1},
	}, nil)
}

func settings() *api.List[api.Setting] {
	return api.NewList("SettingList", []api.Setting{{Name: "root-dir", Value: "/r", Origin: "env KVOL_ROOT_DIR"}, {Name: "node-name", Origin: "default"}}, nil)
}

// write is a result with its view, whatever type it is of.
type write struct {
	check Checker
	to    func(o Options) (string, error)
}

func list[T any](v View[T], l *api.List[T]) write {
	return write{v, func(o Options) (string, error) {
		var b bytes.Buffer
		err := v.Write(&b, l, o)
		return b.String(), err
	}}
}

func document[T any](d Document[T], v T) write {
	return write{d, func(o Options) (string, error) {
		var b bytes.Buffer
		err := d.Write(&b, v, o)
		return b.String(), err
	}}
}

func TestGolden(t *testing.T) {
	t.Setenv("TZ", "UTC")
	time.Local = time.UTC
	plans := write{Plans(), func(o Options) (string, error) {
		var b bytes.Buffer
		err := Plans().Write(&b, plan(), o)
		return b.String(), err
	}}
	for name, w := range map[string]write{
		"mounts": list(Mounts(), mounts()), "mounts-empty": list(Mounts(), api.NewList[api.Mount]("MountList", nil, nil)),
		"results": list(Results(), results()), "plan": plans, "plugins": list(Plugins(), plugins()),
		"operations": list(Operations(), operations()), "pathinfos": list(PathInfos(), infos()),
		"settings": list(Settings(false), settings()), "settings-origin": list(Settings(true), settings()),
		"pathset":    document(Paths(), &results().Items[0].Paths),
		"inspection": document(Inspection(), inspected()),
		"version": document(Version(), &api.VersionInfo{APIVersion: api.Version, Kind: "VersionInfo", Version: "v1", Commit: "c", Date: "d",
			Go: "go1.26", Platform: "linux/amd64"}),
	} {
		for _, f := range []Format{Table, Wide, JSON, JSONL, YAML, Name, Shell} {
			o := Options{Format: f}
			if w.check.Check(o) != nil {
				continue
			}
			t.Run(name+"."+string(f), func(t *testing.T) {
				got, err := w.to(o)
				if err != nil {
					t.Fatal(err)
				}
				golden(t, name+"."+string(f), got)
				if f == JSON && !json.Valid([]byte(got)) {
					t.Error("this is not JSON")
				}
			})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"columns":        {Options{Format: Table, Columns: []string{"volume", "STATE"}}, "VOLUME"},
		"column added":   {Options{Format: Table, Columns: []string{"+mountID"}, NoHeaders: true}, "podVolume"},
		"short stays":    {Options{Format: Table, Columns: []string{"pod"}}, "POD\n0a8e9c5e-3\n"},
		"whole in wide":  {Options{Format: Wide, Columns: []string{"podUID"}}, "POD\n0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2\n"},
		"sorted":         {Options{Format: Name, SortBy: "MOUNTID"}, "\"\""},
		"sorted in json": {Options{Format: JSON, SortBy: "path"}, `{"apiVersion"`},
		"colour":         {Options{Format: Table, Columns: []string{"state", "volume"}, Color: true}, "STATE"},
		"nul":            {Options{Format: Name, Null: true}, "/r/pods/a"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Mounts().Check(c.o); err != nil {
				t.Fatal(err)
			}
			got, err := list(Mounts(), mounts()).to(c.o)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "options-"+strings.ReplaceAll(name, " ", "-"), got)
		})
	}
	for name, o := range map[string]Options{
		"no such format": {Format: "xml"}, "shell of a list": {Format: Shell}, "no such column": {Format: Table, Columns: []string{"+nope"}},
		"no such order": {Format: JSON, SortBy: "nope"}, "nul in a table": {Format: Table, Null: true}, "columns in json": {Format: JSON, Columns: []string{"path"}},
	} {
		if err := Mounts().Check(o); !errors.Is(err, api.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Paths().Check(Options{Format: Table, SortBy: "path"}); !errors.Is(err, api.ErrUsage) {
		t.Errorf("an order for a document: %v", err)
	}
	if err := Version().Check(Options{Format: Name}); !errors.Is(err, api.ErrUsage) || !strings.Contains(err.Error(), "table, wide, json, jsonl, yaml") {
		t.Errorf("names of a document that has none: %v", err)
	}
}

// A table has one line an item, and a terminal obeys no name, whatever it is.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"a\nb", "a\rb", "\x1b]0;x\x07", "a\x00b", "a\tb", "a  b", " a", "a ", "\xff\xfe", "\u202eabc", "\u2028", "-", "\"", "\u009b2J", "\x7f"} {
		l := api.NewList("MountList", []api.Mount{{Kind: "other", Volume: name, Path: name, Source: name}}, nil)
		for _, f := range []Format{Table, Wide, Name, JSON} {
			got, err := list(Mounts(), l).to(Options{Format: f, NoHeaders: true})
			if err != nil {
				t.Fatal(err)
			}
			lines := 1
			if f == JSON {
				lines = 3
				var back api.List[api.Mount]
				if err := json.Unmarshal([]byte(got), &back); err != nil || back.Items[0].Path != api.Text(name) {
					t.Errorf("%q comes back as %+v: %v", name, back.Items, err)
				}
			}
			if strings.Count(got, "\n") != lines || f != JSON && !printable(strings.TrimSuffix(got, "\n")) {
				t.Errorf("%q breaks %s: %q", name, f, got)
			}
			if f == JSON && strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r != '\ufffd' && !unicode.IsPrint(r) }) {
				t.Errorf("%q is obeyed in JSON: %q", name, got)
			}
			if f == Table && strings.Contains(got, "a  b") && !strings.Contains(got, `"a  b"`) {
				t.Errorf("%q looks like two columns: %q", name, got)
			}
		}
	}
}

func TestShortest(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{[]string{"0123456789", "1123456789", ""}, []string{"01234567", "11234567", ""}},
		{[]string{"0123456789", "0123456799", "0123456789"}, []string{"012345678", "012345679", "012345678"}},
		{[]string{"01234567", "0123456789"}, []string{"01234567", "012345678"}},
		{[]string{"x"}, []string{"x"}},
		{[]string{"01234567\n890"}, []string{"01234567\n890"}},
	} {
		short := shortest(c.in)
		for i, uid := range c.in {
			if got := short(uid); got != c.want[i] {
				t.Errorf("%q of %q: %q, want %q", uid, c.in, got, c.want[i])
			}
		}
	}
}

// The script is bash, runs its steps in order, and stops where a fact fails.
func TestScript(t *testing.T) {
	run := func(p *api.Plan) (string, int) {
		var b bytes.Buffer
		if err := Plans().Write(&b, p, Options{Format: Shell}); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if !strings.HasPrefix(line, "#") && strings.Contains(line, "kvol") {
				t.Errorf("the script needs kvol: %s", line)
			}
		}
		cmd := exec.Command("bash")
		cmd.Stdin = &b
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	steps := api.NewList("StepList", []api.Step{
		{N: 1, Shell: "echo one", Reason: "a\necho injected"}, {N: 2, Shell: "X='it'\necho two $X"}}, nil)
	if out, code := run(&api.Plan{List: steps, Facts: []string{"true", "true && true"}}); code != 0 || out != "one\ntwo it\n" {
		t.Errorf("%d %q", code, out)
	}
	if out, code := run(&api.Plan{List: steps, Facts: []string{"[ it = 'isn'\\''t' ]"}}); code != 4 || !strings.Contains(out, `no longer holds: [ it = 'isn'\''t' ]`) || strings.Contains(out, "one") {
		t.Errorf("%d %q", code, out)
	}
	err := Plans().Write(&bytes.Buffer{}, &api.Plan{List: steps, NoShell: "3 format /dev/x"}, Options{Format: Shell})
	if !errors.Is(err, api.ErrNotSupported) || !strings.Contains(err.Error(), "step 3 format /dev/x") {
		t.Errorf("no shell form: %v", err)
	}
}

// A reader that is gone or full is an error and not silence.
func TestWriteErrors(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, f := range []Format{Table, JSON, YAML, Name} {
		if err := Mounts().Write(full, mounts(), Options{Format: f}); err == nil {
			t.Errorf("%s: no error", f)
		}
	}
	if err := Plans().Write(full, plan(), Options{Format: Shell}); err == nil {
		t.Error("shell: no error")
	}
	if err := Inspection().Write(full, inspected(), Options{Format: Table}); err == nil {
		t.Error("inspection: no error")
	}
}

func BenchmarkMounts(b *testing.B) {
	l := mounts()
	one := l.Items[0]
	l.Items = make([]api.Mount, 10_000)
	for i := range l.Items {
		l.Items[i] = one
	}
	for _, f := range []Format{Table, JSON, Name} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := Mounts().Write(discard{}, l, Options{Format: f}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
