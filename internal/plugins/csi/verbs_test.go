package csi_test

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
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi"
	"github.com/kvol/kvol/internal/testutil"
)

const pod = "5b5a5e0f-8d8b-4d0e-9b4b-0d6f5f3a1c01"

// verbs carries a volume of a driver by the verbs.
type verbs struct {
	*ops.Ops
	t    *testing.T
	root string
	csi  *testutil.CSI
	spec *plugins.Spec

	plugin plugins.VolumePlugin
}

func newVerbs(t *testing.T, mode v1.PersistentVolumeMode) *verbs {
	t.Helper()
	root := kubelet(t)
	control := testutil.CSIDefaults()
	control.AnyVolume = true
	v := &verbs{t: t, root: root, csi: testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: driver, Control: &control}), plugin: csi.New()}
	dir := filepath.Dir(root)
	h, err := host.New(host.Options{RootDir: root, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	mgr := plugins.NewManager()
	if err := mgr.InitPlugins([]plugins.VolumePlugin{v.plugin}, nil, h); err != nil {
		t.Fatal(err)
	}
	v.Ops, v.spec = ops.New(h, mgr), volume(t, "", "pv")
	v.spec.PersistentVolume.Spec.VolumeMode = &mode
	return v
}

func (v *verbs) ctx() context.Context {
	c, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	v.t.Cleanup(cancel)
	return c
}

func (v *verbs) request() ops.Request {
	return ops.Request{Spec: v.spec, Pod: plugins.PodRef{UID: pod}, AllowUnmanagedPod: true, AllowActivePod: true}
}

func (v *verbs) do(verb ops.Verb) error {
	v.t.Helper()
	v.spec.PublishContext = nil
	_, err := v.Run(v.ctx(), verb, v.request())
	return err
}

func (v *verbs) at(elem ...string) string { return filepath.Join(append([]string{v.root}, elem...)...) }

// Metadata that a crash cut short, beside mounts that are the volume's: the same
// command writes it anew, and asks the driver, which has the last word.
func TestBrokenMetadataIsWrittenAgain(t *testing.T) {
	v := newVerbs(t, v1.PersistentVolumeFilesystem)
	if err := v.do(ops.Setup); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		v.at("pods", pod, "volumes/kubernetes.io~csi/pv/vol_data.json"),
		v.at("plugins/kubernetes.io/csi", driver, paths.HandleHash("handle of pv"), "vol_data.json"),
	} {
		want, err := os.ReadFile(file)
		if err := errors.Join(err, os.Truncate(file, 20)); err != nil {
			t.Fatal(err)
		}
		before := len(v.csi.Methods())
		if err := v.do(ops.Setup); err != nil {
			t.Fatalf("setup with %s cut short: %v", file, err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
			t.Errorf("%s is %q, %v, and was %q", file, got, err, want)
		}
		if len(v.csi.Methods()) == before {
			t.Errorf("%s was cut short, and the driver was not asked", file)
		}
	}
	if err := v.do(ops.Teardown); err != nil {
		t.Fatal(err)
	}
}

// mislabelled is a volume that is set up, and metadata of another one beside it.
func mislabelled(t *testing.T) (v *verbs, file string) {
	t.Helper()
	v = newVerbs(t, v1.PersistentVolumeFilesystem)
	if err := v.do(ops.Setup); err != nil {
		t.Fatal(err)
	}
	file = v.at("pods", pod, "volumes/kubernetes.io~csi/pv/vol_data.json")
	if err := os.WriteFile(file, []byte(`{"driverName":"`+driver+`","volumeHandle":"other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return v, file
}

// Metadata of another volume than the one that is named is no reason to ask the driver
// for either.
func TestContradictionsAreRefused(t *testing.T) {
	v, _ := mislabelled(t)
	before := v.csi.Methods()
	err := v.do(ops.Unpublish)
	if !errors.Is(err, api.ErrRefused) || !strings.Contains(strings.Join(api.NewErrorDoc(err).Details, " "), "other") {
		t.Errorf("%v %v", err, api.NewErrorDoc(err).Details)
	}
	if err := v.do(ops.Setup); !errors.Is(err, api.ErrRefused) {
		t.Errorf("setup: %v", err)
	}
	if after := v.csi.Methods(); after != before {
		t.Errorf("the driver was asked: %s", after[len(before):])
	}
}

// Metadata of another volume than the one whose staging directory the pod's mount is of:
// the driver is asked for neither, and neither is what the volume is described as.
func TestMountedFromTheStagingOfAnother(t *testing.T) {
	v, file := mislabelled(t)
	staged := v.at("plugins/kubernetes.io/csi", driver, paths.HandleHash("handle of pv"), "globalmount")
	// The history knows the volume's handle; a node that was set up by its kubelet has none.
	if err := os.Rename(v.at("../state"), v.at("../before")); err != nil {
		t.Fatal(err)
	}
	before := v.csi.Methods()
	if _, err := v.plugin.ConstructVolumeSpec("pv", filepath.Dir(file)); !errors.Is(err, api.ErrNotSupported) || !strings.Contains(err.Error(), staged) {
		t.Errorf("ConstructVolumeSpec: %v", err)
	}
	req := v.request()
	req.Spec, req.Volume = nil, "pv"
	if _, err := v.Run(v.ctx(), ops.Unpublish, req); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), staged) {
		t.Errorf("unpublish: %v", err)
	}
	if after := v.csi.Methods(); after != before {
		t.Errorf("the driver was asked: %s", after[len(before):])
	}
}

// A plan for a raw block volume is made before there is a device to look at, and is
// what is then done.
func TestPlanOfARawBlockVolume(t *testing.T) {
	v := newVerbs(t, v1.PersistentVolumeBlock)
	for _, verb := range []ops.Verb{ops.Setup, ops.Teardown} {
		plan, err := v.Plan(v.ctx(), verb, v.request())
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		v.spec.PublishContext = nil
		done, err := v.Run(v.ctx(), verb, v.request())
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		var planned, made []string
		for _, s := range plan.Items {
			planned = append(planned, s.Action+" "+s.Target)
		}
		for _, r := range done.Items {
			for _, s := range r.Steps {
				made = append(made, s.Action+" "+s.Target)
			}
		}
		if strings.Join(planned, "\n") != strings.Join(made, "\n") {
			t.Errorf("%s was planned as\n%s\nand done as\n%s", verb, strings.Join(planned, "\n"), strings.Join(made, "\n"))
		}
	}
	if text := testutil.MountTable(t, v.root); strings.Contains(text, `"`) {
		t.Errorf("left mounted: %s", text)
	}
}
