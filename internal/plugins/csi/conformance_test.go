package csi_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/plugins/csi"
	"github.com/kvol/kvol/internal/plugins/plugintest"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

const (
	driver = "csi.kvol.test"
	secret = "correct-horse-battery-staple"
)

func TestConformance(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: csi.New, All: all.All, Secret: secret,
		Examples: []plugintest.Example{
			{Name: "staged", Spec: volume, Start: start(demanding)},
			{Name: "block", Spec: raw, Start: start(demanding), Block: true},
		},
	})
}

// TestPublishOnly is a driver that does not stage: all that mounting can change.
func TestPublishOnly(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: csi.New, All: all.All, Secret: secret,
		Examples: []plugintest.Example{{Name: "volume", Spec: volume, Start: start(demanding, noStaging)}},
		Only: []string{
			"Paths", "Reconstruct", "SetUpTwice", "TearDownTwice", "Stacked", "DeadMount", "DryRun", "CancelledMidway", "HoldsData", "SomethingElse",
			"Secrets", "ReadOnly", "ReadOnlyBeside", "FSGroup", "FSGroupOtherPod", "CrashInTearDown",
		},
	})
}

// TestFurtherVolumes is what is peculiar to some.
func TestFurtherVolumes(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: csi.New, All: all.All, Secret: secret,
		Examples: []plugintest.Example{
			{Name: "attached", Spec: attached, Start: listed},
			{Name: "plain", Spec: volume, Start: start(func(c *testutil.CSIControl) { c.PlainStage = true })},
			{Name: "block-staged-by-a-bind", Spec: raw, Start: start(func(c *testutil.CSIControl) { c.StageDevice = true }), Block: true},
			{Name: "grows", Spec: grown, Start: large, Grow: 320 << 20},
		},
		Only: []string{"SetUpTwice", "TearDownTwice", "DryRun", "Attach", "Block", "NodeExpand"},
	})
}

// TestInline is an inline volume, which ends with its pod: what asks for data to be
// there again is not for it.
func TestInline(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: csi.New, All: all.All, Secret: secret,
		Examples: []plugintest.Example{{Name: "inline", Spec: inline, Start: start(demanding)}},
		Only: []string{
			"OnlyPlugin", "VolumeName", "Paths", "Reconstruct", "SetUpTwice", "ReadOnly", "HoldsData", "SomethingElse", "Secrets", "Limits",
		},
	})
}

// start starts a driver that knows every volume.
func start(change ...func(*testutil.CSIControl)) func(testing.TB, string) {
	return func(t testing.TB, root string) {
		t.Helper()
		control := testutil.CSIDefaults()
		control.AnyVolume = true
		for _, f := range change {
			f(&control)
		}
		testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: driver, Control: &control})
	}
}

// large starts a driver whose volume is large enough for a file system that grows
// without a privilege that a container lacks.
func large(t testing.TB, root string) {
	t.Helper()
	testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: driver}).Volume("handle of pv-example", "btrfs", 128<<20)
}

// listed starts a driver whose controller lists the volume, attached or not.
func listed(t testing.TB, root string) {
	t.Helper()
	control := testutil.CSIDefaults()
	controller(&control)
	testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: driver, Control: &control}).Volume("handle of pv-example", "ext4", 16<<20)
}

func controller(c *testutil.CSIControl) {
	c.NeedAttach = true
	c.ControllerCaps = []string{"PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES", "LIST_VOLUMES_PUBLISHED_NODES"}
}

func demanding(c *testutil.CSIControl) {
	c.Secrets = map[string]map[string]string{"NodeStageVolume": {"password": secret}, "NodePublishVolume": {"password": secret}}
}

func noStaging(c *testutil.CSIControl) { c.NodeCaps = nil }

// volume is a PersistentVolume of the driver.
func volume(_ testing.TB, _, name string) *plugins.Spec {
	ref := &v1.SecretReference{Name: "secret", Namespace: "ns"}
	spec := plugins.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: "handle of " + name, FSType: "ext4", VolumeAttributes: map[string]string{"color": "red"},
				NodeStageSecretRef: ref, NodePublishSecretRef: ref,
			}},
		},
	}, false)
	spec.Objects = objects{attach: false}
	return spec
}

func raw(t testing.TB, dir, name string) *plugins.Spec {
	spec := volume(t, dir, name)
	mode := v1.PersistentVolumeBlock
	spec.PersistentVolume.Spec.VolumeMode = &mode
	return spec
}

func grown(t testing.TB, dir, name string) *plugins.Spec {
	spec := volume(t, dir, name)
	spec.PersistentVolume.Spec.CSI.FSType = "btrfs"
	return spec
}

func attached(t testing.TB, dir, name string) *plugins.Spec {
	spec := volume(t, dir, name)
	spec.Objects = objects{attach: true}
	return spec
}

func inline(_ testing.TB, _, name string) *plugins.Spec {
	spec := plugins.NewSpecFromVolume(&v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: driver, VolumeAttributes: map[string]string{"size": "1m"}, NodePublishSecretRef: &v1.LocalObjectReference{Name: "secret"},
	}}})
	spec.Namespace, spec.Objects = "ns", objects{}
	return spec
}

// objects are the documents beside a volume.
type objects struct{ attach bool }

func (o objects) Secret(namespace, name string) (*v1.Secret, error) {
	if namespace+"/"+name != "ns/secret" {
		return nil, api.Errorf(api.ErrNotFound, "no Secret %s/%s", namespace, name)
	}
	return &v1.Secret{Data: map[string][]byte{"password": []byte(secret)}}, nil
}

func (o objects) CSIDriver(string) (*storagev1.CSIDriver, error) {
	told := true
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired:       &o.attach,
		PodInfoOnMount:       &told,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}}, nil
}

func (o objects) VolumeAttachment(string) (*storagev1.VolumeAttachment, error) {
	return nil, api.Errorf(api.ErrNotFound, "none")
}
