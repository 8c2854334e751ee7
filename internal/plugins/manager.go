package plugins

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/paths"
)

// reserved is the vendor of the plugins that Kubernetes itself has. A driver
// found on a node must not pose as one of them.
const reserved = "kubernetes.io/"

// VolumePluginMgr finds the plugin of a volume. Plugins that are compiled in come
// first; the prober's are looked for only where none of those matches. Its
// methods may be called from several goroutines.
type VolumePluginMgr struct {
	mu       sync.Mutex
	host     *host.Host
	plugins  map[string]VolumePlugin
	prober   DynamicPluginProber // nil when there is none, or once it was asked
	probed   map[string]VolumePlugin
	warnings []string
}

// NewManager makes a manager that knows no plugin yet.
func NewManager() *VolumePluginMgr {
	return &VolumePluginMgr{plugins: map[string]VolumePlugin{}, probed: map[string]VolumePlugin{}}
}

// InitPlugins registers and initialises the compiled-in plugins. One that is nil,
// badly named, there twice, or that fails is left out, and every such fault is in
// the error; the others work. A prober whose Init fails is only a warning. The
// prober may be nil.
func (m *VolumePluginMgr) InitPlugins(list []VolumePlugin, prober DynamicPluginProber, h *host.Host) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host = h
	var faults []error
	for i, p := range list {
		if err := m.register(m.plugins, p); err != nil {
			faults = append(faults, fmt.Errorf("volume plugin %d of %d: %w", i+1, len(list), err))
		}
	}
	if prober != nil {
		if err := prober.Init(); err != nil {
			m.warn("no further volume plugins are looked for: %T: %v", prober, err)
		} else {
			m.prober = prober
		}
	}
	return errors.Join(faults...)
}

// register checks one plugin, initialises it and puts it into its table.
func (m *VolumePluginMgr) register(into map[string]VolumePlugin, p VolumePlugin) error {
	if isNil(p) {
		return fmt.Errorf("it is nil (%T)", p)
	}
	name := p.GetPluginName()
	if err := paths.ValidPluginName(name); err != nil {
		return fmt.Errorf("%T: %w", p, err)
	}
	if strings.Count(name, "/") != 1 {
		return fmt.Errorf("%T: the name %q must have exactly one slash, vendor/name", p, name)
	}
	for _, table := range []map[string]VolumePlugin{m.plugins, into} {
		if there, ok := table[name]; ok {
			return fmt.Errorf("%s is there twice: %T and %T", name, there, p)
		}
	}
	if err := p.Init(m.host); err != nil {
		return fmt.Errorf("%s (%T): %w", name, p, err)
	}
	into[name] = p
	return nil
}

// probe asks the prober, once in the life of a manager. What is broken becomes a
// warning and hides nothing else.
func (m *VolumePluginMgr) probe() {
	prober := m.prober
	m.prober = nil
	if prober == nil {
		return
	}
	found, err := prober.Probe()
	if err != nil {
		m.warn("looking for volume plugins: %T: %v", prober, err)
	}
	for i, p := range found {
		if err := m.registerProbed(p); err != nil {
			m.warn("volume plugin %d of %d that %T found is left out: %v", i+1, len(found), prober, err)
		}
	}
}

func (m *VolumePluginMgr) registerProbed(p VolumePlugin) error {
	if !isNil(p) && strings.HasPrefix(p.GetPluginName(), reserved) {
		return fmt.Errorf("%T: the name %q is reserved for plugins that are compiled in", p, p.GetPluginName())
	}
	return m.register(m.probed, p)
}

func isNil(p VolumePlugin) bool {
	v := reflect.ValueOf(p)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

func (m *VolumePluginMgr) warn(format string, args ...any) {
	m.warnings = append(m.warnings, fmt.Sprintf(format, args...))
}

// FindPluginByName finds a plugin by its qualified name; [api.ErrNoPlugin] when
// there is none.
func (m *VolumePluginMgr) FindPluginByName(name string) (VolumePlugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.plugins[name]; ok {
		return p, nil
	}
	m.probe()
	if p, ok := m.probed[name]; ok {
		return p, nil
	}
	e := api.Errorf(api.ErrNoPlugin, "there is no volume plugin %q", name).WithNext("see which there are: kvol plugins")
	e.Plugin = name
	return nil, e
}

// FindPluginBySpec finds the one plugin that supports a spec. A spec that names
// no volume, or two, is [api.ErrInput]; [api.ErrNoPlugin] names the kind of
// source that no plugin takes, [api.ErrAmbiguousPlugin] the plugins that all do.
func (m *VolumePluginMgr) FindPluginBySpec(spec *Spec) (VolumePlugin, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	matches := supporting(m.plugins, spec)
	if len(matches) == 0 {
		m.probe()
		matches = supporting(m.probed, spec)
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		e := api.Errorf(api.ErrNoPlugin, "no volume plugin takes %s", spec).
			WithNext("see what each takes: kvol plugins")
		e.Volume = spec.Name()
		return nil, e
	}
	names := make([]string, len(matches))
	for i, p := range matches {
		names[i] = p.GetPluginName()
	}
	e := api.Errorf(api.ErrAmbiguousPlugin, "%s is claimed by %s", spec, strings.Join(names, " and ")).
		WithNext("say which: --plugin NAME")
	e.Volume, e.Details = spec.Name(), names
	return nil, e
}

// checkSpec refuses a spec that does not name exactly one volume with a source.
func checkSpec(spec *Spec) error {
	fault := ""
	switch {
	case spec == nil:
		fault = "there is no volume spec"
	case spec.Volume == nil && spec.PersistentVolume == nil:
		fault = "the volume spec is empty: it has neither a pod's volume nor a PersistentVolume"
	case spec.Volume != nil && spec.PersistentVolume != nil:
		fault = fmt.Sprintf("the volume spec has both the pod's volume %q and the PersistentVolume %q",
			spec.Volume.Name, spec.PersistentVolume.Name)
	case spec.Source() == "":
		fault = spec.String()
	default:
		return nil
	}
	return api.Errorf(api.ErrInput, "%s", fault).WithNext("give the volume with -f FILE")
}

// supporting lists the plugins that take the spec, sorted by name.
func supporting(table map[string]VolumePlugin, spec *Spec) []VolumePlugin {
	return slices.DeleteFunc(sorted(table), func(p VolumePlugin) bool { return !p.CanSupport(spec) })
}

func sorted(table map[string]VolumePlugin) []VolumePlugin {
	all := make([]VolumePlugin, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		all = append(all, table[name])
	}
	return all
}

// All lists every plugin, sorted by name; those that the prober finds are looked
// for.
func (m *VolumePluginMgr) All() []VolumePlugin {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probe()
	all := maps.Clone(m.plugins)
	maps.Copy(all, m.probed)
	return sorted(all)
}

// Warnings lists what was left out and why, in the order in which it was found.
func (m *VolumePluginMgr) Warnings() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.warnings)
}
