package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

const (
	nfs   = "kubernetes.io/nfs"
	iscsi = "plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2026-01.example:x-lun-"
)

// lived is a node with volumes of every kind; disk, raw, member and export are what
// they are made of, other is nothing's.
type lived struct {
	*scratch
	disk, raw, member, export, other string
}

func newLived(t *testing.T) *lived {
	t.Helper()
	testutil.Tool(t, "mkfs.btrfs")
	s := newScratch(t)
	n := &lived{scratch: s}

	n.disk = s.ext4(globals + "disk")
	s.bind(s.at(globals+"disk"), volumesA+local+"disk")
	s.bind(s.at(globals+"disk"), volumesB+local+"disk")

	n.raw, _ = testutil.LoopImage(t, 1<<20)
	s.mapped(n.raw, maps+"raw/"+podA)
	s.symlink(n.raw, devicesA+local+"raw")
	s.symlink(n.raw, devicesB+local+"raw") // not mapped

	first, _ := testutil.LoopImage(t, 128<<20)
	n.member, _ = testutil.LoopImage(t, 128<<20)
	testutil.Mkfs(t, n.member, "btrfs", first) // the last is the second
	testutil.Mount(t, first, s.mkdir(globals+"pool"), "btrfs", 0, "")

	n.export = s.mkdir(s.tmpfs(s.dir+"/storage") + "/export")
	s.bind(n.export, volumesA+local+"dir")
	n.other = s.mkdir(n.export + "/other")

	// Staged and published, with metadata and with what was one; staged only;
	// and the directory of a staged one.
	for _, handle := range []string{"h-1", "h-2"} {
		s.tmpfs(staging(handle))
		s.bind(s.at(staging(handle)), volumesA+"kubernetes.io~csi/pvc-"+handle+"/mount")
	}
	s.must(os.WriteFile(s.at(volumesA+"kubernetes.io~csi/pvc-h-1/vol_data.json"), []byte(`{"driverName":"`+driver+`","volumeHandle":"h-1"}`), 0o600),
		os.WriteFile(s.at(volumesA+"kubernetes.io~csi/pvc-h-2/vol_data.json"), []byte("{"), 0o600))
	s.tmpfs(staging("h-3"))
	s.mkdir(staging("h-4"))
	s.tmpfs("plugins/kubernetes.io/csi/pv/old/globalmount") // of old kubelets: it has the name

	s.tmpfs(iscsi + "1")
	s.bind(s.at(iscsi+"1"), volumesB+"kubernetes.io~iscsi/lun")
	s.bind(s.at(iscsi+"1"), volumesA+"kubernetes.io~iscsi/same")
	s.tmpfs(iscsi + "2")

	s.mkdir(volumesB + "kubernetes.io~nfs/data")
	s.tmpfs(volumesB + "kubernetes.io~rbd/data")
	s.tmpfs(volumesB + "kubernetes.io~rbd/data/inside")
	s.mkdir(globals + "left")
	return n
}

func (n *lived) find() *Find {
	n.t.Helper()
	f, err := NewFind(n.host())
	n.must(err)
	return f
}

// rel are the refs' paths below the root.
func (n *lived) rel(refs []Ref) []string {
	var out []string
	for _, r := range refs {
		rel, err := filepath.Rel(n.root, r.Path)
		n.must(err)
		out = append(out, rel)
	}
	return out
}

