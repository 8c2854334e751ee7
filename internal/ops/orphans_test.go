package ops_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

const (
	podLive  = "0a1b2c3d-0000-4000-8000-00000000000a"
	podGone  = "0a1b2c3d-0000-4000-8000-00000000000b"
	podOther = "0a1b2c3d-0000-4000-8000-00000000000c"
)

// orphans is a node with a pod that lives, and a clean-up that something happens in.
type orphans struct {
	*ops.Ops
	t         *testing.T
	root, dir string
	looks     int
	// atLook is what happens right before a look at the node, counted from 1.
	atLook map[int]func()
}

func newOrphans(t *testing.T) *orphans {
	t.Helper()
	testutil.Root(t)
	n := &orphans{t: t, dir: testutil.TempDir(t), atLook: map[int]func(){}}
	n.root = n.dir + "/kubelet"
	n.write(n.pod(podLive) + "/etc-hosts")
	h, err := host.New(host.Options{RootDir: n.root, StateDir: n.dir + "/state", RunDir: n.dir + "/run", Progress: n.progress})
	n.must(err)
	t.Cleanup(h.Close)
	mgr := plugins.NewManager()
	n.must(mgr.InitPlugins(all.All(), nil, h))
	n.Ops = ops.New(h, mgr)
	n.list(podLive)
	return n
}

func (n *orphans) must(errs ...error) {
	n.t.Helper()
	if err := errors.Join(errs...); err != nil {
		n.t.Fatal(err)
	}
}

func (n *orphans) progress(text string) {
	if text != "asking which pods live here" {
		return
	}
	n.looks++
	if f := n.atLook[n.looks]; f != nil {
		f()
	}
}

func (n *orphans) pod(uid string) string { return n.root + "/pods/" + uid }

func (n *orphans) write(path string) {
	n.t.Helper()
	n.must(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, nil, 0o600))
}

// memory mounts a volume of a pod, of a plugin that kvol does not have.
func (n *orphans) memory(uid string) string {
	n.t.Helper()
	at := n.pod(uid) + "/volumes/vendor~driver/v"
	n.must(os.MkdirAll(at, 0o750))
	testutil.Tmpfs(n.t, at)
	return at
}

// list writes the list of live pods: all that is there is older.
func (n *orphans) list(uids ...string) {
	n.t.Helper()
	n.must(os.WriteFile(n.dir+"/pods.txt", []byte(strings.Join(uids, "\n")+"\n"), 0o600))
	now := time.Now() // the clock that files are stamped by is behind
	n.must(os.Chtimes(n.dir+"/pods.txt", now, now))
}

// gc cleans up, and gives what came of each pod's directory.
func (n *orphans) gc(want error, req ops.OrphanRequest) map[string]api.Orphan {
	n.t.Helper()
	req.Pods = alive.Options{From: []string{"file:" + n.dir + "/pods.txt"}}
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	list, err := n.CleanOrphans(ctx, req)
	if list == nil || !errors.Is(err, want) || (err == nil) != (want == nil) {
		n.t.Fatalf("ended with %v, not %v", err, want)
	}
	out := map[string]api.Orphan{}
	for _, o := range list.Items {
		out[o.PodUID] = o
	}
	return out
}

func (n *orphans) there(want bool, path string) {
	n.t.Helper()
	if _, err := os.Lstat(path); (err == nil) != want {
		n.t.Errorf("%s: %v", path, err)
	}
}

// After one that failed nothing is begun, and with KeepGoing the others go.
func TestKeepGoing(t *testing.T) {
	n := newOrphans(t)
	n.write(n.pod(podGone) + "/etc-hosts")
	n.write(n.pod(podOther) + "/etc-hosts")
	n.list(podLive)
	n.Hook = func(p act.Point, _ int, s api.Step) error {
		if p == act.Before && strings.Contains(s.Target, podGone) {
			return errors.New("the disk is on fire")
		}
		return nil
	}
	done := n.gc(api.ErrPartly, ops.OrphanRequest{})
	if o := done[podOther]; o.Outcome != string(api.OutcomeSkipped) || !strings.Contains(o.Reason, "--keep-going") || len(o.Steps) > 0 {
		t.Errorf("%+v", o)
	}
	n.there(true, n.pod(podOther)+"/etc-hosts")
	done = n.gc(api.ErrPartly, ops.OrphanRequest{KeepGoing: true})
	if o := done[podGone]; o.Outcome != string(api.OutcomeFailed) || !strings.Contains(o.Reason+o.Stays[0].Reason, "on fire") {
		t.Errorf("%+v", o)
	}
	if o := done[podOther]; o.Outcome != string(api.OutcomeDone) {
		t.Errorf("%+v", o)
	}
	n.there(false, n.pod(podOther))
	n.there(true, n.pod(podGone)+"/etc-hosts")
}

