package main

import (
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/all"

	"github.com/spf13/pflag"
)

// reservedVendor is that of the plugins of Kubernetes, which are known, all of them.
const reservedVendor = "kubernetes.io/"

// knownPlugins are the names that a volume on any node can have, beside those of
// FlexVolume drivers.
func knownPlugins() []string {
	names := slices.Clone(paths.KubernetesPlugins)
	for _, p := range all.All() {
		names = append(names, p.GetPluginName())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fullName is the plugin that a word names: by its name, or by what follows its vendor.
// "" is none that is known.
func fullName(word string) string {
	for _, name := range knownPlugins() {
		if name == word || name == reservedVendor+word {
			return name
		}
	}
	return ""
}

// namePlugin gives --plugin its full name, each of a list.
func (a *app) namePlugin(flags *pflag.FlagSet) error {
	f := flags.Lookup("plugin")
	if f == nil || f.Value.String() == "" {
		return nil
	}
	list, several := f.Value.(pflag.SliceValue)
	if !several {
		name, err := a.pluginName(f.Value.String())
		if err != nil {
			return err
		}
		if once, ok := f.Value.(*onceFlag); ok {
			once.given = false
		}
		return f.Value.Set(name)
	}
	words := list.GetSlice()
	for i, word := range words {
		name, err := a.pluginName(word)
		if err != nil {
			return err
		}
		words[i] = name
	}
	return list.Replace(words)
}

// pluginName is the full name of a plugin. A FlexVolume driver's is taken as it is; one
// without a vendor may be a typing error, which only the node can tell.
func (a *app) pluginName(word string) (string, error) {
	if name := fullName(word); name != "" {
		return name, nil
	}
	if err := paths.ValidPluginName(word); err != nil {
		return "", err
	}
	none := api.Errorf(api.ErrNoPlugin, "--plugin %q is no plugin of Kubernetes, nor of kvol", word).WithNext("see which there are: kvol plugins")
	none.Plugin = word
	names := knownPlugins()
	if !strings.Contains(word, "/") {
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], reservedVendor)
		}
	}
	near := nearest(word, names)
	if near == "" && strings.Contains(word, ".") && !strings.Contains(word, "/") {
		near = paths.CSIPlugin // which is the plugin of every driver
	}
	switch {
	case near != "":
		return "", none.WithNext("did you mean --plugin %s?", fullName(near))
	case strings.HasPrefix(word, reservedVendor):
		return "", none
	case !strings.Contains(word, "/"):
		a.noPlugin = none
	}
	return word, nil
}