func TestFind(t *testing.T) {
	n := newLived(t)
	f := n.find()
	on := func(path string) []Ref {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		src, err := act.OpenSource(ctx, f.host.Helper, path)
		n.must(err)
		defer src.Close()
		return f.OnDevice(src)
	}
	csiA := volumesA + "kubernetes.io~csi/"
	for what, c := range map[string]struct {
		got  []Ref
		want []string
	}{
		"a pod's volume":                 {f.InPod(podA, "disk", ""), []string{volumesA + local + "disk"}},
		"a pod's device":                 {f.InPod(podA, "raw", paths.LocalPlugin), []string{devicesA + local + "raw"}},
		"not this pod's":                 {f.InPod(podB, "dir", ""), nil},
		"of two plugins":                 {f.InPod(podB, "data", ""), []string{volumesB + "kubernetes.io~nfs/data", volumesB + "kubernetes.io~rbd/data"}},
		"of one of them":                 {f.InPod(podB, "data", nfs), []string{volumesB + "kubernetes.io~nfs/data"}},
		"of neither":                     {f.InPod(podB, "data", paths.LocalPlugin), nil},
		"by handle, and what has none":   {f.InPod(podA, driver+"^h-1", ""), []string{csiA + "pvc-h-1/mount", csiA + "pvc-h-2/mount"}},
		"by the handle of another":       {f.InPod(podA, driver+"^h-3", ""), []string{csiA + "pvc-h-2/mount"}},
		"by the handle at another's":     {f.InPod(podA, "other.example^h-1", ""), []string{csiA + "pvc-h-2/mount"}},
		"pods":                           {f.Pods(paths.LocalPlugin, plugins.Ref{Name: "disk"}), []string{volumesA + local + "disk", volumesB + local + "disk"}},
		"pods with a device":             {f.Pods(paths.LocalPlugin, plugins.Ref{Name: "raw"}), []string{maps + "raw/" + podA, devicesA + local + "raw", devicesB + local + "raw"}},
		"pods with what is not mounted":  {f.Pods(nfs, plugins.Ref{Name: "data"}), nil},
		"pods of another plugin":         {f.Pods(nfs, plugins.Ref{Name: "disk"}), nil},
		"pods of a global mount only":    {f.Pods(paths.LocalPlugin, plugins.Ref{Name: "pool"}), nil},
		"named":                          {f.Named("disk", ""), []string{globals + "disk", volumesA + local + "disk", volumesB + local + "disk"}},
		"named, and nothing inside":      {f.Named("data", ""), []string{volumesB + "kubernetes.io~nfs/data", volumesB + "kubernetes.io~rbd/data"}},
		"named, of a plugin":             {f.Named("data", nfs), []string{volumesB + "kubernetes.io~nfs/data"}},
		"named by handle":                {f.Named(driver+"^h-3", ""), []string{staging("h-3")}},
		"named by handle, of another":    {f.Named("other.example^h-3", ""), nil},
		"named nothing":                  {f.Named("nothing", ""), nil},
		"candidates":                     {f.Candidates("x", ""), []string{staging("h-3"), staging("h-4"), iscsi + "2"}},
		"candidates of what a pod has":   {f.Candidates("pvc-h-1", ""), []string{staging("h-1"), staging("h-3"), staging("h-4"), iscsi + "2"}},
		"candidates, one of them shared": {f.Candidates("lun", paths.ISCSIPlugin), []string{iscsi + "2"}},
		"candidates of CSI":              {f.Candidates("x", paths.CSIPlugin), []string{staging("h-3"), staging("h-4")}},
		"candidates of iSCSI":            {f.Candidates("x", paths.ISCSIPlugin), []string{iscsi + "2"}},
		"candidates of a plugin of none": {f.Candidates("x", paths.LocalPlugin), nil},
		"candidates by handle":           {f.Candidates(driver+"^x", ""), nil},
		"on a disk":                      {on(n.disk), []string{globals + "disk", volumesA + local + "disk", volumesB + local + "disk"}},
		"on a raw disk":                  {on(n.raw), []string{maps + "raw/" + podA}},
		"on the second disk of a btrfs":  {on(n.member), []string{globals + "pool"}},
		"on a directory":                 {on(n.export), []string{volumesA + local + "dir"}},
		"on one in it":                   {on(n.other), nil},
		"on one above it":                {on(filepath.Dir(n.export)), nil},
	} {
		got := n.rel(c.got)
		slices.Sort(got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if diff := cmp.Diff([]Ref{
		{Plugin: paths.LocalPlugin, Volume: "raw", PodUID: podA, Block: true, Kind: api.KindGlobalMapDevice, Path: n.at(maps + "raw/" + podA)},
		{Plugin: paths.LocalPlugin, Volume: "raw", PodUID: podA, Block: true, Kind: api.KindPodDevice, Path: n.at(devicesA + local + "raw")},
		{Plugin: paths.LocalPlugin, Volume: "raw", PodUID: podB, Block: true, Kind: api.KindPodDevice, Path: n.at(devicesB + local + "raw")},
	}, f.Pods(paths.LocalPlugin, plugins.Ref{Name: "raw"})); diff != "" {
		t.Errorf("all of a ref (-want +got):\n%s", diff)
	}
}

func TestResolve(t *testing.T) {
	n := newLived(t)
	f := n.find()
	disk := Ref{Plugin: paths.LocalPlugin, Volume: "disk", Kind: api.KindGlobalMount, Path: n.at(globals + "disk")}
	inPod := Ref{Plugin: paths.LocalPlugin, Volume: "disk", PodUID: podA, Kind: api.KindPodVolume, Path: n.at(volumesA + local + "disk"), Exact: true}
	raw := Ref{Plugin: paths.LocalPlugin, Volume: "raw", PodUID: podA, Block: true, Kind: api.KindGlobalMapDevice, Path: n.at(maps + "raw/" + podA)}
	exact := func(r Ref) Ref { r.Exact = true; return r }
	n.must(os.Symlink(inPod.Path, n.dir+"/way"))
	n.must(os.Symlink(n.raw, n.dir+"/disk-by-id"))
	for _, c := range []struct {
		what, word, plugin string
		want               []Ref
		err                error
	}{
		{"a name", "disk", "", []Ref{disk}, nil},
		{"a name of two plugins", "data", "", []Ref{
			{Plugin: nfs, Volume: "data", PodUID: podB, Kind: api.KindPodVolume, Path: n.at(volumesB + "kubernetes.io~nfs/data")},
			{Plugin: "kubernetes.io/rbd", Volume: "data", PodUID: podB, Kind: api.KindPodVolume, Path: n.at(volumesB + "kubernetes.io~rbd/data")}}, nil},
		{"a name of another plugin", "disk", nfs, nil, nil},
		{"a name of nothing", "nothing", "", nil, nil},
		{"a handle", driver + "^h-1", "", []Ref{{Plugin: paths.CSIPlugin, Volume: "pvc-h-1", PodUID: podA, Kind: api.KindPodVolume, Path: n.at(volumesA + "kubernetes.io~csi/pvc-h-1/mount")}}, nil},
		{"a handle that no pod has", driver + "^h-3", "", []Ref{{Plugin: paths.CSIPlugin, Kind: api.KindGlobalMount, Path: n.at(staging("h-3"))}}, nil},
		{"a handle of nothing", driver + "^nothing", "", nil, nil},
		{"a device", n.disk, "", []Ref{disk}, nil},
		{"a link to a device", n.dir + "/disk-by-id", "", []Ref{raw}, nil},
		{"a directory", n.export, "", []Ref{{Plugin: paths.LocalPlugin, Volume: "dir", PodUID: podA, Kind: api.KindPodVolume, Path: n.at(volumesA + local + "dir")}}, nil},
		{"a directory of nothing", n.other, "", nil, nil},
		{"a path that is not there", n.dir + "/gone", "", nil, api.ErrNotFound},
		{"a pod's volume", inPod.Path, "", []Ref{inPod}, nil},
		{"one not clean", n.root + "/pods//x/../" + podA + "/volumes/" + local + "disk/", "", []Ref{inPod}, nil},
		{"one by the link to the root", n.link + "/" + volumesA + local + "disk", "", []Ref{inPod}, nil},
		{"one by a link outside", n.dir + "/way", "", []Ref{inPod}, nil},
		{"one that is not there", n.link + "/" + volumesB + local + "dir", "", []Ref{{Plugin: paths.LocalPlugin, Volume: "dir", PodUID: podB, Kind: api.KindPodVolume, Path: n.at(volumesB + local + "dir"), Exact: true}}, nil},
		{"a global mount", disk.Path, "", []Ref{exact(disk)}, nil},
		{"a staging directory", n.at(staging("h-4")), "", []Ref{{Plugin: paths.CSIPlugin, Kind: api.KindGlobalMount, Path: n.at(staging("h-4")), Exact: true}}, nil},
		{"a mapped device", raw.Path, "", []Ref{exact(raw)}, nil},
		{"a directory of the layout", n.at("plugins"), "", nil, api.ErrNotFound},
		{"the root", n.root, "", nil, api.ErrNotFound},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got, err := f.Resolve(ctx, c.word, c.plugin)
		cancel()
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" || !errors.Is(err, c.err) {
			t.Errorf("%s: %v (-want +got):\n%s", c.what, err, diff)
		}
	}
}
