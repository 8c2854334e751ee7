package node

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/plugins"
)

// Inspect gathers everything about one volume, path, device or pod, whichever the
// word names. A word that nothing on the node has is ErrNotFound.
func Inspect(ctx context.Context, h *host.Host, mgr *plugins.VolumePluginMgr, subject string) (*api.Inspection, error) {
	find, err := NewFind(h)
	if err != nil {
		return nil, err
	}
	out := &api.Inspection{
		APIVersion: api.Version, Kind: "Inspection", Subject: subject, Volumes: []api.PathSet{}, Specs: []api.SpecInfo{}, Mounts: []api.Mount{},
		Devices: []api.Device{}, Metadata: []api.Metadata{}, Plugins: []api.Info{}, Warnings: append([]string{}, find.warnings...),
	}
	find.tell()
	wanted, err := find.subject(ctx, subject, out)
	if err != nil {
		return nil, err
	}
	s := *find.snapshot
	s.places = slices.DeleteFunc(slices.Clone(s.places), func(p place) bool { return !wanted(p) })
	if len(s.places) == 0 && out.Path == nil {
		return nil, api.Errorf(api.ErrNotFound, "%q is no volume, path, device or pod on this node", subject).
			WithNext("see what there is: kvol list-mounts")
	}
	out.Mounts = s.items(ctx, true)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	out.Volumes = s.volumes(ctx, mgr, find.places)
	out.Specs = s.specs(mgr)
	out.Devices = s.deviceChain(out.Mounts)
	out.Metadata = s.metadata()
	for _, v := range out.Volumes {
		if p, err := mgr.FindPluginByName(v.Plugin); err == nil && !slices.ContainsFunc(out.Plugins, func(i api.Info) bool { return i.Name == v.Plugin }) {
			out.Plugins = append(out.Plugins, describe(h, p))
		}
	}
	return out, nil
}

// subject finds out what a word names and gives the test for its places.
func (f *Find) subject(ctx context.Context, word string, out *api.Inspection) (func(place) bool, error) {
	root := f.host.Layout.Root
	word = f.host.PathOf(word)
	switch {
	case strings.HasPrefix(word, root+"/"):
		at := f.host.Layout.Parse(filepath.Clean(word))
		i := info(word, at)
		out.Path, out.SubjectKind = &i, "path"
		path := filepath.Clean(word)
		return func(p place) bool {
			return p.path == path || strings.HasPrefix(p.path, path+"/") || at.Rest == "" && at.Volume != "" && p.Volume == at.Volume && p.Plugin == at.Plugin
		}, nil
	case strings.HasPrefix(word, "/"):
		src, err := act.OpenSource(ctx, f.host.Helper, word)
		if err != nil {
			return nil, err
		}
		defer src.Close()
		out.SubjectKind = "device"
		if !src.IsBlock() {
			out.SubjectKind = "path"
		}
		return f.from(src), nil
	}
	if slices.ContainsFunc(f.places, func(p place) bool { return p.PodUID == word }) {
		out.SubjectKind = "pod"
		return func(p place) bool { return p.PodUID == word }, nil
	}
	out.SubjectKind = "volume"
	test, _ := f.ofVolume(word)
	return test, nil
}

// ofVolume is the test for the places of a volume by its names, a word or driver^handle:
// also those that have only another of them than was given. It gives all of them.
func (f *Find) ofVolume(words ...string) (func(place) bool, map[string]bool) {
	names := map[string]bool{}
	for _, word := range words {
		names[word] = true
	}
	for _, p := range f.places {
		if name := f.handleOf(p); name != "" && slices.ContainsFunc(words, func(word string) bool { return p.called(word) || p.told == word }) {
			names[name] = true
		}
	}
	return func(p place) bool {
		if p.kind == api.KindOther {
			return false
		}
		for name := range names {
			if p.called(name) || p.told == name || strings.Contains(name, "^") && p.HandleHash == "" && f.handleOf(p) == name {
				return true
			}
		}
		return false
	}, names
}

// volumes are the volumes among the places, each once a pod. Of the global mounts that
// one may have it has the one that is on the node.
func (s *snapshot) volumes(ctx context.Context, mgr *plugins.VolumePluginMgr, all []place) []api.PathSet {
	out := []api.PathSet{}
	seen := map[[3]string]bool{}
	for _, p := range s.places {
		key := [3]string{p.Plugin, p.Volume, p.PodUID}
		if p.Volume == "" || seen[key] {
			continue
		}
		seen[key] = true
		set := api.PathSet{Plugin: p.Plugin, Volume: p.Volume, Metadata: []string{}}
		if plugin, err := mgr.FindPluginByName(p.Plugin); err == nil {
			block := p.kind == api.KindPodDevice || p.kind == api.KindGlobalMapDevice
			w := plugins.Where{Plugin: plugin, Ref: plugins.Ref{Name: p.Volume, VolumeName: s.handleOf(p)}, PodUID: p.PodUID, Block: block}
			if known, err := w.Paths(ctx, s.host.Layout.Root); err == nil {
				set = known
			}
			is := slices.IndexFunc(all, func(g place) bool {
				return g.kind == api.KindGlobalMount && g.Plugin == p.Plugin && (g.path == set.GlobalMountPath || g.name() == p.Volume)
			})
			if set.GlobalMountPath = ""; is >= 0 && !block {
				set.GlobalMountPath = all[is].path
			}
			set.Metadata = plugins.MetadataOf(s.host.Layout, set)
		} else if p.kind == api.KindPodVolume {
			set.PodVolumePath = p.path
		}
		out = append(out, set)
	}
	return out
}

// deviceChain is the devices below the mounts, each with what it is made of.
func (s *snapshot) deviceChain(items []api.Mount) []api.Device {
	out := []api.Device{}
	all, err := s.host.Devices.List()
	if err != nil {
		s.warnings = append(s.warnings, err.Error())
		return out
	}
	byName := map[string]devices.Device{}
	for _, d := range all {
		byName[d.Name] = d
	}
	var add func(d devices.Device)
	add = func(d devices.Device) {
		if slices.ContainsFunc(out, func(o api.Device) bool { return o.Name == d.Name }) {
			return
		}
		out = append(out, device(d))
		for _, name := range d.Parents {
			if parent, ok := byName[name]; ok {
				add(parent)
			}
		}
	}
	for _, m := range items {
		for _, d := range all {
			if d.Number() == m.Device || d.Path == m.Source {
				add(d)
			}
		}
	}
	return out
}

func device(d devices.Device) api.Device {
	return api.Device{
		Name: d.Name, Path: d.Path, Number: d.Number(), Type: string(d.Type), Size: d.Size, Backing: d.Backing,
		Parents: append([]string{}, d.Parents...), Holders: append([]string{}, d.Holders...),
	}
}

// metadata reads the files that the kubelet keeps beside the volumes.
func (s *snapshot) metadata() []api.Metadata {
	out := []api.Metadata{}
	for _, p := range s.places {
		m := s.metadataOf(p)
		if m.Path != "" && !slices.ContainsFunc(out, func(o api.Metadata) bool { return o.Path == m.Path }) {
			out = append(out, m)
		}
	}
	return out
}
