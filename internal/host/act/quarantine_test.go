package act

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

const aPod = "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2"

// newRunner is a runner on a new kubelet root, dir/root; the context ends with the test.
func newRunner(t *testing.T, dry bool) (dir string, fresh func() *Runner, ctx context.Context) {
	t.Helper()
	testutil.Root(t)
	dir = testutil.TempDir(t)
	mkdirs(t, dir+"/root/pods", dir+"/root/plugins")
	helper := probe.New("")
	t.Cleanup(helper.Close)
	root, err := safefs.OpenLayout(dir + "/root")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	own, err := safefs.OwnDir(dir + "/state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return dir, func() *Runner {
		r, err := NewRunner(Config{
			Root: root, Layout: paths.Layout{Root: dir + "/root"}, Helper: helper,
			Devices: devices.New("/sys", "/dev", "/proc", helper),
			Mounts:  func() (*mounts.Table, error) { return mounts.Read("/proc/self/mountinfo") }, DryRun: dry,
			Journal: Journal{State: own, Run: own}.Begin(api.Entry{Verb: "test"}, func(s string) { t.Log(s) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r
	}, ctx
}

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	mkdirs(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestQuarantine(t *testing.T) {
	dir, fresh, ctx := newRunner(t, false)
	vol, away := dir+"/root/pods/"+aPod+"/volumes/kubernetes.io~empty-dir/cache", dir+"/away"
	name := aPod + "_kubernetes.io~empty-dir_cache"
	a := Quarantine{Path: vol, Dir: away}
	write(t, vol+"/data", "1")
	if _, err := fresh().Do(ctx, a); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("no directory to move to: %v", err)
	}
	if err := os.Mkdir(away, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{name, name + ".1"} {
		write(t, vol+"/data", "1")
		r := fresh()
		v, err := r.Do(ctx, a)
		if err != nil || v.String() != away+"/"+want || len(r.Steps()) != 1 {
			t.Fatalf("%s %v %v", v, err, r.Steps())
		}
		if raw, err := os.ReadFile(away + "/" + want + "/data"); err != nil || string(raw) != "1" {
			t.Errorf("%q %v", raw, err)
		}
		// Again: there is nothing.
		r = fresh()
		if _, err := r.Do(ctx, a); err != nil || len(r.Steps()) != 0 {
			t.Errorf("%v %v", r.Steps(), err)
		}
	}
}

// What is mounted in the directory would go with it.
func TestQuarantineRefuses(t *testing.T) {
	dir, fresh, ctx := newRunner(t, false)
	vol, away := dir+"/root/pods/"+aPod+"/volumes/kubernetes.io~empty-dir/cache", dir+"/away"
	write(t, vol+"/data", "1")
	mkdirs(t, vol+"/in", dir+"/other")
	if err := os.Mkdir(away, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(away, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	refuse := func(a Quarantine, want error) {
		t.Helper()
		before := testutil.Tree(t, dir+"/root")
		_, err := fresh().Do(ctx, a)
		if e := api.NewErrorDoc(err); !errors.Is(err, want) || e.Path != vol && !strings.HasSuffix(e.Path, a.Dir) && e.Path != a.Path {
			t.Errorf("%v (at %q), want %v", err, e.Path, want)
		}
		if after := testutil.Tree(t, dir+"/root"); after != before {
			t.Errorf("changed:\n%s", after)
		}
	}
	refuse(Quarantine{Path: vol, Dir: dir + "/link"}, api.ErrRefused)
	refuse(Quarantine{Path: vol, Dir: "away"}, api.ErrUsage)
	refuse(Quarantine{Path: vol, Dir: dir + "/root/pods"}, api.ErrRefused)
	refuse(Quarantine{Path: filepath.Dir(vol), Dir: away}, api.ErrRefused)
	testutil.Bind(t, dir+"/other", vol+"/in", false)
	refuse(Quarantine{Path: vol, Dir: away}, api.ErrBusy)
}

// The script moves the same way, and refuses the same.
func TestQuarantineShell(t *testing.T) {
	dir, fresh, ctx := newRunner(t, true)
	vol, away := dir+"/root/pods/"+aPod+"/volumes/kubernetes.io~empty-dir/cache", dir+"/away"
	write(t, vol+"/data", "1")
	if err := os.Mkdir(away, 0o700); err != nil {
		t.Fatal(err)
	}
	r := fresh()
	if _, err := r.Do(ctx, Quarantine{Path: vol, Dir: away}); err != nil || len(r.Steps()) != 1 {
		t.Fatal(r.Steps(), err)
	}
	if e, err := r.Entry(vol); err != nil || e.Present {
		t.Errorf("the plan still has it: %+v %v", e, err)
	}
	script := "set -eu\n" + r.Steps()[0].Shell
	mkdirs(t, vol+"/in")
	testutil.Tmpfs(t, vol+"/in")
	if code, said := bash(t, script); code != 4 || !strings.Contains(said, "mounted in it") {
		t.Errorf("%d %s", code, said)
	}
	unmountAll(t, vol+"/in")
	testutil.Tmpfs(t, away)
	if code, said := bash(t, script); code != 4 || !strings.Contains(said, "another mount") {
		t.Errorf("%d %s", code, said)
	}
	unmountAll(t, away)
	for _, name := range []string{"", ".1"} {
		write(t, vol+"/data", "1")
		for range 2 { // the second time there is nothing
			if code, said := bash(t, script); code != 0 {
				t.Fatal(code, said)
			}
		}
		if _, err := os.Stat(away + "/" + aPod + "_kubernetes.io~empty-dir_cache" + name + "/data"); err != nil {
			t.Error(err)
		}
	}
}
