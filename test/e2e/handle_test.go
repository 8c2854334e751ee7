package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
)

// A CSI volume named by driver^handle: its staging directory has the handle as a
// hash, its directory in a pod has it in the metadata.
func TestDriverAndHandle(t *testing.T) {
	n := newNode(t)
	staged := filepath.Join(n.root, "plugins/kubernetes.io/csi/some.driver", paths.HandleHash("vol-1"), "globalmount")
	must(t, os.MkdirAll(staged, 0o750))
	inPod := filepath.Join(n.root, "pods", podA, "volumes/kubernetes.io~csi/pv-csi")
	must(t, os.MkdirAll(inPod+"/mount", 0o750))
	must(t, os.WriteFile(inPod+"/vol_data.json", []byte(`{"driverName":"some.driver","volumeHandle":"vol-1"}`), 0o600))

	n.unchanged(func() {
		n.wants(7, []string{"some.driver is not on this node"}, "unmount-device", "some.driver^vol-1")
		n.wants(7, []string{"some.driver is not on this node"}, "unpublish", "some.driver^vol-1", "--pod-uid", podA)
		n.wants(2, []string{"--plugin"}, "detach", "some.driver^vol-1", "--plugin", "kubernetes.io/local-volume")
		n.wants(2, []string{"no handle"}, "detach", "some.driver^")
	})
	// Another handle is another volume: the directory says so by its hash.
	n.must(0, "unmount-device", "some.driver^vol-2")
	n.must(0, "unpublish", "some.driver^vol-2", "--pod-uid", podA)
	// Metadata that cannot be read could be of any.
	must(t, os.WriteFile(inPod+"/vol_data.json", nil, 0o600))
	n.wants(8, []string{inPod}, "unpublish", "some.driver^vol-2", "--pod-uid", podA)

	i := decode[api.Inspection](t, n.must(0, "inspect", "some.driver^vol-1", "-o", "json").stdout)
	if len(i.Mounts) != 1 || i.Mounts[0].Path != staged {
		t.Errorf("inspect gave %+v", i.Mounts)
	}
}

// What the disk tells of a spec, and what it does not.
func TestInspectTellsTheSpec(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	i := decode[api.Inspection](t, n.must(0, "inspect", "pv", "-o", "json").stdout)
	if len(i.Specs) != 1 || i.Specs[0].Fields["spec.local.path"] != dev || len(i.Specs[0].Missing) == 0 {
		t.Errorf("specs: %+v", i.Specs)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}
