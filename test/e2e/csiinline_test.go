package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// An inline volume: its handle is made of pod and name, it is neither attached nor
// staged, and its pod's attributes, file system and secret are passed.
func TestCSIInline(t *testing.T) {
	n := newCSI(t, controller, func(c *testutil.CSIControl) {
		c.Secrets = map[string]map[string]string{"NodePublishVolume": {"p": "planted"}}
	})
	driver := n.driver("attachRequired: true", "podInfoOnMount: true", "volumeLifecycleModes: [Ephemeral]")
	pod := n.inlinePod(podA, "fsType: ext4", "volumeAttributes: {size: 1m}", "nodePublishSecretRef: {name: publish}")
	n.must(0, setUp("", driver, pod, n.secret("publish", "p", "planted"))...)
	handle := paths.CSIInlineHandle(podA, "data")
	if got := n.csi.Methods(); got != "NodePublishVolume" {
		t.Fatal(got)
	}
	c := n.csi.CallsTo("NodePublishVolume")[0]
	if c.VolumeID != handle || c.StagingPath != "" || c.FSType != "ext4" || !slices.Equal(c.Secrets, []string{"p"}) ||
		c.VolumeContext["size"] != "1m" || c.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" || c.VolumeContext["csi.storage.k8s.io/pod.uid"] != podA {
		t.Errorf("%+v", c)
	}
	absent(t, n.staged(handle))
	got := keys(t, n.podData(podA, "data"))
	if got["volumeLifecycleMode"] != "Ephemeral" || got["volumeHandle"] != handle || got["specVolID"] != "data" {
		t.Errorf("%v", got)
	}
	n.isMounted(true, n.target(podA, "data"))
	n.must(0, "teardown", "data", "--pod-uid", podA)
	if got := n.csi.Methods(); got != "NodePublishVolume NodeUnpublishVolume" {
		t.Error(got)
	}
	n.cleared()
}

// Inline needs a CSIDriver that lists Ephemeral; a PersistentVolume needs none.
func TestCSIInlineNeedsTheDriversWord(t *testing.T) {
	n := newCSI(t)
	pod := n.inlinePod(podA)
	for name, files := range map[string][]string{
		"no CSIDriver": {pod}, "no modes": {n.unattached(), pod},
	} {
		n.unchanged(func() {
			o := n.kvol(setUp("", files...)...)
			if o.code != 2 && o.code != 6 && o.code != 4 || !strings.Contains(o.stderr, "CSIDriver") {
				t.Errorf("%s: %v", name, o)
			}
		})
	}
	if got := n.csi.Methods(); got != "" {
		t.Error(got)
	}
}

// A driver for inline volumes only is not given a PersistentVolume.
func TestCSIPersistentNeedsTheMode(t *testing.T) {
	n := newCSI(t)
	n.unchanged(func() {
		o := n.kvol(setUp(podA, n.unattached("volumeLifecycleModes: [Ephemeral]"), n.volume("pv", "vol-1"))...)
		if o.code == 0 || !strings.Contains(o.stderr, "Persistent") {
			t.Errorf("%v", o)
		}
	})
}

// A generic ephemeral volume is a claim that the pod owns: it is carried as any other.
func TestCSIGenericEphemeral(t *testing.T) {
	n := newCSI(t)
	claim := n.file("claim.yaml", `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: web-0-data
  namespace: ns
  ownerReferences: [{apiVersion: v1, kind: Pod, name: web-0, uid: `+podA+`, controller: true}]
spec: {accessModes: [ReadWriteOnce], volumeName: pv, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: ns, uid: `+podA+`}
spec:
  containers: [{name: c, image: i}]
  volumes:
  - name: data
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}}}
`)
	file := n.volume("pv", "vol-1", "claimRef: {name: web-0-data, namespace: ns}")
	n.must(0, setUp("", n.unattached(), file, claim)...)
	if got := keys(t, n.podData(podA, "pv"))["volumeLifecycleMode"]; got != "Persistent" {
		t.Error(got)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}
