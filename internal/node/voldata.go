package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
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
	Data map[string]string
	// Target is where the volume is mounted for this place, and Mount what is there;
	// of a raw block volume neither is known here.
	Target string
	Mount  *mounts.Mount
}

// Missing says that there is no file.
func (v VolData) Missing() bool { return v.Raw == nil }

// Shows says whether two places show the same directory of the same file system.
func (v VolData) Shows(o VolData) bool {
	return v.Mount != nil && o.Mount != nil && v.Mount.Device() == o.Mount.Device() && v.Mount.Root == o.Mount.Root
}

// needed are the keys without which a kubelet cannot take the volume down (attachmentID,
// nodeName and volumeLifecycleMode are not in the files of all its releases).
var needed = map[paths.Kind][]string{
	paths.PodVolumeMetadata: {"driverName", "volumeHandle", "specVolID"},
	paths.GlobalMapMetadata: {"driverName", "volumeHandle", "specVolID"},
	paths.GlobalMetadata:    {"driverName", "volumeHandle"},
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
	raw, err := root.ReadFile(file, metadataMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Wrong = "it is missing"
	case err != nil:
		v.Raw, v.Wrong = []byte{}, err.Error()
	default:
		v.Raw = append([]byte{}, raw...)
		v.Data, v.Wrong = parseVolData(raw, needed[at.Kind])
	}
	return v
}

// parseVolData reads a file as a kubelet does (loadVolumeData in
// pkg/volume/csi/csi_util.go: a JSON object of strings, whatever follows), and of one
// that it cannot read what comes before the fault.
func parseVolData(raw []byte, needed []string) (data map[string]string, wrong string) {
	data = map[string]string{}
	if len(raw) == 0 {
		return data, "it is empty"
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return data, "it is no JSON object"
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return data, "it is cut short or damaged"
		}
		value, err := d.Token()
		if err != nil {
			return data, "it is cut short or damaged"
		}
		text, ok := value.(string)
		if !ok {
			return data, "the value of " + short(key) + " is no text"
		}
		data[key.(string)] = text // a key of an object is one, or an error
	}
	if _, err := d.Token(); err != nil {
		return data, "it is cut short or damaged"
	}
	for _, key := range needed {
		if data[key] == "" {
			return data, "it has no " + key
		}
	}
	if paths.ValidDriverName(data["driverName"]) != nil {
		return data, "its driverName is none"
	}
	return data, ""
}

// short is a key as a message can have it.
func short(key any) string {
	s, _ := key.(string)
	if len(s) > 40 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "a key"
	}
	return s
}
