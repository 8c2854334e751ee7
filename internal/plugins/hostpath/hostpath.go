// Package hostpath is the kubernetes.io/host-path plugin: a file, directory, socket or
// device of the node, which the container runtime binds into containers from where it
// is. Nothing of it is in the pod's directory, so that setting it up is to check its
// type, and to make what an …OrCreate type asks for.
//
// As in Kubernetes, where these are for tests on a single node, such a volume can be
// recycled (all that is in the directory is deleted), deleted (only below /tmp) and
// provisioned (in /tmp/hostpath_pv).
package hostpath

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New returns the kubernetes.io/host-path plugin.
func New() plugins.VolumePlugin { return &plugin{} }

type plugin struct{ host *host.Host }

func (p *plugin) Info() api.Info {
	return api.Info{
		Name:        paths.HostPathPlugin,
		Description: "a file, directory, socket or device of this node",
		AccessModes: []string{string(v1.ReadWriteOnce)},
		Since:       "1.0",
	}
}

var (
	_ plugins.PersistentVolumePlugin    = (*plugin)(nil)
	_ plugins.RecyclableVolumePlugin    = (*plugin)(nil)
	_ plugins.DeletableVolumePlugin     = (*plugin)(nil)
	_ plugins.ProvisionableVolumePlugin = (*plugin)(nil)
)

func (p *plugin) Init(h *host.Host) error {
	p.host = h
	return nil
}

func (p *plugin) GetPluginName() string { return paths.HostPathPlugin }

func (p *plugin) GetVolumeName(spec *plugins.Spec) (string, error) {
	src, err := source(spec)
	if err != nil {
		return "", err
	}
	return src.Path, nil
}

func (p *plugin) CanSupport(spec *plugins.Spec) bool {
	return spec != nil && (spec.Volume != nil && spec.Volume.HostPath != nil ||
		spec.PersistentVolume != nil && spec.PersistentVolume.Spec.HostPath != nil)
}

func (p *plugin) RequiresRemount(*plugins.Spec) bool { return false }
func (p *plugin) SupportsMountOption() bool          { return false }

func (p *plugin) GetAccessModes() []v1.PersistentVolumeAccessMode {
	return []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
}

func (p *plugin) NewMounter(spec *plugins.Spec, _ plugins.PodRef) (plugins.Mounter, error) {
	src, err := source(spec)
	if err != nil {
		return nil, err
	}
	if len(spec.MountOptions()) > 0 {
		return nil, api.Errorf(api.ErrInput, "spec.mountOptions: a hostPath volume is not mounted, and takes none").WithNext("take them out")
	}
	return &mounter{p, src}, nil
}

func (p *plugin) NewUnmounter(plugins.Ref, string) (plugins.Unmounter, error) {
	return unmounter{}, nil
}

// ConstructVolumeSpec is never asked by a kubelet either: nothing is on disk.
func (p *plugin) ConstructVolumeSpec(volumeName, _ string) (plugins.Reconstructed, error) {
	return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "nothing on the node tells the path of volume %s", volumeName).
		WithNext("give its document: -f FILE")
}

func (p *plugin) Recycle(ctx context.Context, run *act.Runner, spec *plugins.Spec) error {
	path, err := persistent(spec)
	if err == nil {
		_, err = run.Do(ctx, act.Scrub{Path: path, Reason: "the volume is to be claimed again, empty"})
	}
	return err
}

func (p *plugin) NewDeleter(spec *plugins.Spec) (plugins.Deleter, error) {
	path, err := persistent(spec)
	if err == nil && !strings.HasPrefix(path, "/tmp/") {
		err = api.Errorf(api.ErrRefused, "Kubernetes deletes hostPath volumes below /tmp only, and so does kvol").At(path).
			WithNext("look at what is in it (ls -la %s), and delete it by hand if that is meant", act.Quote(path))
	}
	return deleter{path}, err
}

func (p *plugin) NewProvisioner(options plugins.ProvisionOptions) (plugins.Provisioner, error) {
	if mode := options.PVC.Spec.VolumeMode; mode != nil && *mode == v1.PersistentVolumeBlock {
		return nil, api.Errorf(api.ErrNotSupported, "%s provisions no block volumes", paths.HostPathPlugin).
			WithNext("set volumeMode of the claim to Filesystem")
	}
	return provisioner{p, options}, nil
}

type mounter struct {
	*plugin
	src *v1.HostPathVolumeSource
}

// GetPath is the path on the node, which the runtime binds from.
func (m *mounter) GetPath() (string, error) { return m.src.Path, nil }

// RuntimeBinds says why nothing is mounted.
func (m *mounter) RuntimeBinds() string {
	return "the container runtime binds " + m.src.Path + " from where it is; nothing of it is in the pod's directory"
}

