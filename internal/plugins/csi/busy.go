package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/procs"
)

// maxHolders is how many of those who keep a mount busy are named.
const maxHolders = 20

// busy says who keeps the mount that a driver refused to take off: few drivers do.
// An error that may be of anything else stays as it is.
func (d *driver) busy(ctx context.Context, run *act.Runner, path string, err error) error {
	if !ended(err) || run.Reload() != nil {
		return err
	}
	if _, mounted := run.Table().Top(path); !mounted {
		return err
	}
	var holders []string
	for _, m := range run.Table().Under(path) {
		if m.MountPoint != path {
			holders = append(holders, fmt.Sprintf("holder mount %q: %s on %s", m.MountPoint, m.FSType, m.Source))
		}
	}
	// Whoever cannot be looked at is not named.
	_, _ = procs.Uses(ctx, d.procRoot, map[int]bool{os.Getpid(): true}, func(u procs.Use) {
		if below(filepath.Clean(u.Path), path) {
			holders = append(holders, fmt.Sprintf("holder %s %q by process %d (%s)", u.How, u.Path, u.PID, procs.Command(d.procRoot, u.PID)))
		}
	})
	if len(holders) == 0 {
		return err
	}
	e := api.Errorf(api.ErrBusy, "the driver did not take it off, and somebody uses it: %w", err).At(path)
	e.Details = holders[:min(len(holders), maxHolders)]
	return e.WithNext("end what uses it and run the same command again; see also: fuser -vm %s", act.Quote(path))
}