// A process that gets hold of a volume after the look is named, and the volume stays.
func TestOrphanBusyHolders(t *testing.T) {
	n := newOrphans(t)
	at := n.memory(podGone)
	n.list(podLive)
	var holder *exec.Cmd
	n.Hook = func(p act.Point, _ int, s api.Step) error {
		if p == act.Before && s.Action == "unmount" && holder == nil {
			holder = exec.Command("sleep", "600")
			holder.Dir = at
			n.must(holder.Start())
		}
		return nil
	}
	o := n.gc(api.ErrPartly, ops.OrphanRequest{})[podGone]
	if holder == nil {
		t.Fatalf("nothing was unmounted: %+v", o)
	}
	defer func() { _ = holder.Wait() }() // it was killed
	defer func() { n.must(holder.Process.Kill()) }()
	if len(o.Stays) == 0 || o.Stays[0].Path != at || o.Stays[0].BlockedBy != api.BlockedByBusy {
		t.Fatalf("%+v", o)
	}
	for _, word := range []string{"process ", "(sleep)", at, "cwd"} {
		if !strings.Contains(o.Stays[0].Reason, word) {
			t.Errorf("%q is not said: %s", word, o.Stays[0].Reason)
		}
	}
}

// What only the second look finds is not gone since it was not there a moment ago, and
// what the second list names lives.
func TestOrphansThatAppearBetweenTheLooks(t *testing.T) {
	n := newOrphans(t)
	n.write(n.pod(podGone) + "/etc-hosts")
	n.list(podLive)
	global := n.root + "/plugins/kubernetes.io/local-volume/mounts/pv"
	n.atLook[2] = func() {
		n.write(n.pod(podOther) + "/etc-hosts")
		n.must(os.MkdirAll(global, 0o750))
		n.list(podLive)
	}
	done := n.gc(nil, ops.OrphanRequest{})
	for _, o := range []api.Orphan{done[podOther], done[""]} {
		if o.Verdict != api.VerdictUnknown || !strings.Contains(o.Reason, "a look just before") || len(o.Steps) > 0 || o.Outcome != "" {
			t.Errorf("%+v", o)
		}
	}
	n.there(true, n.pod(podOther)+"/etc-hosts")
	n.there(true, global)
	n.there(false, n.pod(podGone))

	// The name of a static pod's directory comes again.
	n.looks = 0
	n.atLook[2] = func() { n.list(podLive, podOther) }
	if o := n.gc(nil, ops.OrphanRequest{})[podOther]; o.Verdict != api.VerdictLive {
		t.Errorf("%+v", o)
	}
	n.there(true, n.pod(podOther)+"/etc-hosts")
}

// What a live pod may have behind a link in the place of a volume cannot be seen: what
// is of that name, or of any volume of CSI, stays.
func TestOrphansBehindALink(t *testing.T) {
	n := newOrphans(t)
	plugins, volumes := n.root+"/plugins/kubernetes.io", n.pod(podLive)+"/volumes"
	own, other, staged := plugins+"/local-volume/mounts/pv", plugins+"/local-volume/mounts/other", plugins+"/csi/some.driver/"+strings.Repeat("a", 64)
	for _, dir := range []string{own, other, staged + "/globalmount", volumes + "/kubernetes.io~local-volume", volumes + "/kubernetes.io~csi"} {
		n.must(os.MkdirAll(dir, 0o750))
	}
	n.must(os.Symlink(n.dir, volumes+"/kubernetes.io~local-volume/pv"), os.Symlink(n.dir, volumes+"/kubernetes.io~csi/x"))
	n.list(podLive)
	n.gc(nil, ops.OrphanRequest{})
	n.there(true, own)
	n.there(true, staged+"/globalmount")
	n.there(false, other)
	n.must(os.Remove(volumes+"/kubernetes.io~local-volume/pv"), os.Remove(volumes+"/kubernetes.io~csi/x"))
	n.gc(nil, ops.OrphanRequest{})
	n.there(false, own)
	n.there(false, staged)
}
