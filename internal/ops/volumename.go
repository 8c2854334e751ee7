package ops

import (
	"errors"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// ref names the volume for the way down. A path or driver^handle that stands in for
// the name, where nothing holds it, is none.
func (op *operation) ref() plugins.Ref {
	ref := plugins.Ref{Name: op.name, VolumeName: op.volumeName}
	if strings.ContainsAny(ref.Name, "/^") {
		ref.Name = ""
	}
	return ref
}

// places is what the node has of the volume, by either of its names.
func (op *operation) places() []node.Ref {
	plugin := op.plugin.GetPluginName()
	out := op.find.Named(op.name, plugin)
	if strings.Contains(op.volumeName, "^") && op.volumeName != op.name {
		out = append(out, op.find.Named(op.volumeName, plugin)...)
	}
	return out
}

// inPod is what the pod has under the name, or the driver^handle, that was given. What
// does not tell its own handle could be meant, and is not guessed to be.
func (op *operation) inPod() ([]node.Ref, error) {
	word := op.req.Volume
	all := op.find.InPod(op.req.Pod.UID, word, op.req.Plugin)
	if !strings.Contains(word, "^") {
		if len(all) == 0 { // of a raw block volume that has lost its link the map is left
			all = slices.DeleteFunc(op.find.OfPod(op.req.Pod.UID, op.req.Plugin), func(r node.Ref) bool { return r.Volume != word })
		}
		return all, nil
	}
	var same, untold []node.Ref
	for _, ref := range all {
		plugin, err := op.mgr.FindPluginByName(ref.Plugin)
		if err != nil {
			return nil, err
		}
		rec, err := reconstruct(plugin, ref)
		if err != nil {
			untold = append(untold, ref)
		} else if name, err := plugin.GetVolumeName(rec.Spec); err == nil && name == word {
			same = append(same, ref)
		}
	}
	if len(same) > 0 || len(untold) == 0 {
		return same, nil
	}
	e := api.Errorf(api.ErrUncertain, "%s of the pod could be this one: nothing tells driver and handle", api.Count(len(untold), "volume", "volumes"))
	for _, ref := range untold {
		e.Details = append(e.Details, ref.Path)
	}
	return nil, e.WithNext("name it by its path or its name in the pod: %s", act.Quote(untold[0].Volume))
}

// findVolumeName asks what the plugin calls the volume (a CSI volume's driver and
// handle), as long as the node still tells: unpublishing takes the pod's metadata
// away, and the global mount is found by that name alone. It comes from the spec, the
// word of the operator, what is on disk, and last from what kvol itself recorded when
// it was killed in between.
func (op *operation) findVolumeName() error {
	if op.req.Spec != nil {
		return nil // identify has asked
	}
	if op.volumeName = ""; strings.Contains(op.req.Volume, "^") {
		op.volumeName = op.req.Volume
		return nil
	}
	var names []string
	refs := op.find.Named(op.name, op.plugin.GetPluginName())
	if strings.HasPrefix(op.req.Volume, "/") {
		refs = append(refs, op.exact...)
	}
	for _, ref := range refs {
		if op.req.Pod.UID != "" && ref.PodUID != "" && ref.PodUID != op.req.Pod.UID {
			continue
		}
		rec, err := reconstruct(op.plugin, ref)
		if err != nil {
			continue // this place does not tell; another may
		}
		if name, err := op.plugin.GetVolumeName(rec.Spec); err == nil && !op.denied(ref, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch names = slices.Compact(names); len(names) {
	case 0:
		op.volumeName = op.lastVolumeName()
	case 1:
		op.volumeName = names[0]
	default:
		e := api.Errorf(api.ErrUncertain, "the node gives %d volumes this name", len(names))
		e.Details = names
		return e.WithNext("say which: give it as driver^handle, or its document with -f")
	}
	return nil
}

// denied says that the mount table speaks against what a pod's metadata calls a volume:
// the global mount of that name is there, and the pod has another file system.
func (op *operation) denied(ref node.Ref, name string) bool {
	inPod := op.find.Table().At(ref.Path)
	p, err := plugins.As[plugins.DeviceMountableVolumePlugin](op.plugin)
	if err != nil || ref.PodUID == "" || len(inPod) == 0 {
		return false
	}
	u, err := p.NewDeviceUnmounter()
	if err != nil {
		return false
	}
	globals, _ := u.GlobalPaths(plugins.Ref{VolumeName: name}) // without an error there are none
	for _, path := range globals {
		top, mounted := op.find.Table().Top(path)
		if mounted && !slices.ContainsFunc(inPod, func(m mounts.Mount) bool { return m.PartOf(top) }) {
			return true
		}
	}
	return false
}

// lastVolumeName is what the plugin called the volume when kvol last knew it: this
// operation's own entries may say nothing.
func (op *operation) lastVolumeName() string {
	entries, _, err := op.entries()
	if err != nil {
		return ""
	}
	for _, e := range slices.Backward(entries) {
		if e.Volume == op.name && e.Plugin == op.plugin.GetPluginName() && e.VolumeName != "" {
			return e.VolumeName
		}
	}
	return ""
}

// reconstruct is the spec that one place on disk tells.
func reconstruct(plugin plugins.VolumePlugin, at node.Ref) (plugins.Reconstructed, error) {
	if !at.Block {
		return plugin.ConstructVolumeSpec(at.Volume, at.Path)
	}
	p, err := plugins.As[plugins.BlockVolumePlugin](plugin)
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	if at.PodUID == "" {
		return plugins.Reconstructed{}, errors.New("of no pod")
	}
	return p.ConstructBlockVolumeSpec(at.PodUID, at.Volume, at.Path)
}

// isInline says that the volume is a pod's own inline volume of CSI: the kubelet makes
// its handle of the pod and the name.
func (op *operation) isInline() bool {
	_, handle, _ := strings.Cut(op.volumeName, "^")
	return handle != "" && handle == paths.CSIInlineHandle(op.req.Pod.UID, op.name)
}
