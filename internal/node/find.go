package node

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// Ref is a volume that was found on the node.
type Ref struct {
	Plugin string
	Volume string
	PodUID string // "" for what is node-wide
	Block  bool
	Kind   api.MountKind
	Path   string
	Exact  bool // it is what the operator's path names
}

// Find is what a snapshot of the node tells of volumes by name.
type Find struct{ *snapshot }

// NewFind looks at the node once.
func NewFind(h *host.Host) (*Find, error) {
	s, err := look(h)
	if err != nil {
		return nil, err
	}
	return &Find{s}, nil
}

// InPod finds a pod's volumes by name in the pod's own directory, which holds the
// name; plugin "" takes any. A CSI volume's handle is in its metadata, so that
// driver^handle finds also those whose metadata cannot be read.
func (f *Find) InPod(podUID, word, plugin string) []Ref {
	isHandle := strings.Contains(word, "^")
	return f.refs(func(p place) bool {
		if p.PodUID != podUID || plugin != "" && p.Plugin != plugin || p.kind != api.KindPodVolume && p.kind != api.KindPodDevice {
			return false
		}
		if !isHandle {
			return p.Volume == word
		}
		if p.Plugin != paths.CSIPlugin {
			return false
		}
		name := f.handleOf(p)
		return name == "" || name == word
	})
}

// OfPod is everything that a pod has on disk, by path: its volumes and raw block
// volumes, and of the latter also a map that has lost its link. Plugin "" takes any.
func (f *Find) OfPod(podUID, plugin string) []Ref {
	linked := map[string]bool{}
	return slices.DeleteFunc(f.refs(func(p place) bool {
		if p.PodUID != podUID || p.Volume == "" || plugin != "" && p.Plugin != plugin {
			return false
		}
		return p.kind == api.KindPodVolume || p.kind == api.KindPodDevice || p.kind == api.KindGlobalMapDevice
	}), func(r Ref) bool {
		id := r.Plugin + " " + r.Volume
		linked[id] = linked[id] || r.Kind == api.KindPodDevice // pods comes before plugins
		return r.Kind == api.KindGlobalMapDevice && linked[id]
	})
}

// Pods finds the pods that have a volume published: mounted, or mapped as a
// block device. The metadata of a CSI volume tells apart what only has its name: the
// inline volumes of two pods.
func (f *Find) Pods(plugin string, ref plugins.Ref) []Ref {
	return f.refs(func(p place) bool {
		if p.Plugin != plugin || p.PodUID == "" {
			return false
		}
		switch p.kind {
		case api.KindPodVolume, api.KindGlobalMapDevice:
			if p.mount == nil {
				return false
			}
		case api.KindPodDevice:
		default:
			return false
		}
		if is := f.handleOf(p); is != "" && ref.VolumeName != "" {
			return is == ref.VolumeName
		}
		return ref.Name != "" && p.Volume == ref.Name
	})
}

// Named finds every place of a volume by name or driver^handle. Of a raw block volume
// of CSI nothing but its metadata may be left, which is no place to mount.
func (f *Find) Named(word, plugin string) []Ref {
	isHandle := strings.Contains(word, "^")
	out := f.refs(func(p place) bool {
		if p.kind == api.KindOther || plugin != "" && p.Plugin != plugin {
			return false
		}
		return p.called(word) || isHandle && f.handleOf(p) == word
	})
	for _, p := range f.remains {
		if plugin == "" || p.Plugin == plugin {
			if p.called(word) || isHandle && f.handleOf(p) == word {
				out = append(out, refOf(p))
			}
		}
	}
	return out
}

// Candidates are the global mounts that could be the named volume's, for all
// that the node tells: neither their path nor a pod volume on the same device
// gives another name. While one is left nobody can say that the volume is gone. A
// CSI handle is in the path, as a hash, so that a word with one leaves none.
func (f *Find) Candidates(word, plugin string) []Ref {
	handle := strings.Contains(word, "^")
	named := map[string]bool{} // device and root that another volume's path explains
	for _, p := range f.places {
		if p.Volume != "" && p.Volume != word && p.mount != nil {
			named[p.mount.Device()+p.mount.Root] = true
		}
	}
	return f.refs(func(p place) bool {
		if p.kind != api.KindGlobalMount || p.Volume != "" || plugin != "" && p.Plugin != plugin || handle && p.Plugin != paths.CSIPlugin {
			return false
		}
		if handle && p.HandleHash != "" {
			return false
		}
		return p.mount == nil || !named[p.mount.Device()+p.mount.Root]
	})
}

