package node

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/testutil"
)

// waiter waits for a condition of one subject.
func (s *scratch) waiter(is api.Condition, of WaitSubject, attached func() error) *Waiter {
	s.t.Helper()
	h := s.host()
	mgr := plugins.NewManager()
	s.must(mgr.InitPlugins(all.All(), nil, h))
	w, err := NewWaiter(h, mgr, WaitRequest{Subjects: []WaitSubject{of}, Condition: is,
		Attached: func(context.Context, *plugins.Spec, string) error { return attached() }})
	s.must(err)
	s.t.Cleanup(w.Close)
	return w
}

// state is one look: "met", or why not.
func (s *scratch) state(w *Waiter) string {
	s.t.Helper()
	l, met, err := w.Look(s.t.Context())
	s.must(err)
	if met != (l.Items[0].Reason == "") || met != l.Items[0].Met {
		s.t.Errorf("%+v", l.Items[0])
	}
	if met {
		return "met"
	}
	return l.Items[0].Reason
}

// TestWaitStates: what each subject is, as it is.
func TestWaitStates(t *testing.T) {
	n := newLived(t)
	dead := testutil.FUSE(t, n.mkdir(volumesB+"kubernetes.io~nfs/dead"), testutil.FUSEDead)
	n.must(os.Symlink(n.dir+"/storage", n.dir+"/to-storage"), os.Symlink(dead.Path, n.dir+"/to-dead"))
	n.mkdir("pods/plain/volumes/kubernetes.io~configmap/cm")
	n.mkdir("pods/flex/volumes/vendor~flex/f")
	n.tmpfs("pods/sub/volume-subpaths/gone/app/0")
	const uuid = "11111111-2222-4333-8444-555555555555"
	type want struct{ mounted, unmounted, healthy string }
	const met, nothing = "met", "no pod on this node has it"
	for word, c := range map[string]struct {
		of   WaitSubject
		want want
	}{
		"in two pods":                {WaitSubject{Word: "disk"}, want{met, "3 mounts, devices or directories of it are left", met}},
		"in one of them":             {WaitSubject{Word: "disk", PodUID: podA}, want{met, "1 mount, device", met}},
		"in another pod":             {WaitSubject{Word: "dir", PodUID: podB}, want{nothing, met, nothing}},
		"only staged":                {WaitSubject{Word: driver + "^h-3"}, want{nothing, "1 mount, device", nothing}},
		"a directory of CSI":         {WaitSubject{Word: driver + "^h-4"}, want{nothing, "whether 1 place of it is unmounted is not known", nothing}},
		"only the global mount":      {WaitSubject{Word: "pool"}, want{nothing, "1 mount, device", nothing}},
		"of two plugins, one named":  {WaitSubject{Word: "data", Plugin: nfs}, want{"nothing is mounted on", met, "is unmounted: the directory"}},
		"of nobody":                  {WaitSubject{Word: "none"}, want{nothing, "3 mounts could be of it", nothing}},
		"of nobody, of a plugin":     {WaitSubject{Word: "none", Plugin: paths.LocalPlugin}, want{nothing, met, nothing}},
		"a handle of nobody":         {WaitSubject{Word: driver + "^none"}, want{nothing, met, nothing}},
		"a handle, in a pod":         {WaitSubject{Word: driver + "^none", PodUID: podA}, want{nothing, "1 mount could be of it", nothing}},
		"dead":                       {WaitSubject{Word: "dead"}, want{met, "1 mount, device", "is disconnected"}},
		"a raw device, not mapped":   {WaitSubject{Word: "raw", PodUID: podB}, want{met, "1 mount, device", met}},
		"a pod":                      {WaitSubject{Word: podA}, want{met, "mounts, devices or directories", met}},
		"a pod with some unmounted":  {WaitSubject{Word: podB}, want{"nothing is mounted on", "mounts, devices", "is unmounted: the directory"}},
		"a pod that is plain":        {WaitSubject{Word: "plain"}, want{met, "1 mount, device or directory", met}},
		"a pod of who knows":         {WaitSubject{Word: "flex"}, want{"whether it is mounted on", "whether 1 place", met}},
		"a pod with a subpath only":  {WaitSubject{Word: "sub"}, want{"the pod has no volume", "1 mount", "the pod has no volume"}},
		"a pod that is not here":     {WaitSubject{Word: uuid}, want{"the pod has no volume", met, "the pod has no volume"}},
		"a path":                     {WaitSubject{Word: n.link + "/" + volumesA + local + "disk/"}, want{met, "1 mount", met}},
		"a path above one":           {WaitSubject{Word: n.at(volumesA + local)}, want{"nothing is mounted there", "2 mounts", "nothing is mounted there"}},
		"a path of CSI":              {WaitSubject{Word: n.at(volumesA + "kubernetes.io~csi/pvc-h-1")}, want{met, "1 mount", met}},
		"a plain path":               {WaitSubject{Word: n.at("pods/plain/volumes/kubernetes.io~configmap/cm")}, want{"nothing is mounted there", met, "nothing is mounted there"}},
		"a path that is not there":   {WaitSubject{Word: n.dir + "/none"}, want{"nothing is mounted there", met, "nothing is mounted there"}},
		"a path elsewhere":           {WaitSubject{Word: n.dir + "/storage"}, want{met, "1 mount", met}},
		"a link to it":               {WaitSubject{Word: n.dir + "/to-storage"}, want{met, "1 mount", met}},
		"a link to what is dead":     {WaitSubject{Word: n.dir + "/to-dead"}, want{met, "1 mount", "is disconnected"}},
		"a path above the root":      {WaitSubject{Word: "/"}, want{met, "mounts, devices or directories of it are left", "is "}},
		"a device":                   {WaitSubject{Word: n.disk}, want{met, "3 mounts", met}},
		"a device of a btrfs":        {WaitSubject{Word: n.member}, want{met, "1 mount", met}},
		"a device that is not there": {WaitSubject{Word: "/dev/kvol-none"}, want{"the device is not there", "", "the device is not there"}},
	} {
		for is, want := range map[api.Condition]string{api.ConditionMounted: c.want.mounted, api.ConditionUnmounted: c.want.unmounted, api.ConditionHealthy: c.want.healthy} {
			if want == "" {
				continue
			}
			if got := n.state(n.waiter(is, c.of, nil)); !strings.Contains(got, want) || want == met && got != met {
				t.Errorf("%s for %s: %q, want %q", word, is, got, want)
			}
		}
	}
}

