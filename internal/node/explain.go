package node

import (
	"cmp"
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// Explain says what a path means in the kubelet's layout. It looks at no disk but
// to resolve the root directory.
func Explain(h *host.Host, path string) (api.PathInfo, error) {
	at := h.Layout.Parse(path)
	if at.Kind == paths.None {
		at = h.Layout.Parse(h.PathOf(path))
	}
	return info(path, at), nil
}

func info(path string, at paths.Path) api.PathInfo {
	index := -1
	if at.Kind == paths.SubPath {
		index = at.Index
	}
	return api.PathInfo{
		Path: path, Kind: at.Kind.String(), Plugin: at.Plugin, Volume: cmp.Or(at.Volume, at.ID), PodUID: at.PodUID,
		Container: at.Container, Index: index, Driver: at.Driver, Rest: at.Rest,
	}
}

// PathsOf says where the volume of a spec is on this node, or would be.
func PathsOf(ctx context.Context, h *host.Host, mgr *plugins.VolumePluginMgr, spec *plugins.Spec, plugin string, pod plugins.PodRef) (*api.PathSet, error) {
	p, err := mgr.FindPluginBySpec(spec)
	if err != nil {
		return nil, err
	}
	if plugin != "" && plugin != p.GetPluginName() {
		return nil, api.Errorf(api.ErrUsage, "--plugin is %s and the file has a volume of %s", plugin, p.GetPluginName())
	}
	if pod.UID != "" {
		if err := paths.ValidPodUID(pod.UID); err != nil {
			return nil, err
		}
	}
	set, err := plugins.Where{Plugin: p, Spec: spec, Ref: plugins.RefOf(p, spec), PodUID: pod.UID, Block: spec.IsBlock()}.Paths(ctx, h.Layout.Root)
	return &set, err
}

// Plugins describes the plugins, or the one of a name, and which of their tools this
// node has.
func Plugins(h *host.Host, mgr *plugins.VolumePluginMgr, name string) *api.List[api.Info] {
	var items []api.Info
	for _, p := range mgr.All() {
		if name != "" && name != p.GetPluginName() {
			continue
		}
		items = append(items, describe(h, p))
	}
	return api.NewList("PluginList", items, mgr.Warnings())
}

func describe(h *host.Host, p plugins.VolumePlugin) api.Info {
	i := p.Info()
	i.Rungs = plugins.Rungs(p)
	for k := range i.Tools {
		t := &i.Tools[k]
		path, err := h.Exec.LookPath(t.Name)
		t.Path, t.Present = path, err == nil
	}
	for _, list := range []*[]string{&i.AccessModes, &i.Rungs} {
		if *list == nil {
			*list = []string{}
		}
	}
	if i.Tools == nil {
		i.Tools = []api.Tool{}
	}
	return i
}
