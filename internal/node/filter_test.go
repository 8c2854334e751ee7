package node

import (
	"errors"
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
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/testutil"
)

// TestListFilters: what each filter takes, and what it refuses.
func TestListFilters(t *testing.T) {
	n := newLived(t)
	const podC = "c0000000-0000-4000-8000-00000000000c"
	volumeC := "pods/" + podC + "/volumes/kubernetes.io~nfs/data"
	n.tmpfs(volumeC)
	n.tmpfs(volumeC)
	list := n.dir + "/pods.json"
	n.must(os.WriteFile(list, []byte(`{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"`+podA+`"}},
		{"kind":"Pod","metadata":{"name":"web","namespace":"other","uid":"`+podB+`"}}]}`), 0o600))
	n.must(os.Chtimes(list, time.Now(), time.Now())) // the clock of file systems ticks slowly
	pods := alive.Options{From: []string{"file:" + list}}
	all := ListOptions{Probe: true, Pods: pods}
	with := func(change func(*ListOptions)) ListOptions {
		o := all
		change(&o)
		return o
	}
	disk := []string{globals + "disk", volumesA + local + "disk", volumesB + local + "disk"}
	left := func(n int) string {
		return api.Count(n, "entry is", "entries are") + " left out because no source names the pod"
	}
	for what, c := range map[string]struct {
		o       ListOptions
		want    []string
		warning string
		err     error
		says    string
	}{
		"a pod by its UID":       {with(func(o *ListOptions) { o.Pod, o.Volume = []string{podB}, []string{"disk"} }), disk[2:], "", nil, ""},
		"by how its UID begins":  {ListOptions{Pod: []string{"c0000000"}}, []string{volumeC}, "", nil, ""},
		"by too little of it":    {with(func(o *ListOptions) { o.Pod = []string{"c000000"} }), nil, "", api.ErrUsage, "8 characters"},
		"by what two begin with": {ListOptions{Pod: []string{podA[:9]}}, nil, "", api.ErrUsage, podB},
		"by namespace and name":  {with(func(o *ListOptions) { o.Pod, o.Volume = []string{"shop/web"}, []string{"disk"} }), disk[1:2], "", nil, ""},
		"by a name": {with(func(o *ListOptions) {
			o.Pod, o.Namespace, o.Volume = []string{"web"}, []string{"shop"}, []string{"disk"}
		}), disk[1:2], "", nil, ""},
		"by a name of two": {with(func(o *ListOptions) { o.Pod, o.Volume = []string{"web"}, []string{"disk"} }), nil, "", api.ErrUsage, podA + " shop/web"},
		"by a name of two, later": {with(func(o *ListOptions) {
			o.Pod, o.Volume, o.memory = []string{"web"}, []string{"disk"}, &memory{looked: true}
		}), disk[1:], "", nil, ""},
		"by a name of none":       {with(func(o *ListOptions) { o.Pod = []string{"db"} }), nil, left(1), nil, ""},
		"by no name":              {with(func(o *ListOptions) { o.Pod = []string{"/"} }), nil, left(1), nil, ""},
		"by a name, nobody asked": {ListOptions{Pod: []string{"web"}}, nil, "", api.ErrUsage, "--no-probe asks nobody"},
		"orphans":                 {with(func(o *ListOptions) { o.Orphans = true }), []string{volumeC}, "", nil, ""},
		"orphans, not provable":   {ListOptions{Probe: true, Orphans: true, Plugin: []string{nfs}, Pods: alive.Options{From: []string{"static"}}}, nil, "2 entries are left out because it is not proven", nil, ""},
		"orphans, nobody asked":   {ListOptions{Orphans: true}, nil, "", api.ErrUsage, "--no-probe asks nobody"},
		"of an owner":             {with(func(o *ListOptions) { o.Owners, o.Volume = []api.Owner{api.OwnerLive}, []string{"disk"} }), disk[1:], "", nil, ""},
		"of two owners": {with(func(o *ListOptions) {
			o.Owners, o.Volume = []api.Owner{api.OwnerGone, api.OwnerUnknown}, []string{"disk"}
		}), disk[:1], "", nil, ""},
		"an owner, nobody asked":   {ListOptions{Owners: []api.Owner{api.OwnerUnknown}}, nil, "", api.ErrUsage, "--owner needs to know"},
		"duplicates":               {ListOptions{Duplicates: true}, []string{volumeC}, "", nil, ""},
		"duplicates of a plugin":   {ListOptions{Duplicates: true, Plugin: []string{"kubernetes.io/rbd"}}, nil, "", nil, ""},
		"by handle":                {ListOptions{Volume: []string{driver + "^h-1"}}, []string{staging("h-1"), volumesA + "kubernetes.io~csi/pvc-h-1/mount"}, "", nil, ""},
		"by a handle that is gone": {ListOptions{Volume: []string{driver + "^h-9"}}, nil, "", nil, ""},
		"a device":                 {ListOptions{Device: []string{n.disk}}, disk, "", nil, ""},
		"a device, by its number":  {ListOptions{Device: []string{deviceOf(t, n.disk)}}, disk, "", nil, ""},
		"the second of a btrfs":    {ListOptions{Device: []string{n.member}}, []string{globals + "pool"}, "", nil, ""},
		"a raw device":             {ListOptions{Device: []string{n.raw}}, []string{maps + "raw/" + podA, devicesA + local + "raw", devicesB + local + "raw"}, "", nil, ""},
		"a number of no device":    {ListOptions{Device: []string{"7:1048575"}}, nil, "", api.ErrNotFound, "no block device has the number"},
		"an anonymous device":      {with(func(o *ListOptions) { o.Device = []string{anonymous(n, volumeC)} }), []string{volumeC}, "", nil, ""},
		"a path of nothing":        {ListOptions{Device: []string{"/dev/kvol-test-gone"}}, nil, "", api.ErrNotFound, "/dev/kvol-test-gone"},
		"no path":                  {ListOptions{Device: []string{"sdb"}}, nil, "", api.ErrUsage, "neither a path nor a number"},
		"a directory":              {ListOptions{Device: []string{n.dir}}, nil, "", api.ErrInput, "directory, not a block device"},
	} {
		l, err := List(t.Context(), n.host(), c.o)
		if err == nil {
			err = c.o.Check()
		}
		if c.err != nil {
			doc := api.NewErrorDoc(err)
			if !errors.Is(err, c.err) || !strings.Contains(doc.Message+strings.Join(doc.Details, "\n"), c.says) || doc.Next == "" {
				t.Errorf("%s: %+v", what, doc)
			}
			continue
		}
		n.must(err)
		var got []string
		for _, m := range l.Items {
			got = append(got, strings.TrimPrefix(m.Path, n.root+"/"))
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" || !strings.Contains(strings.Join(l.Warnings, ""), c.warning) || c.warning == "" && len(l.Warnings) > 0 {
			t.Errorf("%s: %q (-want +got):\n%s", what, l.Warnings, diff)
		}
	}
}

