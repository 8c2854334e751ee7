package act

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
)

// Elsewhere is what is mounted in all mount namespaces, by what it is mounted on. The
// zero value has not been looked for yet.
type Elsewhere struct {
	at    map[place][]string
	taken time.Time
}

// elsewhereAge is how long one look at all mount namespaces holds. A node has some
// hundred of them, and an operation that removes thousands of directories would read
// nothing else; a mount that comes between a look and the rmdir is never seen anyway.
const elsewhereAge = time.Second

// notElsewhere refuses to remove what is a mount point in another mount namespace:
// the kernel takes those mounts off with it (detach_mounts, since Linux 3.18), under
// the pods that use them. Copies of a mount that was popped here just now may go,
// as the kubelet has it.
func (r *Runner) notElsewhere(path string) error {
	at, ok := r.locate(path)
	if !ok || r.popped[path] {
		return nil
	}
	fresh := r.Elsewhere.at == nil || !r.DryRun && time.Since(r.Elsewhere.taken) > elsewhereAge
	if fresh {
		*r.Elsewhere = r.lookElsewhere()
	}
	found := r.Elsewhere.at[at]
	if len(found) > 0 && !fresh && !r.DryRun {
		*r.Elsewhere = r.lookElsewhere() // it may have gone with what was unmounted since
		found = r.Elsewhere.at[at]
	}
	if len(found) == 0 {
		return nil
	}
	e := api.Errorf(api.ErrBusy, "nothing is mounted there, but in another mount namespace there is, and removing the directory would take that away").At(path)
	e.Details = found
	return e.WithNext("run the same command in that mount namespace: nsenter -t PID -m; or end what is in it")
}

func (r *Runner) lookElsewhere() Elsewhere {
	out := Elsewhere{at: map[place][]string{}, taken: time.Now()}
	// A table that cannot be read is of a process that ends.
	_ = r.Devices.EachMountNamespace(func(pid int, ns string, t *mounts.Table) {
		byID := make(map[int]mounts.Mount, len(t.Mounts))
		for _, m := range t.Mounts {
			byID[m.ID] = m
		}
		for _, m := range t.Mounts {
			on, ok := byID[m.Parent]
			if !ok {
				continue
			}
			at := place{on.Major, on.Minor, filepath.Join(on.Root, strings.TrimPrefix(m.MountPoint, on.MountPoint))}
			out.at[at] = append(out.at[at], fmt.Sprintf("%s (%s) is mounted at %q in mount namespace %s, of process %d", m.Source, m.FSType, m.MountPoint, ns, pid))
		}
	})
	return out
}
