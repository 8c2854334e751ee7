package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// bare is a node without a driver: in a user namespace there are no disks.
func bare(t *testing.T) *orphanNode {
	t.Helper()
	return &orphanNode{&csiNode{node: newNode(t)}, map[string]string{}}
}

// volData is a pod's metadata of a CSI volume of a driver that is away.
const volData = `{"driverName":"` + csiDriver + `","volumeHandle":"vol-1","specVolID":"pv","volumeLifecycleMode":"Persistent"}`

// Beside a kubelet that runs on this root: what it may hold in its memory stays, with
// the ordered way; what it cannot know of goes. Without the kubelet all goes.
func TestOrphansBesideAKubelet(t *testing.T) {
	n := bare(t)
	pod := n.pod(podGone)
	n.leave(podA)
	n.leave(podGone)
	n.write(n.podData(podGone, "whole"), volData)
	n.write(n.podData(podGone, "empty"), "")
	n.write(n.podData(podGone, "rewritten"), "")
	n.write(n.podData(podGone, "replaced"), "")
	must(t, os.MkdirAll(n.csiDir(podGone, "without"), 0o750), os.MkdirAll(n.staging("vol-2"), 0o750))
	n.write(n.stagedData("vol-2"), strings.Replace(volData, "vol-1", "vol-2", 1))
	// The kernel tells when a process began in hundredths of a second; what is written
	// in the same one counts as later.
	written := time.Now()
	testutil.Poll(t, "the next of them", func() bool { return time.Since(written) > 30*time.Millisecond })
	k := n.kubelet(kubeletSpec{})
	// What came after the kubelet's start it may have set up itself.
	n.write(n.podData(podGone, "rewritten"), "{")
	n.write(n.podData(podGone, "younger"), "")

	all := n.gc(3, "--apply")
	stays := map[string]bool{}
	for _, s := range all["pods/"+podGone].Stays {
		stays[strings.TrimPrefix(s.Path, pod+"/volumes/kubernetes.io~")] = true
		if s.BlockedBy != "kubelet" || !strings.Contains(s.Next, "systemctl stop kubelet") {
			t.Errorf("%+v", s)
		}
	}
	for _, path := range []string{"csi/whole", "csi/rewritten", "csi/younger", "secret/sec", "empty-dir/mem"} {
		if !stays[path] || !exists(pod+"/volumes/kubernetes.io~"+path) {
			t.Errorf("%s goes beside a kubelet: %v", path, stays)
		}
		delete(stays, path)
	}
	if len(stays) > 0 {
		t.Errorf("these could have gone: %v", stays)
	}
	absent(t, n.csiDir(podGone, "empty"), n.csiDir(podGone, "replaced"), n.csiDir(podGone, "without"), pod+"/volumes/kubernetes.io~configmap/cm",
		pod+"/volume-subpaths", pod+"/etc-hosts")
	staged := all[strings.TrimPrefix(n.staged("vol-2"), n.root+"/")]
	if staged.Verdict != api.VerdictUnknown || staged.BlockedBy != "kubelet" || !exists(n.staging("vol-2")) {
		t.Errorf("what a pod may be about to use: %+v", staged)
	}

	k.end()
	n.gc(0, "--apply", "--without-driver")
	absent(t, pod, n.staged("vol-2"))
	if !exists(n.pod(podA) + "/etc-hosts") {
		t.Error("the live pod was touched")
	}
}

// A kubelet of another root is no reason to leave anything.
func TestOrphansBesideAnotherKubelet(t *testing.T) {
	n := bare(t)
	n.leave(podA)
	n.leave(podGone)
	n.kubelet(kubeletSpec{args: []string{"--root-dir=" + n.dir + "/other"}})
	n.gc(0, "--apply")
	absent(t, n.pod(podGone))
}

// A driver that is away keeps what it would have to be asked for, and no more; with
// --without-driver that goes as well. Driver first, files last.
func TestOrphansWithoutTheDriver(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podGone)
	n.must(0, setUp(podGone, n.unattached(), n.volume("pv", "vol-1"))...)
	n.t.Cleanup(n.sweep)
	n.csi.Kill()
	o := n.gc(3, "--apply")["pods/"+podGone]
	if len(o.Stays) != 1 || o.Stays[0].BlockedBy != "driver" || !strings.Contains(o.Next, "--without-driver") {
		t.Errorf("%+v", o)
	}
	n.isMounted(true, n.target(podGone, "pv"))
	if !exists(n.podData(podGone, "pv")) || exists(n.pod(podGone)+"/etc-hosts") {
		t.Errorf("metadata and the rest:\n%s", n.tree())
	}
	staged := strings.TrimPrefix(n.staged("vol-1"), n.root+"/")
	if by := n.gc(0)[staged].BlockedBy; by != "pod" {
		t.Errorf("the staging stays for %q", by)
	}
	n.gc(0, "--apply", "--without-driver")
	absent(t, n.pod(podGone), n.staged("vol-1"))
}

// Storage that is dead below a pod is unmounted, what hangs does not keep kvol for ever.
func TestOrphansOnDeadStorage(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	for name, mode := range map[string]testutil.FUSEMode{"dead": testutil.FUSEDead, "hung": testutil.FUSEHung} {
		at := n.pod(podGone) + "/volumes/kubernetes.io~nfs/" + name
		must(t, os.MkdirAll(at, 0o750))
		testutil.FUSE(t, at, mode)
	}
	all := n.gc(0, "--apply", "--timeout", "20s")
	absent(t, n.pod(podGone))
	for _, s := range all["pods/"+podGone].Steps {
		if s.Action == "unmount" && len(s.Args) > 0 {
			t.Errorf("a lazy unmount: %+v", s)
		}
	}
}
