package node

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

// VolData is a place where a kubelet keeps the vol_data.json of a CSI volume, and
// what is there now.
type VolData struct {
	paths.Path // of the file
	File       string
	// Wrong says in words why a kubelet cannot read it; "" where it can.
	Wrong string
	Raw   []byte
	// Data is what it holds, of a broken one what is left at its beginning: a
	// kubelet writes it from the first byte on.
	Data voldata.Data
	// Target is where the volume is mounted for this place, and Mount what is there;
	// of a raw block volume neither is known here.
	Target string
	Mount  *mounts.Mount
}

// Shows says whether two places show the same directory of the same file system.
func (v VolData) Shows(o VolData) bool {
	return v.Mount != nil && o.Mount != nil && v.Mount.Device() == o.Mount.Device() && v.Mount.Root == o.Mount.Root
}

// needed are the keys without which a kubelet cannot take the volume down (attachmentID,
// nodeName and volumeLifecycleMode are not in the files of all its releases).
var needed = map[paths.Kind][]string{
	paths.PodVolumeMetadata: {voldata.Driver, voldata.Handle, voldata.Spec},
	paths.GlobalMapMetadata: {voldata.Driver, voldata.Handle, voldata.Spec},
	paths.GlobalMetadata:    {voldata.Driver, voldata.Handle},
}

// VolData lists the places of all CSI volumes on the node, by path, also those where
// the file is missing: a directory of a volume is enough. What could not be looked
// at is in the warnings.
func (f *Find) VolData() (places []VolData, warnings []string, err error) {
	root, err := f.host.Root()
	if err != nil {
		return nil, nil, err
	}
	w := volDataWalk{Find: f, root: root, files: map[string]bool{}}
	top := root.Path()
	for _, uid := range w.names(top+"/pods", safefs.Dir) {
		in := top + "/pods/" + uid
		for _, volume := range w.names(in+"/volumes/kubernetes.io~csi", safefs.Dir) {
			w.files[in+"/volumes/kubernetes.io~csi/"+volume+"/vol_data.json"] = true
		}
		w.block(top, w.names(in+"/volumeDevices/kubernetes.io~csi", safefs.Symlink))
	}
	csi := top + "/plugins/kubernetes.io/csi"
	for _, driver := range w.names(csi, safefs.Dir) {
		in := w.names(csi+"/"+driver, safefs.Dir)
		if driver == "volumeDevices" {
			w.block(top, slices.DeleteFunc(in, func(name string) bool { return name == "staging" || name == "publish" }))
			w.block(top, w.names(csi+"/volumeDevices/staging", safefs.Dir))
			w.block(top, w.names(csi+"/volumeDevices/publish", ""))
			continue
		}
		for _, volume := range in {
			w.files[csi+"/"+driver+"/"+volume+"/vol_data.json"] = true
		}
	}
	for file := range w.files {
		if at := f.host.Layout.Parse(file); needed[at.Kind] != nil && at.Plugin == paths.CSIPlugin && at.Rest == "" {
			places = append(places, f.volData(root, file, at))
		}
	}
	slices.SortFunc(places, func(a, b VolData) int { return strings.Compare(a.File, b.File) })
	return places, w.warnings, nil
}

type volDataWalk struct {
	*Find
	root     *safefs.Root
	files    map[string]bool
	warnings []string
}

// names are the entries of a directory that are of a type, "" of any. What a driver
// mounted there instead is not looked into.
func (w *volDataWalk) names(dir string, want safefs.Type) []string {
	entries, err := w.root.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, safefs.ErrIsMount) {
		w.warnings = append(w.warnings, err.Error())
	}
	var out []string
	for _, e := range entries {
		if want == "" || e.Type == want {
			out = append(out, e.Name)
		}
	}
	return out
}

// block adds the places of raw block volumes, which have one file a volume.
func (w *volDataWalk) block(top string, names []string) {
	for _, name := range names {
		w.files[top+"/plugins/kubernetes.io/csi/volumeDevices/"+name+"/data/vol_data.json"] = true
	}
}

func (f *Find) volData(root *safefs.Root, file string, at paths.Path) VolData {
	v := VolData{Path: at, File: file}
	switch dir := filepath.Dir(file); at.Kind {
	case paths.PodVolumeMetadata:
		v.Target = dir + "/mount"
	case paths.GlobalMetadata:
		v.Target = dir + "/globalmount"
	}
	if top, ok := f.table.Top(v.Target); ok {
		v.Mount = &top
	}
	raw, err := root.ReadFile(file, voldata.Max)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Wrong = "it is missing"
	case err != nil:
		v.Raw, v.Wrong = []byte{}, err.Error()
	default:
		v.Raw = append([]byte{}, raw...)
		if v.Data, v.Wrong = voldata.Parse(raw); v.Wrong == "" {
			v.Wrong = v.Data.Lacks(needed[at.Kind]...)
		}
	}
	return v
}

// metadataOf reads the vol_data.json that is kept beside one place; its path is empty
// where none is.
func (s *snapshot) metadataOf(p place) api.Metadata {
	file := s.host.Layout.MetadataPath(p.path)
	if file == "" || p.Plugin != paths.CSIPlugin {
		return api.Metadata{}
	}
	return s.readMetadata(file)
}

func (s *snapshot) readMetadata(file string) api.Metadata {
	root, err := s.host.Root()
	if err != nil {
		return api.Metadata{}
	}
	m := api.Metadata{Path: file, State: "ok", Data: map[string]string{}}
	raw, err := root.ReadFile(file, voldata.Max)
	data, wrong := voldata.Parse(raw)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.State = "missing"
	case err == nil && len(raw) == 0:
		m.State = "empty"
	case err != nil || wrong != "":
		m.State = "broken"
	default:
		m.Data = data
	}
	return m
}

// HandleIn is the driver^handle that a CSI volume's metadata tells, "" where it does not.
func (s *snapshot) HandleIn(file string) string {
	return voldata.Data(s.readMetadata(file).Data).VolumeName()
}

// handleOf is HandleIn for the file beside a place, "" also where that is of another
// plugin's volume.
func (s *snapshot) handleOf(p place) string {
	return voldata.Data(s.metadataOf(p).Data).VolumeName()
}
