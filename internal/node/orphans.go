package node

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/kubelet"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/paths"
)

// Leftover is one thing on the node and what is known of whose it is.
type Leftover struct {
	api.Orphan
	At paths.Path
	// Born is the birth of its directory, zero where that cannot be seen.
	Born time.Time
	// After are the paths of the leftovers that use it and go first.
	After []string
	// Volumes are the names of the volumes in it: what a lock is taken on.
	Volumes []string
	// Handle is a CSI volume's driver^handle, "" where nothing tells.
	Handle string
}

// Leftovers is everything on the node that is of a pod, or of none: the pods'
// directories first, then what they use, then the block maps.
type Leftovers struct {
	*snapshot
	Items []Leftover
	// Kubelet runs on this root, nil where none does. It has no number where only its
	// answer tells.
	Kubelet *kubelet.Process

	sets   *alive.Sets
	minAge time.Duration
	now    time.Time
	pods   map[string]int // where in Items a pod's directory is, by uid
	uses   []use          // what pods have of volumes

	asked     bool // the API server, for what it knows of the node's volumes
	nv        alive.NodeVolumes
	nvErr     error
	others    map[string][]elsewhere // mounts in other mount namespaces, by device
	othersErr error
}

// NewLeftovers looks at the node and says of everything whether its pod is gone.
// Nothing is asked of a volume's file system: the mount table and the kubelet's own
// directories tell.
func NewLeftovers(ctx context.Context, h *host.Host, sets *alive.Sets, minAge time.Duration) (*Leftovers, error) {
	s, err := look(h)
	if err != nil {
		return nil, err
	}
	l := &Leftovers{snapshot: s, sets: sets, minAge: minAge, now: time.Now(), pods: map[string]int{}}
	if err := l.findKubelet(ctx); err != nil {
		return nil, err
	}
	if err := l.podDirs(); err != nil {
		return nil, err
	}
	l.findUses()
	if err := l.nodeWide(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// uidForm is what the name of a pod's directory looks like: the uid that an API server
// gives, or the hash of a static pod's manifest. A manifest can set any other, which
// cannot be told from a directory that somebody made.
var uidForm = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

func (l *Leftovers) podDirs() error {
	root, err := l.host.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root.Path(), "pods")
	entries, err := root.ReadDir(dir)
	if err != nil && api.ExitCode(err) != api.ExitNotFound {
		return err
	}
	for _, e := range entries {
		l.Items = append(l.Items, l.podDir(root, filepath.Join(dir, e.Name), e))
	}
	for i := range l.Items {
		if uid := l.Items[i].PodUID; uid != "" {
			l.pods[uid] = i
		}
	}
	return nil
}

// pod is the leftover that is a pod's directory, nil where there is none; it is valid
// until Items grows.
func (l *Leftovers) pod(uid string) *Leftover {
	if i, ok := l.pods[uid]; ok {
		return &l.Items[i]
	}
	return nil
}

func (l *Leftovers) podDir(root *safefs.Root, path string, e safefs.Entry) Leftover {
	o := Leftover{Orphan: api.Orphan{Kind: api.OrphanPodDir, Path: path, Verdict: api.VerdictUnknown}, At: l.host.Layout.Parse(path)}
	info, err := root.Stat(path)
	switch {
	case err != nil:
		o.Reason = err.Error()
		return o
	case e.Type != safefs.Dir:
		o.Reason = "it is a " + string(e.Type) + ", not a pod's directory"
		return o
	case !uidForm.MatchString(e.Name):
		o.Reason = "its name is no pod uid that an API server or a manifest gives"
		return o
	case info.MountRoot:
		o.PodUID, o.BlockedBy, o.Reason = e.Name, api.BlockedByMount, "something is mounted on it"
		o.Next = "see what it is: findmnt --mountpoint " + act.Quote(path)
		return o
	}
	o.PodUID = e.Name
	o.born(info)
	o.Verdict, o.Evidence = l.sets.Verdict(o.PodUID, o.Born)
	if p, ok := l.sets.Pod(o.PodUID); ok {
		o.PodName, o.Namespace = p.Name, p.Namespace
	}
	o.Reason = reasonOf(o.Verdict, o.Evidence)
	l.tooYoung(&o)
	return o
}

// born takes the birth of a directory, or its last change where none is kept.
func (o *Leftover) born(info safefs.Info) {
	if o.Born = info.Birth; o.Born.IsZero() {
		o.Born = info.ModTime
	}
	o.Since = o.Born.UTC()
}

// tooYoung leaves alone what is younger than --min-age: a new pod has a directory
// before any source knows it.
func (l *Leftovers) tooYoung(o *Leftover) {
	age := l.now.Sub(o.Born)
	if o.Verdict != api.VerdictOrphan || o.Born.IsZero() || age >= l.minAge {
		return
	}
	o.Verdict, o.BlockedBy = api.VerdictUnknown, api.BlockedByAge
	o.Reason = fmt.Sprintf("it is %s old, younger than --min-age %s", age.Round(time.Second), l.minAge)
	o.Next = "wait, or say --min-age"
}

// reasonOf says in a few words what the evidence comes to.
func reasonOf(v api.Verdict, evidence []api.Evidence) string {
	var alive, absent, silent []string
	for _, e := range evidence {
		switch e.Says {
		case api.SaysAlive:
			alive = append(alive, strings.TrimSuffix(e.Source+": "+e.Detail, ": "))
		case api.SaysAbsent:
			absent = append(absent, e.Source)
		default:
			silent = append(silent, e.Source)
		}
	}
	switch v {
	case api.VerdictLive:
		return "alive by " + strings.Join(alive, "; ")
	case api.VerdictOrphan:
		return "not known to " + strings.Join(absent, ", ")
	}
	return "not proven gone: no word from " + strings.Join(silent, ", ")
}

// Pods counts the directories of pods, and those that are proven gone.
func (l *Leftovers) Pods() (all, gone int) {
	for _, o := range l.Items {
		if o.Kind != api.OrphanPodDir || o.PodUID == "" {
			continue
		}
		all++
		if o.Verdict == api.VerdictOrphan {
			gone++
		}
	}
	return all, gone
}

// Warnings are what could not be looked at, each once.
func (l *Leftovers) Warnings() []string {
	var out []string
	for _, w := range l.warnings {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// Table is the mount table of this look.
func (l *Leftovers) Table() *mounts.Table { return l.table }

// Find gives a leftover by its kind and path.
func (l *Leftovers) Find(kind api.OrphanKind, path string) (*Leftover, bool) {
	for i := range l.Items {
		if o := &l.Items[i]; o.Path == path && o.Kind == kind {
			return o, true
		}
	}
	return nil, false
}
