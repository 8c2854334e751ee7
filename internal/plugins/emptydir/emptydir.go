// Package emptydir is the kubernetes.io/empty-dir plugin: a directory of the pod's own,
// on the node's disk, in memory (tmpfs) or on huge pages (hugetlbfs).
//
// What is in it is a pod's data and goes with it, so that taking it down is refused as
// long as there is any, but with --discard-ephemeral; on disk it is then moved away.
// Volumes that kubelets build on an emptyDir (secret, configMap, downwardAPI,
// projected) are other plugins' own.
package emptydir

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// New returns the kubernetes.io/empty-dir plugin.
func New() plugins.VolumePlugin { return &plugin{} }

type plugin struct{ host *host.Host }

func (p *plugin) Info() api.Info {
	return api.Info{
		Name:        paths.EmptyDirPlugin,
		Description: "a directory that lives as long as its pod, on disk, in memory or on huge pages",
		AccessModes: []string{},
		Since:       "1.0",
	}
}

func (p *plugin) Init(h *host.Host) error {
	p.host = h
	return nil
}

func (p *plugin) GetPluginName() string { return paths.EmptyDirPlugin }

func (p *plugin) GetVolumeName(spec *plugins.Spec) (string, error) {
	if _, err := source(spec); err != nil {
		return "", err
	}
	return spec.Name(), nil
}

func (p *plugin) CanSupport(spec *plugins.Spec) bool {
	return spec != nil && spec.Volume != nil && spec.Volume.EmptyDir != nil
}

func (p *plugin) RequiresRemount(*plugins.Spec) bool { return false }
func (p *plugin) SupportsMountOption() bool          { return false }

func (p *plugin) NewMounter(spec *plugins.Spec, pod plugins.PodRef) (plugins.Mounter, error) {
	src, err := source(spec)
	if err != nil {
		return nil, err
	}
	return &mounter{place{p, spec.Name(), pod.UID}, src, pod}, nil
}

func (p *plugin) NewUnmounter(ref plugins.Ref, podUID string) (plugins.Unmounter, error) {
	return &unmounter{place{p, ref.Name, podUID}}, nil
}

// ConstructVolumeSpec gives a bare emptyDir, as a kubelet does; the mount table tells
// memory from disk, and nothing the limit.
func (p *plugin) ConstructVolumeSpec(volumeName, volumePath string) (plugins.Reconstructed, error) {
	table, err := p.host.Mounts()
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	src := &v1.EmptyDirVolumeSource{}
	missing := []string{"emptyDir.sizeLimit", "emptyDir.mode"}
	switch top, _ := table.Top(volumePath); top.FSType {
	case tmpfs:
		src.Medium = v1.StorageMediumMemory
	default: // the size of huge pages may have been left open
		missing = append(missing, "emptyDir.medium")
	}
	return plugins.Reconstructed{
		Spec:    plugins.NewSpecFromVolume(&v1.Volume{Name: volumeName, VolumeSource: v1.VolumeSource{EmptyDir: src}}),
		Missing: missing,
	}, nil
}

// place is where one volume of one pod is.
type place struct {
	*plugin
	name, podUID string
}

func (l place) GetPath() (string, error) {
	return l.host.Layout.PodVolumePath(l.podUID, paths.EmptyDirPlugin, l.name)
}

// paths are the volume's directory and its ready marker.
func (l place) paths() (dir, marker string, err error) {
	if dir, err = l.GetPath(); err == nil {
		marker, err = l.host.Layout.ReadyMarker(l.podUID, paths.EmptyDirPlugin, l.name)
	}
	return dir, marker, err
}

type mounter struct {
	place
	src *v1.EmptyDirVolumeSource
	pod plugins.PodRef
}

// SetUp makes the volume as a kubelet does, the ready marker last. Where the marker is,
// and what it says is ready, nothing is done: what the pod made of the owners since
// is its own.
func (m *mounter) SetUp(ctx context.Context, run *act.Runner, args plugins.MounterArgs) error {
	dir, marker, err := m.paths()
	if err != nil {
		return err
	}
	fs, err := m.fileSystem(dir)
	if err != nil {
		return err
	}
	perm := uint32(0o777)
	if m.src.Mode != nil {
		perm = uint32(*m.src.Mode)
	}
	marked, err := run.Entry(marker)
	if err != nil {
		return err
	}
	if marked.Present {
		if is, err := m.ready(run, dir, fs); err != nil || is {
			return err
		}
		if _, err := run.Do(ctx, act.Unlink{Path: marker, What: safefs.ReadyMarker, Reason: "the volume is not ready any more"}); err != nil {
			return err
		}
	}
	if fs != nil {
		if err := run.Check(ctx, *fs); err != nil {
			return err // before anything is made for what the kernel does not have
		}
	}
	if err := m.directory(ctx, run, dir, perm); err != nil {
		return err
	}
	if fs != nil {
		if _, err := run.Do(ctx, *fs); err != nil {
			return err
		}
	}
	if args.FSGroup != nil {
		if _, err := run.Do(ctx, act.FSGroup{Path: dir, GID: *args.FSGroup}); err != nil {
			return err
		}
	}
	if err := run.MkdirAll(ctx, filepath.Dir(marker), 0o750, "what the plugin keeps of the volume"); err != nil {
		return err
	}
	_, err = run.Do(ctx, act.WriteFile{Path: marker, Perm: 0o644, Reason: "the volume is ready"})
	return err
}