// SetUp checks the type, and makes what is not there where the type says so. As a
// kubelet does, it takes links on the way and, of what is there, at the end; what is
// made is never made through one that lies in its place.
func (m *mounter) SetUp(ctx context.Context, run *act.Runner, _ plugins.MounterArgs) error {
	kind, err := kindOf(m.src)
	if err != nil || kind.is == "" {
		return err
	}
	path := filepath.Clean(m.src.Path)
	src, err := run.Source(ctx, path)
	switch {
	case errors.Is(err, api.ErrNotFound) && kind.perm != 0:
		made := act.MakeOutside{
			Outside: safefs.Outside{Path: path, File: kind.is == safefs.File, Perm: kind.perm},
			Reason:  fmt.Sprintf("the volume's type is %s", *m.src.Type),
		}
		if root := m.host.Layout.Root; strings.HasPrefix(path, root+"/") {
			made.Below = root
		}
		_, err = run.Do(ctx, made)
		return err
	case err != nil:
		return err
	case src.Info.Type != kind.is:
		return api.Errorf(api.ErrInput, "is a %s, and the volume's type is %s", src.Info.Type, *m.src.Type).At(path).
			WithNext("correct hostPath.type or hostPath.path")
	}
	return nil
}

type unmounter struct{}

// GetPath is none: the volume has no place in the pod's directory.
func (unmounter) GetPath() (string, error) { return "", nil }

// RuntimeBinds says why nothing is unmounted.
func (unmounter) RuntimeBinds() string {
	return "nothing of a hostPath volume is in the pod's directory; the container runtime takes its bind away with the container"
}

func (unmounter) TearDown(context.Context, *act.Runner) error { return nil }

type deleter struct{ path string }

func (d deleter) Delete(ctx context.Context, run *act.Runner) error {
	_, err := run.Do(ctx, act.Scrub{Path: d.path, Self: true, Reason: "the volume is deleted"})
	return err
}

type provisioner struct {
	*plugin
	options plugins.ProvisionOptions
}

// provisioned is where new volumes are, as in Kubernetes.
const provisioned = "/tmp/hostpath_pv"

// Provision makes a directory whose name follows from the volume's, so that the same
// claim gets the same volume however often it is asked for.
func (p provisioner) Provision(ctx context.Context, run *act.Runner) (*v1.PersistentVolume, error) {
	o := p.options
	path := provisioned + "/" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(o.PVName)).String()
	modes := o.PVC.Spec.AccessModes
	if len(modes) == 0 {
		modes = p.GetAccessModes()
	}
	// /tmp is everybody's: what lies below it has to be root's own.
	_, err := run.Do(ctx, act.MakeOutside{
		Outside: safefs.Outside{Path: path, Perm: 0o750, Below: "/tmp", Owned: true}, Reason: "the new volume",
	})
	if err != nil {
		return nil, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.PVName,
			// util.VolumeDynamicallyCreatedByKey of k8s.io/kubernetes/pkg/volume
			Annotations: map[string]string{"kubernetes.io/createdby": "hostpath-dynamic-provisioner"},
		},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:            modes,
			Capacity:               v1.ResourceList{v1.ResourceStorage: o.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}},
		},
	}, nil
}

// kind is what a type asks for; perm is the mode of what is made where it is missing.
type kind struct {
	is   safefs.Type
	perm uint32
}

func kindOf(src *v1.HostPathVolumeSource) (kind, error) {
	if src.Type == nil {
		return kind{}, nil
	}
	k, ok := map[v1.HostPathType]kind{
		v1.HostPathUnset:             {},
		v1.HostPathDirectoryOrCreate: {safefs.Dir, 0o755},
		v1.HostPathDirectory:         {safefs.Dir, 0},
		v1.HostPathFileOrCreate:      {safefs.File, 0o644},
		v1.HostPathFile:              {safefs.File, 0},
		v1.HostPathSocket:            {safefs.Socket, 0},
		v1.HostPathCharDev:           {safefs.CharDevice, 0},
		v1.HostPathBlockDev:          {safefs.BlockDevice, 0},
	}[*src.Type]
	if !ok {
		return kind{}, api.Errorf(api.ErrInput, "there is no hostPath.type %q", *src.Type).
			WithNext("leave it out, or write DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice or BlockDevice")
	}
	return k, nil
}

// source is the hostPath of a spec, if its path can be one.
func source(spec *plugins.Spec) (*v1.HostPathVolumeSource, error) {
	var src *v1.HostPathVolumeSource
	switch {
	case spec == nil:
	case spec.Volume != nil:
		src = spec.Volume.HostPath
	case spec.PersistentVolume != nil:
		src = spec.PersistentVolume.Spec.HostPath
	}
	if src == nil {
		return nil, api.Errorf(api.ErrInput, "%s is no hostPath volume", spec)
	}
	bad := func(what string) error {
		return api.Errorf(api.ErrInput, "hostPath.path %q %s", src.Path, what).WithNext("give an absolute path of this node, without ..")
	}
	switch {
	case !filepath.IsAbs(src.Path):
		return nil, bad("is not absolute")
	case strings.ContainsFunc(src.Path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return nil, bad("holds a control character")
	case strings.Contains("/"+src.Path+"/", "/../"):
		return nil, bad("holds ..")
	}
	_, err := kindOf(src)
	return src, err
}

// persistent is the path of a PersistentVolume: what pods name inline is no volume
// that anybody could reclaim.
func persistent(spec *plugins.Spec) (string, error) {
	src, err := source(spec)
	if err == nil && spec.PersistentVolume == nil {
		err = api.Errorf(api.ErrInput, "volume %s is a pod's own, and only a PersistentVolume is recycled or deleted", spec.Name()).
			WithNext("give the PersistentVolume with -f")
	}
	if err != nil {
		return "", err
	}
	return filepath.Clean(src.Path), nil
}
