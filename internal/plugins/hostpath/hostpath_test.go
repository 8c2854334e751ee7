package hostpath_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/plugins/hostpath"
	"github.com/kvol/kvol/internal/plugins/plugintest"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

func TestConformance(t *testing.T) {
	t.Cleanup(func() { _ = os.Remove("/tmp/hostpath_pv") }) // unless somebody else has volumes there
	nothing := func(string) error { return nil }
	mkdir := func(path string) error { return os.Mkdir(path, 0o755) }
	touch := func(path string) error { return os.WriteFile(path, nil, 0o644) }
	node := func(mode uint32, major, minor uint32) func(string) error {
		return func(path string) error { return unix.Mknod(path, mode|0o600, int(unix.Mkdev(major, minor))) }
	}
	var examples []plugintest.Example
	for _, ex := range []struct {
		name string
		kind v1.HostPathType
		make func(path string) error
	}{
		{"unset", v1.HostPathUnset, mkdir},
		{"directory", v1.HostPathDirectory, mkdir},
		{"directory-or-create", v1.HostPathDirectoryOrCreate, mkdir},
		{"directory-to-create", v1.HostPathDirectoryOrCreate, nothing},
		{"file", v1.HostPathFile, touch},
		{"file-to-create", v1.HostPathFileOrCreate, nothing},
		{"socket", v1.HostPathSocket, node(unix.S_IFSOCK, 0, 0)},
		{"char-device", v1.HostPathCharDev, node(unix.S_IFCHR, 1, 3)},
		{"block-device", v1.HostPathBlockDev, node(unix.S_IFBLK, 7, 0)},
	} {
		examples = append(examples, plugintest.Example{Name: ex.name, Outside: true, Spec: func(t testing.TB, dir, name string) *plugins.Spec {
			path := filepath.Join(dir, name)
			if err := ex.make(path); err != nil {
				t.Fatal(err)
			}
			return volume(name, path, ex.kind)
		}})
	}
	plugintest.Run(t, plugintest.Case{New: hostpath.New, All: all.All, Examples: examples})
}

// TestInline is a volume of a pod, of which only pods know.
func TestInline(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: hostpath.New, All: all.All, Only: []string{"OnlyPlugin", "VolumeName", "Outside"},
		Examples: []plugintest.Example{{Name: "inline", Outside: true, Spec: func(_ testing.TB, dir, name string) *plugins.Spec {
			kind := v1.HostPathDirectoryOrCreate
			return plugins.NewSpecFromVolume(&v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(dir, name), Type: &kind}}})
		}}},
	})
}

func volume(name, path string, kind v1.HostPathType) *plugins.Spec {
	return plugins.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
			HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}},
	}, false)
}
