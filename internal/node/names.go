package node

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Seen is a place of a volume as far as its names tell, or a pod, which has no Path.
type Seen struct {
	Kind            api.MountKind
	Path            string
	Plugin, Volume  string
	Handle          string // driver^handle of a CSI volume, where its metadata was read
	PodUID, PodName string // the name with its namespace
}

// podLogs has a directory for each pod that a kubelet runs: namespace_name_UID.
const podLogs = "/var/log/pods"

// Glance tells what is on the node from the names on disk and from a mount table, which
// the file mountinfo has: no volume is touched, nobody is asked, nothing is written. It
// is for whoever has no time: found gets all that is known so far, again and again.
// With a pod it is only about that one.
func Glance(ctx context.Context, h *host.Host, mountinfo, pod string, found func([]Seen)) {
	table, err := mounts.Read(mountinfo)
	if err != nil {
		return
	}
	g := &glance{snapshot: &snapshot{host: h, table: table}, pod: pod, names: map[string]string{}, handles: map[string]string{}}
	g.mounted()
	found(g.seen())
	root, err := h.Root()
	if err != nil {
		return
	}
	g.podNames(ctx)
	w := walker{snapshot: g.snapshot, root: root}
	pods := filepath.Join(root.Path(), "pods")
	uids := []string{pod}
	if pod == "" {
		uids = g.listPods(root, pods)
	}
	const some = 100
	for i, uid := range uids {
		if i%some == 0 {
			found(g.seen())
		}
		if ctx.Err() != nil {
			return
		}
		w.dir(filepath.Join(pods, uid))
	}
	if pod == "" {
		w.dir(filepath.Join(root.Path(), "plugins"))
	}
	found(g.seen())
	if pod == "" {
		g.tell()
	}
	for _, p := range g.places {
		if _, ok := g.handles[p.name()]; !ok && ctx.Err() == nil && (pod == "" || p.PodUID == pod) {
			g.handles[p.name()] = g.handleOf(p)
		}
	}
	found(g.seen())
}

type glance struct {
	*snapshot
	pod     string
	pods    []string
	names   map[string]string // of the pods, by UID
	handles map[string]string // by the name of a volume
}

func (g *glance) listPods(root *safefs.Root, dir string) []string {
	entries, _ := root.ReadDir(dir)
	for _, e := range entries {
		if e.Type == safefs.Dir {
			g.pods = append(g.pods, e.Name)
		}
	}
	return g.pods
}

func (g *glance) podNames(ctx context.Context) {
	dirs, err := g.host.FilesBy(g.table).Names(ctx, podLogs)
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if f := strings.Split(dir, "_"); len(f) == 3 {
			g.names[f[2]] = f[0] + "/" + f[1]
		}
	}
}

// seen is what is known now. It shares nothing with what is found later.
func (g *glance) seen() []Seen {
	var out []Seen
	for _, uid := range g.pods {
		out = append(out, Seen{PodUID: uid, PodName: g.names[uid]})
	}
	for _, p := range g.places {
		if g.pod == "" || p.PodUID == g.pod {
			out = append(out, Seen{Kind: p.kind, Path: p.path, Plugin: p.Plugin, Volume: p.name(), Handle: g.handles[p.name()],
				PodUID: p.PodUID, PodName: g.names[p.PodUID]})
		}
	}
	return out
}
