package csi

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
)

type unmounter struct {
	*plugin
	ref    plugins.Ref
	podUID string
}

func (u *unmounter) GetPath() (string, error) {
	return u.host.Layout.PodVolumePath(u.podUID, paths.CSIPlugin, u.ref.Name)
}

// TearDown has the driver unpublish the volume, also when nothing is mounted any more:
// only when nothing at all is left is there nobody to ask. The files go last.
func (u *unmounter) TearDown(ctx context.Context, run *act.Runner) error {
	target, err := u.GetPath()
	if err != nil {
		return err
	}
	if done, err := u.unaided(ctx, run, target); err != nil || done {
		return err
	}
	if err := emptyUnmounted(ctx, run, target); err != nil {
		return err
	}
	v, err := u.identify(run, u.ref, metadataOf(target), target)
	if err != nil {
		return err
	}
	if err := u.unpublish(ctx, run, v, target); err != nil {
		return err
	}
	return clean(ctx, run, target)
}

// unaided takes a volume away where its driver need not be asked: nothing is left of
// it, or its directory alone, or the operator said so.
func (p *plugin) unaided(ctx context.Context, run *act.Runner, mounted string) (done bool, err error) {
	dir := filepath.Dir(mounted)
	e, err := run.Entry(dir)
	if err != nil || !e.Present && len(run.Table().At(mounted)) == 0 {
		return true, err
	}
	hollow, err := isHollow(run, dir, mounted)
	switch {
	case err != nil:
	case hollow:
		_, err = run.Do(ctx, act.Rmdir{Path: dir, Reason: "nothing of the volume is in it"})
	case !run.WithoutDriver:
		return false, nil
	default:
		if err = p.alone(ctx, run, mounted); err == nil {
			err = clean(ctx, run, mounted)
		}
	}
	return true, err
}

// isHollow says that a volume's directory is all that is left: the driver was not
// called yet, or has long answered, since the metadata is written before and removed
// after that.
func isHollow(run *act.Runner, dir, mounted string) (bool, error) {
	if len(run.Table().At(mounted)) > 0 {
		return false, nil
	}
	e, err := run.Entry(dir)
	if err != nil || !e.Present || e.Type != safefs.Dir || e.Mounted {
		return false, err
	}
	names, err := run.Names(dir)
	return len(names) == 0, err
}

// emptyUnmounted refuses data that lies where nothing is mounted before anybody is
// asked to take the directory away.
func emptyUnmounted(ctx context.Context, run *act.Runner, target string) error {
	e, err := run.Entry(target)
	if err != nil || !e.Present || e.Mounted {
		return err
	}
	return run.Check(ctx, removal(e, target))
}

// removal is the action that removes what a driver left of its target.
func removal(e act.Entry, target string) act.Action {
	if e.Present && e.Type != safefs.Dir {
		return unlinkTarget(target)
	}
	return act.Rmdir{Path: target, Reason: "the empty mount point"}
}

func unlinkTarget(target string) act.Unlink {
	return act.Unlink{Path: target, What: safefs.BindTarget, Reason: "the empty target that the driver left"}
}

// unstack pops what is stacked on a mount: a driver takes one off. A file system in
// memory that is not the volume's would be lost with all that is in it.
func unstack(ctx context.Context, run *act.Runner, path string) error {
	for n := len(run.Table().At(path)); n > 1; n-- {
		own, top := run.Table().At(path)[0], run.Table().At(path)[n-1]
		if (top.FSType == "tmpfs" || top.FSType == "ramfs") && top.Device() != own.Device() {
			return api.Errorf(api.ErrRefused, "a %s that is not the volume's lies over it, and all that is in it would be lost", top.FSType).At(path).
				WithNext("look into it (ls -la %[1]s), keep what is needed, and take it off: umount %[1]s", act.Quote(path))
		}
		if _, err := run.Do(ctx, act.Unmount{Path: path, Lazy: run.Lazy, Force: run.ForceUmount, Reason: "a mount that is stacked on the volume"}); err != nil {
			return err
		}
	}
	return nil
}

// unpublish asks the driver.
func (p *plugin) unpublish(ctx context.Context, run *act.Runner, v volume, target string) error {
	d, err := p.open(ctx, v.driver)
	if err != nil {
		return err
	}
	defer d.close()
	if err := unstack(ctx, run, target); err != nil {
		return err
	}
	_, err = run.Do(ctx, unpublishCall(run, d, v, target))
	return err
}

