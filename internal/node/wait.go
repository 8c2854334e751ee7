package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// waitInterval is how often is looked for what no mount event tells: devices,
// directories, health.
const waitInterval = time.Second

// askLimit is how long a driver may take to say what is attached.
const askLimit = 10 * time.Second

// WaitRequest is what is waited for.
type WaitRequest struct {
	Subjects  []WaitSubject
	Condition api.Condition
	// Attached says nil of a volume that is attached, api.ErrNotFound of one that is not,
	// and any other error where that is not known.
	Attached func(ctx context.Context, spec *plugins.Spec, podUID string) error
}

// WaitSubject is a volume, a path, a device or a pod.
type WaitSubject struct {
	Word   string
	Plugin string        // the only one to look in, "" is any
	PodUID string        // of a volume that several pods may have
	Spec   *plugins.Spec // of a volume that a document describes, else nil
}

// Waiter looks whether subjects have come to be as waited for, one look after the other.
type Waiter struct {
	*changes
	mgr      *plugins.VolumePluginMgr
	req      WaitRequest
	subjects []*subject
}

// subject is one with what was learnt of it.
type subject struct {
	WaitSubject
	handle string // driver^handle of the volume
	seen   bool   // it was on the node, so that Plugin is its own
	memory *memory
}

// NewWaiter looks at nothing yet.
func NewWaiter(h *host.Host, mgr *plugins.VolumePluginMgr, req WaitRequest) (*Waiter, error) {
	w := &Waiter{mgr: mgr, req: req}
	for _, s := range req.Subjects {
		known := &subject{WaitSubject: s, memory: &memory{}}
		if err := known.describe(mgr); err != nil {
			return nil, err
		}
		w.subjects = append(w.subjects, known)
	}
	var err error
	w.changes, err = newChanges(h, waitInterval)
	return w, err
}

// describe takes what the word or the document of a volume tells.
func (s *subject) describe(mgr *plugins.VolumePluginMgr) error {
	if s.Spec == nil {
		if strings.HasPrefix(s.Word, "/") {
			return nil
		}
		if uid := strings.ToLower(strings.TrimSpace(s.Word)); uid != s.Word && wholeUID.MatchString(uid) {
			return api.Errorf(api.ErrUsage, "%q is not how the UID of a pod is written", s.Word).WithNext("name the pod by its UID: %s", uid)
		}
		return paths.ValidVolume(s.Word) // of what nothing can be called nothing would ever be there
	}
	plugin, err := mgr.FindPluginBySpec(s.Spec)
	if err != nil {
		return err
	}
	if s.Plugin != "" && s.Plugin != plugin.GetPluginName() {
		return api.Errorf(api.ErrUsage, "--plugin is %s and the file has a volume of %s", s.Plugin, plugin.GetPluginName())
	}
	s.Word, s.Plugin, s.Spec.PodUID = s.Spec.Name(), plugin.GetPluginName(), s.PodUID
	if name, err := plugin.GetVolumeName(s.Spec); err == nil && strings.Contains(name, "^") {
		s.handle = name
	}
	return nil
}

// Look says of each subject how it is, and whether all are as waited for. An error is
// what no waiting can change.
func (w *Waiter) Look(ctx context.Context) (*api.List[api.Wait], bool, error) {
	w.begin(ctx)
	find, err := NewFind(w.host)
	if err != nil {
		return nil, false, err
	}
	find.tell()
	var items []api.Wait
	met := true
	for _, s := range w.subjects {
		item, err := w.one(ctx, find, s)
		if ctx.Err() != nil {
			return nil, false, ctx.Err() // what was not asked to its end tells nothing
		}
		if err != nil {
			return nil, false, &api.Error{Op: "wait", Volume: s.Word, Err: err}
		}
		items, met = append(items, item), met && item.Met
	}
	w.end(find.snapshot)
	return api.NewList("WaitList", items, find.warnings), met, nil
}

func (w *Waiter) one(ctx context.Context, f *Find, s *subject) (api.Wait, error) {
	is := w.req.Condition
	if err := w.noPlugin(f, s); err != nil {
		return api.Wait{}, err
	}
	found, err := f.found(ctx, s, is)
	if err != nil {
		return api.Wait{}, err
	}
	sub := *f.snapshot
	sub.places = found.places
	items := sub.items(ctx, is == api.ConditionHealthy)
	item := api.Wait{Subject: s.Word, SubjectKind: found.kind, Condition: is, PodUID: s.PodUID, Mounts: items}
	switch is {
	case api.ConditionMounted:
		item.Reason = sub.whyNotMounted(found)
	case api.ConditionUnmounted:
		item.Reason = sub.whyNotUnmounted(found)
	case api.ConditionHealthy:
		item.Reason = whyNotHealthy(found, items)
	case api.ConditionAttached:
		item.Reason, err = w.whyNotAttached(ctx, s, found)
	default:
		err = api.Errorf(api.ErrUsage, "--for %q is nothing to wait for", is)
	}
	item.Met = item.Reason == ""
	return item, err
}

// noPlugin refuses a plugin that is none: of that nothing would ever be there.
func (w *Waiter) noPlugin(f *Find, s *subject) error {
	if s.Plugin == "" || s.seen || slices.Contains(paths.KubernetesPlugins, s.Plugin) ||
		slices.ContainsFunc(f.places, func(p place) bool { return p.Plugin == s.Plugin }) {
		return nil
	}
	_, err := w.mgr.FindPluginByName(s.Plugin)
	return err
}

