package local_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/plugins/local"
	"github.com/kvol/kvol/internal/plugins/plugintest"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

func TestConformance(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: local.New, All: all.All,
		Examples: []plugintest.Example{
			{Name: "directory", Spec: directory},
			{Name: "ext4", Spec: formatted},
			{Name: "blank", Spec: blank, Format: true},
			{Name: "block", Spec: raw, Block: true},
		},
	})
}

// volume is a local PersistentVolume at a path.
func volume(name, path string) *plugins.Spec {
	return plugins.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}}},
	}, false)
}

func directory(t testing.TB, dir, name string) *plugins.Spec {
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return volume(name, path)
}

// disk is a blank disk below dir.
func disk(t testing.TB, dir, name string) string {
	img := filepath.Join(dir, name+".img")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, 16<<20); err != nil {
		t.Fatal(err)
	}
	return testutil.Loop(t, img)
}

func formatted(t testing.TB, dir, name string) *plugins.Spec {
	dev := disk(t, dir, name)
	testutil.Mkfs(t, dev, "ext4")
	spec := volume(name, dev)
	fsType := "ext4"
	spec.PersistentVolume.Spec.Local.FSType = &fsType
	return spec
}

func blank(t testing.TB, dir, name string) *plugins.Spec { return volume(name, disk(t, dir, name)) }

func raw(t testing.TB, dir, name string) *plugins.Spec {
	spec := volume(name, disk(t, dir, name))
	mode := v1.PersistentVolumeBlock
	spec.PersistentVolume.Spec.VolumeMode = &mode
	return spec
}
