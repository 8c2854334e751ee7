package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/local"
	"github.com/kvol/kvol/internal/testutil"
)

// plugin is a local plugin on a kubelet root of its own.
func plugin(t *testing.T) (p plugins.VolumePlugin, root string) {
	t.Helper()
	dir := testutil.TempDir(t)
	root = filepath.Join(dir, "kubelet")
	if err := os.MkdirAll(filepath.Join(root, "pods", "uid"), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := host.New(host.Options{RootDir: root, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	p = local.New()
	if err := p.Init(h); err != nil {
		t.Fatal(err)
	}
	return p, root
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func TestPathThatCannotBe(t *testing.T) {
	p := local.New()
	for path, want := range map[string]string{
		"": "empty", "mnt/a": "absolute", "/mnt/../etc": "..", "/": "root", "//": "root", "/a\nb": "control", "/a\x00b": "control",
	} {
		_, err := p.GetVolumeName(volume("pv", path))
		if !errors.Is(err, api.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want ErrInput with %q", path, err, want)
		}
		if _, err := p.NewMounter(volume("pv", path), plugins.PodRef{UID: "uid"}); !errors.Is(err, api.ErrInput) {
			t.Errorf("%q: a mounter, %v", path, err)
		}
	}
}

func TestSourceThatCannotBe(t *testing.T) {
	testutil.Root(t)
	p, root := plugin(t)
	d, err := plugins.As[plugins.DeviceMountableVolumePlugin](p)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(root)
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(filepath.Join(root, "pods"), link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		filepath.Join(dir, "missing"): api.ErrNotFound,
		file:                          api.ErrInput,
		// What is the kubelet's is no storage, whatever way leads to it.
		filepath.Join(root, "pods", "uid"): api.ErrRefused,
		filepath.Join(link, "uid"):         api.ErrRefused,
	} {
		if _, _, err := d.CanDeviceMount(ctx(t), volume("pv", path)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestBlockOfADirectory(t *testing.T) {
	testutil.Root(t)
	p, root := plugin(t)
	b, err := plugins.As[plugins.BlockVolumePlugin](p)
	if err != nil {
		t.Fatal(err)
	}
	spec := directory(t, filepath.Dir(root), "pv")
	mode := v1.PersistentVolumeBlock
	spec.PersistentVolume.Spec.VolumeMode = &mode
	m, err := b.NewBlockVolumeMapper(spec, plugins.PodRef{UID: "uid"})
	if err != nil {
		t.Fatal(err)
	}
	if dev, err := m.MapPodDevice(ctx(t), nil); !errors.Is(err, api.ErrInput) {
		t.Errorf("a directory is mapped as %q, %v", dev, err)
	}
}