// Nameless is what pods have of CSI with nothing that tells the handle: no metadata,
// and no staging directory that it is mounted from.
func (f *Find) Nameless() []Ref {
	staged := map[string]bool{}
	for _, p := range f.places {
		if p.HandleHash != "" && p.mount != nil {
			staged[p.mount.Device()+p.mount.Root] = true
		}
	}
	return f.refs(func(p place) bool {
		if p.Plugin != paths.CSIPlugin || p.PodUID == "" || f.handleOf(p) != "" {
			return false
		}
		switch p.kind {
		case api.KindPodDevice:
			return true
		case api.KindPodVolume, api.KindGlobalMapDevice:
			return p.mount != nil && !staged[p.mount.Device()+p.mount.Root]
		}
		return false
	})
}

// OnDevice finds the volumes that are mounted from a device, or are that device
// mapped for a pod; of a directory those that are that directory.
func (f *Find) OnDevice(src *act.Source) []Ref {
	from := f.from(src)
	return f.refs(func(p place) bool { return p.Volume != "" && from(p) })
}

// from is the test for places at which a source is mounted or mapped.
func (f *Find) from(src *act.Source) func(place) bool {
	on, _ := f.table.Covering(src.Path)
	root := filepath.Join(on.Root, strings.TrimPrefix(src.Path, on.MountPoint))
	return func(p place) bool {
		switch {
		case p.mount == nil:
			return false
		case !src.IsBlock():
			return p.mount.Device() == on.Device() && p.mount.Root == root
		case p.kind == api.KindGlobalMapDevice:
			return f.isNode(p.path, src)
		}
		return f.host.Devices.Shows(*p.mount, src.Device(), src.Path)
	}
}

// isNode says whether what is bound at a path is the node of a device.
func (f *Find) isNode(path string, src *act.Source) bool {
	root, err := f.host.Root()
	if err != nil {
		return false
	}
	info, err := root.Stat(path)
	return err == nil && info.Type == safefs.BlockDevice && src.IsBlock() && info.Rdev == src.Info.Rdev
}

// blockKinds are the places that only raw block volumes have.
var blockKinds = map[paths.Kind]bool{
	paths.PodDevice: true, paths.GlobalMapDir: true, paths.GlobalMapDevice: true, paths.GlobalMapMetadata: true,
	paths.CSIBlockDir: true, paths.CSIBlockDataDir: true, paths.CSIBlockStaging: true, paths.CSIBlockPublishDir: true, paths.CSIBlockPublish: true,
}

func (f *Find) refs(want func(place) bool) []Ref {
	var out []Ref
	for _, p := range f.places {
		if want(p) {
			out = append(out, refOf(p))
		}
	}
	return out
}

func refOf(p place) Ref {
	return Ref{Plugin: p.Plugin, Volume: p.Volume, PodUID: p.PodUID, Kind: p.kind, Path: p.path, Block: blockKinds[p.Kind]}
}

// Table is the mount table of the snapshot.
func (f *Find) Table() *mounts.Table { return f.table }

// Resolve finds what an operator means by a word: a path below the root, a device
// or any path outside that a volume is mounted from, or a volume's name.
func (f *Find) Resolve(ctx context.Context, word, plugin string) ([]Ref, error) {
	if !strings.HasPrefix(word, "/") {
		// A subpath has the volume's name and is not the volume.
		refs := volumes(slices.DeleteFunc(f.Named(word, plugin), func(r Ref) bool { return r.Kind == api.KindSubPath }))
		if slices.ContainsFunc(refs, func(r Ref) bool { return r.Volume != "" }) {
			// A staging directory does not hold the name, what a pod has of it does.
			refs = slices.DeleteFunc(refs, func(r Ref) bool { return r.Volume == "" })
		}
		return refs, nil
	}
	path := filepath.Clean(word)
	if f.inRoot(f.host.PathOf(path)) {
		return f.below(f.host.PathOf(path))
	}
	src, err := act.OpenSource(ctx, f.host.Helper, path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if f.inRoot(src.Path) {
		return f.below(src.Path) // it leads there through a link
	}
	return volumes(f.OnDevice(src)), nil
}

func (f *Find) inRoot(path string) bool {
	root := f.host.Layout.Root
	return path == root || strings.HasPrefix(path, root+"/")
}

// below is the volume that a path below the root is of.
func (f *Find) below(path string) ([]Ref, error) {
	at := f.host.Layout.Parse(path)
	if at.Kind == paths.None || at.Volume == "" && at.ID == "" && at.HandleHash == "" {
		return nil, api.Errorf(api.ErrNotFound, "is no place of a volume in the kubelet's layout").At(path).
			WithNext("see what is there: kvol paths %s", act.Quote(path))
	}
	return []Ref{{
		Plugin: at.Plugin, Volume: at.Volume, PodUID: at.PodUID, Path: path, Kind: at.MountKind(), Exact: true,
		Block: blockKinds[at.Kind],
	}}, nil
}

// volumes leaves one Ref a plugin and volume.
func volumes(refs []Ref) []Ref {
	slices.SortStableFunc(refs, func(a, b Ref) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Volume, b.Volume))
	})
	return slices.CompactFunc(refs, func(a, b Ref) bool { return a.Plugin == b.Plugin && a.Volume == b.Volume })
}
