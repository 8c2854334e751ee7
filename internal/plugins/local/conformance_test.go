package local_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestFurtherVolumes is what is peculiar to some: that they are known again.
func TestFurtherVolumes(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: local.New, All: all.All,
		Examples: []plugintest.Example{
			{Name: "options", Spec: withOptions(formatted, "noatime", "nodev", "discard")},
			{Name: "options-of-a-bind", Spec: withOptions(directory, "noatime", "nosuid")},
			{Name: "link-to-a-device", Spec: linked(formatted)},
			{Name: "link-to-a-directory", Spec: linked(directory)},
			{Name: "mounted-directory", Spec: mounted},
			{Name: "subvolume", Spec: withOptions(subvolume, "subvol=sub")},
		},
		Only: []string{"SetUpTwice", "TearDownTwice", "SomethingElse"},
	})
}

// TestGrows is a file system on a disk that becomes larger. ext4 grows only with
// CAP_SYS_RESOURCE, which the machine that runs the tests need not give.
func TestGrows(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New: local.New, All: all.All,
		Examples: []plugintest.Example{
			{Name: "xfs", Spec: large("xfs"), Enlarge: enlarge},
			{Name: "btrfs", Spec: large("btrfs"), Enlarge: enlarge},
		},
		Only: []string{"NodeExpand"},
	})
}

func large(fsType string) maker {
	return func(t testing.TB, dir, name string) *plugins.Spec {
		dev := disk(t, dir, name, 320<<20)
		testutil.Mkfs(t, dev, fsType)
		return volume(name, dev)
	}
}

func enlarge(t testing.TB, spec *plugins.Spec) {
	t.Helper()
	dev := spec.PersistentVolume.Spec.Local.Path
	backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/backing_file"))
	if err == nil {
		err = os.Truncate(strings.TrimSpace(string(backing)), 400<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "losetup", "-c", dev).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

type maker func(t testing.TB, dir, name string) *plugins.Spec

func withOptions(make maker, options ...string) maker {
	return func(t testing.TB, dir, name string) *plugins.Spec {
		t.Helper()
		spec := make(t, dir, name)
		spec.PersistentVolume.Spec.MountOptions = options
		return spec
	}
}

// linked names the storage as udev and operators do, by a link.
func linked(make maker) maker {
	return func(t testing.TB, dir, name string) *plugins.Spec {
		t.Helper()
		spec := make(t, dir, name)
		link := filepath.Join(dir, "link to "+name)
		if err := os.Symlink(spec.PersistentVolume.Spec.Local.Path, link); err != nil {
			t.Fatal(err)
		}
		spec.PersistentVolume.Spec.Local.Path = link
		return spec
	}
}

// mounted is a directory that is a mount point, as of a disk that the operator
// mounts.
func mounted(t testing.TB, dir, name string) *plugins.Spec {
	spec := directory(t, dir, name)
	testutil.Tmpfs(t, spec.PersistentVolume.Spec.Local.Path)
	return spec
}

// subvolume is a btrfs with one, whose mount shows another directory than the root
// of the file system and has another device number than the device.
func subvolume(t testing.TB, dir, name string) *plugins.Spec {
	dev := disk(t, dir, name, 128<<20)
	testutil.Mkfs(t, dev, "btrfs")
	at := testutil.TempDir(t)
	if err := unix.Mount(dev, at, "btrfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "btrfs", "subvolume", "create", filepath.Join(at, "sub")).CombinedOutput()
	if err := errors.Join(err, unix.Unmount(at, 0)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return volume(name, dev)
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
func disk(t testing.TB, dir, name string, size int64) string {
	img := filepath.Join(dir, name+".img")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, size); err != nil {
		t.Fatal(err)
	}
	return testutil.Loop(t, img)
}

func formatted(t testing.TB, dir, name string) *plugins.Spec {
	dev := disk(t, dir, name, 16<<20)
	testutil.Mkfs(t, dev, "ext4")
	spec := volume(name, dev)
	fsType := "ext4"
	spec.PersistentVolume.Spec.Local.FSType = &fsType
	return spec
}

func blank(t testing.TB, dir, name string) *plugins.Spec {
	return volume(name, disk(t, dir, name, 16<<20))
}

func raw(t testing.TB, dir, name string) *plugins.Spec {
	spec := volume(name, disk(t, dir, name, 16<<20))
	mode := v1.PersistentVolumeBlock
	spec.PersistentVolume.Spec.VolumeMode = &mode
	return spec
}
