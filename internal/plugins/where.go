package plugins

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
)

// Where is a volume on the node: what its plugin answers for its four mount
// points, and the metadata that a kubelet keeps beside them. Without a spec the name alone must do. A path that the volume does
// not have, or that is outside of the kubelet's root (a local directory, which is
// the user's own), is empty.
type Where struct {
	Plugin VolumePlugin
	Spec   *Spec // nil when only the name is known
	Ref
	PodUID string // "" leaves the pod's places out
	Block  bool
}

// Paths asks the plugin. root is the kubelet's root directory.
func (w Where) Paths(ctx context.Context, root string) (api.PathSet, error) {
	set := api.PathSet{Plugin: w.Plugin.GetPluginName(), Volume: w.Name, Metadata: []string{}}
	var err error
	if w.Block {
		err = w.block(&set)
	} else {
		err = w.fileSystem(ctx, root, &set)
	}
	set.Metadata = MetadataOf(paths.Layout{Root: root}, set)
	return set, err
}

// MetadataOf are the files that a kubelet keeps beside a volume's mount points.
func MetadataOf(l paths.Layout, set api.PathSet) []string {
	out := []string{}
	for _, at := range []string{set.GlobalMountPath, set.GlobalMapPath, set.PodVolumePath, set.PodDeviceMapPath} {
		if file := l.MetadataPath(at); file != "" && !slices.Contains(out, file) {
			out = append(out, file)
		}
	}
	return out
}

func (w Where) fileSystem(ctx context.Context, root string, set *api.PathSet) error {
	if w.PodUID != "" {
		u, err := w.Plugin.NewUnmounter(w.Ref, w.PodUID)
		if err != nil {
			return err
		}
		if set.PodVolumePath, err = u.GetPath(); err != nil {
			return err
		}
	}
	p, err := As[DeviceMountableVolumePlugin](w.Plugin)
	if errors.Is(err, api.ErrNotSupported) {
		return nil
	}
	if w.Spec != nil {
		d, err := p.NewDeviceMounter()
		if err != nil {
			return err
		}
		path, err := d.GetDeviceMountPath(ctx, w.Spec)
		if filepath.IsAbs(path) && strings.HasPrefix(path, root+"/") {
			set.GlobalMountPath = path
		}
		return err
	}
	d, err := p.NewDeviceUnmounter()
	if err != nil {
		return err
	}
	all, err := d.GlobalPaths(w.Ref)
	if len(all) > 0 {
		set.GlobalMountPath = all[0]
	}
	return err
}

func (w Where) block(set *api.PathSet) error {
	p, err := As[BlockVolumePlugin](w.Plugin)
	if err != nil {
		return err
	}
	u, err := p.NewBlockVolumeUnmapper(w.Ref, w.PodUID)
	if err != nil {
		return err
	}
	if set.GlobalMapPath, err = u.GetGlobalMapPath(); err != nil || w.PodUID == "" {
		return err
	}
	dir, name, err := u.GetPodDeviceMapPath()
	if err == nil {
		set.PodDeviceMapPath = filepath.Join(dir, name)
	}
	return err
}
