package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// A node with pods that live, are gone and are not known, each as a kubelet leaves it:
// what is proven gone goes, all of it, and nothing else; what users wrote is there.
func TestOrphans(t *testing.T) {
	n := newOrphans(t)
	for _, uid := range []string{podA, podGone, podStatic} {
		n.leave(uid)
	}
	n.volumes(podA, "live")
	n.volumes(podGone, "gone")
	// A volume that two pods have, one of which lives.
	shared := n.volume("shared", "vol-shared")
	n.must(0, setUp(podA, n.unattached(), shared)...)
	n.must(0, setUp(podGone, n.unattached(), shared)...)
	// What is no pod's by its name.
	n.user(n.root+"/pods/lost+found/file", "kept")
	n.user(n.root+"/pods/0A1B2C3D-0000-4000-8000-00000000000A/file", "kept")
	must(t, os.Symlink(n.dir, n.root+"/pods/"+podB))

	live, plugins := testutil.Tree(t, n.pod(podA)), n.mounts()
	plan := n.gc(0)
	if after := n.mounts(); after != plugins {
		t.Fatalf("a plan changed mounts:\n%s", after)
	}
	done := n.gc(0, "--apply")
	for path, p := range plan {
		if d := done[path]; d.Verdict != p.Verdict || len(p.Steps) != len(d.Steps) && d.Outcome == "done" && !calls(p) {
			t.Errorf("%s: planned %s with %d steps, did %s with %d", path, p.Verdict, len(p.Steps), d.Verdict, len(d.Steps))
		}
	}
	absent(t, n.pod(podGone), n.pod(podStatic), n.global("disk-gone"), n.staged("vol-gone"), n.blocks()+"/block-gone",
		n.blocks()+"/publish/block-gone", n.blocks()+"/staging/block-gone", filepath.Dir(n.mapDevice(podGone, "raw-gone")))
	for _, path := range []string{"pods/lost+found", "pods/0A1B2C3D-0000-4000-8000-00000000000A", "pods/" + podB} {
		if done[path].Verdict != api.VerdictUnknown || done[path].Outcome != "" {
			t.Errorf("%+v", done[path])
		}
	}
	for path, o := range done {
		if strings.Contains(path, "live") || strings.Contains(path, "shared") || path == "pods/"+podA {
			if o.Verdict != api.VerdictLive {
				t.Errorf("%s is %s: %s", path, o.Verdict, o.Reason)
			}
		}
	}
	if got := testutil.Tree(t, n.pod(podA)); got != live {
		t.Errorf("the live pod was touched:\n%s", got)
	}
	for _, path := range []string{n.target(podA, "shared"), n.staging("vol-shared"), n.global("disk-live"), n.staging("vol-live"), n.mapDevice(podA, "raw-live")} {
		n.isMounted(true, path)
	}
	for _, call := range n.csi.Calls() {
		if strings.HasPrefix(call.Method, "NodeUn") && (strings.Contains(call.VolumeID, "live") || strings.Contains(call.TargetPath, podA)) || call.Method == "NodeUnstageVolume" && call.VolumeID == "vol-shared" {
			t.Errorf("the driver was called for a live pod: %+v", call)
		}
	}
	n.kept()
	if again := n.gc(0, "--apply"); len(steps(again)) > 0 {
		t.Errorf("once more: %v", steps(again))
	}
	n.again("gone")
}

func calls(o api.Orphan) bool {
	return slices.ContainsFunc(o.Steps, func(s api.Step) bool { return s.Action == "call" })
}

// steps are all that were taken.
func steps(all map[string]api.Orphan) []string {
	var out []string
	for _, o := range all {
		for _, s := range o.Steps {
			out = append(out, s.Action+" "+s.Target)
		}
	}
	return out
}

