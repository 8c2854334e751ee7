package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// What a kubelet does for CSI on a node, and the tests of it:
//
//	registration: the answer's endpoint decides      TestCSIEndpoint*, TestCSIRegistration*
//	versions 0.x are unsupported                     TestCSIVersions
//	a driver away is a transient failure             TestCSIDriverGone, TestCSIDriverDoesNotAnswer
//	NodeGetInfo: volumes per node                    TestCSILimits
//	pod, global and block paths, old and new         TestCSIPaths, TestCSIOldGlobalMount, TestCSIBlockPaths
//	vol_data.json: keys in three places              TestCSIVolData
//	attach: CSIDriver, VolumeAttachment, context     TestCSIAttach*, TestCSIVolumeAttachment
//	mount-device: directory and json regardless      TestCSIGlobalDirectoryWithoutStaging
//	publish: the parent is made, mount by the driver TestCSIPaths
//	staging path only when staging is supported      TestCSIGlobalDirectoryWithoutStaging, TestCSIBlockWithoutStaging
//	expand                                           TestCSIExpand
//	requiresRepublish, podInfoOnMount                TestCSIRepublish, TestCSIPodInfo
//	fsGroupPolicy, VOLUME_MOUNT_GROUP                TestCSIFSGroup
//	volumeLifecycleModes, inline handles             TestCSIInline*, TestCSIPersistentNeedsTheMode
//	the first access mode only, mount options        TestCSICapability
//	secrets, where they are needed                   TestCSISecrets
//	what is removed, and when it strands             TestTrap*

// csiDriver is the name of the driver of these tests.
const csiDriver = "csi.kvol.test"

// csiNode is a node with a CSI driver beside it.
type csiNode struct {
	*node
	csi *testutil.CSI
}

func newCSI(t *testing.T, change ...func(*testutil.CSIControl)) *csiNode {
	t.Helper()
	return newCSIWith(t, testutil.CSIOptions{}, change...)
}

func newCSIWith(t *testing.T, o testutil.CSIOptions, change ...func(*testutil.CSIControl)) *csiNode {
	t.Helper()
	n := newNode(t)
	n.env = append(n.env, "KVOL_NODE_NAME=node1")
	control := testutil.CSIDefaults()
	for _, f := range change {
		f(&control)
	}
	o.Root, o.Driver, o.Control = n.root, csiDriver, &control
	c := testutil.StartCSI(t, o)
	t.Cleanup(n.sweep) // before the images are taken away
	return &csiNode{n, c}
}

// Changes of the driver that several tests start with.
func noStaging(c *testutil.CSIControl)  { c.NodeCaps = nil }
func plainStage(c *testutil.CSIControl) { c.PlainStage = true }
func controller(c *testutil.CSIControl) {
	c.ControllerCaps = []string{"PUBLISH_UNPUBLISH_VOLUME", "CREATE_DELETE_VOLUME", "LIST_VOLUMES", "LIST_VOLUMES_PUBLISHED_NODES"}
	c.NeedAttach = true
}

// volume is a PersistentVolume of the driver as a document. Each further line goes
// below spec, or below csi when it begins with "csi.".
func (n *csiNode) volume(name, handle string, more ...string) string {
	n.csi.Volume(handle, "", 16<<20)
	return n.pvOf(name, handle, more...)
}

// pvOf is the document of a volume that the driver need not know.
func (n *csiNode) pvOf(name, handle string, more ...string) string {
	spec, source := []string{}, []string{}
	modes := "accessModes: [ReadWriteOnce]"
	for _, line := range more {
		if rest, ok := strings.CutPrefix(line, "csi."); ok {
			source = append(source, rest)
		} else if strings.HasPrefix(line, "accessModes:") {
			modes = line
		} else {
			spec = append(spec, line)
		}
	}
	text := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: " + name + "}\nspec:\n  capacity: {storage: 16Mi}\n  " + modes + "\n"
	for _, line := range spec {
		text += "  " + line + "\n"
	}
	quoted, _ := json.Marshal(handle) // a string always can
	text += "  csi:\n    driver: " + csiDriver + "\n    volumeHandle: " + string(quoted) + "\n"
	for _, line := range source {
		text += "    " + line + "\n"
	}
	return n.file(name+".yaml", text)
}

// driver is the document of the driver, with the lines of its spec.
func (n *csiNode) driver(spec ...string) string {
	return n.file("driver.yaml", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: "+csiDriver+"}\nspec:\n  "+strings.Join(spec, "\n  ")+"\n")
}

// unattached is the document of a driver that attaches nothing.
func (n *csiNode) unattached(spec ...string) string {
	return n.driver(append(spec, "attachRequired: false")...)
}

