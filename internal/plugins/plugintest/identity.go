package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

var identityChecks = []check{
	{name: "Name", plugin: checkName},
	{name: "SupportsNothing", plugin: checkSupportsNothing},
	{name: "OnlyPlugin", any: checkOnlyPlugin},
	{name: "VolumeName", any: checkVolumeName},
	{name: "Ladder", plugin: checkLadder},
	{name: "Paths", filesystem: checkPaths, block: checkBlockPaths},
	{name: "HostileNames", plugin: checkHostileNames},
	{name: "Reconstruct", filesystem: checkReconstruct, block: checkBlockReconstruct},
}

// checkName wants a qualified name that no other plugin has.
func checkName(t *T, c *Case) {
	p := c.New()
	name := p.GetPluginName()
	if err := paths.ValidPluginName(name); err != nil {
		t.Error(err)
	}
	vendor, base, _ := strings.Cut(name, "/")
	if vendor == "" || base == "" || strings.Contains(base, "/") {
		t.Errorf("%q is not vendor/name", name)
	}
	if info := p.Info(); info.Name != name || info.Description == "" {
		t.Errorf("Info has the name %q and the description %q, the plugin's name is %q", info.Name, info.Description, name)
	}
	for _, other := range c.others() {
		if other.GetPluginName() == name {
			t.Errorf("%T has the name %q too", other, name)
		}
	}
}

// others are kvol's plugins but for this one.
func (c *Case) others() []plugins.VolumePlugin {
	own := reflect.TypeOf(c.New())
	return slices.DeleteFunc(c.All(), func(p plugins.VolumePlugin) bool { return reflect.TypeOf(p) == own })
}

// checkSupportsNothing wants a plugin to live with specs that name no volume.
func checkSupportsNothing(t *T, c *Case) {
	p := c.New()
	for what, spec := range map[string]*plugins.Spec{
		"nil": nil, "empty": {},
		"volume without a source":  {Volume: &v1.Volume{Name: volumeName}},
		"PersistentVolume without": {PersistentVolume: &v1.PersistentVolume{}},
	} {
		if p.CanSupport(spec) {
			t.Errorf("it supports a spec that is %s", what)
		}
		if name, err := p.GetVolumeName(spec); err == nil {
			t.Errorf("the volume name of a spec that is %s is %q", what, name)
		}
		if _, err := p.NewMounter(spec, podA); err == nil {
			t.Errorf("there is a mounter for a spec that is %s", what)
		}
	}
}

// checkOnlyPlugin wants exactly one plugin to take each volume: this one.
func checkOnlyPlugin(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	if !n.plugin.CanSupport(n.spec) {
		t.Errorf("it does not support %s", n.spec)
	}
	for _, p := range c.others() {
		if p.CanSupport(n.spec) {
			t.Errorf("%s supports %s too", p.GetPluginName(), n.spec)
		}
	}
}

// checkVolumeName wants a volume to have one name and two to have two.
func checkVolumeName(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	name := func(p plugins.VolumePlugin, s *plugins.Spec) string {
		t.Helper()
		name, err := p.GetVolumeName(s)
		if err != nil || name == "" {
			t.Fatalf("volume name of %s: %q, %v", s, name, err)
		}
		return name
	}
	first := name(n.plugin, n.spec)
	again := *n.spec
	if n.spec.PersistentVolume != nil {
		again.PersistentVolume = n.spec.PersistentVolume.DeepCopy()
	}
	if got := name(c.New(), &again); got != first {
		t.Errorf("a copy of the volume has the name %q, the volume %q", got, first)
	}
	again.ReadOnly = !again.ReadOnly
	if got := name(n.plugin, &again); got != first {
		t.Errorf("the volume read-only has the name %q, read-write %q", got, first)
	}
	other := ex.Spec(t, n.storage(), "pv-other")
	if got := name(n.plugin, other); got == first {
		t.Errorf("two volumes have the name %q", got)
	}
}

