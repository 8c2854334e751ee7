package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// listed is what of an item of the list has to be right.
type listed struct {
	Kind           api.MountKind
	Plugin, Volume string
	Mounted        bool
	Stacked        int
	State          api.State
}

// forbidden mounts a FUSE file system of somebody else's, who lets nobody in.
func forbidden(t *testing.T, dst string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(t, err)
	testutil.Mount(t, "mine", dst, "fuse.mine", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=65534,group_id=65534", fd))
	dev := os.NewFile(uintptr(fd), "/dev/fuse")
	t.Cleanup(func() { dev.Close() })
	must(t, greet(dev))
}

// Every kind of place and every state, but for those of file systems that do not
// answer, each by what makes it so.
func TestListMountsTellsWhatIsThere(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("disk", "ext4")
	raw, _ := n.disk("raw", "")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	n.must(0, "setup", "-f", raw, "--pod-uid", podA)
	pod, csi := n.root+"/pods/"+podB, n.root+"/plugins/kubernetes.io/csi"
	const (
		local, nfs, csiPlugin = "kubernetes.io/local-volume", "kubernetes.io/nfs", "kubernetes.io/csi"
		hash                  = "abababababababababababababababababababababababababababababababab"
	)
	tmpfs := func(path string) { testutil.Tmpfs(t, path) }
	nothing := func(string) {}
	want := map[string]listed{
		n.global("disk"):          {api.KindGlobalMount, local, "disk", true, 1, api.StateOK},
		n.podVolume(podA, "disk"): {api.KindPodVolume, local, "disk", true, 1, api.StateOK},
		n.mapDevice(podA, "raw"):  {api.KindGlobalMapDevice, local, "raw", true, 1, api.StateOK},
		n.podDevice(podA, "raw"):  {api.KindPodDevice, local, "raw", false, 0, api.StateOK},
	}
	for _, c := range []struct {
		path string
		make func(path string)
		want listed
	}{
		{pod + "/volumes/kubernetes.io~nfs/ok", tmpfs, listed{api.KindPodVolume, nfs, "ok", true, 1, api.StateOK}},
		{pod + "/volumes/kubernetes.io~nfs/stacked", func(p string) { tmpfs(p); tmpfs(p) }, listed{api.KindPodVolume, nfs, "stacked", true, 2, api.StateOK}},
		{pod + "/volumes/kubernetes.io~nfs/unmounted", nothing, listed{api.KindPodVolume, nfs, "unmounted", false, 0, api.StateUnmounted}},
		{n.global("unmounted"), nothing, listed{api.KindGlobalMount, local, "unmounted", false, 0, api.StateUnmounted}},
		{pod + "/volumes/kubernetes.io~configmap/plain", nothing, listed{api.KindPodVolume, "kubernetes.io/configmap", "plain", false, 0, api.StateOK}},
		{pod + "/volumes/kubernetes.io~csi/pvc/mount", nothing, listed{api.KindPodVolume, csiPlugin, "pvc", false, 0, api.StateUnmounted}},
		{pod + "/volumes/kubernetes.io~nfs/deleted", func(p string) {
			src := mkdir(t, n.dir+"/src")
			testutil.Bind(t, src, p, false)
			must(t, os.Remove(src))
		}, listed{api.KindPodVolume, nfs, "deleted", true, 1, api.StateDeleted}},
		{pod + "/volumes/kubernetes.io~nfs/denied", func(p string) { forbidden(t, p) }, listed{api.KindPodVolume, nfs, "denied", true, 1, api.StateDenied}},
		{pod + "/volumes/kubernetes.io~rbd/readonly", func(p string) {
			// The file system of a mount that is read-write turns read-only.
			other, _ := testutil.LoopImage(t, 16<<20)
			testutil.Mkfs(t, other, "ext4")
			testutil.Mount(t, other, mkdir(t, n.dir+"/ext4"), "ext4", 0, "")
			testutil.Bind(t, n.dir+"/ext4", p, false)
			must(t, unix.Mount("", n.dir+"/ext4", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, listed{api.KindPodVolume, "kubernetes.io/rbd", "readonly", true, 1, api.StateReadOnly}},
		{pod + "/volumes/kubernetes.io~nfs/read-only-by-wish", func(p string) { testutil.Bind(t, mkdir(t, n.dir+"/wish"), p, true) },
			listed{api.KindPodVolume, nfs, "read-only-by-wish", true, 1, api.StateOK}},
		{n.podDevice(podB, "gone"), func(p string) { must(t, os.Remove(p), os.Symlink("/dev/gone", p)) },
			listed{api.KindPodDevice, local, "gone", false, 0, api.StateStale}},
		{n.mapDevice(podB, "gone"), func(p string) {
			must(t, os.Remove(p), os.WriteFile(p, nil, 0o600), write(n.dir+"/no device"))
			testutil.Bind(t, n.dir+"/no device", p, false)
		}, listed{api.KindGlobalMapDevice, local, "gone", true, 1, api.StateStale}},
		{pod + "/volume-subpaths/vol/app/0", tmpfs, listed{api.KindSubPath, "", "vol", true, 1, api.StateOK}},
		{csi + "/some.driver/" + hash + "/globalmount", tmpfs, listed{api.KindGlobalMount, csiPlugin, "", true, 1, api.StateOK}},
		{n.root + "/plugins/own", tmpfs, listed{api.KindOther, "", "", true, 1, api.StateOK}},
		{n.root + "/pods/hidden/volumes/kubernetes.io~nfs/under", func(p string) { tmpfs(p); tmpfs(n.root + "/pods/hidden") },
			listed{api.KindPodVolume, nfs, "under", true, 1, api.StateUnknown}},
	} {
		must(t, os.MkdirAll(c.path, 0o750))
		c.make(c.path)
		want[c.path] = c.want
	}
	want[n.root+"/pods/hidden"] = listed{Kind: api.KindOther, Mounted: true, Stacked: 1, State: api.StateOK}

	got := map[string]listed{}
	for path, m := range n.list() {
		got[path] = listed{m.Kind, m.Plugin, m.Volume, m.Mounted, m.Stacked, m.State}
		if m.State != api.StateOK && m.StateReason == "" {
			t.Errorf("%s is %s, and no reason is given", path, m.State)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if m := n.list()[n.root+"/pods/hidden/volumes/kubernetes.io~nfs/under"]; !strings.Contains(m.StateReason, "hidden") {
		t.Errorf("%+v", m)
	}
	if m := n.list()[n.podVolume(podA, "disk")]; m.PodUID != podA || m.Source != dev || m.FSType != "ext4" || m.Root != "/" || m.ReadOnly {
		t.Errorf("%+v", m)
	}
}

// A directory is bound into pods from where it is: no global mount is told of.
func TestDirectoryHasNoGlobalMount(t *testing.T) {
	n := newNode(t)
	dir, _ := n.dataDir("dir")
	disk, _ := n.disk("disk", "ext4")
	for file, global := range map[string]string{dir: "", disk: n.global("disk")} {
		for _, verb := range [][]string{{"setup", "--pod-uid", podA}, {"publish", "--pod-uid", podA}, {"mount-device"}} {
			o := n.must(0, append(verb, "-f", file, "-o", "json")...)
			for _, r := range decode[api.List[api.Result]](t, o.stdout).Items {
				if r.Paths.GlobalMountPath != global {
					t.Errorf("%s %s: the global mount is %q, want %q", verb[0], r.Op, r.Paths.GlobalMountPath, global)
				}
			}
		}
	}
}

// Inspect tells of a volume its places, its device and what that is made of, what
// lies beside it, and what its plugin can do.
func TestInspectTellsEverything(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("disk", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	for _, subject := range []string{"disk", dev, podA, n.global("disk"), n.podVolume(podA, "disk")} {
		i := decode[api.Inspection](t, n.must(0, "inspect", subject, "-o", "json").stdout)
		mounted := []string{}
		for _, m := range i.Mounts {
			mounted = append(mounted, m.Path)
		}
		if !slices.Contains(mounted, n.podVolume(podA, "disk")) || subject != podA && !slices.Contains(mounted, n.global("disk")) {
			t.Errorf("%s: the mounts are %v", subject, mounted)
		}
		if len(i.Devices) != 1 || i.Devices[0].Path != dev || i.Devices[0].Type != "loop" || !strings.HasSuffix(i.Devices[0].Backing, ".img") || i.Devices[0].Size != 32<<20 {
			t.Errorf("%s: the devices are %+v", subject, i.Devices)
		}
		if len(i.Plugins) != 1 || !slices.Contains(i.Plugins[0].Rungs, "Block") || len(i.Plugins[0].Tools) == 0 {
			t.Errorf("%s: the plugins are %+v", subject, i.Plugins)
		}
	}
	for name, c := range map[string]struct{ text, state, handle string }{
		"good":   {`{"driverName":"some.driver","volumeHandle":"h-1"}`, "ok", "h-1"},
		"broken": {`{"driverName":`, "broken", ""},
		"empty":  {"", "empty", ""},
	} {
		dir := n.root + "/pods/" + podB + "/volumes/kubernetes.io~csi/" + name
		must(t, os.MkdirAll(filepath.Join(dir, "mount"), 0o750), os.WriteFile(dir+"/vol_data.json", []byte(c.text), 0o600))
		i := decode[api.Inspection](t, n.must(0, "inspect", name, "-o", "json").stdout)
		if len(i.Metadata) != 1 || i.Metadata[0].Path != dir+"/vol_data.json" || i.Metadata[0].State != c.state || i.Metadata[0].Data["volumeHandle"] != c.handle {
			t.Errorf("%s: the metadata is %+v", name, i.Metadata)
		}
	}
}
