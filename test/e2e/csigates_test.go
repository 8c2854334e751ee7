package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// What is asked of the driver, by its capabilities and the documents. Each is a line
// of the tables of the kubelet: step, call, condition.

// mount-device makes the directory and the metadata whether the driver stages or not.
func TestCSIGlobalDirectoryWithoutStaging(t *testing.T) {
	n := newCSI(t, noStaging)
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	there(t, n.staging("vol-1"), n.stagedData("vol-1"))
	if got := n.csi.Methods(); got != "NodePublishVolume" {
		t.Error(got)
	}
	if c := n.csi.CallsTo("NodePublishVolume")[0]; c.StagingPath != "" {
		t.Errorf("a staging path for a driver that does not stage: %+v", c)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	if got := n.csi.CallsTo("NodeUnstageVolume"); len(got) > 0 {
		t.Error(got)
	}
	n.cleared()
}

// Attach is required unless the CSIDriver says that it is not; ControllerPublish's
// context goes to stage and publish, and --publish-context in its stead.
func TestCSIAttach(t *testing.T) {
	n := newCSI(t, controller)
	file := n.volume("pv", "vol-1")
	n.must(0, setUp(podA, n.driver("attachRequired: true"), file)...)
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
		if c := n.csi.CallsTo(method)[0]; !slices.Equal(c.PublishContext, []string{"token"}) {
			t.Errorf("%+v", c)
		}
	}
	if c := n.csi.CallsTo("ControllerPublishVolume")[0]; c.NodeID != "node1" || c.VolumeID != "vol-1" {
		t.Errorf("%+v", c)
	}
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	n.must(9, "detach", "pv")
	n.must(0, "unmount-device", "pv")
	n.must(0, "detach", "-f", file, "-f", n.driver("attachRequired: true"))
	if c := n.csi.CallsTo("ControllerUnpublishVolume"); len(c) != 1 || c[0].NodeID != "node1" {
		t.Errorf("%+v", c)
	}
	n.cleared()
}

// A missing CSIDriver means that attach is required.
func TestCSIAttachWithoutACSIDriver(t *testing.T) {
	n := newCSI(t, controller)
	n.must(0, setUp(podA, n.volume("pv", "vol-1"))...)
	if got := n.csi.Methods(); got != "ControllerPublishVolume "+upStaged {
		t.Error(got)
	}
}

// attachRequired: false asks no controller, although there is one.
func TestCSIAttachNotRequired(t *testing.T) {
	n := newCSI(t, controller, func(c *testutil.CSIControl) { c.NeedAttach = false })
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	if got := n.csi.Methods(); got != upStaged+" "+downStaged {
		t.Error(got)
	}
	if c := n.csi.CallsTo("NodeStageVolume")[0]; c.PublishContext != nil {
		t.Errorf("%+v", c)
	}
}

