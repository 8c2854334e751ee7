// Package local is the kubernetes.io/local-volume plugin: a directory or a block
// device of this node as a PersistentVolume. A device with a file system is
// mounted once, at the global mount, and bound into pods; a directory is bound
// into pods from where it is; a raw block device is given to pods as it is.
//
// It needs mount(8) and, for devices, blkid, fsck and the mkfs of their file
// system. It formats only a blank device and only when asked to, and never
// removes the user's own directory.
package local

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/format"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New returns the kubernetes.io/local-volume plugin.
func New() plugins.VolumePlugin { return &plugin{} }

type plugin struct{ host *host.Host }

func (p *plugin) Info() api.Info {
	return api.Info{
		Name:        paths.LocalPlugin,
		Description: "a directory or block device of this node",
		AccessModes: []string{string(v1.ReadWriteOnce)},
		Tools:       append([]api.Tool{{Name: "mount", Needed: "to mount a device"}}, format.Tools()...),
		Since:       "1.7",
	}
}

var (
	_ plugins.PersistentVolumePlugin      = (*plugin)(nil)
	_ plugins.DeviceMountableVolumePlugin = (*plugin)(nil)
	_ plugins.DeviceNamer                 = (*plugin)(nil)
	_ plugins.NodeExpandableVolumePlugin  = (*plugin)(nil)
	_ plugins.BlockVolumePlugin           = (*plugin)(nil)
)

func (p *plugin) Init(h *host.Host) error {
	p.host = h
	return nil
}

func (p *plugin) GetPluginName() string { return paths.LocalPlugin }

func (p *plugin) GetVolumeName(spec *plugins.Spec) (string, error) {
	if _, err := source(spec); err != nil {
		return "", err
	}
	return spec.Name(), nil
}

func (p *plugin) CanSupport(spec *plugins.Spec) bool {
	return spec != nil && spec.PersistentVolume != nil && spec.PersistentVolume.Spec.Local != nil
}

func (p *plugin) RequiresRemount(*plugins.Spec) bool { return false }
func (p *plugin) SupportsMountOption() bool          { return true }

func (p *plugin) GetAccessModes() []v1.PersistentVolumeAccessMode {
	return []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
}

// ConstructVolumeSpec finds the device of a mounted volume through its global
// mount; a directory's place is not told by the disk.
func (p *plugin) ConstructVolumeSpec(volumeName, volumePath string) (plugins.Reconstructed, error) {
	table, err := p.host.Mounts()
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	global, err := p.host.Layout.LocalGlobalMountPath(volumeName)
	if err != nil {
		return plugins.Reconstructed{}, err
	}
	pod, mounted := table.Top(volumePath)
	dev, shared := table.Top(global)
	if mounted && shared && pod.Device() == dev.Device() {
		return reconstructed(volumeName, dev.Source, v1.PersistentVolumeFilesystem, pod.ReadOnly()), nil
	}
	return reconstructed(volumeName, "", v1.PersistentVolumeFilesystem, mounted && pod.ReadOnly()), nil
}

func reconstructed(name, path string, mode v1.PersistentVolumeMode, readOnly bool) plugins.Reconstructed {
	out := plugins.Reconstructed{Spec: plugins.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			VolumeMode:             &mode,
		},
	}, readOnly)}
	if path == "" {
		out.Missing = append(out.Missing, "spec.local.path")
	}
	if mode == v1.PersistentVolumeFilesystem {
		out.Missing = append(out.Missing, "spec.local.fsType") // it may have been left open
	}
	return out
}

func (p *plugin) CanDeviceMount(ctx context.Context, spec *plugins.Spec) (bool, string, error) {
	dev, err := p.resolve(ctx, spec)
	if err != nil || dev.IsBlock() {
		return err == nil, "", err
	}
	return false, "the volume is a directory, which is bound into pods from where it is", nil
}

// DeviceOf is the block device itself, "" for a directory.
func (p *plugin) DeviceOf(ctx context.Context, spec *plugins.Spec) (string, error) {
	dev, err := p.resolve(ctx, spec)
	if err != nil || !dev.IsBlock() {
		return "", err
	}
	return dev.Path, nil
}

// NodeExpand grows the file system of a device to the device's size. A directory has
// the size of what it lies on, and a raw block volume that of its device.
func (p *plugin) NodeExpand(ctx context.Context, run *act.Runner, o plugins.NodeExpandOptions) (bool, error) {
	dev, err := p.resolve(ctx, o.Spec)
	if err != nil || !dev.IsBlock() || o.Spec.IsBlock() {
		return err == nil, err
	}
	top, _ := run.Table().Top(o.DeviceMountPath)
	_, err = run.Do(ctx, act.GrowFS{Device: dev.Path, Path: o.DeviceMountPath, FSType: top.FSType})
	return err == nil, err
}

