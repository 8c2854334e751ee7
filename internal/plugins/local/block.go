package local

import (
	"context"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
)

// A local device as a raw block volume: the steps that all such volumes have in
// common are internal/ops'.

// ConstructBlockVolumeSpec reads the device from the pod's link.
func (p *plugin) ConstructBlockVolumeSpec(podUID, volumeName, _ string) (plugins.Reconstructed, error) {
	link, err := p.host.Layout.PodDeviceMapPath(podUID, paths.LocalPlugin, volumeName)
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	root, err := p.host.Root()
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	dev, err := root.Readlink(link)
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	return reconstructed(volumeName, dev, v1.PersistentVolumeBlock, false), nil
}

func (p *plugin) NewBlockVolumeMapper(spec *plugins.Spec, pod plugins.PodRef) (plugins.BlockVolumeMapper, error) {
	if _, err := source(spec); err != nil {
		return nil, err
	}
	return &mapper{block{p, spec.Name(), pod.UID}, spec}, nil
}

func (p *plugin) NewBlockVolumeUnmapper(ref plugins.Ref, podUID string) (plugins.BlockVolumeUnmapper, error) {
	return &unmapper{block{p, ref.Name, podUID}}, nil
}

type block struct {
	*plugin
	name, podUID string
}

func (b block) GetGlobalMapPath() (string, error) {
	return b.host.Layout.LocalGlobalMapPath(b.name)
}

func (b block) GetPodDeviceMapPath() (dir, name string, err error) {
	link, err := b.host.Layout.PodDeviceMapPath(b.podUID, paths.LocalPlugin, b.name)
	return filepath.Dir(link), b.name, err
}

type mapper struct {
	block
	spec *plugins.Spec
}

func (m *mapper) SetUpDevice(context.Context, *act.Runner) (bool, error) { return false, nil }

func (m *mapper) MapPodDevice(ctx context.Context, _ *act.Runner) (act.Value, error) {
	dev, err := m.resolve(ctx, m.spec)
	if err != nil {
		return act.Value{}, err
	}
	if !dev.IsBlock() {
		return act.Value{}, api.Errorf(api.ErrInput, "volumeMode is Block and %s is a directory", dev.Path).At(dev.Path).
			WithNext("set spec.volumeMode to Filesystem, or spec.local.path to a block device")
	}
	return act.Known(dev.Path), nil
}

type unmapper struct{ block }

func (u *unmapper) UnmapPodDevice(context.Context, *act.Runner) error { return nil }
func (u *unmapper) TearDownDevice(context.Context, *act.Runner, string, string) error {
	return nil
}
