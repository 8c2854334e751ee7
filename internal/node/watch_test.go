package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/testutil"
)

// watched is a list that is watched in a test.
type watched struct {
	*scratch
	*Watcher
	looks int
}

func (s *scratch) watch(h *host.Host, o ListOptions, interval time.Duration) *watched {
	s.t.Helper()
	w, err := NewWatcher(h, o, interval)
	s.must(err)
	s.t.Cleanup(w.Close)
	return &watched{scratch: s, Watcher: w}
}

// look is one look: "added rel state", a line an event.
func (w *watched) look() []string {
	w.t.Helper()
	w.looks++
	events, _, err := w.Look(w.t.Context())
	w.must(err)
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s %s", e.Type, strings.TrimPrefix(e.Object.Path, w.root+"/"), e.Object.State))
	}
	return out
}

// until looks until an event is told, and gives all events up to then.
func (w *watched) until(event string) []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	var out []string
	for !slices.Contains(out, event) {
		if err := w.Wait(ctx); err != nil {
			w.t.Fatalf("%q is not told, but %q: %v", event, out, err)
		}
		out = append(out, w.look()...)
	}
	return out
}

func (w *watched) want(got []string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

const nfsA = volumesA + "kubernetes.io~nfs/"

// TestWatch: what the kernel tells comes at once (the interval is an hour).
func TestWatch(t *testing.T) {
	s := newScratch(t)
	old := s.tmpfs(nfsA + "old")
	s.mkdir(nfsA + "empty")
	w := s.watch(s.host(), ListOptions{Probe: true}, time.Hour)
	w.want(w.look(), "added "+nfsA+"empty unmounted", "added "+nfsA+"old ok")
	w.want(w.look())

	s.tmpfs(nfsA + "new")
	w.want(w.until("added "+nfsA+"new ok"), "added "+nfsA+"new ok")
	s.tmpfs(nfsA + "empty")
	w.want(w.until("modified "+nfsA+"empty ok"), "modified "+nfsA+"empty ok")
	s.must(unix.Unmount(old, 0), os.Remove(old))
	w.want(w.until("removed "+nfsA+"old ok"), "removed "+nfsA+"old ok")
	// Remounted, by whatever way it differs.
	s.must(unix.Mount("", s.at(nfsA+"new"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	w.want(w.until("modified "+nfsA+"new ok"), "modified "+nfsA+"new ok")
}

// TestWatchByInterval: what no mount event tells.
func TestWatchByInterval(t *testing.T) {
	s := newScratch(t)
	fuse := testutil.FUSE(t, s.mkdir(nfsA+"fuse"), testutil.FUSEAlive)
	h := s.host()
	h.ProbeTimeout = 100 * time.Millisecond
	w := s.watch(h, ListOptions{Probe: true}, 10*time.Millisecond)
	w.want(w.look(), "added "+nfsA+"fuse ok")
	s.mkdir(nfsA + "empty")
	w.want(w.until("added "+nfsA+"empty unmounted"), "added "+nfsA+"empty unmounted")
	fuse.Stop()
	w.want(w.until("modified "+nfsA+"fuse unresponsive"), "modified "+nfsA+"fuse unresponsive")
	for range 20 {
		s.must(w.Wait(t.Context()))
		w.want(w.look())
	}
	raw, err := os.ReadFile(s.dir + "/run/stuck-probes.json")
	s.must(err)
	var stuck []json.RawMessage
	if err := json.Unmarshal(raw, &stuck); err != nil || len(stuck) != 1 {
		t.Errorf("one probe hangs, and the memo has %d: %s %v", len(stuck), raw, err)
	}
	fuse.Kill()
	w.want(w.until("modified "+nfsA+"fuse disconnected"), "modified "+nfsA+"fuse disconnected")
}

// TestWatchBurst: a thousand mounts are not a thousand looks, and each is told; what
// came and went is not there at the end, whatever was seen of it.
func TestWatchBurst(t *testing.T) {
	s := newScratch(t)
	w := s.watch(s.host(), ListOptions{Probe: true}, time.Hour)
	s.mkdir(nfsA + "last") // a look may fall between it and its mount
	w.want(w.look(), "added "+nfsA+"last unmounted")
	source := s.tmpfs("plugins/own")
	const n = 1000
	go func() {
		for i := range n {
			s.bind(source, fmt.Sprintf("%svolume-%04d", nfsA, i))
		}
		for range 100 {
			at := s.at(nfsA + "brief")
			if os.MkdirAll(at, 0o750) != nil || unix.Mount("brief", at, "tmpfs", 0, "") != nil || unix.Unmount(at, 0) != nil {
				t.Error("the brief mount failed")
			}
		}
		s.tmpfs(nfsA + "last")
	}()
	events := w.until("modified " + nfsA + "last ok")
	there := map[string]int{}
	state := map[string]string{}
	for _, e := range events {
		f := strings.Fields(e)
		there[f[0]]++
		state[f[1]] = f[2]
	}
	if w.looks > n/10 || there["added"] < n+2 || there["removed"] > 0 || state[nfsA+"brief"] != "unmounted" || state[nfsA+"volume-0999"] != "ok" {
		t.Errorf("%d looks, %v, the brief one %q", w.looks, there, state[nfsA+"brief"])
	}
}

// TestWatchElsewhere: a change elsewhere on the machine, or none below the root, is no
// reason to look.
func TestWatchElsewhere(t *testing.T) {
	s := newScratch(t)
	w := s.watch(s.host(), ListOptions{}, time.Hour)
	w.look()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- w.Wait(ctx) }()
	testutil.Tmpfs(t, s.mkdir(s.dir+"/elsewhere"))
	select {
	case err := <-done:
		t.Errorf("it ended: %v", err)
	case <-time.After(4 * settle): // to see what must not come
		cancel()
		if err := <-done; err == nil {
			t.Error("it did not end with its context")
		}
	}
}

// TestWatchRecording: a table that no kernel tells of is read every interval.
func TestWatchRecording(t *testing.T) {
	s := newScratch(t)
	proc := s.mkdir(s.dir + "/proc")
	s.mkdir(proc + "/self")
	line := func(n int) string {
		return fmt.Sprintf("%d 1 0:%[1]d / %s rw - nfs nas:/x rw\n", n, s.at(fmt.Sprintf("%sv%d", nfsA, n)))
	}
	s.must(os.WriteFile(proc+"/self/mountinfo", []byte(line(50)), 0o600))
	h, err := host.New(host.Options{RootDir: s.root, RunDir: s.dir + "/run", ProcRoot: proc})
	s.must(err)
	defer h.Close()
	w := s.watch(h, ListOptions{}, time.Millisecond)
	w.want(w.look(), "added "+nfsA+"v50 unknown")
	s.must(os.WriteFile(proc+"/self/mountinfo", []byte(line(51)), 0o600))
	got := w.until("added " + nfsA + "v51 unknown")
	slices.Sort(got)
	w.want(slices.Compact(got), "added "+nfsA+"v51 unknown", "removed "+nfsA+"v50 unknown")
}

// TestWatchFilters: a device is that of the beginning also when it is gone, and who a
// pod is, is asked again when there is a new one.
func TestWatchFilters(t *testing.T) {
	s := newScratch(t)
	dev, _ := testutil.LoopImage(t, 16<<20)
	testutil.Mkfs(t, dev, "ext4")
	disk := s.mkdir(globals + "disk")
	testutil.Mount(t, dev, disk, "ext4", 0, "")
	s.symlink(dev, "disk")
	w := s.watch(s.host(), ListOptions{Probe: true, Device: []string{s.at("disk")}}, time.Hour)
	w.want(w.look(), "added "+globals+"disk ok")
	s.must(os.Remove(s.at("disk")), unix.Unmount(disk, 0))
	w.want(w.until("removed "+globals+"disk ok"), "removed "+globals+"disk ok")

	list := s.dir + "/pods.json"
	pod := func(uid string) string {
		return `{"kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"` + uid + `"}}`
	}
	s.must(os.WriteFile(list, []byte(pod(podA)), 0o600))
	s.tmpfs(nfsA + "data")
	w = s.watch(s.host(), ListOptions{Probe: true, Pod: []string{"web"}, Pods: alive.Options{From: []string{"file:" + list}}}, time.Hour)
	w.want(w.look(), "added "+nfsA+"data ok")
	s.must(os.WriteFile(list, []byte(`{"kind":"List","items":[`+pod(podA)+`,`+pod(podB)+`]}`), 0o600))
	s.tmpfs(volumesB + "kubernetes.io~nfs/data")
	w.want(w.until("added "+volumesB+"kubernetes.io~nfs/data ok"), "added "+volumesB+"kubernetes.io~nfs/data ok")
}

// TestWatchUnsure: what cannot be looked at is not gone.
func TestWatchUnsure(t *testing.T) {
	w := &Watcher{changes: &changes{}, known: map[string]api.Mount{"/a/b": {Path: "/a/b"}, "/c": {Path: "/c"}}}
	s := &snapshot{table: &mounts.Table{}, unread: []string{"/a"}}
	events := w.events(nil, s.unsure)
	if len(events) != 1 || events[0].Object.Path != "/c" || len(w.known) != 1 {
		t.Errorf("%+v", events)
	}
}