// TestWaitRefused: what no waiting can change.
func TestWaitRefused(t *testing.T) {
	n := newLived(t)
	for what, c := range map[string]struct {
		is  api.Condition
		of  WaitSubject
		err error
	}{
		"a name of two plugins":           {api.ConditionMounted, WaitSubject{Word: "data"}, api.ErrUsage},
		"how a pod's UID begins":          {api.ConditionUnmounted, WaitSubject{Word: podA[:8]}, api.ErrUsage},
		"a pod of another pod":            {api.ConditionMounted, WaitSubject{Word: podA, PodUID: podB}, api.ErrUsage},
		"a device that was never there":   {api.ConditionUnmounted, WaitSubject{Word: "/dev/kvol-none"}, api.ErrNotFound},
		"attached, not there":             {api.ConditionAttached, WaitSubject{Word: "none"}, api.ErrUncertain},
		"attached, it does not tell":      {api.ConditionAttached, WaitSubject{Word: "pvc-h-2"}, api.ErrUncertain},
		"attached, of an unknown plugin":  {api.ConditionAttached, WaitSubject{Word: "lun"}, api.ErrUncertain},
		"attached, a pod with such a one": {api.ConditionAttached, WaitSubject{Word: podB}, api.ErrUncertain},
		"attached, a path of nothing":     {api.ConditionAttached, WaitSubject{Word: n.dir}, api.ErrUncertain},
		"a condition of nothing":          {"gone", WaitSubject{Word: "disk"}, api.ErrUsage},
	} {
		_, _, err := n.waiter(c.is, c.of, func() error { return nil }).Look(t.Context())
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, word := range []string{"", "shop/web", "../x", "driver^", "Bad Driver^h", strings.ToUpper(podA), " " + podA} {
		if w, err := NewWaiter(n.host(), nil, WaitRequest{Subjects: []WaitSubject{{Word: word}}}); api.ExitCode(err) != api.ExitUsage {
			t.Errorf("%q: %v %v", word, w, err)
		}
	}
}

// TestWaitUntil: it comes to be, step by step, and what was learnt of a volume is not
// forgotten.
func TestWaitUntil(t *testing.T) {
	s := newScratch(t)
	staged := s.tmpfs(staging("h-1"))
	s.must(os.WriteFile(s.at(csiVolumes+paths.HandleHash("h-1")+"/vol_data.json"), []byte(`{"driverName":"`+driver+`","volumeHandle":"h-1"}`), 0o600))
	at := volumesA + "kubernetes.io~csi/pvc-1/mount"
	s.mkdir(at)
	s.must(os.WriteFile(s.at(volumesA+"kubernetes.io~csi/pvc-1/vol_data.json"), []byte(`{"driverName":"`+driver+`","volumeHandle":"h-1"}`), 0o600))
	mounted := s.waiter(api.ConditionMounted, WaitSubject{Word: "pvc-1"}, nil)
	unmounted := s.waiter(api.ConditionUnmounted, WaitSubject{Word: "pvc-1"}, nil)
	if got := s.state(mounted); !strings.Contains(got, "nothing is mounted on") {
		t.Error(got)
	}
	done := make(chan string)
	go func() {
		for {
			if l, met, err := mounted.Look(t.Context()); err != nil || met {
				done <- l.Items[0].Reason
				return
			}
			if err := mounted.Wait(t.Context()); err != nil {
				done <- err.Error()
				return
			}
		}
	}()
	s.bind(staged, at)
	if got := <-done; got != "" {
		t.Error(got)
	}
	if got := s.state(unmounted); !strings.Contains(got, "2 mounts") {
		t.Error(got)
	}
	// The pod's own is gone with its metadata, and its staging directory is still known.
	s.must(unix.Unmount(s.at(at), 0), os.Remove(s.at(at)), os.Remove(s.at(volumesA+"kubernetes.io~csi/pvc-1/vol_data.json")))
	if got := s.state(unmounted); !strings.Contains(got, "1 mount") {
		t.Error(got)
	}
	s.tmpfs(staging("h-2")) // of another, by its name
	s.must(unix.Unmount(staged, 0))
	if got := s.state(unmounted); !strings.Contains(got, "whether 1 place") {
		t.Error(got)
	}
	s.must(os.Remove(staged), os.Remove(s.at(csiVolumes+paths.HandleHash("h-1")+"/vol_data.json")), os.Remove(s.at(csiVolumes+paths.HandleHash("h-1"))))
	if got := s.state(unmounted); got != "met" {
		t.Error(got)
	}
}

// TestWaitPlugin: of which plugin a volume was narrows what could be of it.
func TestWaitPlugin(t *testing.T) {
	s := newScratch(t)
	s.tmpfs(staging("h-1"))
	path := s.tmpfs(volumesA + local + "data")
	known := s.waiter(api.ConditionUnmounted, WaitSubject{Word: "data"}, nil)
	if got := s.state(known); !strings.Contains(got, "1 mount") {
		t.Error(got)
	}
	s.must(unix.Unmount(path, 0), os.Remove(path))
	if got := s.state(known); got != "met" {
		t.Error(got)
	}
	if got := s.state(s.waiter(api.ConditionUnmounted, WaitSubject{Word: "data"}, nil)); !strings.Contains(got, "1 mount could be of it") {
		t.Error(got)
	}
}

// TestWaitAttached: who knows is asked again as long as that can change.
func TestWaitAttached(t *testing.T) {
	n := newLived(t)
	n.must(os.Symlink(n.disk, n.dir+"/by-id"))
	var answer error
	w := n.waiter(api.ConditionAttached, WaitSubject{Word: "disk"}, func() error { return answer })
	for _, answer = range []error{api.Errorf(api.ErrNotFound, "not attached"), api.Errorf(api.ErrMissingTool, "no socket"), api.Errorf(api.ErrTimeout, "silent"), nil} {
		want := "met"
		if answer != nil {
			want = answer.Error()
		}
		if got := n.state(w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for _, answer = range []error{api.Errorf(api.ErrUncertain, "nobody tells"), api.Errorf(api.ErrInput, "the disk has no path of it")} {
		if _, _, err := w.Look(t.Context()); !errors.Is(err, api.ErrUncertain) || errors.Is(err, api.ErrInput) != errors.Is(answer, api.ErrInput) {
			t.Error(err)
		}
	}
	if got := n.state(n.waiter(api.ConditionAttached, WaitSubject{Word: n.disk}, nil)); got != "met" {
		t.Error(got)
	}
	if got := n.state(n.waiter(api.ConditionAttached, WaitSubject{Word: "/dev/kvol-none"}, nil)); !strings.Contains(got, "not there") {
		t.Error(got)
	}
}

// TestWaitBlind: what cannot be seen is neither mounted nor unmounted.
func TestWaitBlind(t *testing.T) {
	s := newScratch(t)
	s.tmpfs(nfsA + "data")
	w := s.waiter(api.ConditionUnmounted, WaitSubject{Word: "data", Plugin: nfs}, nil)
	f, err := NewFind(w.host)
	s.must(err)
	for is, want := range map[api.Condition]string{api.ConditionMounted: "", api.ConditionHealthy: "", api.ConditionUnmounted: "1 mount"} {
		w.req.Condition = is
		if item, err := w.one(t.Context(), f, w.subjects[0]); err != nil || !strings.HasPrefix(item.Reason, want) || want == "" && !item.Met {
			t.Errorf("%s: %+v %v", is, item, err)
		}
	}
	f.unread = []string{s.at("pods/" + podB)}
	for _, is := range []api.Condition{api.ConditionMounted, api.ConditionHealthy} {
		w.req.Condition = is
		if item, err := w.one(t.Context(), f, w.subjects[0]); err != nil || !strings.Contains(item.Reason, "cannot be read") {
			t.Errorf("%s: %+v %v", is, item, err)
		}
	}
	f.places = nil
	w.req.Condition = api.ConditionUnmounted
	for _, of := range []*subject{w.subjects[0], {WaitSubject: WaitSubject{Word: podB}, memory: &memory{}}} {
		if item, err := w.one(t.Context(), f, of); err != nil || !strings.Contains(item.Reason, "cannot be read") {
			t.Errorf("%s: %+v %v", of.Word, item, err)
		}
	}
	f.unread, f.table.Changed = nil, true
	if item, err := w.one(t.Context(), f, w.subjects[0]); err != nil || !strings.Contains(item.Reason, "changed all the time") {
		t.Errorf("%+v %v", item, err)
	}
}

// TestWaitLinked: what is mounted by way of a link is not seen where it should be, and not
// taken for unmounted.
func TestWaitLinked(t *testing.T) {
	s := newScratch(t)
	s.tmpfs("elsewhere/volumes/kubernetes.io~nfs/data")
	s.mkdir("pods")
	s.must(os.Symlink(s.at("elsewhere"), s.at("pods/"+podA)))
	for _, word := range []string{"data", podA, s.at(nfsA + "data")} {
		if got := s.state(s.waiter(api.ConditionUnmounted, WaitSubject{Word: word}, nil)); !strings.HasSuffix(got, "cannot be read: "+s.at("pods/"+podA)) {
			t.Errorf("%s: %s", word, got)
		}
	}
}
