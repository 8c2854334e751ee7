package ops

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// sessions are the plugins whose global mounts have a device behind them that the
// node is logged in to: without them kvol would leave the session behind.
var sessions = []string{paths.ISCSIPlugin, paths.FCPlugin, paths.RBDPlugin}

// wide takes away what is not in a pod's directory, once the pods are rid of it.
func (c *cleaner) wide(ctx context.Context) bool {
	for _, path := range c.o.After {
		e, err := c.run.Entry(path)
		if err != nil {
			return c.did(path, err)
		}
		if e.Present {
			c.stay(c.o.Path, api.BlockedByPod, "see what keeps that: kvol inspect "+act.Quote(path), "%s still has it", path)
			return false
		}
	}
	for _, m := range c.run.Table().Under(c.o.Path) {
		if c.host.Layout.Parse(m.MountPoint).MountKind() == api.KindOther {
			return c.foreign(m.MountPoint)
		}
	}
	switch c.o.Kind {
	case api.OrphanStaging:
		return c.staging(ctx)
	case api.OrphanGlobalMount:
		return c.globalMount(ctx)
	case api.OrphanBlockMap:
		return c.blockMap(ctx)
	}
	return c.do(ctx, c.o.Path, act.LoopDetach{Backing: c.o.Path, Reason: "it holds a device for a map that is gone"})
}

// ref names the leftover's volume.
func (c *cleaner) ref() plugins.Ref {
	return plugins.Ref{Name: c.o.At.Volume, VolumeName: c.o.Handle}
}

// staging has the driver unstage the volume. A directory that nothing is mounted on
// and whose metadata tells nothing has nobody to ask.
func (c *cleaner) staging(ctx context.Context) bool {
	target := filepath.Join(c.o.Path, "globalmount")
	if len(c.run.Table().At(target)) == 0 && c.o.Handle == "" {
		return c.bare(ctx, c.o.Path, target)
	}
	u, ok := c.deviceUnmounter()
	if !ok {
		c.stay(c.o.Path, api.BlockedByDriver, "take it down with one that has it; what this one has: kvol plugins", "this kvol has no CSI")
		return false
	}
	if !c.driver(c.o.Path, u.UnmountDevice(ctx, c.run, c.ref(), target)) {
		return false
	}
	return c.bare(ctx, c.o.Path, target)
}

func (c *cleaner) deviceUnmounter() (plugins.DeviceUnmounter, bool) {
	plugin, err := c.mgr.FindPluginByName(c.o.Plugin)
	if err != nil {
		return nil, false
	}
	p, err := plugins.As[plugins.DeviceMountableVolumePlugin](plugin)
	if err != nil {
		return nil, false
	}
	u, err := p.NewDeviceUnmounter()
	return u, err == nil
}

// globalMount unmounts the volume where it is mounted for the node.
func (c *cleaner) globalMount(ctx context.Context) bool {
	path := c.o.Path
	if u, ok := c.deviceUnmounter(); ok {
		return c.did(path, u.UnmountDevice(ctx, c.run, c.ref(), path)) && c.empty(ctx, path, false)
	}
	if !c.detachable() {
		return false
	}
	if _, err := c.run.UnmountAll(ctx, path, "no pod has the volume any more"); err != nil {
		return c.did(path, err)
	}
	return c.empty(ctx, path, false)
}

// detachable refuses what has a session that would stay behind.
func (c *cleaner) detachable() bool {
	if !slices.Contains(sessions, c.o.Plugin) {
		return true
	}
	c.stay(c.o.Path, api.BlockedByDevice, "see what it is: kvol inspect "+act.Quote(c.o.Path),
		"this kvol cannot detach volumes of %s, and without that its device would stay behind", c.o.Plugin)
	return false
}

// blockMap takes away what is left of a raw block volume: the binds of pods that are
// gone, then what is there for the volume.
func (c *cleaner) blockMap(ctx context.Context) bool {
	if c.o.Plugin == paths.CSIPlugin {
		return c.csiBlock(ctx)
	}
	if !c.detachable() || !c.binds(ctx, c.o.Path) {
		return false
	}
	return c.tearDownDevice(ctx, c.o.Path) && c.sweep(ctx, c.o.Path)
}

// binds takes away the maps in a directory.
func (c *cleaner) binds(ctx context.Context, dir string) bool {
	names, err := c.run.Names(dir)
	if err != nil {
		return c.did(dir, err)
	}
	all := true
	for _, name := range names {
		path := filepath.Join(dir, name)
		switch c.host.Layout.Parse(path).Kind {
		case paths.GlobalMapDevice, paths.CSIBlockPublish:
			all = c.mapDevice(ctx, path) && all
		}
	}
	return all
}

func (c *cleaner) tearDownDevice(ctx context.Context, dir string) bool {
	plugin, err := c.mgr.FindPluginByName(c.o.Plugin)
	if err != nil {
		return true
	}
	p, err := plugins.As[plugins.BlockVolumePlugin](plugin)
	if err != nil {
		return true
	}
	u, err := p.NewBlockVolumeUnmapper(c.ref(), "")
	if err != nil {
		return true // a name that its volumes cannot have: there is nobody to ask
	}
	return c.driver(c.o.Path, u.TearDownDevice(ctx, c.run, dir, ""))
}

// csiBlock is blockMap of a CSI volume, which has three places.
func (c *cleaner) csiBlock(ctx context.Context) bool {
	at, err := c.host.Layout.CSIBlock(c.o.Volume)
	if err != nil {
		return c.did(c.o.Path, err)
	}
	if !c.binds(ctx, at.Map) {
		return false
	}
	mounted := len(c.run.Table().Under(at.Staging))+len(c.run.Table().Under(at.Publishes)) > 0
	if c.o.Handle != "" || mounted {
		if _, err := c.mgr.FindPluginByName(paths.CSIPlugin); err != nil {
			c.stay(c.o.Path, api.BlockedByDriver, "take it down with one that has it; what this one has: kvol plugins", "this kvol has no CSI")
			return false
		}
		if !c.published(ctx, at.Publishes) || !c.tearDownDevice(ctx, at.Map) {
			return false
		}
	}
	for _, path := range []string{at.Publishes, at.Staging} {
		if !c.sweep(ctx, path) {
			return false
		}
	}
	unlink := act.Unlink{Path: at.Metadata, What: safefs.VolData, Reason: "the metadata of a volume that is gone"}
	if e, err := c.run.Entry(at.Metadata); err != nil || e.Present && !c.do(ctx, at.Metadata, unlink) {
		return c.did(at.Metadata, err)
	}
	return c.sweep(ctx, c.o.Path)
}

// published has the driver unpublish the device from pods of which nothing else is
// left.
func (c *cleaner) published(ctx context.Context, publish string) bool {
	names, err := c.run.Names(publish)
	if err != nil {
		return c.did(publish, err)
	}
	for _, uid := range names {
		plugin, err := c.mgr.FindPluginByName(paths.CSIPlugin)
		if err != nil {
			return c.did(publish, err)
		}
		p, err := plugins.As[plugins.BlockVolumePlugin](plugin)
		if err != nil {
			return c.did(publish, err)
		}
		u, err := p.NewBlockVolumeUnmapper(c.ref(), uid)
		if err != nil {
			return c.did(publish, err)
		}
		if !c.driver(filepath.Join(publish, uid), u.UnmapPodDevice(ctx, c.run)) {
			return false
		}
	}
	return true
}
