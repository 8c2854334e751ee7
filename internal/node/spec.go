package node

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/plugins"
)

// specs is what the disk tells of the specs of the pods' volumes, by the plugins
// that can say it.
func (s *snapshot) specs(mgr *plugins.VolumePluginMgr) []api.SpecInfo {
	out := []api.SpecInfo{}
	for _, p := range s.places {
		plugin, err := mgr.FindPluginByName(p.Plugin)
		if err != nil || p.PodUID == "" {
			continue
		}
		r, err := reconstruct(plugin, p)
		if err != nil {
			continue // it does not tell, which is no fault of the volume
		}
		info := api.SpecInfo{Plugin: p.Plugin, Volume: p.Volume, PodUID: p.PodUID, Fields: fields(r.Spec), Missing: append([]string{}, r.Missing...)}
		out = append(out, info)
	}
	return out
}

// reconstruct is the spec that one place tells.
func reconstruct(plugin plugins.VolumePlugin, p place) (plugins.Reconstructed, error) {
	switch p.kind {
	case api.KindPodVolume, api.KindGlobalMount:
		return plugin.ConstructVolumeSpec(p.Volume, p.path)
	case api.KindPodDevice:
		block, err := plugins.As[plugins.BlockVolumePlugin](plugin)
		if err != nil {
			return plugins.Reconstructed{}, err
		}
		return block.ConstructBlockVolumeSpec(p.PodUID, p.Volume, p.path)
	}
	return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "does not tell its volume").At(p.path).WithNext("see what there is: kvol list-mounts")
}

// fields flattens the object of a spec to the values that it has.
func fields(spec *plugins.Spec) map[string]string {
	out := map[string]string{}
	var object any = spec.PersistentVolume
	if spec.Volume != nil {
		object = spec.Volume
	}
	var raw bytes.Buffer
	var tree any
	if api.AppendJSON(&raw, object) == nil && json.Unmarshal(raw.Bytes(), &tree) == nil {
		flatten("", tree, out)
	}
	if spec.ReadOnly {
		out["readOnly"] = "true"
	}
	return out
}

func flatten(at string, v any, out map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if at != "" {
				name = at + "." + name
			}
			flatten(name, inner, out)
		}
	case []any:
		for i, inner := range v {
			flatten(fmt.Sprintf("%s[%d]", at, i), inner, out)
		}
	case nil:
	default:
		if s := fmt.Sprint(v); s != "" {
			out[at] = s
		}
	}
}
