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
