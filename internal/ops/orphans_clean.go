package ops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/procs"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
)

// cleaner takes one leftover away, or plans to, by its runner. What cannot go stays,
// with the reason, and the rest goes on.
type cleaner struct {
	*gc
	run   *act.Runner
	o     *node.Leftover
	stays []api.Stay
	err   error // the worst of what failed
}

// stay records what does not go.
func (c *cleaner) stay(path, by, next, reason string, args ...any) {
	c.stays = append(c.stays, api.Stay{Path: path, BlockedBy: by, Reason: fmt.Sprintf(reason, args...), Next: next})
}

// do carries one action out, and says whether what it is about is gone.
func (c *cleaner) do(ctx context.Context, path string, a act.Action) bool {
	_, err := c.run.Do(ctx, a)
	return c.did(path, err)
}

// did records why something stays after all.
func (c *cleaner) did(path string, err error) bool {
	if err == nil {
		return true
	}
	doc := api.NewErrorDoc(err)
	by := api.BlockedByError
	switch kind := api.KindOf(err); {
	case errors.Is(kind, api.ErrNotEmpty):
		by = api.BlockedByData
	case errors.Is(kind, api.ErrBusy):
		by = api.BlockedByBusy
		doc.Details = append(doc.Details, c.holders(path)...)
	case errors.Is(kind, api.ErrMissingTool):
		by = api.BlockedByDriver
	}
	reason := doc.Message
	if len(doc.Details) > 0 {
		reason += ": " + strings.Join(doc.Details, "; ")
	}
	c.stay(path, by, doc.Next, "%s", reason)
	c.err = worse(c.err, err)
	return false
}

// holders names the processes that keep something below a path, by what /proc says.
func (c *cleaner) holders(path string) []string {
	var out []string
	if c.run.DryRun {
		return nil // the sources of life have looked
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.host.ProbeTimeout)
	defer cancel()
	self := map[int]bool{os.Getpid(): true, c.host.Helper.PID(): true}
	// What cannot be looked at names nobody; the refusal stands without.
	_, _ = procs.Uses(ctx, c.host.ProcRoot, self, func(u procs.Use) {
		if u.Path == path || strings.HasPrefix(u.Path, path+"/") {
			out = append(out, fmt.Sprintf("process %d (%s) has %s: %s", u.PID, procs.Command(c.host.ProcRoot, u.PID), u.Path, u.How))
		}
	})
	return out[:min(len(out), 10)]
}

// worse is the one of two errors that says more of how it ended: it may have happened,
// it failed, it was refused.
func worse(a, b error) error {
	rank := []api.Outcome{api.OutcomeDone, api.OutcomeRefused, api.OutcomeFailed, api.OutcomeUncertain}
	if slices.Index(rank, api.OutcomeOf(b)) > slices.Index(rank, api.OutcomeOf(a)) {
		return b
	}
	return a
}

// podOrder is the kubelet's own: containers' binds of volumes first, since they keep
// them busy, then the volumes, and what tells of them last.
var podOrder = []string{"volume-subpaths", "volumes", "volumeDevices", "plugins", "containers", "etc-hosts", "userns"}

// known are the directories of a pod that hold nothing but what the layout has in them.
var known = map[paths.Kind]bool{
	paths.PodDir: true, paths.PodVolumesDir: true, paths.PodVolumePluginDir: true, paths.PodDevicesDir: true,
	paths.PodDeviceDir: true, paths.SubPathsDir: true, paths.SubPathVolumeDir: true, paths.SubPathContainerDir: true,
	paths.PodPluginsDir: true, paths.PodPluginDir: true, paths.PodPluginVolumeDir: true,
	paths.PodContainersDir: true, paths.PodContainerDir: true,
	paths.CSIVolumeDir: true, paths.CSIBlockDir: true, paths.CSIBlockDataDir: true, paths.GlobalMapDir: true,
	paths.CSIBlockPublishDir: true,
}

