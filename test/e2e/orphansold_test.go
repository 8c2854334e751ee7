package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// A CSI volume as kubelets before 1.24 staged it, by the name of the PV: it lives with
// the pods that have it, by the handle and by the mount, and goes with the last one.
func TestOrphansOldStaging(t *testing.T) {
	n := newOrphans(t)
	n.csi.Volume("vol-1", "", 16<<20)
	dir := n.oldGlobal("pv", "vol-1", true)
	for _, uid := range []string{podA, podGone} {
		n.claims(uid, "pv", "vol-1", dir+"/globalmount")
	}
	item := strings.TrimPrefix(dir, n.root+"/")
	if o := n.gc(0, "--apply")[item]; o.Verdict != api.VerdictLive || !strings.Contains(o.Reason, podA) {
		t.Errorf("%+v", o)
	}
	absent(t, n.pod(podGone))
	n.isMounted(true, n.target(podA, "pv"))
	n.isMounted(true, dir+"/globalmount")

	// What is published there under another name has its handle.
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	n.claims(podA, "renamed", "vol-1", n.dir+"/another file system")
	if o := n.gc(0, "--apply")[item]; o.Verdict != api.VerdictLive || !strings.Contains(o.Reason, podA) {
		t.Errorf("%+v", o)
	}
	n.must(0, "unpublish", "renamed", "--pod-uid", podA)
	if o := n.gc(0, "--apply")[item]; o.Outcome != string(api.OutcomeDone) {
		t.Errorf("%+v", o)
	}
	if c := n.csi.CallsTo("NodeUnstageVolume"); len(c) != 1 || c[0].StagingPath != dir+"/globalmount" || c[0].VolumeID != "vol-1" {
		t.Errorf("%+v", c)
	}
	absent(t, dir)
}

// A raw block volume of CSI as kubelets up to 1.16 published it: one file for all pods,
// which stays until the last of them is gone.
func TestOrphansOldBlock(t *testing.T) {
	n := newOrphans(t)
	n.must(0, setUp(podA, n.unattached(), n.volume("raw", "vol-1", "volumeMode: Block"))...)
	publish, dev := n.blocks()+"/publish/raw", n.blocks()+"/raw/dev/"
	n.t.Cleanup(n.sweep)
	testutil.Bind(t, publish+"/"+podA, n.file("device", ""), false) // the device, wherever its node is
	n.sh("umount " + publish + "/" + podA + " && rm " + publish + "/" + podA + " && rmdir " + publish)
	n.write(publish, "")
	testutil.Bind(t, n.dir+"/device", publish, false)
	for _, uid := range []string{podA, podGone} {
		link := n.pod(uid) + "/volumeDevices/kubernetes.io~csi/raw"
		n.write(dev+uid, "")
		must(t, os.MkdirAll(n.pod(uid)+"/volumeDevices/kubernetes.io~csi", 0o750))
		if uid == podA {
			must(t, os.Remove(link))
		} else {
			testutil.Bind(t, n.dir+"/device", dev+uid, false)
		}
		must(t, os.Symlink(publish, link))
	}
	all := n.gc(0, "--apply")
	if o := all["plugins/kubernetes.io/csi/volumeDevices/raw"]; o.Verdict != api.VerdictLive {
		t.Errorf("%+v", o)
	}
	absent(t, n.pod(podGone), dev+podGone)
	n.isMounted(true, publish)
	n.isMounted(true, dev+podA)

	// A pod that only its link is left of has the device too.
	link := n.pod(podB) + "/volumeDevices/kubernetes.io~csi/raw"
	must(t, os.MkdirAll(filepath.Dir(link), 0o750), os.Symlink(publish, link), os.WriteFile(n.root+"/pods/a file", nil, 0o600))
	takes := func() bool {
		return strings.Contains(n.must(0, "unpublish", "raw", "--pod-uid", podA, "--dry-run", "--allow-active-pod", "-o", "json").stdout, `"action":"call","target":"`+publish+`"`)
	}
	if takes() {
		t.Error("the device is taken from " + podB)
	}
	must(t, os.Remove(link), os.RemoveAll(n.pod(podB)+"/volumeDevices"))
	if !takes() {
		t.Error("the last one does not take it down")
	}

	n.live(podB)
	all = n.byPath(n.must(0, "gc-orphans", "--apply", "--pods-from", "file:"+n.dir+"/pods.txt", "--min-age", "0", "--assert-no-pods", "-o", "json"))
	if o := all["plugins/kubernetes.io/csi/volumeDevices/raw"]; o.Outcome != string(api.OutcomeDone) {
		t.Errorf("%+v", o)
	}
	absent(t, n.pod(podA), publish, n.blocks()+"/raw", n.blocks()+"/staging/raw")
	if c := n.csi.CallsTo("NodeUnpublishVolume"); len(c) != 1 || c[0].TargetPath != publish {
		t.Errorf("%+v", c)
	}
}
