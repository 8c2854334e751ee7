package ops

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

// ephemeral says that a volume's content ends with its pod, so that it may be moved
// away where the operator says so.
func (c *cleaner) ephemeral(path string) bool {
	at := c.host.Layout.Parse(path)
	return at.Kind == paths.PodVolume && at.Rest == "" &&
		(at.Plugin == paths.EmptyDirPlugin || at.Plugin == paths.GitRepoPlugin || slices.Contains(safefs.AtomicWriters, at.Plugin))
}

// volume takes a pod's volume away.
func (c *cleaner) volume(ctx context.Context, path string, at paths.Path) bool {
	if held, why := c.left.Held(path); held {
		c.stay(path, api.BlockedByKubelet, node.Ordered, "%s", why)
		return false
	}
	own := path
	if at.Plugin == paths.CSIPlugin {
		own = filepath.Join(path, "mount")
	}
	for _, m := range c.run.Table().Under(path) {
		if m.MountPoint != own {
			return c.foreign(m.MountPoint)
		}
	}
	switch {
	case at.Plugin == paths.CSIPlugin:
		return c.csi(ctx, path, at)
	case c.ephemeral(path):
		return c.content(ctx, path, slices.Contains(safefs.AtomicWriters, at.Plugin))
	}
	return c.mounted(ctx, path, at)
}

// content takes away a volume that the kubelet itself made and filled.
func (c *cleaner) content(ctx context.Context, path string, writer bool) bool {
	if !c.unmount(ctx, path, "the volume of a pod that is gone") {
		return false
	}
	holds, err := c.run.Contents(ctx, path, writer)
	if err != nil {
		return c.did(path, err)
	}
	if holds.Entries > 0 && c.req.DiscardEphemeral && c.req.Quarantine != "" {
		return c.do(ctx, path, act.Quarantine{Path: path, Dir: c.req.Quarantine, Reason: "what a pod that is gone left in it"})
	}
	return c.empty(ctx, path, writer)
}

// mounted takes away a volume that is mounted and nothing else: by its plugin, or by
// the same steps where this kvol has not got it.
func (c *cleaner) mounted(ctx context.Context, path string, at paths.Path) bool {
	if _, mounted := c.run.Table().Top(path); mounted {
		if !c.givenUp(ctx, path) {
			return false
		}
		if p, err := c.mgr.FindPluginByName(at.Plugin); err == nil {
			u, err := p.NewUnmounter(plugins.Ref{Name: at.Volume}, at.PodUID)
			if err == nil {
				return c.did(path, u.TearDown(ctx, c.run))
			}
		}
		if !c.unmount(ctx, path, "the volume of a pod that is gone") {
			return false
		}
	}
	return c.empty(ctx, path, false)
}

// csi has the driver unpublish the volume, and takes the files away last. A volume
// that nothing is mounted of and whose metadata tells nothing has nobody to ask.
func (c *cleaner) csi(ctx context.Context, path string, at paths.Path) bool {
	target := filepath.Join(path, "mount")
	if len(c.run.Table().At(target)) == 0 && !c.tells(filepath.Join(path, "vol_data.json")) {
		return c.bare(ctx, path, target)
	}
	p, err := c.mgr.FindPluginByName(paths.CSIPlugin)
	if err != nil {
		c.stay(path, api.BlockedByDriver, "take it down with one that has it; what this one has: kvol plugins", "this kvol has no CSI")
		return false
	}
	u, err := p.NewUnmounter(plugins.Ref{Name: at.Volume}, at.PodUID)
	if err != nil {
		return c.did(path, err)
	}
	if !c.driver(path, u.TearDown(ctx, c.run)) {
		return false
	}
	return c.bare(ctx, path, target)
}

// tells says whether a CSI volume's metadata says of which volume it is.
func (c *cleaner) tells(file string) bool {
	return c.left.HandleIn(file) != ""
}

// driver records what came of asking a driver: one that does not answer keeps all
// that it would have to be asked for.
func (c *cleaner) driver(path string, err error) bool {
	if err == nil {
		return true
	}
	if kind := api.KindOf(err); errors.Is(kind, api.ErrMissingTool) || errors.Is(kind, api.ErrTimeout) {
		doc := api.NewErrorDoc(err)
		c.stay(path, api.BlockedByDriver, "start the driver and run the same command again; or, at your risk: --without-driver", "%s", doc.Message)
		c.err = worse(c.err, err)
		return false
	}
	return c.did(path, err)
}

