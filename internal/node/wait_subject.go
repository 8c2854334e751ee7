package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/paths"
)

// found is what a look has of a subject.
type found struct {
	kind   string
	places []place
	counts func(place) bool // those that have to be mounted
	none   string           // why there is none of these
	// blind says why there may be more; candidates are what may be more of it.
	blind      string
	candidates []string
	// elsewhere says what other mount namespaces still have, nil where they do not count.
	elsewhere func() string
}

// wholeUID is a pod's, as API server and kubelet make them.
var wholeUID = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// found looks for what a subject names.
func (f *Find) found(ctx context.Context, s *subject, is api.Condition) (found, error) {
	var out found
	var err error
	isPod := func(p place) bool { return p.PodUID == s.Word }
	switch pod, volume := slices.ContainsFunc(f.places, isPod), f.hasVolume(s); {
	case strings.HasPrefix(s.Word, "/"):
		out, err = f.foundAt(ctx, s, is)
	case s.Spec == nil && pod && volume:
		return out, api.Errorf(api.ErrUsage, "it is the name of a volume, and the UID of a pod").WithNext("name a path instead: kvol list-mounts --volume %s", act.Quote(s.Word))
	case s.Spec == nil && (pod || !volume && wholeUID.MatchString(s.Word)):
		out = found{kind: "pod", counts: inPods, none: "the pod has no volume on this node"}
		out.places = slices.DeleteFunc(slices.Clone(f.places), func(p place) bool { return !isPod(p) })
		out.blind = cmp.Or(f.blind(filepath.Join(f.host.Layout.Root, "pods", s.Word)), f.covered(s.Word, is))
		if s.PodUID != "" && s.PodUID != s.Word {
			err = api.Errorf(api.ErrUsage, "it is a pod, and --pod-uid names pod %s", s.PodUID).WithNext("leave --pod-uid out")
		}
	default:
		if uid := f.begun(s); uid != "" && !volume {
			return out, api.Errorf(api.ErrUsage, "the UID of a pod begins with it, and no volume has that name").WithNext("name the pod by its whole UID: %s", uid)
		}
		if is == api.ConditionUnmounted && !volume && !s.known() {
			err = f.noPod(ctx, s.Word)
			f.warnings = append(f.warnings, fmt.Sprintf("nothing on this node is called %q", s.Word))
		}
		if err == nil {
			out, err = f.foundVolume(s, is)
		}
	}
	return out, err
}

// begun is the UID of a pod that a word is only the beginning of, as a list shows it:
// nothing has that name, so that all of it would seem to be unmounted.
func (f *Find) begun(s *subject) string {
	if s.Spec != nil || s.PodUID != "" || s.seen {
		return ""
	}
	i := slices.IndexFunc(f.places, func(p place) bool { return p.PodUID != "" && IsUID(p.PodUID, s.Word) })
	if i < 0 {
		return ""
	}
	return f.places[i].PodUID
}

// known says whether more is known of a volume than a word that may be wrong, also by
// what an earlier look has seen.
func (s *subject) known() bool {
	return s.Spec != nil || s.seen || s.handle != "" || strings.Contains(s.Word, "^")
}

// noPod refuses what is the name of a pod that has volumes here.
func (f *Find) noPod(ctx context.Context, word string) error {
	ctx, cancel := context.WithTimeout(ctx, f.host.ProbeTimeout)
	defer cancel()
	g := &glance{snapshot: f.snapshot, names: map[string]string{}}
	g.podNames(ctx)
	for _, p := range f.places {
		if _, name, ok := strings.Cut(g.names[p.PodUID], "/"); ok && name == word {
			return api.Errorf(api.ErrUsage, "it is the name of a pod, and no volume has that name").WithNext("name the pod by its UID: %s", p.PodUID)
		}
	}
	return nil
}

func (f *Find) hasVolume(s *subject) bool {
	return len(f.Named(s.Word, s.Plugin)) > 0
}

// blind says why something at a path or below it may not have been seen.
func (f *Find) blind(path string) string {
	switch {
	case f.table.Changed:
		return "the mount table changed all the time while it was read"
	case len(f.table.Bad) > 0:
		return api.Count(len(f.table.Bad), "line", "lines") + " of the mount table cannot be read"
	case f.unsure(path):
		return "a directory cannot be read: " + strings.Join(f.unread, ", ")
	}
	return ""
}