// What is in the way stays, with what it is; the rest of what is proven gone goes, and
// a kubelet has nothing to say of it.
func TestOrphansThatStay(t *testing.T) {
	n := newOrphans(t)
	pod := n.pod(podGone)
	n.leave(podA)
	n.leave(podGone)
	n.user(pod+"/volumes/kubernetes.io~empty-dir/cache/dir/file", "cache")
	n.write(pod+"/plugins/kubernetes.io~empty-dir/cache/ready", "")
	n.user(pod+"/volumes/kubernetes.io~nfs/share/written while unmounted", "nfs")
	n.user(pod+"/volumes/kubernetes.io~configmap/cm/mine", "beside the atomic writer's")
	n.user(pod+"/volumes/kubernetes.io~csi/csi/mount/file", "csi")
	n.write(n.podData(podGone, "csi"), "")
	n.user(pod+"/somebody's/file", "mine")
	n.user(pod+"/containers/main/deeper/file", "deeper")
	n.user(pod+"/volumes/vendor~driver/flex/data", "a driver that mounts nothing")
	must(t, os.MkdirAll(pod+"/volumes/kubernetes.io~nfs/mounted", 0o750), os.MkdirAll(pod+"/foreign", 0o750), os.Mkdir(n.dir+"/foreign", 0o755))
	n.user(n.dir+"/foreign/file", "foreign")
	testutil.Bind(t, n.dir+"/foreign", pod+"/foreign", false)
	testutil.Bind(t, n.dir+"/foreign", pod+"/volumes/kubernetes.io~nfs/mounted", false)
	n.user(pod+"/volumes/kubernetes.io~empty-dir/mem/in memory", "memory")
	// Of the same pod: what a power loss leaves of a CSI volume.
	n.write(n.podData(podGone, "cut"), `{"driverName":"csi.k`)
	must(t, os.MkdirAll(n.csiDir(podGone, "none"), 0o750))

	stays := map[string]string{}
	for _, s := range n.gc(3, "--apply")["pods/"+podGone].Stays {
		stays[strings.TrimPrefix(s.Path, pod+"/")] = s.BlockedBy
		if s.Reason == "" || s.Next == "" {
			t.Errorf("%+v", s)
		}
	}
	want := map[string]string{
		"volumes/kubernetes.io~empty-dir/cache": "data", "volumes/kubernetes.io~nfs/share": "data", "volumes/kubernetes.io~configmap/cm": "data",
		"volumes/kubernetes.io~csi/csi/mount": "data", "somebody's": "data", "containers/main/deeper": "data", "volumes/vendor~driver/flex": "data",
		"foreign": "mount", "volumes/kubernetes.io~empty-dir/mem": "data",
	}
	for path, by := range want {
		if stays[path] != by {
			t.Errorf("%s stays for %q, want %s", path, stays[path], by)
		}
	}
	if len(stays) != len(want) {
		t.Errorf("%v", stays)
	}
	absent(t, pod+"/etc-hosts", pod+"/userns", pod+"/plugins", pod+"/volume-subpaths", pod+"/volumes/kubernetes.io~secret", pod+"/volumes/kubernetes.io~nfs/mounted",
		pod+"/containers/main/4f937ac4", pod+"/volumes/kubernetes.io~empty-dir/empty", n.csiDir(podGone, "cut"), n.csiDir(podGone, "none"))
	for _, path := range n.complaints(podGone) {
		if !slices.ContainsFunc(keysOf(want), func(stay string) bool {
			return strings.HasPrefix(path+"/", pod+"/"+stay+"/") || strings.HasPrefix(pod+"/"+stay+"/", path+"/") || strings.HasPrefix(path, n.csiDir(podGone, "csi"))
		}) {
			t.Errorf("a kubelet complains of %s", path)
		}
	}
	n.kept()

	n.wants(0, []string{"refused", "stays: "}, "history")

	// What ends with the pod can be given up: on disk it is moved.
	away := n.dir + "/away"
	must(t, os.Mkdir(away, 0o700))
	n.must(2, "gc-orphans", "--apply", "--quarantine", away)
	if cache := n.gc(3, "--apply", "--discard-ephemeral")["pods/"+podGone].Stays; !slices.ContainsFunc(cache, func(s api.Stay) bool { return strings.HasSuffix(s.Path, "/cache") }) {
		t.Errorf("without a directory to move it to: %v", cache)
	}
	delete(n.files, pod+"/volumes/kubernetes.io~empty-dir/mem/in memory") // given up
	n.gc(3, "--apply", "--discard-ephemeral", "--quarantine", away)
	name := away + "/" + podGone + "_kubernetes.io~"
	n.kept(pod+"/volumes/kubernetes.io~empty-dir/cache", name+"empty-dir_cache", pod+"/volumes/kubernetes.io~configmap/cm", name+"configmap_cm")
}

func keysOf[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}
