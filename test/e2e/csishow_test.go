package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// What is shown of a CSI volume has the name and the metadata of it everywhere, also
// where the path holds only the hash of its handle.
func TestCSIShown(t *testing.T) {
	n := newCSI(t)
	pv := n.volume("pv", "vol-1")
	n.must(0, setUp(podA, n.unattached(), pv)...)
	staging, target := n.staging("vol-1"), n.target(podA, "pv")
	files := []string{n.stagedData("vol-1"), n.podData(podA, "pv")}
	named := func(want string, places ...string) {
		t.Helper()
		list := n.list()
		for _, path := range places {
			if list[path].Volume != want {
				t.Errorf("list-mounts calls %s %q, want %q", path, list[path].Volume, want)
			}
		}
	}
	named("pv", staging, target)
	set := decode[api.PathSet](t, n.must(0, "paths", "-f", pv, "--pod-uid", podA, "-o", "json").stdout)
	if set.GlobalMountPath != staging || !slices.Equal(set.Metadata, files) {
		t.Errorf("paths: %+v", set)
	}
	for _, word := range []string{"pv", csiDriver + "^vol-1"} {
		i := decode[api.Inspection](t, n.must(0, "inspect", word, "-o", "json").stdout)
		if len(i.Volumes) != 1 || i.Volumes[0].GlobalMountPath != staging || i.Volumes[0].PodVolumePath != target || !slices.Equal(i.Volumes[0].Metadata, files) {
			t.Errorf("inspect %s: %+v", word, i.Volumes)
		}
		if len(i.Mounts) != 2 || len(i.Metadata) != 2 {
			t.Errorf("inspect %s: %+v, %+v", word, i.Mounts, i.Metadata)
		}
	}

	// Without a pod only the metadata tells; without that there is no name.
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	named(csiDriver+"^vol-1", staging)
	must(t, os.WriteFile(n.stagedData("vol-1"), nil, 0o644))
	named("", staging)
	n.must(0, "teardown", csiDriver+"^vol-1", "--pod-uid", podA)
	n.cleared()
}

// A limit that nobody told is not no limit.
func TestCSILimitNotTold(t *testing.T) {
	n := newCSI(t)
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.csi.Kill()
	n.wants(0, []string{csiDriver, "nobody told the limit"}, "limits")
	n.must(0, "teardown", "pv", "--pod-uid", podA, "--without-driver")
}

// attach --check: yes (0), no (5), and nobody tells (8). wait --for=attached waits as long
// as that can change.
func TestCSIAttachCheck(t *testing.T) {
	n := newCSI(t, controller)
	pv := n.volume("pv", "vol-1")
	check := []string{"attach", "--check", "-f", pv}
	wait := []string{"wait", "-f", pv, "--for", "attached"}
	late := append(wait, "--timeout", "300ms")
	n.must(5, check...)
	n.wants(8, []string{"not attached in time", "it is not attached to node"}, late...)
	n.must(0, "attach", "-f", pv)
	n.must(0, check...)
	n.must(0, wait...)
	n.wants(0, []string{"needs no attaching"}, "attach", "--check", "-f", n.unattached(), "-f", pv)
	n.wants(8, []string{"cannot be known"}, "attach", "--check", "-f", n.pvOf("unlisted", "vol-9"))
	n.csi.Kill()
	n.wants(8, []string{"cannot be known"}, check...)
	n.wants(8, []string{"not attached in time", "cannot be known"}, late...)
	n.csi.Set(func(c *testutil.CSIControl) { c.ControllerCaps = []string{"PUBLISH_UNPUBLISH_VOLUME"} })
	n.csi.Restart()
	n.wants(8, []string{"cannot be known", "kubectl get volumeattachments"}, check...)
	n.wants(8, []string{"cannot be known", "kubectl get volumeattachments"}, wait...)
}

// A controller that says a volume is detached, and still lists it, is not believed.
func TestCSIDetachLies(t *testing.T) {
	n := newCSI(t, controller)
	pv := n.volume("pv", "vol-1")
	n.must(0, "attach", "-f", pv)
	n.csi.Fail("ControllerUnpublishVolume", testutil.CSIFault{Nothing: true})
	o := n.wants(1, []string{"ControllerUnpublishVolume is done", "it is still attached"}, "detach", "-f", pv)
	if strings.Contains(o.stderr, "%!") {
		t.Error(o)
	}
	n.csi.Heal()
	n.must(0, "detach", "-f", pv)
}
