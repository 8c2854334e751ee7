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
			{Name: "staged", Spec: volume, Start: start(demanding), Grow: 32 << 20},
			{Name: "publish-only", Spec: volume, Start: start(demanding, noStaging)},
			{Name: "block", Spec: raw, Start: start(demanding), Block: true},
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

// objects are the documents beside a volume.
type objects struct{ attach bool }

func (o objects) Secret(namespace, name string) (*v1.Secret, error) {
	if namespace+"/"+name != "ns/secret" {
		return nil, api.Errorf(api.ErrNotFound, "no Secret %s/%s", namespace, name)
	}
	return &v1.Secret{Data: map[string][]byte{"password": []byte(secret)}}, nil
}

func (o objects) CSIDriver(string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired:       &o.attach,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	}}, nil
}

func (o objects) VolumeAttachment(string) (*storagev1.VolumeAttachment, error) {
	return nil, api.Errorf(api.ErrNotFound, "none")
}
