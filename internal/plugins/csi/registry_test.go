package csi_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi"
	"github.com/kvol/kvol/internal/testutil"
)

// limits asks the drivers of a root, as kvol limits does: who answers is who is found.
func limits(t *testing.T, root string) (map[string]int64, error) {
	t.Helper()
	h, err := host.New(host.Options{RootDir: root, StateDir: filepath.Join(t.TempDir(), "state"), RunDir: filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	p := csi.New()
	if err := p.Init(h); err != nil {
		t.Fatal(err)
	}
	l, err := plugins.As[plugins.VolumePluginWithAttachLimits](p)
	if err != nil {
		t.Fatal(err)
	}
	return l.GetVolumeLimits(t.Context())
}

func with(max int64, change ...func(*testutil.CSIControl)) *testutil.CSIControl {
	c := testutil.CSIDefaults()
	c.MaxVolumes = max
	for _, f := range change {
		f(&c)
	}
	return &c
}

func kubelet(t *testing.T) string {
	t.Helper()
	testutil.Root(t)
	root := filepath.Join(testutil.TempDir(t), "kubelet")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// One registration that is dead, mute, garbage or somebody else's does not keep the
// others from being found.
func TestRegistrationsBesideBadOnes(t *testing.T) {
	root := kubelet(t)
	testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "good.test", Control: with(7)})
	testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "dead.test", Control: with(1)}).Kill()
	testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "mute.test", Control: with(1)}).Freeze()
	testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "other.test", Control: with(1, func(c *testutil.CSIControl) { c.Type = "DRAPlugin" })})
	got, err := limits(t, root)
	if err != nil || len(got) != 1 || got["attachable-volumes-csi-good.test"] != 7 {
		t.Errorf("%v, %v", got, err)
	}
}

// Two sockets that answer to one name with two endpoints: neither is taken.
func TestTwoRegistrationsOfOneName(t *testing.T) {
	root := kubelet(t)
	first := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: driver, Control: with(1)})
	again := filepath.Join(root, "plugins_registry", "a", "again.sock")
	if err := errors.Join(os.Mkdir(filepath.Dir(again), 0o755), os.Rename(first.RegistrationSocket(), again)); err != nil {
		t.Fatal(err)
	}
	if got, err := limits(t, root); err != nil || len(got) != 1 {
		t.Errorf("a registration in a subdirectory, as the kubelet finds it: %v, %v", got, err)
	}
	second := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: driver, Control: with(2), Socket: filepath.Join(root, "other.sock")})
	_, err := limits(t, root)
	if !errors.Is(err, api.ErrRefused) || !strings.Contains(strings.Join(api.NewErrorDoc(err).Details, " "), second.Endpoint()) {
		t.Errorf("%v %v", err, api.NewErrorDoc(err).Details)
	}
}
