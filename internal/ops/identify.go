package ops

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// needsPod are the verbs that work in one pod's directory.
var needsPod = map[Verb]bool{Publish: true, Unpublish: true, Setup: true, Teardown: true}

// needsSpec are the verbs that bring a volume up: its name alone does not say
// what it is.
var needsSpec = map[Verb]bool{Attach: true, MountDevice: true, Publish: true, Setup: true, Provision: true, Recycle: true, Delete: true}

// check refuses a request that cannot be meant.
func (op *operation) check() error {
	r := op.req
	switch {
	case rungs[op.verb] == nil:
		return api.Errorf(api.ErrUsage, "%q is no verb", op.verb)
	case op.verb == Provision:
		return nil // its claim is looked at by who reads it
	case r.Spec == nil && needsSpec[op.verb]:
		return api.Errorf(api.ErrUsage, "a file that describes the volume is needed").
			WithNext("kvol %s -f FILE, with a PersistentVolume or Pod in it", op.verb)
	case r.Spec == nil && r.Volume == "":
		return api.Errorf(api.ErrUsage, "no volume is named").WithNext("kvol %s VOLUME, or -f FILE", op.verb)
	case r.Spec != nil && r.Volume != "" && r.Volume != r.Spec.Name() && (needsSpec[op.verb] || !strings.HasPrefix(r.Volume, op.host.Layout.Root+"/")):
		return api.Errorf(api.ErrUsage, "the argument names volume %q and the file %q", r.Volume, r.Spec.Name()).
			WithNext("give one of the two")
	}
	if r.Spec == nil {
		if err := validWord(r.Volume); err != nil {
			return err
		}
	}
	if r.Plugin != "" {
		if err := paths.ValidPluginName(r.Plugin); err != nil {
			return err
		}
		if strings.Contains(r.Volume, "^") && r.Plugin != paths.CSIPlugin {
			return api.Errorf(api.ErrUsage, "%q is a CSI driver and handle, and --plugin is %s", r.Volume, r.Plugin).
				WithNext("leave --plugin out")
		}
	}
	if r.Pod.UID != "" {
		return paths.ValidPodUID(r.Pod.UID)
	}
	if needsPod[op.verb] && !strings.HasPrefix(r.Volume, op.host.Layout.Root+"/") {
		return api.Errorf(api.ErrUsage, "no pod is named").WithNext("kvol %s … --pod-uid UID, or a Pod document with -f", op.verb)
	}
	return nil
}

// validWord checks the argument that names a volume: a name, driver^handle or an
// absolute path.
func validWord(word string) error {
	if strings.HasPrefix(word, "/") {
		if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(word+"/", "/../") {
			return api.Errorf(api.ErrInput, "%q is no path that could be meant: it holds control characters or ..", word).
				WithNext("give the path as kvol list-mounts shows it")
		}
		return nil
	}
	return paths.ValidVolume(word)
}

// identify finds the plugin and the volume's name, from the spec or from what is
// on the node. The plugin stays nil when nothing there has that name.
func (op *operation) identify(ctx context.Context) error {
	if op.verb == Provision {
		return op.fromClaim()
	}
	if op.req.Spec != nil {
		return op.fromSpec()
	}
	find, err := node.NewFind(op.host)
	if err != nil {
		return err
	}
	op.name, op.find = op.req.Volume, find
	refs, err := find.Resolve(ctx, op.req.Volume, op.req.Plugin)
	if err != nil {
		return err
	}
	if err := op.samePod(refs); err != nil {
		return err
	}
	op.exact = slices.DeleteFunc(slices.Clone(refs), func(r node.Ref) bool { return !r.Exact })
	if op.req.Pod.UID == "" && len(refs) == 1 && needsPod[op.verb] {
		op.req.Pod.UID = refs[0].PodUID
	}
	if needsPod[op.verb] && op.req.Pod.UID == "" {
		return api.Errorf(api.ErrUsage, "%s is not in a pod's directory, and no pod is named", op.req.Volume).
			WithNext("kvol %s … --pod-uid UID", op.verb)
	}
	if !strings.HasPrefix(op.req.Volume, "/") && op.verb == Unpublish {
		// Only the pod's own directory counts: it holds the name.
		if refs, err = op.inPod(); err != nil {
			return err
		}
	}
	return op.fromRefs(refs)
}

// samePod refuses a path in one pod's directory beside the UID of another pod.
func (op *operation) samePod(refs []node.Ref) error {
	uid := op.req.Pod.UID
	if len(refs) != 1 || !refs[0].Exact || uid == "" || refs[0].PodUID == "" || refs[0].PodUID == uid {
		return nil
	}
	return api.Errorf(api.ErrUsage, "the path is of pod %s, and --pod-uid names %s", refs[0].PodUID, uid).At(refs[0].Path).
		WithNext("leave --pod-uid out, or name the volume by its name: %s", act.Quote(refs[0].Volume))
}

