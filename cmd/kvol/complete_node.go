package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"

	"github.com/spf13/cobra"
)

func volumes(t tab) ([]string, cobra.ShellCompDirective) {
	return t.volumes(func(node.Seen) bool { return true }), noFiles
}

// published are the volumes that a pod has.
func published(t tab) ([]string, cobra.ShellCompDirective) {
	return t.volumes(func(s node.Seen) bool { return s.PodUID != "" }), noFiles
}

// staged are those that have a place for all pods, or may have one.
func staged(t tab) ([]string, cobra.ShellCompDirective) {
	var may []string
	for _, p := range all.All() {
		if _, ok := p.(plugins.DeviceMountableVolumePlugin); ok {
			may = append(may, p.GetPluginName())
		}
	}
	return t.volumes(func(s node.Seen) bool {
		return s.Kind == api.KindGlobalMount || s.Kind == api.KindGlobalMapDevice || slices.Contains(may, s.Plugin)
	}), noFiles
}

// volumes also has driver^handle of CSI volumes, once that is begun: beside the names each
// would be there twice.
func (t tab) volumes(keep func(node.Seen) bool) (out []string) {
	type volume struct {
		what string
		pods map[string]bool
	}
	all := map[string]*volume{}
	var of []string
	for _, plugin := range t.given("plugin") {
		of = append(of, cmp.Or(fullName(plugin), plugin))
	}
	add := func(name, what string, s node.Seen) {
		v := all[name]
		if v == nil {
			v = &volume{pods: map[string]bool{}}
			all[name] = v
		}
		if v.what == "" || s.Handle != "" {
			v.what = what
		}
		if s.PodUID != "" {
			v.pods[s.PodUID] = true
		}
	}
	for _, s := range t.look().seen {
		if !plain.MatchString(s.Volume) || !keep(s) || of != nil && !slices.Contains(of, s.Plugin) {
			continue
		}
		if s.Handle == "" || s.Handle == s.Volume {
			add(s.Volume, s.Plugin, s)
			continue
		}
		add(s.Volume, s.Handle, s)
		if t.word != "" && plain.MatchString(s.Handle) {
			add(s.Handle, s.Volume, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		switch n := len(v.pods); n {
		case 0:
		case 1:
			v.what += ", 1 pod"
		default:
			v.what += ", " + strconv.Itoa(n) + " pods"
		}
		out = append(out, described(name, v.what))
	}
	return out
}

// podVolumes are the pods, by UID, and the volumes of each. Where a volume is named it
// is only about those that have it.
func (t tab) podVolumes() (names map[string]string, volumes map[string][]string) {
	names, volumes = map[string]string{}, map[string][]string{}
	wanted := t.given("volume")
	if wanted == nil && len(t.args) > 0 {
		wanted = t.args[:1]
	}
	having := map[string]bool{}
	for _, s := range t.look().seen {
		if !plain.MatchString(s.PodUID) {
			continue
		}
		names[s.PodUID] = s.PodName
		if plain.MatchString(s.Volume) && !slices.Contains(volumes[s.PodUID], s.Volume) {
			volumes[s.PodUID] = append(volumes[s.PodUID], s.Volume)
		}
		if slices.Contains(wanted, s.Volume) || s.Handle != "" && slices.Contains(wanted, s.Handle) {
			having[s.PodUID] = true
		}
	}
	if wanted != nil {
		maps.DeleteFunc(names, func(uid, _ string) bool { return !having[uid] })
	}
	return names, volumes
}

func pods(t tab) (out []string, directive cobra.ShellCompDirective) {
	names, volumes := t.podVolumes()
	for _, uid := range slices.Sorted(maps.Keys(names)) {
		what := names[uid]
		if what == "" {
			slices.Sort(volumes[uid])
			what = strings.Join(volumes[uid], ", ")
		}
		out = append(out, described(uid, what))
	}
	return out, noFiles
}

// podsByName also has the names, once one is begun: beside the UIDs each pod would be
// there twice.
func podsByName(t tab) ([]string, cobra.ShellCompDirective) {
	out, directive := pods(t)
	if t.word == "" {
		return out, directive
	}
	names, _ := t.podVolumes()
	for _, uid := range slices.Sorted(maps.Keys(names)) {
		if plain.MatchString(names[uid]) {
			out = append(out, described(names[uid], uid))
		}
	}
	return out, directive
}

func namespaces(t tab) ([]string, cobra.ShellCompDirective) {
	found := map[string]bool{}
	for _, s := range t.look().seen {
		if space, _, _ := strings.Cut(s.PodName, "/"); plain.MatchString(space) {
			found[space] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), noFiles
}

// pluginNames are kvol's own plugins, and those of what is on the node; once a word is
// begun also without Kubernetes' vendor.
func pluginNames(t tab) (out []string, directive cobra.ShellCompDirective) {
	found := map[string]string{}
	for _, s := range t.look().seen {
		if plain.MatchString(s.Plugin) {
			found[s.Plugin] = ""
		}
	}
	for _, p := range all.All() {
		found[p.GetPluginName()] = p.Info().Description
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, described(name, found[name]))
		if short, ok := strings.CutPrefix(name, reservedVendor); ok && t.word != "" {
			out = append(out, described(short, found[name]))
		}
	}
	return out, noFiles
}

// places are the paths of volumes. Below the kubelet's root the shell itself lists none:
// it would look at each, and hang.
func places(t tab) (out []string, directive cobra.ShellCompDirective) {
	s := t.look()
	root := s.root
	if strings.HasPrefix(t.word, s.named) {
		root = s.named
	}
	for _, p := range s.seen {
		if path := root + strings.TrimPrefix(p.Path, s.root); p.Path != "" && plain.MatchString(path) {
			out = append(out, described(path, strings.TrimSpace(string(p.Kind)+" "+p.Volume)))
		}
	}
	switch {
	case root == "" || strings.HasPrefix(t.word, root+"/"):
		return out, noFiles
	case t.word == "/":
		return nil, anyFile // there are other places
	}
	return out, anyFile
}
