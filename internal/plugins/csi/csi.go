// Package csi is the kubernetes.io/csi plugin: volumes of a CSI driver, which it asks
// over gRPC at the driver's socket for what a kubelet asks. The driver mounts; kvol
// keeps the directories and vol_data.json as a kubelet has them, and looks in the
// kernel's own table whether the driver did what it says.
//
// It needs the driver to run on this node, but for --without-driver. Do not look here
// for devices or file systems: those are the driver's.
package csi

import (
	"context"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New returns the kubernetes.io/csi plugin.
func New() plugins.VolumePlugin { return &plugin{} }

type plugin struct{ host *host.Host }

func (p *plugin) Info() api.Info {
	return api.Info{
		Name:        paths.CSIPlugin,
		Description: "a volume of a CSI driver, over the driver's socket",
		AccessModes: modes(),
		Since:       "1.9",
	}
}

func modes() (out []string) {
	for _, m := range (&plugin{}).GetAccessModes() {
		out = append(out, string(m))
	}
	return out
}

var (
	_ plugins.PersistentVolumePlugin       = (*plugin)(nil)
	_ plugins.AttachableVolumePlugin       = (*plugin)(nil)
	_ plugins.NodeExpandableVolumePlugin   = (*plugin)(nil)
	_ plugins.VolumePluginWithAttachLimits = (*plugin)(nil)
	_ plugins.BlockVolumePlugin            = (*plugin)(nil)
	_ plugins.SpecChecker                  = (*plugin)(nil)
)

func (p *plugin) Init(h *host.Host) error {
	p.host = h
	return nil
}

func (p *plugin) GetPluginName() string { return paths.CSIPlugin }

// GetVolumeName is driver^handle. The handle of an inline volume is made of the pod:
// as long as that is not known it has none.
func (p *plugin) GetVolumeName(spec *plugins.Spec) (string, error) {
	w, err := p.want(spec, podOf(spec))
	if err != nil {
		return "", err
	}
	if w.inline && spec.PodUID == "" {
		return spec.Name(), nil
	}
	return w.String(), nil
}

func podOf(spec *plugins.Spec) string {
	if spec == nil {
		return ""
	}
	return spec.PodUID
}

func (p *plugin) CanSupport(spec *plugins.Spec) bool {
	return spec != nil && (spec.Volume != nil && spec.Volume.CSI != nil ||
		spec.PersistentVolume != nil && spec.PersistentVolume.Spec.CSI != nil)
}

// RequiresRemount is the CSIDriver's requiresRepublish.
func (p *plugin) RequiresRemount(spec *plugins.Spec) bool {
	w, err := p.want(spec, "")
	return err == nil && w.object != nil && w.object.Spec.RequiresRepublish != nil && *w.object.Spec.RequiresRepublish
}

func (p *plugin) SupportsMountOption() bool { return true }

func (p *plugin) GetAccessModes() []v1.PersistentVolumeAccessMode {
	return []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod}
}

// CheckSpec refuses a volume that its driver does not take, or whose secret is not
// there.
func (p *plugin) CheckSpec(spec *plugins.Spec, pod plugins.PodRef) error {
	w, err := p.want(spec, pod.UID)
	if err == nil {
		err = w.allowed()
	}
	if err == nil {
		_, err = w.secret(w.publishSecret)
	}
	return err
}

// reconstructed is the spec that metadata gives. What it is of, its kind in the path,
// tells what it does not say.
func reconstructed(d data, name, podUID string, readOnly, block bool) plugins.Reconstructed {
	if d.lifecycle == voldata.Ephemeral {
		spec := plugins.NewSpecFromVolume(&v1.Volume{Name: name, VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: d.driver}}})
		spec.PodUID, spec.ReadOnly = podUID, readOnly
		return plugins.Reconstructed{Spec: spec, Missing: details("", "readOnly", "fsType", "volumeAttributes", "nodePublishSecretRef")}
	}
	mode := v1.PersistentVolumeFilesystem
	if block {
		mode = v1.PersistentVolumeBlock
	}
	spec := plugins.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: d.driver, VolumeHandle: d.handle}},
			VolumeMode:             &mode,
		},
	}, readOnly)
	return plugins.Reconstructed{Spec: spec, Missing: details("spec.", "readOnly", "fsType", "volumeAttributes", "controllerPublishSecretRef",
		"nodeStageSecretRef", "nodePublishSecretRef", "controllerExpandSecretRef", "nodeExpandSecretRef")}
}

func (p *plugin) NewDeviceMounter() (plugins.DeviceMounter, error) { return deviceMounter{p}, nil }
func (p *plugin) NewDeviceUnmounter() (plugins.DeviceUnmounter, error) {
	return deviceUnmounter{p}, nil
}
func (p *plugin) NewAttacher() (plugins.Attacher, error) { return attacher{p}, nil }
func (p *plugin) NewDetacher() (plugins.Detacher, error) { return detacher{p}, nil }

func (p *plugin) CanDeviceMount(_ context.Context, spec *plugins.Spec) (bool, string, error) {
	w, err := p.want(spec, podOf(spec))
	if err != nil {
		return false, "", err
	}
	if w.inline {
		return false, "an inline volume is published into its pod alone, and never staged", nil
	}
	return true, "", nil
}

// CanAttach says whether the volume is to be attached; who can do that is asked later.
func (p *plugin) CanAttach(spec *plugins.Spec) (bool, error) {
	w, err := p.want(spec, podOf(spec))
	return err == nil && w.attachable(), err
}

func (p *plugin) NewMounter(spec *plugins.Spec, pod plugins.PodRef) (plugins.Mounter, error) {
	w, err := p.want(spec, pod.UID)
	if err != nil {
		return nil, err
	}
	return &mounter{p, w, pod}, nil
}

func (p *plugin) NewUnmounter(ref plugins.Ref, podUID string) (plugins.Unmounter, error) {
	return &unmounter{p, ref, podUID}, paths.ValidVolumeName(ref.Name)
}

// metadataOf is the metadata file beside a mount.
func metadataOf(mounted string) string { return filepath.Join(filepath.Dir(mounted), dataFile) }
