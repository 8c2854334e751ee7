package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// Everything that a setup makes is where a kubelet has it, with its modes: the pod's
// directory, the global mount by the hash of the handle, and nothing else.
func TestCSIPaths(t *testing.T) {
	n := newCSI(t)
	handle := "projects/a b/ä/" + strings.Repeat("long", 80)
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", handle))...)
	for path, mode := range map[string]os.FileMode{
		n.csiDir(podA, "pv"): 0o750, n.staged(handle): 0o750, filepath.Dir(n.staged(handle)): 0o750,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	n.isMounted(true, n.target(podA, "pv"))
	n.isMounted(true, n.staging(handle))
	there(t, n.podData(podA, "pv"), n.stagedData(handle))
	calls := n.csi.CallsTo("NodePublishVolume")
	if c := calls[0]; c.TargetPath != n.target(podA, "pv") || c.StagingPath != n.staging(handle) || c.TargetThere || c.VolumeID != handle {
		t.Errorf("%+v: the target is the driver's to make", c)
	}
	if c := n.csi.CallsTo("NodeStageVolume")[0]; c.StagingPath != n.staging(handle) || c.VolumeID != handle {
		t.Errorf("%+v", c)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// The name of the volume is escaped in the pod's path.
func TestCSINamesWithTildes(t *testing.T) {
	n := newCSI(t)
	n.must(0, setUp(podA, n.unattached(), n.volume("pv.with.dots-1", "h~h"))...)
	there(t, n.podData(podA, "pv.with.dots-1"), n.stagedData("h~h"))
	n.must(0, "teardown", "pv.with.dots-1", "--pod-uid", podA)
	n.cleared()
}

// vol_data.json has the kubelet's keys in each of its three places, no more and no
// less, and no secret, attribute or context.
func TestCSIVolData(t *testing.T) {
	n := newCSI(t, controller, func(c *testutil.CSIControl) {
		c.Secrets = map[string]map[string]string{"NodeStageVolume": {"key": "hidden"}}
	})
	id := paths.CSIAttachmentID("vol-1", csiDriver, "node1")
	file := n.volume("pv", "vol-1", "csi.volumeAttributes: {color: red}", "csi.nodeStageSecretRef: {name: stage, namespace: ns}")
	n.must(0, setUp(podA, n.driver("attachRequired: true"), file, n.secret("stage", "key", "hidden"))...)
	pod := map[string]string{
		"volumeHandle": "vol-1", "driverName": csiDriver, "specVolID": "pv", "nodeName": "node1",
		"attachmentID": id, "volumeLifecycleMode": "Persistent",
	}
	if got := keys(t, n.podData(podA, "pv")); !maps.Equal(got, pod) {
		t.Errorf("the pod's: %v", got)
	}
	if got := keys(t, n.stagedData("vol-1")); !maps.Equal(got, map[string]string{"volumeHandle": "vol-1", "driverName": csiDriver}) {
		t.Errorf("the staged: %v", got)
	}
	n.csi.Set(func(c *testutil.CSIControl) { c.Secrets = nil })
	n.must(0, setUp(podB, n.driver("attachRequired: true"), n.volume("raw", "vol-2", "volumeMode: Block"))...)
	delete(pod, "volumeLifecycleMode")
	pod["volumeHandle"], pod["specVolID"], pod["attachmentID"] = "vol-2", "raw", paths.CSIAttachmentID("vol-2", csiDriver, "node1")
	if got := keys(t, n.blocks()+"/raw/data/vol_data.json"); !maps.Equal(got, pod) {
		t.Errorf("of block: %v", got)
	}
	for _, path := range []string{n.podData(podA, "pv"), n.stagedData("vol-1")} {
		b, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(b), "hidden") || strings.Contains(string(b), "red") {
			t.Errorf("%s %v", b, err)
		}
	}
}

// The block volume's five places (kubelet-like), and none of them afterwards.
func TestCSIBlockPaths(t *testing.T) {
	n := newCSI(t)
	n.must(0, setUp(podA, n.unattached(), n.volume("raw", "vol-1", "volumeMode: Block"))...)
	n.must(0, setUp(podB, n.unattached(), n.file("raw.yaml", readText(t, n.dir+"/raw.yaml")))...)
	for _, uid := range []string{podA, podB} {
		publish := n.blocks() + "/publish/raw/" + uid
		n.isMounted(true, publish)
		n.isMounted(true, n.blocks()+"/raw/dev/"+uid)
		link := n.root + "/pods/" + uid + "/volumeDevices/kubernetes.io~csi/raw"
		if to, err := os.Readlink(link); err != nil || to != publish {
			t.Errorf("%s -> %s %v", link, to, err)
		}
		if locks := loopsBelow(n.blocks() + "/raw/dev"); locks[n.blocks()+"/raw/dev/"+uid] == "" {
			t.Errorf("no loop device holds the device of %s: %v", uid, locks)
		}
	}
	there(t, n.blocks()+"/staging/raw", n.blocks()+"/raw/data/vol_data.json")
	if c := n.csi.CallsTo("NodePublishVolume")[0]; c.Access != "block" || c.StagingPath != n.blocks()+"/staging/raw" || c.TargetThere || c.FSType != "" {
		t.Errorf("%+v", c)
	}
	n.must(0, "teardown", "raw", "--pod-uid", podA)
	n.isMounted(true, n.blocks()+"/raw/dev/"+podB)
	if got := len(n.csi.CallsTo("NodeUnstageVolume")); got != 0 {
		t.Errorf("unstaged beside another pod: %d", got)
	}
	n.must(0, "teardown", "raw", "--pod-uid", podB)
	absent(t, n.blocks()+"/raw", n.blocks()+"/staging/raw", n.blocks()+"/publish/raw")
	n.cleared()
}

// Without staging the staging path is passed for block all the same, as new kubelets
// do, and never called.
func TestCSIBlockWithoutStaging(t *testing.T) {
	n := newCSI(t, noStaging)
	n.must(0, setUp(podA, n.unattached(), n.volume("raw", "vol-1", "volumeMode: Block"))...)
	if c := n.csi.CallsTo("NodePublishVolume")[0]; c.StagingPath != n.blocks()+"/staging/raw" {
		t.Errorf("%+v", c)
	}
	if got := n.csi.Methods(); got != "NodePublishVolume" {
		t.Error(got)
	}
	n.must(0, "teardown", "raw", "--pod-uid", podA)
	n.cleared()
}

// oldGlobal makes the global mount that kubelets before 1.24 made, by PV name.
func (n *csiNode) oldGlobal(pv, handle string, mounted bool) string {
	n.t.Helper()
	dir := n.root + "/plugins/kubernetes.io/csi/pv/" + pv
	must(n.t, os.MkdirAll(dir+"/globalmount", 0o750),
		os.WriteFile(dir+"/vol_data.json", []byte(`{"driverName":"`+csiDriver+`","volumeHandle":"`+handle+`"}`+"\n"), 0o644))
	if mounted {
		dev, _ := testutil.LoopImage(n.t, 16<<20)
		testutil.Mkfs(n.t, dev, "ext4")
		testutil.Mount(n.t, dev, dir+"/globalmount", "ext4", 0, "")
	}
	return dir
}

// A global mount as old kubelets made it is found and unstaged at its own path.
func TestCSIOldGlobalMount(t *testing.T) {
	n := newCSI(t)
	n.csi.Volume("vol-1", "", 16<<20)
	dir := n.oldGlobal("pv", "vol-1", true)
	n.must(0, "unmount-device", "pv")
	if c := n.csi.CallsTo("NodeUnstageVolume"); len(c) != 1 || c[0].StagingPath != dir+"/globalmount" || c[0].VolumeID != "vol-1" {
		t.Errorf("%+v", c)
	}
	absent(t, dir)
	n.cleared()
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}