// checkLadder wants kvol to show the rungs that the plugin has, and to name the
// plugin and the rung where it has one not.
func checkLadder(t *T, c *Case) {
	p := c.New()
	var has []string
	for _, r := range rungs {
		err := r.as(p)
		if err == nil {
			has = append(has, r.name)
			continue
		}
		if !errors.Is(err, api.ErrNotSupported) || !strings.Contains(err.Error(), p.GetPluginName()) || !strings.Contains(err.Error(), r.name) {
			t.Errorf("the error of the missing rung is %q: want ErrNotSupported, naming %s and %s", err, p.GetPluginName(), r.name)
		}
	}
	told := plugins.Rungs(p)
	slices.Sort(told)
	slices.Sort(has)
	if !slices.Equal(told, has) {
		t.Errorf("kvol shows the rungs %v, it has %v", told, has)
	}
}

// checkPaths wants every place of a volume to be one that the layout knows as
// this volume's.
func checkPaths(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	target := n.target(podA)
	u, err := n.plugin.NewUnmounter(n.ref(), podA.UID)
	if err != nil {
		t.Fatal(err)
	}
	if path, err := u.GetPath(); err != nil || path != target {
		t.Errorf("it is set up at %s and taken down at %q, %v", target, path, err)
	}
	at := n.host.Layout.Parse(target)
	if at.Kind != paths.PodVolume && at.Kind != paths.PodVolumeMount || at.Rest != "" ||
		at.Plugin != n.plugin.GetPluginName() || at.Volume != volumeName || at.PodUID != podA.UID {
		t.Errorf("%s is read back as %+v", target, at)
	}
	if other := n.target(podB); other == target {
		t.Errorf("two pods have their volume at %s", target)
	}
	global := n.global()
	if global == "" {
		return
	}
	at = n.host.Layout.Parse(global)
	if at.Kind != paths.GlobalMount || at.Rest != "" || at.Plugin != n.plugin.GetPluginName() {
		t.Errorf("%s is read back as %+v", global, at)
	}
	p, _ := as[plugins.DeviceMountableVolumePlugin](n)
	d, err := p.NewDeviceUnmounter()
	if err != nil {
		t.Fatal(err)
	}
	if all, err := d.GlobalPaths(n.ref()); err != nil || at.Volume != "" && !slices.Contains(all, global) {
		t.Errorf("the global mount is %s, and by name it is looked for at %v, %v", global, all, err)
	}
}

// checkBlockPaths is checkPaths for a raw block volume.
func checkBlockPaths(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	for what, b := range map[string]plugins.BlockVolume{"mapper": n.mapper(podA), "unmapper": n.unmapper(podA)} {
		global, err := b.GetGlobalMapPath()
		if err != nil {
			t.Fatal(err)
		}
		at := n.host.Layout.Parse(global)
		if at.Kind != paths.GlobalMapDir || at.Rest != "" || at.Plugin != n.plugin.GetPluginName() {
			t.Errorf("%s: %s is read back as %+v", what, global, at)
		}
		dir, name, err := b.GetPodDeviceMapPath()
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, name)
		at = n.host.Layout.Parse(link)
		if at.Kind != paths.PodDevice || at.Rest != "" || at.Plugin != n.plugin.GetPluginName() || at.Volume != volumeName || at.PodUID != podA.UID {
			t.Errorf("%s: %s is read back as %+v", what, link, at)
		}
	}
}