// bare takes away what is left of a CSI volume once nothing of it is mounted.
func (c *cleaner) bare(ctx context.Context, path, target string) bool {
	e, err := c.run.Entry(target)
	switch {
	case err != nil:
		return c.did(target, err)
	case e.Present && e.Type != safefs.Dir:
		return c.data(target, safefs.Contents{Entries: 1, Bytes: e.Size, Names: []string{filepath.Base(target)}})
	case e.Present && !c.empty(ctx, target, false):
		return false // the metadata stays as long as there is something that it tells of
	}
	names, err := c.run.Names(path)
	if err != nil {
		return c.did(path, err)
	}
	for _, name := range names {
		if file := filepath.Join(path, name); safefs.MetaAt(c.host.Layout, file) == "" {
			holds, err := c.run.Contents(ctx, path, false)
			if err != nil {
				return c.did(path, err)
			}
			return c.data(path, holds)
		}
	}
	for _, name := range names {
		file := filepath.Join(path, name)
		if !c.do(ctx, file, act.Unlink{Path: file, What: safefs.MetaAt(c.host.Layout, file), Reason: "the metadata of a volume that is gone"}) {
			return false
		}
	}
	return c.do(ctx, path, act.Rmdir{Path: path, Reason: "the empty directory of a volume that is gone"})
}

// subPath takes away what was bound for a container.
func (c *cleaner) subPath(ctx context.Context, path string, at paths.Path) bool {
	for _, u := range c.left.VolumesOf(at.PodUID, at.Volume) {
		if held, why := c.left.Held(u); held {
			c.stay(path, api.BlockedByKubelet, node.Ordered, "of the volume %s: %s", at.Volume, why)
			return false
		}
	}
	for _, m := range c.run.Table().Under(path) {
		if m.MountPoint != path {
			return c.foreign(m.MountPoint)
		}
	}
	if !c.unmount(ctx, path, "a container's part of a volume, whose pod is gone") {
		return false
	}
	e, err := c.run.Entry(path)
	if err == nil && e.Type == safefs.Dir {
		return c.empty(ctx, path, false)
	}
	return c.did(path, err) && c.do(ctx, path, act.Unlink{Path: path, What: safefs.BindTarget, Reason: "the empty target of a subpath"})
}

// podDevice takes a raw block volume from the pod.
func (c *cleaner) podDevice(ctx context.Context, path string, at paths.Path) bool {
	if held, why := c.left.Held(path); held {
		c.stay(path, api.BlockedByKubelet, node.Ordered, "%s", why)
		return false
	}
	plugin, err := c.mgr.FindPluginByName(at.Plugin)
	if err == nil {
		if p, err := plugins.As[plugins.BlockVolumePlugin](plugin); err == nil {
			u, err := p.NewBlockVolumeUnmapper(plugins.Ref{Name: at.Volume}, at.PodUID)
			if err == nil {
				op := operation{Ops: c.Ops, run: c.run, req: Request{Pod: plugins.PodRef{UID: at.PodUID}}}
				return c.driver(path, op.unmapDevice(ctx, u))
			}
		}
	}
	if at.Plugin == paths.CSIPlugin {
		c.stay(path, api.BlockedByDriver, "take it down with one that has it; what this one has: kvol plugins", "this kvol has no CSI")
		return false
	}
	for _, bound := range c.left.MapsOf(at.PodUID, at.Plugin) {
		if !c.mapDevice(ctx, bound) {
			return false
		}
	}
	return c.do(ctx, path, act.Unlink{Path: path, What: safefs.DeviceLink, Reason: "the pod's link to the device"})
}

// mapDevice takes away what a device was bound on for a pod, and the loop device that
// held it open.
func (c *cleaner) mapDevice(ctx context.Context, path string) bool {
	if !c.do(ctx, path, act.LoopDetach{Backing: path, Reason: "let the device go"}) {
		return false
	}
	if _, err := c.run.UnmountAll(ctx, path, "take the device from a pod that is gone"); err != nil {
		return c.did(path, err)
	}
	return c.do(ctx, path, act.Unlink{Path: path, What: safefs.BindTarget, Reason: "the empty bind target"})
}