// covered says which mount hides a directory that volumes are found in, of a pod or of
// "" any: nobody can tell that nothing is left there. What is seen to be mounted is so.
func (f *Find) covered(podUID string, is api.Condition) string {
	if is != api.ConditionUnmounted {
		return ""
	}
	for _, p := range f.places {
		leads := descend[p.Kind] && p.Rest == "" && (p.Kind != paths.PluginDir || strings.Contains(p.Plugin, "/")) // a driver's own has no volumes
		if p.mount != nil && p.kind == api.KindOther && leads && (podUID == "" || p.PodUID == "" || p.PodUID == podUID) {
			return fmt.Sprintf("a mount is on %s, and what it covers cannot be seen", p.path)
		}
	}
	return ""
}

// foundVolume looks for a volume by its names.
func (f *Find) foundVolume(s *subject, is api.Condition) (found, error) {
	out := found{kind: "volume", counts: inPods, none: "no pod on this node has it"}
	out.blind = cmp.Or(f.blind(f.host.Layout.Root), f.covered(s.PodUID, is))
	words := []string{s.Word}
	if s.handle != "" {
		words = append(words, s.handle)
	}
	test, names := f.ofVolume(words...)
	s.learn(names)
	kinds := map[string]bool{}
	for _, p := range f.places {
		if !test(p) || s.Plugin != "" && s.Plugin != p.Plugin || s.PodUID != "" && s.PodUID != p.PodUID {
			continue
		}
		out.places = append(out.places, p)
		kinds[p.Plugin] = true
	}
	if len(kinds) > 1 {
		err := api.Errorf(api.ErrUsage, "%d volumes on this node could be meant", len(kinds))
		for _, p := range out.places {
			err.Details = append(err.Details, fmt.Sprintf("%s %s %s", p.Plugin, p.name(), p.path))
		}
		return out, err.WithNext("say which: --plugin NAME, or give its path")
	}
	if len(out.places) > 0 {
		s.Plugin, s.seen = out.places[0].Plugin, true // also when nothing is left of it
	}
	if is == api.ConditionUnmounted {
		out.candidates = f.couldBe(s, out.places)
	}
	return out, nil
}

// learn keeps the handle of a volume, which tells its staging directory also when no
// pod has it any more.
func (s *subject) learn(names map[string]bool) {
	var handles []string
	for name := range names {
		if strings.Contains(name, "^") {
			handles = append(handles, name)
		}
	}
	if s.handle == "" && len(handles) == 1 && handles[0] != s.Word {
		s.handle = handles[0]
	}
}

// couldBe are the mounts that may be of a volume although they have not its name, as
// the reverse verbs ask for them before they say that a volume is gone.
func (f *Find) couldBe(s *subject, its []place) []string {
	word, plugin := s.Word, s.Plugin
	if s.handle != "" {
		word = s.handle
	}
	if strings.Contains(word, "^") && plugin == "" {
		plugin = paths.CSIPlugin
	}
	var all []Ref
	switch {
	case s.PodUID != "":
		all = f.InPod(s.PodUID, s.Word, plugin)
	case strings.Contains(s.Word, "^"):
		all = slices.Concat(f.Candidates(word, plugin), f.Nameless())
	default:
		all = f.Candidates(word, plugin)
	}
	var out []string
	for _, r := range all {
		if !slices.ContainsFunc(its, func(p place) bool { return p.path == r.Path }) {
			out = append(out, r.Path)
		}
	}
	return out
}

// foundAt looks at a path: a device, or where something is mounted.
func (f *Find) foundAt(ctx context.Context, s *subject, is api.Condition) (found, error) {
	path := f.host.PathOf(filepath.Clean(s.Word))
	if dev := "/dev/"; strings.HasPrefix(path, dev) || strings.HasPrefix(path, filepath.Clean(f.host.DevRoot)+"/") {
		out, err := f.foundOn(ctx, s, is)
		if !errors.Is(err, api.ErrInput) { // a directory there, as /dev/shm
			return out, err
		}
	}
	out := found{kind: "path", none: "nothing is mounted there", blind: f.blind(path)}
	if out.blind == "" && f.host.Layout.Parse(path).MountKind() != api.KindPodDevice { // that is a link, as it should be
		var at string
		if at, out.blind = f.real(ctx, path); at != path && f.inRoot(path) {
			return out, api.Errorf(api.ErrUsage, "a symbolic link leads from it to %s, and none is followed below the root", at).At(path).
				WithNext("wait for the path itself: kvol wait %s --for=%s", act.Quote(at), is)
		}
		path = at
	}
	out.counts = func(p place) bool { return p.at(path) }
	for _, p := range f.places {
		if (p.path == path || strings.HasPrefix(p.path, strings.TrimSuffix(path, "/")+"/")) && (p.mount != nil || is == api.ConditionAttached) {
			out.places = append(out.places, p)
		}
	}
	out.places = append(out.places, f.elsewhere(path)...)
	return out, nil
}