// ready says whether what the marker stands for is there: on disk the directory, else
// the mount. One of another kind is refused.
func (m *mounter) ready(run *act.Runner, dir string, fs *act.MountFS) (bool, error) {
	e, err := run.Entry(dir)
	if err != nil || !e.Present {
		return false, err
	}
	if e.Type != safefs.Dir {
		return false, api.Errorf(api.ErrRefused, "is a %s where the volume's directory belongs", e.Type).At(dir).
			WithNext("find out who made it (ls -ld %s) and move it away", act.Quote(dir))
	}
	top, mounted := run.Table().Top(dir)
	switch {
	case fs == nil && e.Mounted:
		return false, somethingElse(dir, top)
	case fs == nil:
		return true, nil
	case !mounted:
		return false, nil
	case top.FSType != fs.FSType:
		return false, somethingElse(dir, top)
	}
	return true, nil
}

func somethingElse(dir string, top mounts.Mount) error {
	return api.Errorf(api.ErrRefused, "something else is mounted there: %s of %s (%s)", top.Root, top.Source, top.FSType).At(dir).
		WithNext("find out whose it is: kvol inspect %s", act.Quote(dir))
}

// directory makes the volume's directory. One that is there keeps what is in it.
func (m *mounter) directory(ctx context.Context, run *act.Runner, dir string, perm uint32) error {
	if e, err := run.Entry(dir); err != nil || e.Mounted {
		if err == nil && m.src.Medium == v1.StorageMediumDefault {
			top, _ := run.Table().Top(dir)
			err = somethingElse(dir, top)
		}
		return err
	}
	if err := run.MkdirAll(ctx, filepath.Dir(dir), 0o750, "the pod's volumes"); err != nil {
		return err
	}
	if _, err := run.Do(ctx, act.Mkdir{Path: dir, Perm: perm, Reason: "the volume's directory"}); err != nil {
		return err
	}
	_, err := run.Do(ctx, act.Chmod{Path: dir, Perm: perm, Reason: "a umask, or a run that was cut short, left another mode"})
	return err
}

const (
	tmpfs     = "tmpfs"
	hugetlbfs = "hugetlbfs"
)

// fileSystem is what the medium mounts, nil for a directory on disk.
func (m *mounter) fileSystem(dir string) (*act.MountFS, error) {
	switch m.src.Medium {
	case v1.StorageMediumDefault:
		return nil, nil
	case v1.StorageMediumMemory:
		fs := &act.MountFS{FSType: tmpfs, Source: tmpfs, Target: dir, Reason: "the volume in memory"}
		if m.src.SizeLimit != nil && m.src.SizeLimit.Value() > 0 {
			fs.Options = append(fs.Options, fmt.Sprintf("size=%d", m.src.SizeLimit.Value()))
		}
		if act.KernelTakes(tmpfs, "noswap") { // since Linux 6.4, and as it was built
			fs.Options = append(fs.Options, "noswap")
		}
		return fs, nil
	}
	size, err := m.pageSize()
	return &act.MountFS{
		FSType: hugetlbfs, Source: "nodev", Target: dir, Options: []string{"pagesize=" + size}, Reason: "the volume on huge pages",
	}, err
}

