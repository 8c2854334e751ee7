package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// The traps of a kubelet's CSI clean-up (pkg/volume/csi: csi_util.go, csi_mounter.go,
// csi_attacher.go), each by name: what strands a volume there must not here.

// carried is a volume pv, handle vol-1, that is up in podA.
func carried(t *testing.T, change ...func(*testutil.CSIControl)) (n *csiNode, file string) {
	t.Helper()
	n = newCSI(t, change...)
	file = n.volume("pv", "vol-1")
	n.must(0, setUp(podA, n.unattached(), file)...)
	return n, file
}

// A path that still is mounted after the driver said success: a kubelet does nothing
// and reports success. Here it is a failure that names the path, and all stays.
func TestTrapStillMountedAfterUnpublish(t *testing.T) {
	n, _ := carried(t)
	n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Nothing: true})
	n.unchanged(func() {
		for _, args := range [][]string{{"unpublish", "pv", "--pod-uid", podA}, {"teardown", "pv", "--pod-uid", podA}} {
			n.wants(1, []string{n.target(podA, "pv"), "still mounted"}, args...)
		}
	})
	n.csi.Heal()
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

func TestTrapStillMountedAfterUnstage(t *testing.T) {
	n, _ := carried(t)
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	n.csi.Fail("NodeUnstageVolume", testutil.CSIFault{Nothing: true})
	n.unchanged(func() {
		n.wants(1, []string{n.staging("vol-1"), "still mounted"}, "unmount-device", csiDriver+"^vol-1")
	})
	n.csi.Heal()
	n.must(0, "unmount-device", csiDriver+"^vol-1")
	n.cleared()
}

// A bind of the node's own file system has the device number of its parent: a
// stat-based check does not see it.
func TestTrapBindOfTheSameFileSystem(t *testing.T) {
	n, _ := carried(t, plainStage)
	must(t, os.WriteFile(n.target(podA, "pv")+"/file", []byte("data\n"), 0o644))
	n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Nothing: true})
	n.unchanged(func() {
		n.wants(1, []string{n.target(podA, "pv"), "still mounted"}, "unpublish", "pv", "--pod-uid", podA)
	})
	if m := n.list()[n.target(podA, "pv")]; !m.Mounted || m.State != api.StateOK {
		t.Errorf("%+v", m)
	}
	n.csi.Heal()
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
	if got := n.sh("cat " + n.csi.Dir + "/volumes/*/data/file"); got != "data\n" {
		t.Errorf("the volume's file: %q", got)
	}
}

// spoils are what a crash, or somebody, makes of a vol_data.json.
var spoils = map[string]func(path string) error{
	"missing":   os.Remove,
	"empty":     func(p string) error { return os.WriteFile(p, nil, 0o644) },
	"cut short": func(p string) error { return os.Truncate(p, 20) },
	"zeroes":    func(p string) error { return os.WriteFile(p, make([]byte, 4096), 0o644) },
}

// Without the global metadata a kubelet's unmount-device is success and the volume
// stays staged for ever.
func TestTrapMissingGlobalMetadata(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			n, file := carried(t)
			must(t, spoil(n.stagedData("vol-1")))
			n.must(0, "teardown", "pv", "--pod-uid", podA) // the pod's copy tells
			n.cleared()

			for _, way := range [][]string{{csiDriver + "^vol-1"}, {"-f", file}} {
				n.must(0, setUp(podA, n.unattached(), file)...)
				n.must(0, "unpublish", "pv", "--pod-uid", podA)
				must(t, spoil(n.stagedData("vol-1")))
				n.unchanged(func() {
					// No pod's copy is left, and the path does not tell the name.
					n.wants(8, []string{n.staging("vol-1")}, "unmount-device", "pv2")
				})
				calls := len(n.csi.CallsTo("NodeUnstageVolume"))
				n.must(0, append([]string{"unmount-device"}, way...)...)
				if got := len(n.csi.CallsTo("NodeUnstageVolume")); got != calls+1 {
					t.Errorf("%v: not unstaged", way)
				}
				n.cleared()
			}
		})
	}
}

// Without the pod's metadata a kubelet cannot even begin to unpublish.
func TestTrapMissingPodMetadata(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			n, file := carried(t)
			for _, way := range [][]string{{"pv"}, {"-f", file}} {
				must(t, spoil(n.podData(podA, "pv")))
				n.must(0, append([]string{"unpublish", "--pod-uid", podA}, way...)...)
				absent(t, n.csiDir(podA, "pv"))
				n.isMounted(true, n.staging("vol-1"))
				n.must(0, setUp(podA, n.unattached(), file)...)
			}
			must(t, spoil(n.podData(podA, "pv")))
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.cleared()
		})
	}
}

// Both copies are gone, and so is what kvol wrote down of the volume: -f tells.
func TestTrapAllMetadataMissing(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			n, file := carried(t)
			must(t, spoil(n.podData(podA, "pv")), spoil(n.stagedData("vol-1")), os.RemoveAll(n.state))
			n.unchanged(func() {
				o := n.kvol("unpublish", "pv", "--pod-uid", podA)
				if o.code == 0 || !strings.Contains(o.stderr, "-f") {
					t.Errorf("%v", o)
				}
			})
			n.must(0, "teardown", "-f", file, "--pod-uid", podA)
			n.cleared()
		})
	}
}

