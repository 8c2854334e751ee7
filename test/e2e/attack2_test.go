package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// A driver may stage a directory of the node's own file system. That disk is the whole
// node's and in use for ever: it is not the volume's.
func TestCSIStagedFromTheNodesOwnDisk(t *testing.T) {
	n := newCSI(t, plainStage)
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	testutil.Bind(t, testutil.TempDir(t), n.staging("vol-1"), false) // as the driver could have
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// By its handle alone a volume is not known from what a pod has of CSI without
// metadata: nobody is asked to detach it.
func TestCSIDetachByHandleBesidePodsWithoutMetadata(t *testing.T) {
	for _, mode := range []string{"Filesystem", "Block"} {
		t.Run(mode, func(t *testing.T) {
			n := newCSI(t, plainStage, controller)
			n.must(0, setUp(podA, n.volume("pv", "vol-1", "volumeMode: "+mode))...)
			data := n.podData(podA, "pv")
			if mode == "Block" {
				data = n.blocks() + "/pv/data/vol_data.json"
			}
			whole, err := os.ReadFile(data)
			must(t, err)
			must(t, os.Remove(data))
			if mode == "Filesystem" {
				n.must(0, "unmount-device", "--without-driver", "--allow-active-pod", n.staging("vol-1"))
			}
			o := n.must(8, "detach", csiDriver+"^vol-1")
			if !strings.Contains(o.stderr, podA) {
				t.Errorf("it does not name the pod: %v", o)
			}
			if len(n.csi.CallsTo("ControllerUnpublishVolume")) > 0 {
				t.Error("it was detached under the pod")
			}
			must(t, os.WriteFile(data, whole, 0o600))
			n.must(9, "detach", csiDriver+"^vol-1")
			n.must(0, "teardown", csiDriver+"^vol-1", "--pod-uid", podA)
		})
	}
}

// A driver that says it published a device and bound something else.
func TestCSIPublishedIsNoDevice(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1", "volumeMode: Block")
	n.csi.Fail("NodePublishVolume", testutil.CSIFault{Nothing: true, WaitFor: n.dir + "/go"})
	target := n.blocks() + "/publish/pv/" + podA
	done := make(chan out, 1)
	go func() { done <- n.kvol(setUp(podA, n.unattached(), file)...) }()
	testutil.Poll(t, "the driver is asked", func() bool { return len(n.csi.CallsTo("NodePublishVolume")) > 0 })
	must(t, os.WriteFile(target, nil, 0o600))
	testutil.Bind(t, n.file("plain", "no device"), target, false)
	n.file("go", "")
	if o := <-done; o.code != 1 || !strings.Contains(o.stderr, "no device is there") {
		t.Errorf("%v", o)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}

// What kvol tells itself comes at once or is not its own: no pipe is waited for.
func TestHandoverIsNoPipe(t *testing.T) {
	n := newNode(t)
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	defer r.Close()
	cmd := exec.Command(n.kvolPath, "list-mounts", "--root-dir", n.root)
	cmd.Env = append(os.Environ(), "KVOL_HANDED_OVER=0")
	cmd.Stdin = r
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	text, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// A device that nobody uses is gone from the node, whatever else is there that does
// not tell its name.
func TestTeardownOfADeviceBesideANamelessStaging(t *testing.T) {
	n := newNode(t)
	dev, _ := testutil.LoopImage(t, 1<<20)
	must(t, os.MkdirAll(n.root+"/plugins/kubernetes.io/csi/"+csiDriver+"/"+paths.HandleHash("vol-1")+"/globalmount", 0o750))
	n.must(0, "teardown", dev, "--pod-uid", podA)
	n.must(8, "teardown", "pv", "--pod-uid", podA)
}

// A list of volumes that does not have the volume says neither that it is attached nor
// that it is not.
func TestCSIDetachOfWhatIsNotListed(t *testing.T) {
	n := newCSI(t, plainStage, controller)
	file := n.volume("pv", "vol-1")
	n.must(0, setUp(podA, file)...)
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	n.must(0, "unmount-device", "-f", file)
	must(t, os.Remove(n.csi.Dir+"/volumes/"+paths.HandleHash("vol-1")+"/volume.json"))
	n.must(8, "attach", "--check", "-f", file)
	n.must(0, "detach", "-f", file)
	if len(n.csi.CallsTo("ControllerUnpublishVolume")) != 1 {
		t.Error("nobody was asked to detach it")
	}
}

// What lies in a volume's place is no volume that is gone, whatever plugin's it would be.
func TestLinkInTheVolumesPlace(t *testing.T) {
	n := newNode(t)
	for _, plugin := range []string{"kubernetes.io~configmap", "kubernetes.io~local-volume"} {
		dir := n.root + "/pods/" + podA + "/volumes/" + plugin
		link := dir + "/pv"
		must(t, os.MkdirAll(dir, 0o750), os.Symlink(n.dir, link))
		for _, verb := range []string{"unpublish", "teardown"} {
			if o := n.must(4, verb, "pv", "--pod-uid", podA); !strings.Contains(o.stderr, link) {
				t.Errorf("%s is not named: %v", link, o)
			}
		}
		must(t, os.Remove(link))
		n.must(0, "unpublish", "pv", "--pod-uid", podA)
	}
}
