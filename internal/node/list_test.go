package node

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

func TestListStates(t *testing.T) {
	s := newScratch(t)
	raw, _ := testutil.LoopImage(t, 1<<20)
	hung := testutil.FUSE(t, s.mkdir(s.dir+"/hung"), testutil.FUSEHung)
	fuse := func(mode testutil.FUSEMode) func(string) {
		return func(rel string) { testutil.FUSE(t, s.mkdir(rel), mode) }
	}
	tmpfs := func(rel string) { s.tmpfs(rel) }
	nothing := func(rel string) { s.mkdir(rel) }
	link := func(to string) func(string) { return func(rel string) { s.symlink(to, rel) } }
	type listed struct {
		Mounted bool
		Stacked int
		State   api.State
	}
	places := map[string]struct {
		make   func(rel string)
		want   listed
		reason string // words of it, "" where there is none
	}{
		volumesA + "kubernetes.io~nfs/mounted":      {tmpfs, listed{true, 1, api.StateOK}, ""},
		volumesA + "kubernetes.io~nfs/stacked":      {func(rel string) { s.tmpfs(rel); s.tmpfs(rel) }, listed{true, 2, api.StateOK}, ""},
		volumesA + "kubernetes.io~nfs/read-only":    {func(rel string) { testutil.Bind(t, s.mkdir(s.dir+"/wish"), s.mkdir(rel), true) }, listed{true, 1, api.StateOK}, ""},
		volumesA + "kubernetes.io~nfs/unmounted":    {nothing, listed{false, 0, api.StateUnmounted}, "directory is there"},
		globals + "unmounted":                       {nothing, listed{false, 0, api.StateUnmounted}, "directory is there"},
		volumesA + "kubernetes.io~csi/pvc/mount":    {nothing, listed{false, 0, api.StateUnmounted}, "directory is there"},
		volumesA + "kubernetes.io~csi/no-mount":     {nothing, listed{false, 0, api.StateUnmounted}, "directory is there"},
		staging("unmounted"):                        {nothing, listed{false, 0, api.StateOK}, "not every driver"},
		volumesA + "example.com~flex/unmounted":     {nothing, listed{false, 0, api.StateOK}, "not every driver"},
		volumesA + "kubernetes.io~configmap/config": {nothing, listed{false, 0, api.StateOK}, "plain directory"},
		volumesA + "kubernetes.io~empty-dir/tmp":    {nothing, listed{false, 0, api.StateOK}, "plain directory"},
		volumesA + "kubernetes.io~nfs/alive":        {fuse(testutil.FUSEAlive), listed{true, 1, api.StateOK}, ""},
		volumesA + "kubernetes.io~nfs/dead":         {fuse(testutil.FUSEDead), listed{true, 1, api.StateDisconnected}, "not connected"},
		volumesA + "kubernetes.io~nfs/hung":         {fuse(testutil.FUSEHung), listed{true, 1, api.StateUnresponsive}, "no answer within 1s"},
		volumesA + "kubernetes.io~nfs/deleted": {func(rel string) {
			src := s.mkdir(s.dir + "/src")
			s.bind(src, rel)
			s.must(os.Remove(src))
		}, listed{true, 1, api.StateDeleted}, "unlinked"},
		volumesA + "kubernetes.io~rbd/readonly": {func(rel string) {
			s.ext4(s.dir + "/ext4")
			s.bind(s.dir+"/ext4", rel)
			s.must(unix.Mount("", s.dir+"/ext4", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, listed{true, 1, api.StateReadOnly}, "dmesg"},
		volumesA + "kubernetes.io~rbd/made-read-only": {func(rel string) {
			dev, _ := testutil.LoopImage(t, 16<<20)
			testutil.Mkfs(t, dev, "ext4")
			testutil.Mount(t, dev, s.mkdir(rel), "ext4", unix.MS_RDONLY, "")
		}, listed{true, 1, api.StateOK}, ""},
		"pods/hidden/volumes/kubernetes.io~nfs/under": {tmpfs, listed{true, 1, api.StateUnknown}, "hidden"},
		devicesA + local + "raw":                      {link(raw), listed{false, 0, api.StateOK}, ""},
		devicesA + local + "gone":                     {link("/dev/kvol-test-gone"), listed{false, 0, api.StateStale}, "is gone"},
		devicesA + local + "file":                     {link(s.mkdir(s.dir + "/directory")), listed{false, 0, api.StateStale}, "points to a directory"},
		devicesA + local + "hung":                     {link(hung.Path + "/disk"), listed{false, 0, api.StateUnresponsive}, "does not answer: no answer within 1s"},
		maps + "raw/" + podA:                          {func(rel string) { s.mapped(raw, rel) }, listed{true, 1, api.StateOK}, ""},
		maps + "gone/" + podA:                         {func(rel string) { s.mapped(s.mknod(s.dir+"/node"), rel) }, listed{true, 1, api.StateStale}, "device is gone"},
		maps + "file/" + podA: {func(rel string) {
			s.must(os.WriteFile(s.dir+"/file", nil, 0o600))
			s.mapped(s.dir+"/file", rel)
		}, listed{true, 1, api.StateStale}, "no device node"},
		"pods/" + podA + "/volume-subpaths/vol/app/0": {tmpfs, listed{true, 1, api.StateOK}, ""},
		"plugins/own": {tmpfs, listed{true, 1, api.StateOK}, ""},
	}
	want := map[string]listed{}
	for rel, p := range places {
		p.make(rel)
		want[s.at(rel)] = p.want
	}
	s.must(os.WriteFile(s.at(devicesA+local+"no-link"), nil, 0o600)) // is not listed
	s.tmpfs("pods/hidden")
	want[s.at("pods/hidden")] = listed{true, 1, api.StateOK}

	got := map[string]listed{}
	items := s.list(ListOptions{Probe: true})
	for _, m := range items {
		got[m.Path] = listed{m.Mounted, m.Stacked, m.State}
		rel := strings.TrimPrefix(m.Path, s.root+"/")
		if reason := places[rel].reason; !strings.Contains(m.StateReason, reason) || reason == "" && m.StateReason != "" {
			t.Errorf("%s: the reason is %q, want %q", rel, m.StateReason, reason)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(items) != len(want) {
		t.Errorf("%d listed (-want +got):\n%s", len(items), diff)
	}
	for _, m := range s.list(ListOptions{}) {
		rel := strings.TrimPrefix(m.Path, s.root+"/")
		switch p := places[rel]; p.want.State {
		case api.StateDisconnected, api.StateUnresponsive, api.StateReadOnly:
			if m.State != api.StateUnknown || m.StateReason != "not probed" {
				t.Errorf("%s is %s (%s) without a probe", rel, m.State, m.StateReason)
			}
		}
	}
}

// How large a file system is tells the one question that it is asked anyway.
func TestListSizes(t *testing.T) {
	s := newScratch(t)
	s.must(unix.Mount("kvoltest", s.mkdir(globals+"data"), "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(s.root+"/"+globals+"data", unix.MNT_DETACH) })
	s.must(os.WriteFile(s.mkdir(globals+"data/sub")+"/file", make([]byte, 5000), 0o600))
	s.bind(s.root+"/"+globals+"data", volumesA+local+"data")
	s.bind(s.root+"/"+globals+"data/sub", "pods/"+podA+"/volume-subpaths/data/web/0")
	s.mkdir(volumesA + "kubernetes.io~nfs/unmounted")
	for _, m := range s.list(ListOptions{Probe: true}) {
		got := [3]int64{m.CapacityBytes, m.UsedBytes, m.AvailableBytes}
		want := [3]int64{1 << 20, 8 << 10, 1<<20 - 8<<10}
		if m.Kind == api.KindSubPath || !m.Mounted { // it may have a quota of its own
			want = [3]int64{}
		}
		if got != want {
			t.Errorf("%s: %v, want %v", m.Path, got, want)
		}
	}
	for _, m := range s.list(ListOptions{}) {
		if m.CapacityBytes != 0 {
			t.Errorf("%s has a size without a probe: %+v", m.Path, m)
		}
	}
}

// list gives what is listed on a host that has asked nothing before.
func (s *scratch) list(o ListOptions) []api.Mount {
	s.t.Helper()
	l, err := List(s.t.Context(), s.host(), o)
	s.must(err)
	if len(l.Warnings) > 0 {
		s.t.Errorf("warnings: %v", l.Warnings)
	}
	return l.Items
}

func TestListNarrowed(t *testing.T) {
	n := newLived(t)
	for what, c := range map[string]struct {
		o    ListOptions
		want []string
	}{
		"a kind":    {ListOptions{Kinds: []api.MountKind{api.KindPodDevice, api.KindGlobalMapDevice}}, []string{maps + "raw/" + podA, devicesA + local + "raw", devicesB + local + "raw"}},
		"a plugin":  {ListOptions{Plugin: []string{paths.ISCSIPlugin}}, []string{iscsi + "1", iscsi + "2", volumesA + "kubernetes.io~iscsi/same", volumesB + "kubernetes.io~iscsi/lun"}},
		"a volume":  {ListOptions{Volume: []string{"disk"}}, []string{globals + "disk", volumesA + local + "disk", volumesB + local + "disk"}},
		"a pod":     {ListOptions{PodUID: podB, Kinds: []api.MountKind{api.KindPodVolume}, Volume: []string{"data"}}, []string{volumesB + "kubernetes.io~nfs/data", volumesB + "kubernetes.io~rbd/data"}},
		"its state": {ListOptions{PodUID: podB, States: []api.State{api.StateUnmounted}}, []string{volumesB + "kubernetes.io~nfs/data"}},
		"nothing":   {ListOptions{PodUID: podB, Volume: []string{"dir"}}, nil},
	} {
		var got []string
		for _, m := range n.list(c.o) {
			got = append(got, strings.TrimPrefix(m.Path, n.root+"/"))
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}
