package node

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

// nodeWide finds what volumes have beside the pods' directories: global mounts and
// staging directories, block maps, and loop devices over maps that are gone.
func (l *Leftovers) nodeWide(ctx context.Context) error {
	root, err := l.host.Root()
	if err != nil {
		return err
	}
	w := wide{Leftovers: l, root: root, found: map[string]Leftover{}}
	for _, p := range l.places {
		w.add(p.path, p.Path)
	}
	w.dir(filepath.Join(root.Path(), "plugins"))
	w.loops()
	proof := l.sets.Proof()
	for _, o := range w.sorted() {
		m, born := w.mountOf(&o), w.born(&o)
		switch {
		case proof != nil:
			o.Verdict, o.Reason = api.VerdictUnknown, proof.Error()
		case o.Kind == api.OrphanLoop:
			o.Verdict, o.Evidence = l.sets.Verdict(o.PodUID, born)
			o.Reason = reasonOf(o.Verdict, o.Evidence)
		default:
			l.users(&o, m, born)
			l.comeTo(ctx, &o)
		}
		l.Items = append(l.Items, o)
	}
	return nil
}

// comeTo ends the verdict on a node-wide thing that no pod was found to have.
func (l *Leftovers) comeTo(ctx context.Context, o *Leftover) {
	l.tooYoung(o)
	if o.Verdict == api.VerdictOrphan && l.Kubelet != nil {
		if why := l.aboutToUse(ctx, o); why != "" {
			o.judge(api.VerdictUnknown, "a pod may be about to use it: "+why)
			o.BlockedBy, o.Next = api.BlockedByKubelet, Ordered
		}
	}
	if o.Verdict == api.VerdictOrphan {
		o.Reason = "no pod has it"
		if len(o.After) > 0 {
			o.Reason = "only pods that are gone have it"
		}
	}
}

// wide gathers the node-wide things by path.
type wide struct {
	*Leftovers
	root  *safefs.Root
	found map[string]Leftover
}

// add takes a path for what it is, where it is node-wide.
func (w wide) add(path string, at paths.Path) {
	o := Leftover{At: at}
	o.Plugin, o.Volume = at.Plugin, at.Volume
	if o.Volume == "" {
		o.Volume = at.ID
	}
	switch {
	case at.Rest != "":
		return
	case at.Kind == paths.GlobalMount && at.Plugin == paths.CSIPlugin, at.Kind == paths.CSIVolumeDir:
		o.Kind = api.OrphanStaging
		if at.Kind == paths.GlobalMount {
			path = filepath.Dir(path)
		}
	case at.Kind == paths.GlobalMount:
		o.Kind = api.OrphanGlobalMount
	case at.Kind == paths.GlobalMapDevice:
		w.add(filepath.Dir(path), w.host.Layout.Parse(filepath.Dir(path)))
		return
	case at.Kind == paths.GlobalMapDir && at.Plugin == paths.CSIPlugin:
		path, o.Kind = filepath.Dir(path), api.OrphanBlockMap
	case at.Kind == paths.GlobalMapDir:
		o.Kind = api.OrphanBlockMap
	case slices.Contains(csiBlock, at.Kind):
		// Of the volume's three places any can be left alone.
		block, err := w.host.Layout.CSIBlock(at.Volume)
		if err != nil {
			return // no volume can have that name
		}
		path, o.Kind = block.Dir, api.OrphanBlockMap
	default:
		return
	}
	o.Path, o.At = path, w.host.Layout.Parse(path)
	if o.Handle = w.handle(&o); o.Handle != "" && o.Volume == "" {
		o.Volume = o.Handle
	}
	o.Volumes = []string{o.Volume}
	w.found[path] = o
}

var csiBlock = []paths.Kind{paths.CSIBlockDir, paths.CSIBlockStaging, paths.CSIBlockPublishDir, paths.CSIBlockPublish}

