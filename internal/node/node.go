// Package node knows what is on this node: it joins the mount table, the
// kubelet's directories and the devices. It reads only, and never asks a file
// system of a volume by itself: that is the helper's part.
//
// Do not decide here what is to be done; that is internal/ops.
package node

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// place is one path of the layout that is on the node, on disk or as a mount.
type place struct {
	paths.Path
	path  string
	kind  api.MountKind
	mount *mounts.Mount // the uppermost on it, nil where nothing is mounted
	stack int
	entry safefs.Type // what the directory has there, "" where it was not looked at
	told  string      // the volume's name where the path does not hold it, see [snapshot.tell]
}

// name is what the path calls the volume: its spec name, or what its plugin names a
// global directory by instead; else what the rest of the node tells of it.
func (p place) name() string { return cmp.Or(p.Volume, p.ID, p.told) }

// called says whether a place is of the volume that a word names: its spec name,
// or driver^handle, which a CSI staging directory has as a hash.
func (p place) called(word string) bool {
	if driver, handle, ok := strings.Cut(word, "^"); ok {
		return p.Driver == driver && p.HandleHash == paths.HandleHash(handle)
	}
	return p.Volume == word
}

// tell finds the names of what is staged of CSI volumes, for people: a directory there
// has only the hash of the handle. A pod's volume that shows the same tells its spec
// name, which takes no reading, and else the metadata beside it driver^handle.
func (s *snapshot) tell() {
	type shown struct {
		major, minor int
		root         string
	}
	at := func(m *mounts.Mount) shown { return shown{m.Major, m.Minor, m.Root} }
	names := map[shown]string{} // "" where there are several
	for i := range s.places {
		p := &s.places[i]
		if p.Plugin == paths.CSIPlugin && p.kind == api.KindPodVolume && p.mount != nil {
			if name, ok := names[at(p.mount)]; ok && name != p.Volume {
				names[at(p.mount)] = ""
			} else {
				names[at(p.mount)] = p.Volume
			}
		}
	}
	for i := range s.places {
		p := &s.places[i]
		if p.HandleHash == "" || p.kind != api.KindGlobalMount {
			continue
		}
		if p.mount != nil {
			if p.told = names[at(p.mount)]; p.told != "" {
				continue
			}
		}
		if name := s.handleOf(*p); p.called(name) {
			p.told = name
		}
	}
}

// snapshot is one look at the node.
type snapshot struct {
	host     *host.Host
	table    *mounts.Table
	places   []place // by path
	remains  []place // metadata of volumes that may have no other place
	warnings []string
	unread   []string // directories
}

// unsure says whether something can be on a path, or below it, although it is not among
// the places.
func (s *snapshot) unsure(path string) bool {
	return s.table.Changed || slices.ContainsFunc(s.unread, func(dir string) bool {
		return strings.HasPrefix(path+"/", dir+"/") || strings.HasPrefix(dir, path+"/")
	})
}

// look reads the mount table and, where the root is there, its directories.
func look(h *host.Host) (*snapshot, error) { return lookAt(h, h.Mounts) }

func lookAt(h *host.Host, read func() (*mounts.Table, error)) (*snapshot, error) {
	table, err := read()
	if err != nil {
		return nil, err
	}
	s := &snapshot{host: h, table: table}
	if table.Changed {
		s.warnings = append(s.warnings, "the mount table changed all the time while it was read: what came or went meanwhile may be missing")
	}
	for _, b := range table.Bad {
		s.warnings = append(s.warnings, b.String())
	}
	s.mounted()
	root, err := h.Root()
	if err != nil {
		return s, err
	}
	w := walker{snapshot: s, root: root}
	w.dir(filepath.Join(root.Path(), "pods"))
	w.dir(filepath.Join(root.Path(), "plugins"))
	slices.SortFunc(s.places, func(a, b place) int { return strings.Compare(a.path, b.path) })
	return s, nil
}

// mounted lists what the mount table has below the root, an item a path.
func (s *snapshot) mounted() {
	root := s.host.Layout.Root
	for m := range s.table.Below(root) {
		top, n := s.table.Stack(m.MountPoint)
		if top != m || m.MountPoint == root {
			continue
		}
		at := s.host.Layout.Parse(m.MountPoint)
		s.places = append(s.places, place{Path: at, path: m.MountPoint, kind: at.MountKind(), mount: m, stack: n})
	}
}