func (p *plugin) NewDeviceMounter() (plugins.DeviceMounter, error) { return deviceMounter{p}, nil }
func (p *plugin) NewDeviceUnmounter() (plugins.DeviceUnmounter, error) {
	return deviceUnmounter{p}, nil
}

func (p *plugin) NewMounter(spec *plugins.Spec, pod plugins.PodRef) (plugins.Mounter, error) {
	src, err := source(spec)
	if err != nil {
		return nil, err
	}
	return &mounter{p, spec, pod, src}, nil
}

func (p *plugin) NewUnmounter(ref plugins.Ref, podUID string) (plugins.Unmounter, error) {
	return &unmounter{p, ref.Name, podUID}, nil
}

type deviceMounter struct{ *plugin }

func (d deviceMounter) GetDeviceMountPath(ctx context.Context, spec *plugins.Spec) (string, error) {
	dev, err := d.resolve(ctx, spec)
	if err != nil {
		return "", err
	}
	if !dev.IsBlock() {
		return dev.Path, nil
	}
	return d.host.Layout.LocalGlobalMountPath(spec.Name())
}

func (d deviceMounter) MountDevice(ctx context.Context, run *act.Runner, spec *plugins.Spec, _ act.Value, path string, args plugins.DeviceMounterArgs) error {
	dev, err := d.resolve(ctx, spec)
	if err != nil {
		return err
	}
	options := slices.Clone(spec.MountOptions())
	if spec.ReadOnly && !readOnly(options) {
		options = append(options, "ro")
	}
	fsType := ""
	if t := spec.PersistentVolume.Spec.Local.FSType; t != nil {
		fsType = *t
	}
	return run.MountDevice(ctx, act.Mount{
		Device: act.Known(dev.Path), Target: path, FSType: fsType, Options: options, Reason: "mount the volume once on this node",
	}, args.Format)
}

type deviceUnmounter struct{ *plugin }

func (d deviceUnmounter) GlobalPaths(ref plugins.Ref) ([]string, error) {
	path, err := d.host.Layout.LocalGlobalMountPath(ref.Name)
	return []string{path}, err
}

func (d deviceUnmounter) UnmountDevice(ctx context.Context, run *act.Runner, _ plugins.Ref, path string) error {
	if k := d.host.Layout.Parse(path); k.Kind != paths.GlobalMount || k.Plugin != paths.LocalPlugin || k.Rest != "" {
		return api.Errorf(api.ErrRefused, "is no global mount of a local volume: a local directory is its user's own").At(path).
			WithNext("see what it is: kvol paths %s", act.Quote(path))
	}
	return unmountAndRemove(ctx, run, path)
}

// unmountAndRemove pops every mount off a directory and removes it, empty.
func unmountAndRemove(ctx context.Context, run *act.Runner, path string) error {
	if _, err := run.UnmountAll(ctx, path, "take the volume away"); err != nil {
		return err
	}
	_, err := run.Do(ctx, act.Rmdir{Path: path, Reason: "the empty mount point"})
	return err
}

type mounter struct {
	*plugin
	spec *plugins.Spec
	pod  plugins.PodRef
	src  *v1.LocalVolumeSource
}

func (m *mounter) GetPath() (string, error) {
	return m.host.Layout.PodVolumePath(m.pod.UID, paths.LocalPlugin, m.spec.Name())
}

func (m *mounter) SetUp(ctx context.Context, run *act.Runner, args plugins.MounterArgs) error {
	dir, err := m.GetPath()
	if err != nil {
		return err
	}
	dev, err := m.resolve(ctx, m.spec)
	if err != nil {
		return err
	}
	from, options := dev.Path, m.spec.MountOptions()
	ro := m.spec.ReadOnly || readOnly(options)
	if dev.IsBlock() {
		if from, err = m.globalMount(ctx, run, dev.Path, ro); err != nil {
			return err
		}
	}
	bind := act.Bind{Source: from, Target: dir, ReadOnly: ro, Options: options, Reason: "publish the volume into the pod"}
	if err := run.Bind(ctx, bind, 0o750); err != nil {
		return err
	}
	if args.FSGroup == nil || ro {
		return nil
	}
	if other := m.otherPod(run, dir); other != "" {
		// As the kubelet: the group is the first pod's, whoever comes later.
		m.host.Warn(fmt.Sprintf("volume %s is published into pod %s too, so its files keep the group that they have", m.spec.Name(), other))
		return nil
	}
	_, err = run.Do(ctx, act.FSGroup{Path: dir, GID: *args.FSGroup, OnRootMismatch: args.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch})
	return err
}

