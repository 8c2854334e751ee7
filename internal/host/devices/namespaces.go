package devices

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
)

// OwnMountNamespace is the name of kvol's own mount namespace, as Holder has it.
func (d *Devices) OwnMountNamespace() string {
	ns, err := os.Readlink(filepath.Join(d.ProcRoot, "self/ns/mnt"))
	if err != nil {
		return "" // no holder has that name
	}
	return ns
}

// EachMountNamespace reads the mount table of every mount namespace that a process
// is in, each once, by a process that is in it. A namespace that only a descriptor
// or a bind keeps alive is not found. The error joins the tables that could not be
// read.
//
// A process in a chroot is shown only the mounts below it, by the paths that they have
// there. Such a table counts where nobody is in the namespace without a chroot; then
// those of all its chroots are put together, each mount once.
func (d *Devices) EachMountNamespace(look func(pid int, ns string, table *mounts.Table)) error {
	pids, err := d.pids()
	if err != nil {
		return err
	}
	var errs []error
	seen, jails := map[string]bool{}, map[string][]jail{}
	own := d.OwnMountNamespace()
	for _, pid := range pids {
		ns, root, err := d.view(pid)
		if err != nil || seen[ns] {
			continue // a kernel thread or a process that has ended
		}
		if root != "/" {
			jails[ns] = append(jails[ns], jail{pid, root})
			continue
		}
		table, err := d.tableOf(pid)
		if errors.Is(err, api.ErrNotFound) {
			continue // ended meanwhile: another process of that namespace will do
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("mount namespace %s: %w", ns, err))
			continue
		}
		seen[ns] = true
		if ns == own {
			d.asSeenHere(table)
		}
		look(pid, ns, table)
	}
	for _, ns := range slices.Sorted(maps.Keys(jails)) {
		if seen[ns] {
			continue
		}
		table, err := d.together(jails[ns])
		if err != nil {
			errs = append(errs, fmt.Errorf("mount namespace %s: %w", ns, err))
		}
		if table == nil {
			continue
		}
		if ns == own {
			d.asSeenHere(table)
		}
		look(jails[ns][0].pid, ns, table)
	}
	return errors.Join(errs...)
}

// jail is a process in a chroot.
type jail struct {
	pid  int
	root string // as it is called from outside
}

// view gives the mount namespace of a process and what it has as /, "/" where that is
// all of it.
func (d *Devices) view(pid int) (ns, root string, err error) {
	dir := filepath.Join(d.ProcRoot, strconv.Itoa(pid))
	if ns, err = os.Readlink(filepath.Join(dir, "ns/mnt")); err != nil {
		return "", "", err
	}
	root, err = os.Readlink(filepath.Join(dir, "root"))
	return ns, root, err
}

func (d *Devices) tableOf(pid int) (*mounts.Table, error) {
	return mounts.Read(filepath.Join(d.ProcRoot, strconv.Itoa(pid), "mountinfo"))
}

// together is what the chroots of one namespace show, nil where all have ended.
func (d *Devices) together(jails []jail) (*mounts.Table, error) {
	var all *mounts.Table
	var errs []error
	roots, ids := map[string]bool{}, map[int]bool{}
	for _, j := range jails {
		if roots[j.root] {
			continue
		}
		table, err := d.tableOf(j.pid)
		if err != nil {
			if !errors.Is(err, api.ErrNotFound) {
				errs = append(errs, err)
			}
			continue
		}
		roots[j.root] = true
		if all == nil {
			all = &mounts.Table{}
		}
		all.Bad, all.Changed = append(all.Bad, table.Bad...), all.Changed || table.Changed
		for _, m := range table.Mounts {
			if !ids[m.ID] {
				ids[m.ID], all.Mounts = true, append(all.Mounts, m)
			}
		}
	}
	return all, errors.Join(errs...)
}

// asSeenHere gives the mounts of this process's own namespace the paths that this
// process has for them. They are others where it runs in a chroot and the table is
// that of a process that does not; a mount without any keeps its path behind the
// word that getcwd(2) has for that.
func (d *Devices) asSeenHere(table *mounts.Table) {
	mine, err := mounts.Read(filepath.Join(d.ProcRoot, "self/mountinfo"))
	if err != nil {
		return
	}
	paths := make(map[int]string, len(mine.Mounts))
	for _, m := range mine.Mounts {
		paths[m.ID] = m.MountPoint
	}
	for i, m := range table.Mounts {
		if path, ok := paths[m.ID]; ok {
			table.Mounts[i].MountPoint = path
		} else {
			table.Mounts[i].MountPoint = "(unreachable)" + m.MountPoint
		}
	}
}