func unpublishCall(run *act.Runner, d *driver, v volume, target string) act.Call {
	return act.Call{
		Name: "NodeUnpublishVolume", Target: target, Args: []string{v.String()}, Reason: "the driver takes the volume from the pod",
		Do: func(ctx context.Context) error {
			req := &csipb.NodeUnpublishVolumeRequest{VolumeId: v.handle, TargetPath: target}
			_, err := change(ctx, d, "NodeUnpublishVolume", d.node.NodeUnpublishVolume, req, nil)
			return d.refused(ctx, run, target, err)
		},
		Verify: func(context.Context) error { return down(run, d, "NodeUnpublishVolume", target) },
		Takes:  []string{target},
	}
}

// refused sorts why a driver did not take a volume off a path. That it does not know
// the volume is as wanted where nothing is mounted.
func (d *driver) refused(ctx context.Context, run *act.Runner, path string, err error) error {
	if !unknown(err) {
		return d.busy(ctx, run, path, err)
	}
	if err := run.Reload(); err != nil {
		return err
	}
	if len(run.Table().Under(path)) == 0 {
		return nil
	}
	e := api.Errorf(nil, "the driver does not know the volume, and it is still mounted: %w", err).At(path)
	return e.WithNext("see that the right driver answers; or take down the node's half alone: --without-driver")
}

// down looks whether a driver took off what it says.
func down(run *act.Runner, d *driver, method, path string) error {
	if len(run.Table().Under(path)) == 0 {
		return nil
	}
	return lied(d, method, "it is still mounted", path).
		WithNext("see what the driver logs; or take down the node's half alone: --without-driver")
}

// clean removes what is left once nothing is mounted: the mount point, the metadata
// and the directory of both. What else lies there is somebody's, and then the
// metadata stays too.
func clean(ctx context.Context, run *act.Runner, mounted string) error {
	e, err := run.Entry(mounted)
	if err != nil {
		return err
	}
	if _, err := run.Do(ctx, removal(e, mounted)); err != nil {
		return err
	}
	dir := filepath.Dir(mounted)
	if err := cleanData(ctx, run, dir); err != nil {
		return err
	}
	_, err = run.Do(ctx, act.Rmdir{Path: dir, Reason: "the volume's empty directory"})
	return err
}

// temporary is what a kvol that was killed while it wrote the metadata left.
const temporary = "." + dataFile + ".kvol-tmp"

// cleanData removes the metadata of a directory that holds nothing else.
func cleanData(ctx context.Context, run *act.Runner, dir string) error {
	names, err := run.Names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != dataFile && name != temporary {
			return run.Check(ctx, act.Rmdir{Path: dir}) // which says what is in it
		}
	}
	for _, name := range names {
		unlink := unlinkData(filepath.Join(dir, name))
		if name == temporary {
			unlink = act.Unlink{Path: filepath.Join(dir, name), What: safefs.TempFile, Reason: "what a killed kvol left of it"}
		}
		if _, err := run.Do(ctx, unlink); err != nil {
			return err
		}
	}
	return nil
}

func unlinkData(file string) act.Unlink {
	return act.Unlink{Path: file, What: safefs.VolData, Reason: "the volume's metadata"}
}

// alone takes the node's half down, on the operator's word, and says what the driver
// still has of the volume.
func (p *plugin) alone(ctx context.Context, run *act.Runner, mounted string) error {
	if err := unstack(ctx, run, mounted); err != nil {
		return err
	}
	inside := run.Table().Under(mounted)
	source := ""
	for i := len(inside) - 1; i >= 0; i-- {
		if m := inside[i]; strings.HasPrefix(m.Source, "/dev/") {
			source = m.Source
		}
		if inside[i].MountPoint == mounted {
			continue
		}
		if _, err := run.UnmountAll(ctx, inside[i].MountPoint, "what the driver mounted in its directory"); err != nil {
			return err
		}
	}
	n, err := run.UnmountAll(ctx, mounted, "take the volume away without its driver")
	if err != nil || n == 0 || run.DryRun {
		return err
	}
	text := "the driver was not asked, and does not know that the volume is gone from " + mounted
	if source != "" {
		text += fmt.Sprintf("; the device %s, and the session behind it, are still the driver's", source)
	}
	p.host.Warn(text)
	return nil
}
