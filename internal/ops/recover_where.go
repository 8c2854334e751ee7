package ops

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
)

// meant are the places that a word names.
func (e *evidence) meant(ctx context.Context, word string) ([]node.VolData, error) {
	if strings.HasPrefix(word, "/") {
		return e.atPath(filepath.Clean(word))
	}
	meant := e.named(word)
	if len(meant) > 0 {
		return meant, nil
	}
	refs, err := e.find.Resolve(ctx, word, "")
	if err == nil && len(refs) == 0 {
		err = api.Errorf(api.ErrNotFound, "nothing on this node has that name").
			WithNext("see what there is: kvol list-mounts; or name a path, or give the volume's document with -f")
		return nil, &api.Error{Op: string(Recover), Volume: word, Err: err}
	}
	return nil, err
}

// atPath is the place that a path is of.
func (e *evidence) atPath(path string) ([]node.VolData, error) {
	l := e.host.Layout
	at, file := l.Parse(path), l.MetadataPath(path)
	i := slices.IndexFunc(e.places, func(v node.VolData) bool { return v.File == file })
	switch {
	case at.Rest != "", file == "" && (at.Plugin == "" || at.Volume+at.ID == ""):
		return nil, api.Errorf(api.ErrNotFound, "is no place of a volume, nor of its metadata").At(path).
			WithNext("see what it is: kvol paths %s", act.Quote(path))
	case at.Plugin != paths.CSIPlugin:
		return nil, e.there(path) // volumes of other plugins have no such file
	case i < 0:
		return nil, api.Errorf(api.ErrNotFound, "there is no such volume").At(path).WithNext("see what there is: kvol list-mounts")
	}
	return e.places[i : i+1], nil
}

func (e *evidence) there(path string) error {
	root, err := e.host.Root()
	if err == nil {
		_, err = root.Stat(path)
	}
	return err
}

// named are the places of a volume: those that have its name or say its handle, and
// the staging directories and pods that belong to these by handle or by mount.
func (e *evidence) named(word string) []node.VolData {
	handles := map[string]bool{} // driver^handle
	if strings.Contains(word, "^") {
		handles[word] = true
	}
	for _, item := range e.req.Given {
		if pv := item.Spec.PersistentVolume; pv != nil && pv.Name == word && pv.Spec.CSI != nil {
			handles[pv.Spec.CSI.Driver+"^"+pv.Spec.CSI.VolumeHandle] = true
		}
	}
	is := map[string]bool{} // files
	for _, v := range e.places {
		byName := v.Volume != "" && v.Volume == paths.EscapePlugin(word)
		if !byName && len(handles) == 0 {
			continue
		}
		name := v.Data.VolumeName()
		if v.Wrong != "" {
			name = e.volumeName(v)
		}
		if byName && name != "" {
			handles[name] = true
		}
		is[v.File] = byName || handles[name]
	}
	for _, v := range e.places {
		for handle := range handles {
			driver, h, _ := strings.Cut(handle, "^")
			is[v.File] = is[v.File] || e.staged(v, driver, h)
		}
	}
	for _, v := range e.places {
		is[v.File] = is[v.File] || slices.ContainsFunc(e.places, func(o node.VolData) bool {
			return is[o.File] && (v.HandleHash != "" || o.HandleHash != "") && v.Shows(o)
		})
	}
	return slices.DeleteFunc(slices.Clone(e.places), func(v node.VolData) bool { return !is[v.File] })
}
