package act

import (
	"context"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
)

// IsMemory says that what a mount holds is gone once nothing shows it any more.
func IsMemory(m mounts.Mount) bool {
	return slices.Contains([]string{"tmpfs", "hugetlbfs", "ramfs"}, m.FSType)
}

// ShownElsewhere says whether all that a mount shows is shown by another one.
func (r *Runner) ShownElsewhere(m mounts.Mount) bool {
	return slices.ContainsFunc(r.table.SameDevice(m.Major, m.Minor), func(o mounts.Mount) bool {
		return o.ID != m.ID && within(m.Root, o.Root)
	})
}

// keepsMemory refuses to unmount the last of a file system in memory that holds
// something: no volume that is taken down is one, and what is in it is somebody's data.
func (r *Runner) keepsMemory(ctx context.Context, path string) error {
	top, mounted := r.table.Top(path)
	if !mounted || r.DiscardEphemeral || top.ID < 0 || !IsMemory(top) || r.ShownElsewhere(top) {
		return nil
	}
	e, err := r.Entry(path)
	if err != nil || e.Type != safefs.Dir {
		return err
	}
	writer := slices.Contains(safefs.AtomicWriters, r.Layout.Parse(path).Plugin)
	c, err := r.Contents(ctx, path, writer)
	if err != nil || c.Entries == 0 {
		return err
	}
	return api.Errorf(api.ErrNotEmpty, "a %s is mounted there that nothing else shows, and it holds %s (%s), which would be lost", top.FSType, c, strings.Join(c.Names, ", ")).
		At(path).WithNext("find out whose it is and copy what is in it to a safe place; then unmount it by hand (umount %s) and run the same command again", Quote(path))
}