// secret is a Secret in the namespace ns as a document.
func (n *csiNode) secret(name, key, value string) string {
	return n.file(name+"-secret.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: ns}\nstringData: {%s: %s}\n", name, key, value))
}

// pod is a pod that claims the PersistentVolume pv, as a document with the claim.
func (n *csiNode) pod(uid, pv string, more ...string) string {
	lines := ""
	for _, line := range more {
		lines += "  " + line + "\n"
	}
	return n.file("pod-"+uid+".yaml", fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: ns}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 16Mi}}
  volumeName: %s
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: ns, uid: %s}
spec:
  serviceAccountName: robot
%s  containers:
  - {name: c, image: i, volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: claim}
`, pv, uid, lines))
}

// inlinePod is a pod with the inline volume data.
func (n *csiNode) inlinePod(uid string, more ...string) string {
	lines := ""
	for _, line := range more {
		lines += "      " + line + "\n"
	}
	return n.file("pod-"+uid+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: ns, uid: %s}
spec:
  containers:
  - {name: c, image: i, volumeMounts: [{name: data, mountPath: /data}]}
  volumes:
  - name: data
    csi:
      driver: %s
%s`, uid, csiDriver, lines))
}

// setUp is setup with some documents.
func setUp(pod string, files ...string) []string {
	args := []string{"setup"}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	if pod != "" {
		args = append(args, "--pod-uid", pod)
	}
	return args
}

// The places of a CSI volume.
func (n *csiNode) csiDir(pod, volume string) string {
	return n.root + "/pods/" + pod + "/volumes/kubernetes.io~csi/" + volume
}
func (n *csiNode) target(pod, volume string) string  { return n.csiDir(pod, volume) + "/mount" }
func (n *csiNode) podData(pod, volume string) string { return n.csiDir(pod, volume) + "/vol_data.json" }

func (n *csiNode) staged(handle string) string {
	return n.root + "/plugins/kubernetes.io/csi/" + csiDriver + "/" + paths.HandleHash(handle)
}
func (n *csiNode) staging(handle string) string    { return n.staged(handle) + "/globalmount" }
func (n *csiNode) stagedData(handle string) string { return n.staged(handle) + "/vol_data.json" }
func (n *csiNode) blocks() string                  { return n.root + "/plugins/kubernetes.io/csi/volumeDevices" }

// keys reads a vol_data.json.
func keys(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return decode[map[string]string](t, string(b))
}

// absent wants nothing to be at some paths.
func absent(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", p, err)
		}
	}
}

// there wants something to be at some paths.
func there(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(p); err != nil {
			t.Error(err)
		}
	}
}

// isMounted wants a mount on a path, or none.
func (n *csiNode) isMounted(want bool, path string) {
	n.t.Helper()
	table := testutil.MountTable(n.t, path)
	if got := strings.HasPrefix(table, `"." `); got != want {
		n.t.Errorf("%s mounted: %v\n%s", path, got, n.mounts())
	}
}

// called wants the calls that change something to be these, since the last time.
func (n *csiNode) called(from *int, want string) {
	n.t.Helper()
	all := strings.Fields(n.csi.Methods())
	if got := strings.Join(all[*from:], " "); got != want {
		n.t.Errorf("called %q, want %q", got, want)
	}
	*from = len(all)
}

// cleared wants nothing of the volume to be left: no mount, no device, nothing in
// the pods and under plugins/kubernetes.io.
func (n *csiNode) cleared() {
	n.t.Helper()
	// The root itself is a mount where a driver in a container shares it.
	if m := n.mounts(); strings.Count(m, "\n") > strings.Count(m, `"." `) {
		n.t.Errorf("still mounted:\n%s", m)
	}
	// The device goes with its last user, and losetup of others opens it for a moment.
	testutil.Poll(n.t, "all is detached below "+n.csi.Dir, func() bool { return len(loopsBelow(n.csi.Dir)) == 0 })
	for _, dir := range []string{"/pods", "/plugins/kubernetes.io/csi"} {
		_ = filepath.WalkDir(n.root+dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && (!d.IsDir() || d.Name() == "globalmount" || d.Name() == "mount" || strings.HasSuffix(p, "/kubernetes.io~csi/pv")) {
				n.t.Errorf("%s is left", p)
			}
			return nil
		})
	}
}

// sh runs a line of bash and gives what it printed.
func (n *csiNode) sh(line string) string {
	n.t.Helper()
	out, err := exec.Command("bash", "-c", line).CombinedOutput()
	if err != nil && len(out) > 0 {
		n.t.Logf("%s: %v %s", line, err, out)
	}
	return string(out)
}