// standing is how a place is, for who waits.
type standing int

const (
	down  standing = iota // nothing is mounted there that should be
	up                    // it is mounted, or is as it should be without
	maybe                 // nobody can tell
)

func (s *snapshot) standing(p place) standing {
	switch {
	case p.mount != nil && s.table.Visible(*p.mount):
		return up
	case p.mount != nil:
		return maybe // hidden under another mount
	case p.kind == api.KindPodDevice, plain(p.Path):
		return up
	case mayBePlain(p.Path):
		return maybe
	}
	return down
}

// whyNotMounted is "" where all that was found in pods, or was asked for by its path, is
// mounted, and something is.
func (s *snapshot) whyNotMounted(f found) string {
	if f.blind != "" {
		return f.blind
	}
	n := 0
	for _, p := range f.places {
		if !f.counts(p) {
			continue
		}
		switch n++; s.standing(p) {
		case down:
			return fmt.Sprintf("nothing is mounted on %s", p.path)
		case maybe:
			return fmt.Sprintf("whether it is mounted on %s is not known", p.path)
		}
	}
	if n == 0 {
		return f.none
	}
	return ""
}

// whyNotUnmounted is "" where nothing is left, and nothing that could be its own.
func (s *snapshot) whyNotUnmounted(f found) string {
	left, unknown := 0, 0
	for _, p := range f.places {
		switch s.standing(p) {
		case up:
			left++
		case maybe:
			unknown++
		}
	}
	switch {
	case left > 0:
		return api.Count(left, "mount, device or directory of it is left", "mounts, devices or directories of it are left")
	case unknown > 0:
		return "whether " + api.Count(unknown, "place of it is unmounted is not known", "places of it are unmounted is not known")
	case f.blind != "":
		return f.blind
	case len(f.candidates) > 0:
		return api.Count(len(f.candidates), "mount", "mounts") + " could be of it, as neither path nor metadata give the name: " + strings.Join(f.candidates, ", ")
	case f.elsewhere != nil:
		return f.elsewhere() // last, as it reads the tables of all of them
	}
	return ""
}

func whyNotHealthy(f found, items []api.Mount) string {
	if f.blind != "" {
		return f.blind
	}
	for _, m := range items {
		if m.State != api.StateOK {
			return strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", m.Path, m.State, m.StateReason), ": ")
		}
	}
	if !slices.ContainsFunc(f.places, f.counts) {
		return f.none
	}
	return ""
}

// whyNotAttached asks as kvol attach --check does. That a driver is not there, or does
// not answer, may change; that nobody can tell does not.
func (w *Waiter) whyNotAttached(ctx context.Context, s *subject, found found) (string, error) {
	if found.kind == "device" {
		return found.blind, nil
	}
	specs, err := w.specsOf(s, found)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for _, of := range specs {
		err := w.req.Attached(ctx, of.spec, of.podUID)
		if errors.Is(err, api.ErrNotFound) || errors.Is(err, api.ErrMissingTool) || errors.Is(err, api.ErrTimeout) {
			return err.Error(), nil
		}
		if s.Spec == nil && errors.Is(err, api.ErrInput) {
			return "", cannotTell(fmt.Errorf("what the disk tells of it is not enough: %w", err))
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func cannotTell(why error) error {
	return api.Errorf(api.ErrUncertain, "whether it is attached cannot be known: %w", why).
		WithNext("give the volume's document: kvol wait -f pv.yaml --for=attached")
}

type specOf struct {
	spec   *plugins.Spec
	podUID string
}

// specsOf are the specs of what is waited for: that of the document, or what the disk
// tells, which has to be of every volume.
func (w *Waiter) specsOf(s *subject, found found) ([]specOf, error) {
	if s.Spec != nil {
		return []specOf{{s.Spec, s.PodUID}}, nil
	}
	told := map[string]specOf{}
	untold := map[string]error{}
	for _, p := range found.places {
		name := p.Plugin + " " + p.name()
		if _, ok := told[name]; ok || p.name() == "" || p.kind == api.KindOther || p.kind == api.KindSubPath {
			continue
		}
		untold[name] = errors.New("its place on the disk does not tell what it is")
		if plugin, err := w.mgr.FindPluginByName(p.Plugin); err != nil {
			untold[name] = err
		} else if r, err := reconstruct(plugin, p); err == nil {
			told[name] = specOf{r.Spec, p.PodUID}
		}
	}
	var out []specOf
	why := errors.New("nothing on this node tells which volume that is")
	for name, err := range untold {
		if of, ok := told[name]; ok {
			out = append(out, of)
		} else {
			why = err
		}
	}
	if len(out) == 0 || len(out) < len(untold) {
		return nil, cannotTell(why)
	}
	return out, nil
}

// inPods are the places that a pod has of a volume.
func inPods(p place) bool {
	return p.PodUID != "" && (p.kind == api.KindPodVolume || p.kind == api.KindPodDevice || p.kind == api.KindGlobalMapDevice)
}

// at says whether a place is what a path names: of a CSI volume the mount is in its
// directory.
func (p place) at(path string) bool {
	return p.path == path || p.Plugin == paths.CSIPlugin && p.kind == api.KindPodVolume && p.path == path+"/mount"
}