// checkHostileNames wants no path to be built from a name that could lead out of
// its place.
func checkHostileNames(t *T, c *Case) {
	n := newNode(t, c, c.Examples[0])
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "a\x00b", "a\nb", "-a", strings.Repeat("a", 300)} {
		for _, who := range [][2]string{{bad, podA.UID}, {volumeName, bad}} {
			u, err := n.plugin.NewUnmounter(plugins.Ref{Name: who[0]}, who[1])
			if err != nil {
				continue
			}
			if path, err := u.GetPath(); err == nil && path != "" {
				t.Errorf("volume %q of pod %q is at %q", who[0], who[1], path)
			}
		}
		if p, ok := as[plugins.DeviceMountableVolumePlugin](n); ok {
			d, err := p.NewDeviceUnmounter()
			if err != nil {
				t.Fatal(err)
			}
			if path, err := d.GlobalPaths(plugins.Ref{Name: bad}); err == nil && len(path) > 0 {
				t.Errorf("volume %q has its global mount at %q", bad, path)
			}
		}
		if p, ok := as[plugins.BlockVolumePlugin](n); ok {
			u, err := p.NewBlockVolumeUnmapper(plugins.Ref{Name: bad}, podA.UID)
			if err != nil {
				continue
			}
			if path, err := u.GetGlobalMapPath(); err == nil {
				t.Errorf("volume %q has its global map at %q", bad, path)
			}
		}
	}
}

// checkReconstruct wants what is said of a volume on disk to be true, and what is
// not known to be called so.
func checkReconstruct(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	target := n.target(podA)
	ask := func(when string) {
		t.Helper()
		got, err := n.plugin.ConstructVolumeSpec(volumeName, target)
		n.reconstructed(when, got, err)
	}
	ask("before set up")
	n.ok("set up", n.up(podA, way{}))
	ask("set up")
	n.ok("tear down", n.down(podA, true, way{}))
	ask("after tear down")
}

func checkBlockReconstruct(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, _ := as[plugins.BlockVolumePlugin](n)
	global, err := n.mapper(podA).GetGlobalMapPath()
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.ConstructBlockVolumeSpec(podA.UID, volumeName, global)
	if err == nil {
		n.reconstructed("before it is mapped", got, nil)
	} else if !errors.Is(err, api.ErrNotSupported) && !errors.Is(err, api.ErrNotFound) {
		t.Errorf("before it is mapped: %v", err)
	}
	n.link()
	got, err = p.ConstructBlockVolumeSpec(podA.UID, volumeName, global)
	n.reconstructed("mapped", got, err)
}

// reconstructed compares what was made from the disk with what the volume is.
func (n *node) reconstructed(when string, got plugins.Reconstructed, err error) {
	n.Helper()
	if errors.Is(err, api.ErrNotSupported) {
		return
	}
	if err != nil {
		n.Errorf("%s: %v", when, err)
		return
	}
	if !n.plugin.CanSupport(got.Spec) || got.Spec.Name() != n.spec.Name() || got.Spec.IsBlock() != n.spec.IsBlock() {
		n.Errorf("%s: %s (block %t) is made of %s (block %t)", when, got.Spec, got.Spec.IsBlock(), n.spec, n.spec.IsBlock())
		return
	}
	is, want := n.fields(got.Spec), n.fields(n.spec)
	for _, missing := range got.Missing {
		path := strings.Split(strings.TrimPrefix(missing, "spec."), ".")
		if v, ok := cut(is, path); ok && v != "" {
			n.Errorf("%s: %s is called missing and is %v", when, missing, v)
		}
		cut(want, path)
	}
	if !reflect.DeepEqual(is, want) {
		n.Errorf("%s: the source is %v without %v, and was %v", when, is, got.Missing, want)
	}
}

// fields are the source of a spec as JSON has it.
func (n *node) fields(s *plugins.Spec) map[string]any {
	n.Helper()
	var union any
	if s.Volume != nil {
		union = s.Volume.VolumeSource
	} else {
		union = s.PersistentVolume.Spec.PersistentVolumeSource
	}
	out := map[string]any{}
	b, err := json.Marshal(union)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// cut takes a field out and gives what it was.
func cut(m map[string]any, path []string) (any, bool) {
	for len(path) > 1 {
		inner, ok := m[path[0]].(map[string]any)
		if !ok {
			return nil, false
		}
		m, path = inner, path[1:]
	}
	v, ok := m[path[0]]
	delete(m, path[0])
	return v, ok
}

// withTime gives a context for one look.
func withTime(f func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	f(ctx)
}