func (op *operation) fromSpec() error {
	var err error
	if op.plugin, err = op.mgr.FindPluginBySpec(op.req.Spec); err != nil {
		return err
	}
	op.name, op.block = op.req.Spec.Name(), op.req.Spec.IsBlock()
	if op.req.Plugin != "" && op.req.Plugin != op.plugin.GetPluginName() {
		return api.Errorf(api.ErrUsage, "--plugin is %s and the file has a volume of %s", op.req.Plugin, op.plugin.GetPluginName())
	}
	if err := paths.ValidVolumeName(op.name); err != nil {
		return err
	}
	if op.req.Spec.Volume != nil {
		op.req.Spec.PodUID = op.req.Pod.UID
	}
	if op.volumeName, err = op.plugin.GetVolumeName(op.req.Spec); err != nil {
		return err
	}
	return op.samePath()
}

// samePath refuses a path beside a document of another volume than the path is of.
func (op *operation) samePath() error {
	if !strings.HasPrefix(op.req.Volume, "/") {
		return nil
	}
	at := op.host.Layout.Parse(op.req.Volume)
	driver, handle, _ := strings.Cut(op.volumeName, "^")
	if at.Plugin == op.plugin.GetPluginName() && (at.Volume == "" || at.Volume == op.name) && (op.req.Pod.UID == "" || at.PodUID == "" || at.PodUID == op.req.Pod.UID) &&
		(at.HandleHash == "" || at.Driver == driver && at.HandleHash == paths.HandleHash(handle)) {
		return nil
	}
	return api.Errorf(api.ErrUsage, "the path is not of %s, which the file describes", op.name).At(op.req.Volume).
		WithNext("give one of the two, or the file of the volume that the path is of")
}

func (op *operation) fromRefs(refs []node.Ref) error {
	switch len(refs) {
	case 0:
		return op.fromHistory()
	case 1:
	default:
		e := api.Errorf(api.ErrUsage, "%d volumes on this node could be meant", len(refs))
		for _, r := range refs {
			e.Details = append(e.Details, fmt.Sprintf("%s %s %s", r.Plugin, r.Volume, r.Path))
		}
		return e.WithNext("say which: --plugin NAME, or give its path as VOLUME")
	}
	ref := refs[0]
	if ref.Volume != "" {
		op.name = ref.Volume
	}
	op.block = ref.Block
	plugin, err := op.mgr.FindPluginByName(ref.Plugin)
	if err != nil {
		return api.Errorf(api.ErrNotSupported, "it is a volume of %s, which this kvol cannot take down", ref.Plugin).At(ref.Path).
			WithNext("see what it is: kvol inspect %s", act.Quote(ref.Path))
	}
	op.plugin = plugin
	return nil
}

// otherMode refuses a file whose volumeMode is not what the volume has on this
// node: as a file system nothing of it would be found, and as both it is damaged.
func (op *operation) otherMode() error {
	if op.req.Spec == nil || op.verb == Attach || op.verb == Detach {
		return nil
	}
	where := op.where()
	where.Block = !op.block
	set, err := where.Paths(context.Background(), op.host.Layout.Root)
	if err != nil {
		return nil // the plugin has no such volumes
	}
	at := ""
	for _, path := range []string{set.GlobalMountPath, set.PodVolumePath} {
		if _, mounted := op.run.Table().Top(path); mounted && path != "" {
			at = path
		}
	}
	if set.GlobalMapPath != "" {
		names, err := op.run.Names(set.GlobalMapPath)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			at = filepath.Join(set.GlobalMapPath, names[0])
		}
	}
	if at == "" {
		return nil
	}
	mode := map[bool]string{true: "Block", false: "Filesystem"}
	return api.Errorf(api.ErrRefused, "the file says volumeMode %s, and on this node the volume is up as %s", mode[op.block], mode[!op.block]).At(at).
		WithNext("take it down by its name, without -f: kvol teardown %s --pod-uid UID; or correct volumeMode", act.Quote(op.name))
}

// fromHistory takes the plugin that kvol itself last used for a volume of this
// name, or the one that was named.
func (op *operation) fromHistory() error {
	name := op.req.Plugin
	if name == "" && strings.Contains(op.name, "^") {
		name = paths.CSIPlugin // which alone calls its volumes so
	}
	if name == "" {
		if last, ok := op.lastEntry(op.name); ok {
			name = last.Plugin
		}
	}
	if name == "" {
		return nil
	}
	plugin, err := op.mgr.FindPluginByName(name)
	if err != nil && op.req.Plugin != "" {
		return err
	}
	if err == nil {
		op.plugin, op.block = plugin, op.mapped(plugin)
	}
	return nil
}

// mapped says that the volume's global map path is there: of a raw block volume
// that no pod has any more it is all that is left.
func (op *operation) mapped(plugin plugins.VolumePlugin) bool {
	p, err := plugins.As[plugins.BlockVolumePlugin](plugin)
	if err != nil {
		return false
	}
	u, err := p.NewBlockVolumeUnmapper(op.ref(), "")
	if err != nil {
		return false
	}
	dir, err := u.GetGlobalMapPath()
	if err != nil {
		return false
	}
	root, err := op.host.Root()
	if err != nil {
		return false
	}
	if _, err = root.Stat(dir); err == nil {
		return true
	}
	// A CSI volume's map path is in a directory of the volume, which goes last.
	above := filepath.Dir(dir)
	_, err = root.Stat(above)
	return err == nil && op.host.Layout.Parse(above).Volume == op.name
}