// sweep takes away what is at a path, bottom up: volumes by their plugins, files of the
// metadata list, empty directories. It says whether all of it is gone.
func (c *cleaner) sweep(ctx context.Context, path string) bool {
	at := c.host.Layout.Parse(path)
	e, err := c.run.Entry(path)
	if err != nil || !e.Present {
		return c.did(path, err)
	}
	switch {
	case at.Rest != "":
	case at.Kind == paths.PodVolume && e.Type == safefs.Dir:
		return c.volume(ctx, path, at)
	case at.Kind == paths.PodDevice && e.Type == safefs.Symlink:
		return c.podDevice(ctx, path, at)
	case at.Kind == paths.SubPath:
		return c.subPath(ctx, path, at)
	case at.Kind == paths.GlobalMapDevice, at.Kind == paths.CSIBlockPublish, at.Kind == paths.CSIBlockPublishDir && e.Type == safefs.File:
		return c.mapDevice(ctx, path)
	}
	switch {
	case e.Mounted:
		return c.foreign(path)
	case e.Type == safefs.Dir:
		return c.directory(ctx, path, at)
	}
	what := safefs.MetaAt(c.host.Layout, path)
	if what == "" || what == safefs.AtomicWriterFile {
		return c.data(path, safefs.Contents{Entries: 1, Bytes: e.Size, Names: []string{filepath.Base(path)}})
	}
	return c.do(ctx, path, act.Unlink{Path: path, What: what, Reason: "the " + string(what)})
}

// directory takes away a directory that holds others, or is empty.
func (c *cleaner) directory(ctx context.Context, path string, at paths.Path) bool {
	if !known[at.Kind] || at.Rest != "" {
		return c.empty(ctx, path, false)
	}
	names, err := c.run.Names(path)
	if err != nil {
		return c.did(path, err)
	}
	if at.Kind == paths.PodDir {
		slices.SortStableFunc(names, func(a, b string) int {
			return slices.Index(podOrder, a) - slices.Index(podOrder, b)
		})
		// What the layout does not know comes first and is only looked at.
	}
	all := true
	for _, name := range names {
		all = c.sweep(ctx, filepath.Join(path, name)) && all
	}
	return all && c.do(ctx, path, act.Rmdir{Path: path, Reason: "the empty directory of a pod that is gone"})
}

// empty removes a directory in which there is nothing; writer does not count the
// atomic writer's own.
func (c *cleaner) empty(ctx context.Context, path string, writer bool) bool {
	e, err := c.run.Entry(path)
	if err != nil || !e.Present {
		return c.did(path, err)
	}
	if inside := c.run.Table().Under(path); len(inside) > 0 {
		return c.foreign(inside[0].MountPoint)
	}
	holds, err := c.run.Contents(ctx, path, writer)
	if err != nil {
		return c.did(path, err)
	}
	if holds.Entries > 0 {
		return c.data(path, holds)
	}
	if writer && !c.written(ctx, path) {
		return false
	}
	return c.do(ctx, path, act.Rmdir{Path: path, Reason: "the empty directory of a pod that is gone"})
}

// written removes the atomic writer's own files and links from a directory, and what
// it is empty of then. The links go first: what they lead to is there as long as they.
func (c *cleaner) written(ctx context.Context, dir string) bool {
	names, err := c.run.Names(dir)
	if err != nil {
		return c.did(dir, err)
	}
	slices.SortStableFunc(names, func(a, b string) int { return hidden(a) - hidden(b) })
	for _, name := range names {
		path := filepath.Join(dir, name)
		e, err := c.run.Entry(path)
		if err != nil {
			return c.did(path, err)
		}
		if e.Type == safefs.Dir {
			if !c.written(ctx, path) || !c.do(ctx, path, act.Rmdir{Path: path, Reason: "the atomic writer's directory"}) {
				return false
			}
			continue
		}
		if !c.do(ctx, path, act.Unlink{Path: path, What: safefs.AtomicWriterFile, Reason: "the atomic writer's own"}) {
			return false
		}
	}
	return true
}

func hidden(name string) int {
	if strings.HasPrefix(name, "..") {
		return 1
	}
	return 0
}

// foreign leaves what somebody mounted where the layout mounts nothing.
func (c *cleaner) foreign(path string) bool {
	m, _ := c.run.Table().Top(path)
	c.stay(path, api.BlockedByMount, "find out whose it is and unmount it there: findmnt --mountpoint "+act.Quote(path),
		"%s (%s) is mounted there, which is no mount that a kubelet makes", m.Source, m.FSType)
	return false
}

// data leaves what is somebody's.
func (c *cleaner) data(path string, holds safefs.Contents) bool {
	next := "look at it (ls -la " + act.Quote(path) + ") and move it to a safe place"
	switch top, _ := c.run.Table().Top(path); {
	case act.IsMemory(top):
		next += "; or: --discard-ephemeral"
	case c.ephemeral(path):
		next += "; or: --discard-ephemeral --quarantine DIR"
	}
	c.stay(path, api.BlockedByData, next, "it holds %s (%s), and kvol deletes no data", holds, quoted(holds.Names))
	return false
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(out, ", ")
}