// An error that is final leaves no files behind; one that may have happened, or
// happens still, leaves them, because they are what takes it down.
func TestTrapFilesAfterAFinalError(t *testing.T) {
	for _, method := range strings.Fields(upStaged) {
		for _, code := range []string{"InvalidArgument", "FailedPrecondition", "Internal"} {
			t.Run(method+" "+code, func(t *testing.T) {
				n := newCSI(t)
				file := n.volume("pv", "vol-1")
				n.csi.Fail(method, testutil.CSIFault{Code: code, Message: "no such luck"})
				n.wants(1, []string{"no such luck", method}, setUp(podA, n.unattached(), file)...)
				absent(t, n.csiDir(podA, "pv"))
				n.csi.Heal()
				n.must(0, setUp(podA, n.unattached(), file)...)
				n.must(0, "teardown", "pv", "--pod-uid", podA)
				n.cleared()
			})
		}
	}
}

func TestTrapFilesAfterAnUncertainError(t *testing.T) {
	for _, method := range strings.Fields(upStaged) {
		for _, code := range []string{"DeadlineExceeded", "Unavailable", "Aborted"} {
			t.Run(method+" "+code, func(t *testing.T) {
				n := newCSI(t)
				file := n.volume("pv", "vol-1")
				n.csi.Fail(method, testutil.CSIFault{After: true, Code: code, Message: "who knows"})
				n.wants(8, []string{"who knows", method}, setUp(podA, n.unattached(), file)...)
				there(t, n.stagedData("vol-1"))
				if method == "NodePublishVolume" {
					there(t, n.podData(podA, "pv"))
				}
				n.csi.Heal()
				n.must(0, setUp(podA, n.unattached(), file)...)
				n.must(0, "teardown", "pv", "--pod-uid", podA)
				n.cleared()
			})
		}
	}
}

// Some drivers remove the directory above the target too, with the metadata.
func TestTrapDriverRemovesTheParent(t *testing.T) {
	n, _ := carried(t)
	n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{RemoveParent: true})
	n.csi.Fail("NodeUnstageVolume", testutil.CSIFault{RemoveParent: true})
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
	twice(n.node, []string{"teardown", "pv", "--pod-uid", podA})
}

// A crash between the driver's answer and the removal leaves only the metadata.
func TestTrapOnlyMetadataLeft(t *testing.T) {
	n, _ := carried(t)
	data := readText(t, n.podData(podA, "pv"))
	staged := readText(t, n.stagedData("vol-1"))
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	must(t, os.MkdirAll(n.csiDir(podA, "pv"), 0o750), os.WriteFile(n.podData(podA, "pv"), []byte(data), 0o644),
		os.MkdirAll(n.staged("vol-1"), 0o750), os.WriteFile(n.stagedData("vol-1"), []byte(staged), 0o644))
	if m := n.list()[n.csiDir(podA, "pv")]; m.Mounted {
		t.Errorf("%+v", m)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// The metadata is enough to know the volume; the directory mount need not be there.
func TestTrapNoMountDirectory(t *testing.T) {
	n, file := carried(t)
	n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Code: "NotFound"})
	n.sh("umount " + n.target(podA, "pv") + " && rmdir " + n.target(podA, "pv"))
	n.wants(0, []string{csiDriver, "vol-1"}, "inspect", "pv")
	n.must(0, setUp(podA, n.unattached(), file)...)
	n.isMounted(true, n.target(podA, "pv"))
}

// A file under the mount, written while nothing was mounted, is data: it stays, and
// so does what leads to it.
func TestTrapUserFileUnderTheMount(t *testing.T) {
	n, _ := carried(t)
	n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Leave: "dir"})
	n.sh("umount " + n.target(podA, "pv"))
	must(t, os.WriteFile(n.target(podA, "pv")+"/report", []byte("precious\n"), 0o644))
	n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Nothing: true})
	n.wants(4, []string{n.target(podA, "pv")}, "unpublish", "pv", "--pod-uid", podA)
	if got := readText(t, n.target(podA, "pv")+"/report"); got != "precious\n" {
		t.Error(got)
	}
	there(t, n.podData(podA, "pv"))
}

// The driver first, the files last: while the driver refuses nothing is removed.
func TestTrapDriverFirstFilesLast(t *testing.T) {
	n, _ := carried(t)
	for _, code := range []string{"Internal", "Unavailable", "FailedPrecondition"} {
		n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Code: code, Message: "not now"})
		n.unchanged(func() {
			o := n.kvol("teardown", "pv", "--pod-uid", podA)
			if o.code == 0 || !strings.Contains(o.stderr, "not now") {
				t.Errorf("%v", o)
			}
		})
	}
	n.must(0, "history")
	n.csi.Heal()
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}
