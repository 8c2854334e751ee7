package node

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/node/alive"
)

// settle is how long a change waits for more of them: a pod that starts makes many.
// Where a look takes longer than that, it waits as long, so that watching takes at most
// half of the time however much changes.
const settle = 50 * time.Millisecond

// lookLimit is how long one look may take: what has not answered then is unknown.
const lookLimit = 10 * time.Second

// changes waits until it is worth to look at the node again.
type changes struct {
	host     *host.Host
	watch    *mounts.Watch
	interval time.Duration
	seen     []mounts.Mount // below the root
	began    time.Time      // of the last look
	took     time.Duration
}

func newChanges(h *host.Host, interval time.Duration) (*changes, error) {
	w, err := mounts.NewWatch(filepath.Join(h.ProcRoot, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	return &changes{host: h, watch: w, interval: interval}, nil
}

// Close ends the watch.
func (c *changes) Close() { c.watch.Close() }

// begin says that a look begins: what changes from here on is for the next one.
func (c *changes) begin(ctx context.Context) {
	_, _ = c.watch.Wait(ctx, 0)
	c.began = time.Now()
}

// end says what a look has seen.
func (c *changes) end(s *snapshot) {
	c.seen, c.took = s.table.Under(s.host.Layout.Root), time.Since(c.began)
}

// Wait waits until the mounts below the root changed, or the interval has passed. The
// error is that of a context that ended.
func (c *changes) Wait(ctx context.Context) error {
	for {
		changed, err := c.watch.Wait(ctx, time.Until(c.began.Add(c.interval)))
		if err != nil || !changed {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(settle, min(c.took, c.interval))):
		}
		_, _ = c.watch.Wait(ctx, 0)
		table, err := c.host.Mounts()
		if err != nil || table.Changed || !reflect.DeepEqual(table.Under(c.host.Layout.Root), c.seen) {
			return err
		}
	}
}

// Watcher tells what changes in a list, one look after the other.
type Watcher struct {
	*changes
	list  ListOptions
	known map[string]api.Mount // by path
}

// NewWatcher looks at nothing yet. States, and directories that nothing is mounted on,
// are asked anew every interval.
func NewWatcher(h *host.Host, o ListOptions, interval time.Duration) (*Watcher, error) {
	c, err := newChanges(h, interval)
	if err != nil {
		return nil, err
	}
	o.memory = &memory{interval: interval}
	return &Watcher{changes: c, list: o, known: map[string]api.Mount{}}, nil
}

// memory is what a watch keeps from one look to the next.
type memory struct {
	interval time.Duration
	looked   bool
	devices  []devices.Device // those of the list, which may be gone by now
	sets     *alive.Sets      // what was said of the pods
	pods     map[string]bool  // that it was said of
	asked    time.Time
}

// keep remembers what was said of the pods of some places.
func (m *memory) keep(sets *alive.Sets, places []place) {
	m.sets, m.asked, m.pods = sets, time.Now(), map[string]bool{}
	for _, p := range places {
		m.pods[p.PodUID] = true
	}
}

// knows says whether the pods of some places need not be asked for again.
func (m *memory) knows(places []place) bool {
	return m != nil && time.Since(m.asked) < m.interval && !slices.ContainsFunc(places, func(p place) bool { return !m.pods[p.PodUID] })
}

// Look gives what changed since the last look; at first all there is was added.
func (w *Watcher) Look(ctx context.Context) ([]api.MountEvent, []string, error) {
	w.begin(ctx)
	within, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	l, s, err := list(within, w.host, w.list)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err() // what was not asked to its end is no change
	}
	if err != nil {
		return nil, nil, err
	}
	w.list.memory.looked = true
	w.end(s)
	return w.events(l.Items, s.unsure), l.Warnings, nil
}

// events compares the list with the one before. What could not be looked at is not
// known to be gone.
func (w *Watcher) events(items []api.Mount, unsure func(path string) bool) []api.MountEvent {
	var out []api.MountEvent
	event := func(is api.EventType, m api.Mount) {
		out = append(out, api.MountEvent{APIVersion: api.Version, Kind: "MountEvent", Type: is, Time: w.began.UTC(), Object: m})
	}
	now := map[string]api.Mount{}
	for _, m := range items {
		now[m.Path] = m
	}
	for path, m := range w.known {
		if _, there := now[path]; there {
			continue
		}
		if unsure(path) {
			now[path] = m
		} else {
			event(api.EventRemoved, m)
		}
	}
	slices.SortFunc(out, func(a, b api.MountEvent) int { return strings.Compare(b.Object.Path, a.Object.Path) }) // the innermost first
	for _, m := range items {
		if was, there := w.known[m.Path]; !there {
			event(api.EventAdded, m)
		} else if !alike(was, m) {
			event(api.EventModified, m)
		}
	}
	w.known = now
	return out
}

// alike says whether nothing changed that is told: how full a file system is, and how
// long it has not answered, changes all the time.
func alike(a, b api.Mount) bool {
	for _, m := range []*api.Mount{&a, &b} {
		m.CapacityBytes, m.UsedBytes, m.AvailableBytes, m.StateReason = 0, 0, 0, ""
	}
	return reflect.DeepEqual(a, b)
}
