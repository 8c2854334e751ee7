package devices

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
func (d *Devices) EachMountNamespace(look func(pid int, ns string, table *mounts.Table)) error {
	pids, err := d.pids()
	if err != nil {
		return err
	}
	var errs []error
	seen, own := map[string]bool{}, d.OwnMountNamespace()
	for _, pid := range pids {
		dir := filepath.Join(d.ProcRoot, strconv.Itoa(pid))
		ns, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err != nil || seen[ns] {
			continue // a kernel thread or a process that has ended
		}
		table, err := mounts.Read(filepath.Join(dir, "mountinfo"))
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
	return errors.Join(errs...)
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