// elsewhere are the mounts on a path and below it that are outside of the root.
func (f *Find) elsewhere(path string) []place {
	var out []place
	seen := map[string]bool{}
	for _, m := range f.table.Under(path) {
		if f.inRoot(m.MountPoint) && m.MountPoint != f.host.Layout.Root || seen[m.MountPoint] {
			continue
		}
		seen[m.MountPoint] = true
		stack := f.table.At(m.MountPoint)
		top := stack[len(stack)-1]
		out = append(out, place{path: m.MountPoint, kind: api.KindOther, mount: &top, stack: len(stack)})
	}
	return out
}

// real is what a path leads to, as the mount table has it.
func (f *Find) real(ctx context.Context, path string) (string, string) {
	if len(f.table.At(path)) > 0 {
		return path, ""
	}
	ctx, cancel := context.WithTimeout(ctx, f.host.ProbeTimeout)
	defer cancel()
	src, err := act.OpenSource(ctx, f.host.Helper, path)
	if errors.Is(err, api.ErrNotFound) {
		return path, "" // what is not there has nothing mounted on it
	}
	if err != nil {
		return path, "it cannot be looked at: " + err.Error()
	}
	defer src.Close()
	return strings.TrimSuffix(src.Path, " (deleted)"), "" // the mark of what is removed just now
}

// foundOn looks for what is on a device, in the whole of this mount namespace.
func (f *Find) foundOn(ctx context.Context, s *subject, is api.Condition) (found, error) {
	out := found{kind: "device", none: "nothing is mounted from it", counts: func(place) bool { return true }}
	o := ListOptions{Device: []string{s.Word}}
	if is == api.ConditionUnmounted {
		o.memory, out.blind = s.memory, f.blind(f.host.Layout.Root) // it may be gone by then
	}
	on, err := f.onDevice(ctx, o)
	switch {
	case errors.Is(err, api.ErrNotFound) && is != api.ConditionUnmounted:
		out.blind = "the device is not there: " + err.Error()
		return out, nil
	case err != nil:
		return out, err
	case is == api.ConditionAttached && on.devices[0].Size == 0:
		out.blind = "the device has no medium"
	}
	for _, p := range f.places {
		if on.mayHave(p) && on.has(f.item(p, false)) {
			out.places = append(out.places, p)
		}
	}
	out.elsewhere = on.elsewhere
	for _, p := range f.elsewhere("/") {
		if on.mayHave(p) {
			out.places = append(out.places, p)
		}
	}
	return out, nil
}

// elsewhere says which other mount namespace still has a file system of the device
// mounted, or its node bound: the device can no more be detached than with a mount here.
func (on *onDevice) elsewhere() string {
	host, why := on.s.host, ""
	own := host.Devices.OwnMountNamespace()
	err := host.Devices.EachMountNamespace(func(pid int, ns string, t *mounts.Table) {
		for _, m := range t.Mounts {
			if why == "" && ns != own && on.shownBy(m) {
				why = fmt.Sprintf("mount namespace %s of process %d still has it mounted on %s", ns, pid, m.MountPoint)
			}
		}
	})
	if why == "" && err != nil {
		why = "whether another mount namespace has it mounted is not known: " + err.Error()
	}
	return why
}

func (on *onDevice) shownBy(m mounts.Mount) bool {
	return slices.ContainsFunc(on.devices, func(d devices.Device) bool {
		bound := d.Name != "" && m.FSType == "devtmpfs" && m.Root == "/"+d.Name
		return bound || on.s.host.Devices.Shows(m, d.Number(), d.Path)
	})
}