// Where the controller is elsewhere the VolumeAttachment tells whether the volume is
// attached, and with what context; --publish-context says it without one.
func TestCSIVolumeAttachment(t *testing.T) {
	n := newCSI(t)
	file, driver := n.volume("pv", "vol-1"), n.driver("attachRequired: true")
	attachment := func(attached bool, context string) string {
		return n.file("va.yaml", fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: %s}
spec: {attacher: %s, nodeName: node1, source: {persistentVolumeName: pv}}
status: {attached: %v, attachmentMetadata: {%s}}
`, paths.CSIAttachmentID("vol-1", csiDriver, "node1"), csiDriver, attached, context))
	}
	n.unchanged(func() {
		if o := n.kvol(setUp(podA, driver, file, attachment(false, ""))...); o.code == 0 || !strings.Contains(o.stderr, "attached") {
			t.Errorf("%v", o)
		}
	})
	n.must(0, setUp(podA, driver, file, attachment(true, "disk: abc"))...)
	if c := n.csi.CallsTo("NodeStageVolume")[0]; !slices.Equal(c.PublishContext, []string{"disk"}) {
		t.Errorf("%+v", c)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.must(0, append(setUp(podA, driver, file), "--publish-context", "a=1", "--publish-context", "b=2")...)
	calls := n.csi.CallsTo("NodeStageVolume")
	if c := calls[len(calls)-1]; !slices.Equal(c.PublishContext, []string{"a", "b"}) {
		t.Errorf("%+v", c)
	}
}

// podInfoOnMount adds the pod to the volume's attributes, and only then.
func TestCSIPodInfo(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1", "csi.volumeAttributes: {color: red}", "claimRef: {name: claim, namespace: ns}")
	n.must(0, setUp("", n.unattached("podInfoOnMount: true"), file, n.pod(podA, "pv"))...)
	want := map[string]string{
		"color": "red", "csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "ns",
		"csi.storage.k8s.io/pod.uid": podA, "csi.storage.k8s.io/serviceAccount.name": "robot", "csi.storage.k8s.io/ephemeral": "false",
	}
	if c := n.csi.CallsTo("NodePublishVolume")[0]; !maps.Equal(c.VolumeContext, want) {
		t.Errorf("publish: %v", c.VolumeContext)
	}
	if c := n.csi.CallsTo("NodeStageVolume")[0]; !maps.Equal(c.VolumeContext, map[string]string{"color": "red"}) {
		t.Errorf("stage: %v", c.VolumeContext)
	}
	n.must(0, setUp("", n.unattached(), file, n.pod(podB, "pv"))...)
	if c := n.csi.CallsTo("NodePublishVolume")[1]; !maps.Equal(c.VolumeContext, map[string]string{"color": "red"}) {
		t.Errorf("without podInfoOnMount: %v", c.VolumeContext)
	}
}

// requiresRepublish asks the driver again with every publish.
func TestCSIRepublish(t *testing.T) {
	n := newCSI(t)
	args := setUp(podA, n.unattached("requiresRepublish: true"), n.volume("pv", "vol-1"))
	n.must(0, args...)
	n.must(0, args...)
	if got := n.csi.Methods(); got != upStaged+" NodePublishVolume" {
		t.Error(got)
	}
}

// fsGroup: by whom and whether, by policy, access mode, fsType and capability.
func TestCSIFSGroup(t *testing.T) {
	group := func(c *testutil.CSIControl) { c.NodeCaps = append(c.NodeCaps, "VOLUME_MOUNT_GROUP") }
	for _, c := range []struct {
		name    string
		driver  func(*testutil.CSIControl)
		spec    []string
		volume  []string
		changed bool
		passed  bool
	}{
		{"by default with fsType", asIs, nil, []string{"csi.fsType: ext4"}, true, false},
		{"by default without fsType", asIs, nil, nil, false, false},
		{"by default of many nodes", asIs, nil, []string{"csi.fsType: ext4", "accessModes: [ReadWriteMany]"}, false, false},
		{"none", asIs, []string{"fsGroupPolicy: None"}, []string{"csi.fsType: ext4"}, false, false},
		{"file", asIs, []string{"fsGroupPolicy: File"}, []string{"accessModes: [ReadWriteMany]"}, true, false},
		{"read-only", asIs, []string{"fsGroupPolicy: File"}, []string{"csi.readOnly: true"}, false, false},
		{"given to the driver", group, []string{"fsGroupPolicy: File"}, []string{"csi.fsType: ext4"}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newCSI(t, c.driver)
			file := n.volume("pv", "vol-1", append(c.volume, "claimRef: {name: claim, namespace: ns}")...)
			pod := n.pod(podA, "pv", "securityContext: {fsGroup: 4711}")
			if slices.Contains(c.volume, "accessModes: [ReadWriteMany]") {
				n.file("pod-"+podA+".yaml", strings.Replace(readText(t, pod), "ReadWriteOnce", "ReadWriteMany", 1))
			}
			n.must(0, setUp("", n.unattached(c.spec...), file, pod)...)
			info, err := os.Stat(n.target(podA, "pv"))
			must(t, err)
			if got := info.Sys().(*syscall.Stat_t).Gid == 4711; got != c.changed {
				t.Errorf("its group is changed: %v", got)
			}
			for _, method := range strings.Fields(upStaged) {
				if got := n.csi.CallsTo(method)[0].MountGroup == "4711"; got != c.passed {
					t.Errorf("%s was given the group: %v", method, got)
				}
			}
		})
	}
}

// Only the first access mode is sent, mount options and file system go along, and
// read-only is the call's.
func TestCSICapability(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1", "csi.fsType: ext4", "csi.readOnly: true", "mountOptions: [noatime, nodev]", "accessModes: [ReadOnlyMany, ReadWriteOnce]")
	n.must(0, setUp(podA, n.unattached(), file)...)
	for _, method := range strings.Fields(upStaged) {
		c := n.csi.CallsTo(method)[0]
		if c.Mode != "MULTI_NODE_READER_ONLY" || c.FSType != "ext4" || !slices.Equal(c.MountFlags, []string{"noatime", "nodev"}) {
			t.Errorf("%+v", c)
		}
	}
	if !n.csi.CallsTo("NodePublishVolume")[0].ReadOnly {
		t.Error("publish is not read-only")
	}
	for mode, want := range map[string]string{
		"ReadWriteOnce": "SINGLE_NODE_WRITER", "ReadWriteMany": "MULTI_NODE_MULTI_WRITER", "ReadWriteOncePod": "SINGLE_NODE_WRITER",
	} {
		n := newCSI(t)
		n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1", "accessModes: ["+mode+"]"))...)
		if got := n.csi.CallsTo("NodeStageVolume")[0].Mode; got != want {
			t.Errorf("%s is %s", mode, got)
		}
		n.must(0, "teardown", "pv", "--pod-uid", podA)
	}
	many := newCSI(t, func(c *testutil.CSIControl) { c.NodeCaps = append(c.NodeCaps, "SINGLE_NODE_MULTI_WRITER") })
	many.must(0, setUp(podA, many.unattached(), many.volume("pv", "vol-1"))...)
	if got := many.csi.CallsTo("NodeStageVolume")[0].Mode; got != "SINGLE_NODE_MULTI_WRITER" {
		t.Error(got)
	}
}

// Secrets: each call its own, asked for only where it is needed, and never shown.
func TestCSISecrets(t *testing.T) {
	demands := func(c *testutil.CSIControl) {
		c.Secrets = map[string]map[string]string{"NodeStageVolume": {"s": "planted-s"}, "NodePublishVolume": {"p": "planted-p"}}
	}
	refs := []string{"csi.nodeStageSecretRef: {name: stage, namespace: ns}", "csi.nodePublishSecretRef: {name: publish, namespace: ns}"}
	n := newCSI(t, demands)
	file, driver := n.volume("pv", "vol-1", refs...), n.unattached()
	stage, publish := n.secret("stage", "s", "planted-s"), n.secret("publish", "p", "planted-p")
	n.unchanged(func() { n.wants(2, []string{"ns/publish"}, setUp(podA, driver, file, stage)...) })
	n.unchanged(func() { n.wants(2, []string{"ns/stage"}, setUp(podA, driver, file, publish)...) })
	o := n.must(0, append(setUp(podA, driver, file, stage, publish), "-vv")...)
	for method, want := range map[string]string{"NodeStageVolume": "s", "NodePublishVolume": "p"} {
		if c := n.csi.CallsTo(method)[0]; !slices.Equal(c.Secrets, []string{want}) {
			t.Errorf("%+v", c)
		}
	}
	dry := n.must(0, append(setUp(podB, driver, file, stage, publish), "--dry-run", "-o", "json")...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	wrong := n.secret("stage", "s", "planted-wrong")
	bad := n.kvol(setUp(podA, driver, file, wrong, publish)...)
	if bad.code == 0 || !strings.Contains(bad.stderr, `secret "s" is wrong`) {
		t.Errorf("%v", bad)
	}
	for _, text := range []string{o.String(), dry.String(), bad.String(), n.filesText()} {
		if i := strings.Index(text, "planted-"); i >= 0 {
			t.Errorf("a secret is shown: …%s", text[max(0, i-200):min(len(text), i+50)])
		}
	}

	unstaged := newCSI(t, noStaging)
	unstaged.must(0, setUp(podA, unstaged.unattached(), unstaged.volume("pv", "vol-1", refs...), unstaged.secret("publish", "p", "x"))...)
}

// filesText is all that kvol wrote: its own files and those below the root.
func (n *csiNode) filesText() string {
	var b strings.Builder
	for _, dir := range []string{n.state, n.run, n.root} {
		b.WriteString(n.sh("find " + dir + " -xdev -type f -exec cat {} + 2>/dev/null"))
	}
	return b.String()
}
