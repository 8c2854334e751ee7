package csi

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

// dataFile is the name of the metadata beside a mount.
const dataFile = "vol_data.json"

// identify says which volume is to be taken down: by the name that it was given (a
// document, driver^handle, the history), the metadata beside it, and where neither
// tells, the other places that the mount table shows its file system at. What says
// two things is refused.
func (p *plugin) identify(run *act.Runner, ref plugins.Ref, file, mounted string) (volume, error) {
	d, err := p.readIn(run, file)
	if err != nil {
		return volume{}, err
	}
	named, ok := volumeOf(ref.VolumeName)
	switch {
	case d.state == whole && ok && d.volume != named:
		e := api.Errorf(api.ErrRefused, "it is of another volume than the one that is named").At(file)
		e.Details = []string{"named is " + named.String(), "the file says " + d.String()}
		return volume{}, e.WithNext("see whose it is: kvol inspect %s; then name the right one", act.Quote(mounted))
	case d.state == whole:
		if other := p.stagedAs(run.Table(), mounted, d.volume); other != "" {
			return volume{}, api.Errorf(api.ErrRefused, "the file says %s, and the mount table has it mounted from the staging directory of another volume: %s", d, other).At(file).
				WithNext("find out which is right: kvol inspect %s; or take down the node's half alone: --without-driver", act.Quote(mounted))
		}
		return d.volume, nil
	case ok:
		return named, nil
	}
	if v, ok := p.byMount(run.Table(), mounted); ok {
		return v, nil
	}
	return volume{}, p.unnamed(d, file, mounted)
}

// unnamed is the refusal to take down what nothing gives a name to.
func (p *plugin) unnamed(d data, file, mounted string) error {
	why := string(d.state)
	if d.why != "" {
		why += ": " + d.why
	}
	e := api.Errorf(api.ErrUncertain, "which volume of which driver this is cannot be known: its metadata is %s, and the mount table does not tell either", why).At(mounted)
	e.Details = []string{"looked at " + file}
	return e.WithNext("name it: -f FILE with its PersistentVolume, or DRIVER^HANDLE as VOLUME; or take down the node's half alone: --without-driver")
}

// byMount finds the metadata of a volume beside another mount of the same part of the
// same file system: its global mount, or another pod's.
func (p *plugin) byMount(table *mounts.Table, path string) (volume, bool) {
	top, ok := table.Top(path)
	if !ok || top.Major < 0 {
		return volume{}, false
	}
	found := map[volume]bool{}
	for _, m := range table.SameDevice(top.Major, top.Minor) {
		// A bind of the node's own file system shares its number with all the others.
		if m.MountPoint != path && (below(top.Root, m.Root) || below(m.Root, top.Root)) {
			if v, ok := p.beside(m.MountPoint); ok {
				found[v] = true
			}
		}
	}
	if len(found) != 1 {
		return volume{}, false
	}
	for v := range found {
		return v, true
	}
	return volume{}, false
}

// stagedAs is the staging directory that a pod's mount is of, where it is not that of
// the volume; "" where there is none, or the volume's own is one of them.
func (p *plugin) stagedAs(table *mounts.Table, path string, v volume) string {
	top, ok := table.Top(path)
	if !ok || top.Major < 0 || p.host.Layout.Parse(path).PodUID == "" {
		return ""
	}
	other := ""
	for _, m := range table.SameDevice(top.Major, top.Minor) {
		at := p.host.Layout.Parse(m.MountPoint)
		if at.Plugin != paths.CSIPlugin || at.Kind != paths.GlobalMount || at.Rest != "" || at.HandleHash == "" || !below(top.Root, m.Root) {
			continue
		}
		if !misplaced(at, v) {
			return ""
		}
		other = m.MountPoint
	}
	return other
}

// beside reads the metadata that is beside a place where the layout has it.
func (p *plugin) beside(mounted string) (volume, bool) {
	at := p.host.Layout.Parse(mounted)
	if at.Plugin != paths.CSIPlugin || at.Rest != "" || at.Kind != paths.GlobalMount && at.Kind != paths.PodVolumeMount {
		return volume{}, false
	}
	d := p.read(filepath.Join(filepath.Dir(mounted), dataFile))
	if d.state != whole || d.lifecycle == voldata.Ephemeral || misplaced(at, d.volume) {
		return volume{}, false
	}
	return d.volume, true
}

// misplaced says that a staging directory is of another volume: its path has the
// driver, and the handle as a hash.
func misplaced(at paths.Path, v volume) bool {
	return at.HandleHash != "" && (at.Driver != v.driver || at.HandleHash != paths.HandleHash(v.handle))
}

// below says whether a path is another, or in it.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// identifyGlobal is identify for a global mount.
func (p *plugin) identifyGlobal(run *act.Runner, ref plugins.Ref, global string) (volume, error) {
	file := filepath.Join(filepath.Dir(global), dataFile)
	v, err := p.identify(run, ref, file, global)
	if err != nil {
		return volume{}, err
	}
	if at := p.host.Layout.Parse(global); misplaced(at, v) {
		return volume{}, api.Errorf(api.ErrRefused, "is no staging directory of %s: its name is the hash of another handle", v).At(global).
			WithNext("name the volume that it is of: DRIVER^HANDLE, or -f FILE")
	}
	return v, nil
}

// ConstructVolumeSpec reads driver and handle from the metadata beside the volume, or
// where that is lost from where else the mount table shows the volume.
func (p *plugin) ConstructVolumeSpec(name, path string) (plugins.Reconstructed, error) {
	at := p.host.Layout.Parse(path)
	mounted := path
	if at.Kind == paths.PodVolume {
		mounted = filepath.Join(path, "mount")
	}
	d := p.read(filepath.Join(filepath.Dir(mounted), dataFile))
	if d.state != whole {
		table, err := p.host.Mounts()
		if err != nil {
			return plugins.Reconstructed{}, err
		}
		v, ok := p.byMount(table, mounted)
		if !ok {
			return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "the metadata of the volume is %s", d.state).At(path).WithNext("give its document: -f FILE")
		}
		d.volume = v
	}
	if misplaced(at, d.volume) {
		return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "the metadata is of another volume than the path").At(path).
			WithNext("find out which is right: kvol inspect %s; or give its document: -f FILE", act.Quote(path))
	}
	readOnly := false
	if table, err := p.host.Mounts(); err == nil {
		if other := p.stagedAs(table, mounted, d.volume); other != "" {
			return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "the metadata is of another volume than the staging directory that it is mounted from, %s", other).At(path).
				WithNext("find out which is right: kvol inspect %s; or give its document: -f FILE", act.Quote(path))
		}
		top, ok := table.Top(mounted)
		readOnly = ok && top.ReadOnly() && at.PodUID != ""
	}
	return reconstructed(d, name, at.PodUID, readOnly, false), nil
}

// details are the fields of a CSI source that no metadata holds.
func details(prefix string, fields ...string) (out []string) {
	for _, f := range fields {
		out = append(out, fmt.Sprintf("%scsi.%s", prefix, f))
	}
	return out
}