// walker finds the volumes' directories that nothing is mounted on.
type walker struct {
	*snapshot
	root *safefs.Root
}

// isMount says whether the table has a mount on a path, which then is not entered.
func (w *walker) isMount(path string) bool {
	m, _ := w.table.Stack(path)
	return m != nil
}

// descend are the directories that lead to volumes.
var descend = map[paths.Kind]bool{
	paths.PodsDir: true, paths.PodDir: true, paths.PodVolumesDir: true, paths.PodVolumePluginDir: true,
	paths.PodDevicesDir: true, paths.PodDeviceDir: true,
	paths.SubPathsDir: true, paths.SubPathVolumeDir: true, paths.SubPathContainerDir: true,
	paths.PluginsDir: true, paths.PluginNamespaceDir: true, paths.PluginDir: true, paths.EscapedPluginDir: true,
	paths.MountsDir: true, paths.IfaceDir: true, paths.GlobalMapsDir: true, paths.MapIfaceDir: true,
	paths.GlobalMapDir: true, paths.CSIDriverVolumesDir: true, paths.CSIVolumeDir: true, paths.CSIBlockDir: true,
	paths.CSIBlockPublishesDir: true, paths.CSIBlockPublishDir: true,
}

// dir walks a directory of the root and says whether it has an entry "mount".
func (w *walker) dir(path string) (hasMount bool) {
	d, err := w.root.OpenDir(path)
	return w.walk(d, path, err)
}

// in is dir of a directory in one that is open.
func (w *walker) in(d *safefs.Directory, name, path string) (hasMount bool) {
	d, err := d.OpenDir(name)
	return w.walk(d, path, err)
}

func (w *walker) walk(d *safefs.Directory, path string, err error) (hasMount bool) {
	var entries []safefs.Entry
	if err == nil {
		defer d.Close()
		entries, err = d.Read()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, safefs.ErrIsMount):
		return false // it went meanwhile, or is listed as a mount
	case err != nil:
		w.warnings, w.unread = append(w.warnings, err.Error()), append(w.unread, path)
		return false
	}
	for _, e := range entries {
		hasMount = hasMount || e.Name == "mount"
		w.entry(d, e.Name, path+"/"+e.Name, e.Type)
	}
	return hasMount
}

func (w *walker) entry(d *safefs.Directory, name, path string, kind safefs.Type) {
	if w.isMount(path) {
		return
	}
	at := w.host.Layout.Parse(path)
	mk := at.MountKind()
	switch {
	case mk != api.KindOther && volumeEntry(at.Kind, kind):
	case kind == safefs.Dir && at.Rest == "" && at.Kind == paths.PodVolume && at.Plugin == paths.CSIPlugin:
		// A CSI volume is mounted in its directory, not on it; where even that place
		// is gone, what is left is shown as the volume.
		if w.isMount(path+"/mount") || w.in(d, name, path) {
			return
		}
		mk = api.KindPodVolume
	case kind == safefs.Dir && at.Rest == "" && at.Kind == paths.CSIBlockDataDir:
		w.remains = append(w.remains, place{Path: at, path: path, kind: mk, entry: kind})
		return
	case kind == safefs.Dir && at.Rest == "" && descend[at.Kind]:
		w.in(d, name, path)
		return
	case kind == safefs.Symlink && at.PodUID != "" && at.Rest == "" && (descend[at.Kind] || at.Kind == paths.PodVolume):
		// What is mounted by way of it is where it leads to.
		w.warnings, w.unread = append(w.warnings, path+" is a symbolic link, which is not followed"), append(w.unread, path)
		return
	default:
		return
	}
	w.places = append(w.places, place{Path: at, path: path, kind: mk, entry: kind})
}

// volumeEntry says whether an entry is a volume by itself.
func volumeEntry(k paths.Kind, t safefs.Type) bool {
	switch k {
	case paths.PodDevice:
		return t == safefs.Symlink
	case paths.GlobalMapDevice, paths.SubPath, paths.CSIBlockPublish:
		return true
	case paths.CSIBlockPublishDir:
		return t != safefs.Dir // today a directory of files, a pod each
	}
	return t == safefs.Dir
}