// TestListDeviceChain: what is built on a device is on it, and a device root elsewhere
// has names of its own.
func TestListDeviceChain(t *testing.T) {
	s := newScratch(t)
	disk, _ := testutil.LoopImage(t, 8<<20)
	s.mapped(disk, maps+"raw/"+podA)
	over := testutil.Loop(t, s.at(maps+"raw/"+podA))
	testutil.Mkfs(t, over, "ext4")
	testutil.Mount(t, over, s.mkdir(globals+"over"), "ext4", 0, "")
	s.tmpfs(globals + "other")
	devRoot := s.dir + "/dev"
	s.mkdir(devRoot + "/disk/by-id")
	var st unix.Stat_t
	s.must(unix.Stat(disk, &st), unix.Mknod(devRoot+"/sdx", unix.S_IFBLK|0o600, int(st.Rdev)), os.Symlink("../../sdx", devRoot+"/disk/by-id/x"))
	elsewhere, err := host.New(host.Options{RootDir: s.root, RunDir: s.dir + "/run", DevRoot: devRoot})
	s.must(err)
	defer elsewhere.Close()
	for word, h := range map[string]*host.Host{disk: s.host(), "/dev/sdx": elsewhere, "/dev/disk/by-id/x": elsewhere, devRoot + "/sdx": s.host()} {
		l, err := List(t.Context(), h, ListOptions{Device: []string{word}})
		s.must(err)
		var got []string
		for _, m := range l.Items {
			got = append(got, strings.TrimPrefix(m.Path, s.root+"/"))
		}
		if diff := cmp.Diff([]string{globals + "over", maps + "raw/" + podA}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", word, diff)
		}
	}
}

// deviceOf is the number of a device.
func deviceOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// anonymous is the number of the file system at a place.
func anonymous(n *lived, rel string) string {
	n.t.Helper()
	table, err := n.host().Mounts()
	n.must(err)
	m, _ := table.Top(n.at(rel))
	return m.Device()
}
