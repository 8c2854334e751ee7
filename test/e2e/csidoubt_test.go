package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// claims gives a pod a volume by hand: a mount from a directory, and metadata that
// calls it by a handle.
func (n *csiNode) claims(pod, pv, handle, from string) {
	n.t.Helper()
	must(n.t, os.MkdirAll(n.target(pod, pv), 0o750), os.MkdirAll(from, 0o750))
	text := fmt.Sprintf(`{"driverName":%q,"volumeHandle":%q,"specVolID":%q,"nodeName":"node1","volumeLifecycleMode":"Persistent"}`, csiDriver, handle, pv)
	must(n.t, os.WriteFile(n.podData(pod, pv), []byte(text), 0o644))
	testutil.Bind(n.t, from, n.target(pod, pv), false)
}

// A pod's metadata names a volume that is staged, and what the pod has mounted is not
// of it: that one is not taken down with the pod's, nor is it called unmounted.
func TestMetadataOfAnotherStagedVolume(t *testing.T) {
	n := newCSI(t)
	n.must(0, setUp(podB, n.unattached(), n.volume("other", "vol-1"))...)
	n.must(0, "unpublish", "other", "--pod-uid", podB)
	for _, way := range [][]string{{}, {"--without-driver"}} {
		n.claims(podA, "pv", "vol-1", n.dir+"/data")
		n.wants(8, []string{n.staging("vol-1")}, "unmount-device", "pv")
		for range 2 {
			n.wants(8, []string{n.staging("vol-1")}, append([]string{"teardown", "pv", "--pod-uid", podA}, way...)...)
			absent(t, n.csiDir(podA, "pv"))
			n.isMounted(true, n.staging("vol-1"))
			there(t, n.stagedData("vol-1"))
		}
	}
	if calls := n.csi.CallsTo("NodeUnstageVolume"); len(calls) > 0 {
		t.Errorf("the driver was asked to unstage: %+v", calls)
	}
	n.must(0, "unmount-device", csiDriver+"^vol-1")
	n.cleared()
}

// A pod's metadata names one volume, and what it has mounted is of the staging directory
// of another: the driver is asked to take neither, and the volume is not called unmounted
// while it is in the pod.
func TestMountedFromAnotherStagingDirectory(t *testing.T) {
	n := newCSI(t)
	n.must(0, setUp(podB, n.unattached(), n.volume("other", "vol-1"))...)
	n.claims(podA, "pv", "vol-2", n.staging("vol-1"))
	n.unchanged(func() {
		n.wants(4, []string{"vol-2", n.staging("vol-1")}, "unpublish", "pv", "--pod-uid", podA)
		n.wants(4, []string{"vol-2"}, "teardown", "pv", "--pod-uid", podA)
		n.wants(9, []string{podA}, "unmount-device", "pv")
		n.wants(9, []string{podA}, "detach", "pv")
	})
	n.called(new(int), "NodeStageVolume NodePublishVolume")
	n.must(0, "unpublish", "pv", "--pod-uid", podA, "--without-driver")
	n.isMounted(true, n.target(podB, "other"))
	n.must(0, "teardown", "other", "--pod-uid", podB)
	n.cleared()
}

// What a driver put before where it publishes a raw block volume is no device: that is
// its fault and not that of what was given, and nothing is mapped.
func TestPublishedFileInsteadOfADevice(t *testing.T) {
	n := newCSI(t)
	raw := n.volume("raw", "vol-1", "volumeMode: Block")
	n.must(0, setUp(podB, n.unattached(), raw)...)
	target := n.blocks() + "/publish/raw/" + podA
	must(t, os.WriteFile(target, nil, 0o600))
	testutil.Bind(t, n.file("no device", "data"), target, false)
	n.wants(1, []string{target, "no device"}, setUp(podA, n.unattached(), raw)...)
	absent(t, n.root+"/pods/"+podA+"/volumeDevices/kubernetes.io~csi/raw", n.blocks()+"/raw/dev/"+podA)
	n.must(0, "teardown", "raw", "--pod-uid", podB)
}