// handle is a CSI volume's driver^handle, by the metadata beside it; that of a staging
// directory has to be the one that the directory is named after.
func (w wide) handle(o *Leftover) string {
	says := voldata.Data(w.metadataOf(place{Path: o.At, path: o.Path}).Data)
	if o.At.HandleHash != "" && (says[voldata.Driver] != o.At.Driver || paths.HandleHash(says[voldata.Handle]) != o.At.HandleHash) {
		return ""
	}
	return says.VolumeName()
}

// dir looks below a directory of plugins for what nothing is mounted on.
func (w wide) dir(path string) {
	entries, err := w.root.ReadDir(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, safefs.ErrIsMount) {
			w.warnings = append(w.warnings, err.Error())
		}
		return
	}
	for _, e := range entries {
		p := filepath.Join(path, e.Name)
		at := w.host.Layout.Parse(p)
		if e.Type != safefs.Dir && at.Kind != paths.CSIBlockPublish && at.Kind != paths.CSIBlockPublishDir {
			continue
		}
		w.add(p, at)
		if at.Rest == "" && (descend[at.Kind] || at.Kind == paths.CSIBlockStagingsDir) {
			w.dir(p)
		}
	}
}

// loops finds loop devices that hold a device for a map that is gone.
func (w wide) loops() {
	loops, err := w.host.Devices.Loops()
	if err != nil {
		w.warnings = append(w.warnings, err.Error())
	}
	for _, d := range loops {
		at := w.host.Layout.Parse(d.Backing)
		if at.Kind != paths.GlobalMapDevice || at.Rest != "" || !d.Deleted {
			continue // one that is not deleted and not here is in another mount namespace
		}
		if _, err := w.root.Stat(d.Backing); !errors.Is(err, fs.ErrNotExist) {
			continue // of a map that is there, with which it goes
		}
		o := Leftover{At: at, Volumes: []string{at.Volume}}
		o.Kind, o.Path, o.Plugin, o.Volume, o.PodUID = api.OrphanLoop, d.Backing, at.Plugin, at.Volume, at.PodUID
		w.found[d.Backing] = o
	}
}

// sorted puts mounts before maps before loops.
func (w wide) sorted() []Leftover {
	var out []Leftover
	for _, o := range w.found {
		out = append(out, o)
	}
	rank := []api.OrphanKind{api.OrphanStaging, api.OrphanGlobalMount, api.OrphanBlockMap, api.OrphanLoop}
	slices.SortFunc(out, func(a, b Leftover) int {
		if n := slices.Index(rank, a.Kind) - slices.Index(rank, b.Kind); n != 0 {
			return n
		}
		return strings.Compare(a.Path, b.Path)
	})
	return out
}

// mountOf is what is mounted at a global mount, nil where nothing is.
func (w wide) mountOf(o *Leftover) *mounts.Mount {
	path := o.Path
	switch o.Kind {
	case api.OrphanStaging:
		path = filepath.Join(path, "globalmount")
	case api.OrphanGlobalMount:
	default:
		return nil
	}
	stack := w.table.At(path)
	if len(stack) == 0 {
		return nil
	}
	return &stack[len(stack)-1]
}

// born takes the birth of the thing's own directory; what is mounted on it hides it,
// and then the directory above tells, whose last change is no earlier. It gives the
// last change of what holds the pods' entries, by which each of them was there.
func (w wide) born(o *Leftover) time.Time {
	info, err := w.root.Stat(o.Path)
	if err != nil || info.MountRoot {
		if info, err = w.root.Stat(filepath.Dir(o.Path)); err != nil {
			return time.Time{}
		}
		info.Birth = time.Time{}
	}
	o.born(info)
	last := info.ModTime
	if o.Kind == api.OrphanBlockMap && o.Plugin == paths.CSIPlugin {
		block, _ := w.host.Layout.CSIBlock(o.Volume)
		for _, dir := range []string{block.Map, block.Publishes} {
			if info, err := w.root.Stat(dir); err == nil && info.ModTime.After(last) {
				last = info.ModTime
			}
		}
	}
	return last
}
