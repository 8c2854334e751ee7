package local_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/ops"
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
	p = local.New()
	if err := p.Init(hostOf(t, root)); err != nil {
		t.Fatal(err)
	}
	return p, root
}

func hostOf(t *testing.T, root string) *host.Host {
	t.Helper()
	dir := filepath.Dir(root)
	h, err := host.New(host.Options{RootDir: root, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
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

// A device that cannot be written to is not mounted read-only in silence.
func TestReadOnlyDevice(t *testing.T) {
	testutil.Root(t)
	p, root := plugin(t)
	img := filepath.Join(filepath.Dir(root), "img")
	if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 16<<20)); err != nil {
		t.Fatal(err)
	}
	testutil.Mkfs(t, img, "ext4")
	out, err := exec.CommandContext(t.Context(), "losetup", "--read-only", "-f", "--show", img).Output()
	if err != nil {
		t.Fatal(err)
	}
	h := hostOf(t, root)
	mgr := plugins.NewManager()
	if err := mgr.InitPlugins([]plugins.VolumePlugin{p}, nil, h); err != nil {
		t.Fatal(err)
	}
	spec := volume("pv", strings.TrimSpace(string(out)))
	mount := func() error {
		_, err := ops.New(h, mgr).Run(ctx(t), ops.MountDevice, ops.Request{Spec: spec})
		return err
	}
	if err := mount(); !errors.Is(err, api.ErrRefused) {
		t.Errorf("read-write: %v, want ErrRefused", err)
	}
	if text := testutil.MountTable(t, root); text != "" {
		t.Errorf("refused, and mounted: %s", text)
	}
	spec.ReadOnly = true
	for range 2 {
		if err := mount(); err != nil {
			t.Errorf("read-only: %v", err)
		}
	}
}
