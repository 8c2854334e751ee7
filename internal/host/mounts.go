package host

import (
	"context"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
)

// Mounts reads the mount table. It reports lines that it could not read.
func (h *Host) Mounts() (*mounts.Table, error) { return h.told(mounts.Read(h.mountinfo())) }

// RecentMounts is Mounts for who looks at the node first of all: the table that [New] has
// read, once, if nothing has been mounted or unmounted since. To print it is the most
// that the kernel has to do for a list.
func (h *Host) RecentMounts() (*mounts.Table, error) {
	defer h.recent.close()
	return h.told(h.recent.read(h.mountinfo()))
}

func (h *Host) mountinfo() string { return filepath.Join(h.ProcRoot, "self/mountinfo") }

func (h *Host) told(t *mounts.Table, err error) (*mounts.Table, error) {
	if err != nil {
		return nil, (&api.Error{Err: err}).WithNext("name the directory where proc is mounted: --proc-root DIR")
	}
	for _, b := range t.Bad {
		h.Warn(b.String())
	}
	return t, nil
}

// recent is a mount table and who tells whether it has changed since it was read.
type recent struct {
	table *mounts.Table
	watch *mounts.Watch
}

func (r *recent) read(path string) (*mounts.Table, error) {
	if r.watch != nil {
		if changed, err := r.watch.Wait(context.Background(), 0); err == nil && !changed {
			return r.table, nil
		}
		r.close()
	}
	w, err := mounts.NewWatch(path)
	if err != nil {
		return nil, err
	}
	t, err := mounts.Read(path)
	if err != nil {
		w.Close()
		return nil, err
	}
	r.table, r.watch = t, w
	return t, nil
}

func (r *recent) close() {
	if r.watch != nil {
		r.watch.Close()
		r.watch = nil
	}
}