// globalMount is what a pod gets of a device: its global mount, once it is there.
func (m *mounter) globalMount(ctx context.Context, run *act.Runner, dev string, ro bool) (string, error) {
	path, err := m.host.Layout.LocalGlobalMountPath(m.spec.Name())
	if err != nil {
		return "", err
	}
	top, mounted := run.Table().Top(path)
	if !mounted {
		return "", api.Errorf(api.ErrNotMounted, "the volume's device is not mounted on this node").At(path).
			WithNext("mount it first: kvol mount-device -f FILE (or the whole way with kvol setup)")
	}
	same, err := run.Shows(ctx, top, dev)
	switch {
	case err != nil:
		return "", err
	case !same:
		return "", api.Errorf(api.ErrRefused, "something else is mounted there: %s (%s), not %s", top.Source, top.FSType, dev).At(path).
			WithNext("find out whose it is: kvol inspect %s", act.Quote(path))
	case top.ReadOnly() && !ro:
		return "", api.Errorf(api.ErrRefused, "the volume's device is mounted read-only, and the pod was to have it read-write").At(path).
			WithNext("take it from the pods that have it read-only, then: kvol unmount-device %s", act.Quote(m.spec.Name()))
	}
	return path, nil
}

// readOnly says that mount options ask for a mount that cannot be written to.
func readOnly(options []string) bool { return slices.Contains(options, "ro") }

// otherPod is another pod that has the same volume mounted.
func (m *mounter) otherPod(run *act.Runner, dir string) string {
	top, ok := run.Table().Top(dir)
	if !ok {
		return ""
	}
	for _, ref := range run.Table().SameRoot(top) {
		if at := m.host.Layout.Parse(ref.MountPoint); at.Kind == paths.PodVolume && at.Rest == "" && at.PodUID != m.pod.UID {
			return at.PodUID
		}
	}
	return ""
}

type unmounter struct {
	*plugin
	name, podUID string
}

func (u *unmounter) GetPath() (string, error) {
	return u.host.Layout.PodVolumePath(u.podUID, paths.LocalPlugin, u.name)
}

func (u *unmounter) TearDown(ctx context.Context, run *act.Runner) error {
	dir, err := u.GetPath()
	if err != nil {
		return err
	}
	return unmountAndRemove(ctx, run, dir)
}

// source is the local source of a spec, if its path can be one.
func source(spec *plugins.Spec) (*v1.LocalVolumeSource, error) {
	if spec == nil || spec.PersistentVolume == nil || spec.PersistentVolume.Spec.Local == nil {
		return nil, api.Errorf(api.ErrInput, "%s is no local PersistentVolume", spec)
	}
	path := spec.PersistentVolume.Spec.Local.Path
	bad := func(what string) error {
		return api.Errorf(api.ErrInput, "spec.local.path %q %s", path, what).
			WithNext("give the absolute path of a directory or block device of this node")
	}
	switch {
	case path == "":
		return nil, bad("is empty")
	case !filepath.IsAbs(path):
		return nil, bad("is not absolute")
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, bad("holds a control character")
	case strings.Contains("/"+path+"/", "/../"):
		return nil, bad("holds ..")
	case filepath.Clean(path) == "/":
		return nil, bad("is the root of the whole file system")
	}
	return spec.PersistentVolume.Spec.Local, nil
}

// resolve follows the links of the source's path in the helper, where a dead
// file system on the way cannot hang kvol, and says where it really is, and what.
func (p *plugin) resolve(ctx context.Context, spec *plugins.Spec) (*act.Source, error) {
	src, err := source(spec)
	if err != nil {
		return nil, err
	}
	from, err := act.OpenSource(ctx, p.host.Helper, src.Path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if t := from.Info.Type; t != safefs.Dir && t != safefs.BlockDevice {
		return nil, api.Errorf(api.ErrInput, "is a %s, and a local volume is a directory or a block device", t).At(src.Path).
			WithNext("correct spec.local.path")
	}
	return from, p.outside(from.Path)
}

// outside refuses a source that lies in what the kubelet keeps: another volume, or
// another pod's.
func (p *plugin) outside(path string) error {
	root := p.host.Layout.Root
	if strings.HasPrefix(root+"/", path+"/") {
		return api.Errorf(api.ErrRefused, "the source holds the kubelet's root directory %s, with the volumes of all pods", root).At(path).
			WithNext("use a directory outside of %s, and not above it", act.Quote(root))
	}
	for _, own := range []string{root + "/pods", root + "/plugins"} {
		if path == own || strings.HasPrefix(path, own+"/") {
			return api.Errorf(api.ErrRefused, "the source lies in the kubelet's own directory %s", own).At(path).
				WithNext("use a directory outside of %s", act.Quote(root))
		}
	}
	return nil
}