// pageSize is what the medium says, and where it says none the one that the pod's
// containers request.
func (m *mounter) pageSize() (string, error) {
	if text, ok := strings.CutPrefix(string(m.src.Medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		if q, err := resource.ParseQuantity(text); err == nil && q.Value() > 0 {
			return q.String(), nil
		}
	}
	if m.src.Medium != v1.StorageMediumHugePages {
		return "", api.Errorf(api.ErrInput, "there is no emptyDir.medium %q", m.src.Medium).
			WithNext("leave it out, or write Memory, HugePages or HugePages-2Mi")
	}
	if sizes := m.pod.HugePages; len(sizes) != 1 {
		return "", api.Errorf(api.ErrInput, "emptyDir.medium is HugePages, and the pod's containers request %d sizes of them", len(sizes)).
			WithNext("write the size: medium: HugePages-2Mi; or give the Pod whose containers request one size")
	}
	return m.pod.HugePages[0], nil
}

type unmounter struct{ place }

// TearDown takes the volume away: the marker, the mount, the directory. Nothing is
// begun where it would lose what is in the volume.
func (u *unmounter) TearDown(ctx context.Context, run *act.Runner) error {
	dir, marker, err := u.paths()
	if err != nil {
		return err
	}
	if _, err := u.last(ctx, run, dir); err != nil {
		return err
	}
	if _, err := run.Do(ctx, act.Unlink{Path: marker, What: safefs.ReadyMarker, Reason: "the volume is not ready any more"}); err != nil {
		return err
	}
	if _, err := run.Do(ctx, act.Rmdir{Path: filepath.Dir(marker), Reason: "what the plugin kept of the volume"}); err != nil {
		return err
	}
	last, err := u.last(ctx, run, dir)
	for n := 0; err == nil && len(run.Table().At(dir)) > 0; n++ {
		blind := n > 0 && !run.DiscardEphemeral
		_, err = run.Do(ctx, act.Unmount{Path: dir, Lazy: run.Lazy, Force: run.ForceUmount, Blind: blind, Reason: "take the volume away"})
		if err == nil {
			last, err = u.last(ctx, run, dir) // what the mount lay on was not seen before
		}
	}
	if err != nil {
		return err
	}
	to, err := run.Do(ctx, last)
	if at, known := to.Text(); err == nil && known && at != "" {
		u.host.Warn(fmt.Sprintf("what was in volume %s is kept at %s", u.name, at))
	}
	return err
}

// last is how the volume's directory goes once nothing is mounted on it: empty, or
// moved away with what is in it. It refuses to lose what a lookup of the directory finds
// now, and what is mounted inside. A mount that is no memory (another file system,
// which may not even answer) keeps its own.
func (u *unmounter) last(ctx context.Context, run *act.Runner, dir string) (act.Action, error) {
	empty := act.Rmdir{Path: dir, Reason: "the volume's empty directory"}
	for _, m := range run.Table().Under(dir) {
		if m.MountPoint != dir {
			return nil, api.Errorf(api.ErrBusy, "something is mounted in the volume: %s (%s)", m.Source, m.FSType).At(m.MountPoint).
				WithNext("see whose it is: kvol inspect %s", act.Quote(m.MountPoint))
		}
	}
	top, mounted := run.Table().Top(dir)
	if mounted && (run.DiscardEphemeral || top.FSType != tmpfs && top.FSType != hugetlbfs) {
		return empty, nil
	}
	e, err := run.Entry(dir)
	if err != nil || !e.Present || e.Type != safefs.Dir {
		return empty, err // which is refused where it is no directory
	}
	c, err := run.Contents(ctx, dir, false)
	switch {
	case err != nil || c.Entries == 0:
		return empty, err
	case !run.DiscardEphemeral || run.QuarantineDir == "":
		return nil, refusal(dir, c, mounted, run.DiscardEphemeral)
	}
	away := act.Quarantine{Path: dir, Dir: run.QuarantineDir, Reason: "what is in it is kept, out of the way"}
	return away, run.Check(ctx, away)
}

func refusal(dir string, c safefs.Contents, memory, discard bool) error {
	e := api.Errorf(api.ErrNotEmpty, "the volume holds %s, which are its pod's data and would go with it", c).At(dir)
	for _, name := range c.Names {
		e.Details = append(e.Details, fmt.Sprintf("holds %q", name))
	}
	if c.Entries > len(c.Names) {
		e.Details = append(e.Details, fmt.Sprintf("and %d more", c.Entries-len(c.Names)))
	}
	look := "look at it: ls -la " + act.Quote(dir)
	switch {
	case memory:
		return e.WithNext("%s; to lose it, the same command with --discard-ephemeral", look)
	case discard:
		return e.WithNext("%s; on disk it is moved, never deleted: add --quarantine DIR, a directory of the same file system", look)
	}
	return e.WithNext("%s; to have it moved away, the same command with --discard-ephemeral --quarantine DIR", look)
}

// source is the emptyDir of a spec.
func source(spec *plugins.Spec) (*v1.EmptyDirVolumeSource, error) {
	if spec == nil || spec.Volume == nil || spec.Volume.EmptyDir == nil {
		return nil, api.Errorf(api.ErrInput, "%s is no emptyDir volume", spec)
	}
	src := spec.Volume.EmptyDir
	if src.SizeLimit != nil && src.SizeLimit.Sign() < 0 {
		return nil, api.Errorf(api.ErrInput, "emptyDir.sizeLimit %s is less than nothing", src.SizeLimit)
	}
	if src.Mode != nil && (*src.Mode < 0 || *src.Mode > 0o1777) {
		return nil, api.Errorf(api.ErrInput, "emptyDir.mode %#o is none from 0 to 01777", *src.Mode)
	}
	return src, nil
}
