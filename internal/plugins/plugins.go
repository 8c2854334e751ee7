// Package plugins is the volume plugin framework: the ladder of interfaces that
// a volume plugin climbs, the manager that finds the plugin of a volume, and the
// specs that name a volume. Names are those of Kubernetes' pkg/volume, so that
// its readers are at home; what differs is written in docs/adding-a-plugin.md.
//
// A plugin decides what is to be done and hands it, action by action, to the
// [act.Runner] that it is given; it never changes the node by itself. Do not look
// here for the order of the verbs, the locks or the gates: that is internal/ops.
package plugins

import (
	"cmp"
	"context"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"

	v1 "k8s.io/api/core/v1"
)

// PodRef is what a plugin may know of a pod.
type PodRef struct {
	UID            string
	Name           string
	Namespace      string
	ServiceAccount string
	// FSGroup is the group that a volume's files get, nil when the pod has none.
	FSGroup *int64
	// FSGroupChangePolicy is how far the group is applied: Always (also when
	// empty) or OnRootMismatch.
	FSGroupChangePolicy v1.PodFSGroupChangePolicy
	// HugePages are the sizes that its containers request, "2Mi".
	HugePages []string
}

// VolumePlugin is the first rung: every plugin has it.
type VolumePlugin interface {
	// Init is called once, before anything else but Info and GetPluginName.
	Init(h *host.Host) error
	// GetPluginName is qualified and has exactly one slash: kubernetes.io/nfs.
	GetPluginName() string
	// GetVolumeName identifies the volume behind a spec; the same volume in two
	// specs has one name.
	GetVolumeName(spec *Spec) (string, error)
	// CanSupport must answer false for a nil or empty spec.
	CanSupport(spec *Spec) bool
	// RequiresRemount says that publish sets the volume up again instead of
	// answering already.
	RequiresRemount(spec *Spec) bool
	SupportsMountOption() bool
	NewMounter(spec *Spec, pod PodRef) (Mounter, error)
	// NewUnmounter needs no spec: the name and the pod are all that is left.
	NewUnmounter(ref Ref, podUID string) (Unmounter, error)
	// ConstructVolumeSpec says what a pod's volume directory, or a global mount,
	// tells of its volume, and nothing that it does not: ErrNotSupported beats a
	// guess.
	ConstructVolumeSpec(volumeName, volumePath string) (Reconstructed, error)
	// Info describes the plugin to kvol plugins, the documents and completion.
	Info() api.Info
}

// Ref names a volume that is taken down: its spec may be gone.
type Ref struct {
	// Name is the spec name, which its directories in pods have. "" where only a
	// global mount is left that does not hold it.
	Name string
	// VolumeName is what GetVolumeName says of it ("driver^handle"), "" when nothing
	// on the node tells.
	VolumeName string
}

// RefOf names the volume of a spec.
func RefOf(p VolumePlugin, spec *Spec) Ref {
	name, err := p.GetVolumeName(spec)
	if err != nil {
		name = "" // who needs it asks the plugin, and is told
	}
	return Ref{Name: spec.Name(), VolumeName: name}
}

// String is for messages.
func (r Ref) String() string { return cmp.Or(r.Name, r.VolumeName) }

// Reconstructed is a spec made from what is on disk.
type Reconstructed struct {
	Spec *Spec
	// Missing names the fields that the disk does not tell, "spec.local.path".
	Missing []string
}

// PersistentVolumePlugin may back a PersistentVolume.
type PersistentVolumePlugin interface {
	VolumePlugin
	GetAccessModes() []v1.PersistentVolumeAccessMode
}

// DeviceMountableVolumePlugin mounts a volume once on the node, at a global
// mount, before it is bound into pods.
type DeviceMountableVolumePlugin interface {
	VolumePlugin
	NewDeviceMounter() (DeviceMounter, error)
	NewDeviceUnmounter() (DeviceUnmounter, error)
	// CanDeviceMount says whether this very volume has that step; the reason is
	// for people where it has not.
	CanDeviceMount(ctx context.Context, spec *Spec) (can bool, reason string, err error)
}

// DeviceNamer knows the device behind a volume's file system, before and after it
// is mounted: what the detach gate looks at. "" is a volume without a device.
type DeviceNamer interface {
	VolumePlugin
	DeviceOf(ctx context.Context, spec *Spec) (string, error)
}

// AttachableVolumePlugin attaches a volume to the node before it is mounted.
type AttachableVolumePlugin interface {
	DeviceMountableVolumePlugin
	NewAttacher() (Attacher, error)
	NewDetacher() (Detacher, error)
	CanAttach(spec *Spec) (bool, error)
}

// BlockVolumePlugin gives a volume to a pod as a raw block device.
type BlockVolumePlugin interface {
	VolumePlugin
	NewBlockVolumeMapper(spec *Spec, pod PodRef) (BlockVolumeMapper, error)
	NewBlockVolumeUnmapper(ref Ref, podUID string) (BlockVolumeUnmapper, error)
	ConstructBlockVolumeSpec(podUID, volumeName, mapPath string) (Reconstructed, error)
}

// RecyclableVolumePlugin scrubs a volume so that it can be claimed again.
type RecyclableVolumePlugin interface {
	VolumePlugin
	Recycle(ctx context.Context, run *act.Runner, spec *Spec) error
}

// DeletableVolumePlugin deletes the volume behind a PersistentVolume.
type DeletableVolumePlugin interface {
	VolumePlugin
	NewDeleter(spec *Spec) (Deleter, error)
}

// ProvisionableVolumePlugin makes new volumes.
type ProvisionableVolumePlugin interface {
	VolumePlugin
	NewProvisioner(options ProvisionOptions) (Provisioner, error)
}

// ExpandableVolumePlugin grows the storage behind a volume.
type ExpandableVolumePlugin interface {
	VolumePlugin
	ExpandVolumeDevice(ctx context.Context, run *act.Runner, spec *Spec, newSize, oldSize int64) (int64, error)
	RequiresFSResize() bool
}

// NodeExpandableVolumePlugin grows the file system on this node.
type NodeExpandableVolumePlugin interface {
	VolumePlugin
	NodeExpand(ctx context.Context, run *act.Runner, options NodeExpandOptions) (bool, error)
}

// VolumePluginWithAttachLimits knows how many volumes a node may have attached.
type VolumePluginWithAttachLimits interface {
	VolumePlugin
	GetVolumeLimits(ctx context.Context) (map[string]int64, error)
	VolumeLimitKey(spec *Spec) string
}

// NodeExpandOptions names the volume that grows.
type NodeExpandOptions struct {
	Spec            *Spec
	DevicePath      string
	DeviceMountPath string
	NewSize         int64
}

// ProvisionOptions is what a new volume is made from.
type ProvisionOptions struct {
	PVC        *v1.PersistentVolumeClaim
	PVName     string
	Parameters map[string]string
}

// MounterArgs is what publish knows beside the volume.
type MounterArgs struct {
	// FSGroup and FSGroupChangePolicy as in PodRef; nil leaves owners alone.
	FSGroup             *int64
	FSGroupChangePolicy v1.PodFSGroupChangePolicy
}

// DeviceMounterArgs is what mount-device knows beside the volume.
type DeviceMounterArgs struct {
	// Format allows a file system to be made on a device that is proven blank.
	Format bool
	// FSGroup is for drivers that give the volume to the group by themselves.
	FSGroup *int64
}

// SpecChecker refuses a volume, for what its documents lack, before the first step of
// several is made.
type SpecChecker interface {
	VolumePlugin
	CheckSpec(spec *Spec, pod PodRef) error
}

// Mounter publishes one volume into one pod.
type Mounter interface {
	// GetPath is the pod volume directory that SetUp mounts on.
	GetPath() (string, error)
	SetUp(ctx context.Context, run *act.Runner, args MounterArgs) error
}

// Unmounter takes one volume away from one pod.
type Unmounter interface {
	GetPath() (string, error)
	TearDown(ctx context.Context, run *act.Runner) error
}

// RuntimeBound is what the Mounter and Unmounter of a volume are beside where the
// container runtime binds it from where it is: nothing of it is in the pod's directory.
type RuntimeBound interface {
	// RuntimeBinds says so for people.
	RuntimeBinds() string
}

// DeviceMounter makes the global mount of a volume.
type DeviceMounter interface {
	// GetDeviceMountPath is the global mount, or the user's own directory where
	// a volume is one.
	GetDeviceMountPath(ctx context.Context, spec *Spec) (string, error)
	MountDevice(ctx context.Context, run *act.Runner, spec *Spec, devicePath act.Value, deviceMountPath string, args DeviceMounterArgs) error
}

// DeviceUnmounter takes a global mount away.
type DeviceUnmounter interface {
	// GlobalPaths are the global mounts that this volume can have on this node. The
	// ops layer finds the others in the mount table.
	GlobalPaths(ref Ref) ([]string, error)
	UnmountDevice(ctx context.Context, run *act.Runner, ref Ref, deviceMountPath string) error
}

// Attachment is what attaching a volume gives to the steps after it.
type Attachment struct {
	DevicePath act.Value
	// PublishContext is a CSI driver's (VolumeAttachment.status.attachmentMetadata).
	PublishContext map[string]string
}

// Attacher attaches a volume to this node.
type Attacher interface {
	Attach(ctx context.Context, run *act.Runner, spec *Spec, nodeName string) (Attachment, error)
	VolumesAreAttached(ctx context.Context, specs []*Spec, nodeName string) (map[*Spec]bool, error)
	WaitForAttach(ctx context.Context, run *act.Runner, spec *Spec, devicePath act.Value, pod PodRef) (act.Value, error)
}

// Detacher detaches a volume from this node.
type Detacher interface {
	Detach(ctx context.Context, run *act.Runner, ref Ref, nodeName string) error
}

// BlockVolume says where a raw block volume is.
type BlockVolume interface {
	// GetGlobalMapPath is the directory that holds a bind of the device node for
	// each pod.
	GetGlobalMapPath() (string, error)
	// GetPodDeviceMapPath is the directory of the pod's symlink, and its name.
	GetPodDeviceMapPath() (dir, name string, err error)
}

// BlockVolumeMapper gives a raw block volume to a pod.
type BlockVolumeMapper interface {
	BlockVolume
	// SetUpDevice prepares the device node-wide; false means that there is
	// nothing to prepare.
	SetUpDevice(ctx context.Context, run *act.Runner) (did bool, err error)
	// MapPodDevice gives the device that the common map step binds and links.
	MapPodDevice(ctx context.Context, run *act.Runner) (act.Value, error)
}

// BlockVolumeUnmapper takes a raw block volume from a pod.
type BlockVolumeUnmapper interface {
	BlockVolume
	UnmapPodDevice(ctx context.Context, run *act.Runner) error
	TearDownDevice(ctx context.Context, run *act.Runner, globalMapPath, devicePath string) error
}

// Deleter deletes the volume that it was made for.
type Deleter interface {
	Delete(ctx context.Context, run *act.Runner) error
}

// Provisioner makes a volume and describes it.
type Provisioner interface {
	Provision(ctx context.Context, run *act.Runner) (*v1.PersistentVolume, error)
}

// DynamicPluginProber finds plugins that are not compiled in.
type DynamicPluginProber interface {
	Init() error
	// Probe lists what is there now.
	Probe() ([]VolumePlugin, error)
}

// As gives the plugin as one of the higher rungs. A missing rung is always
// ErrNotSupported, with the plugin and the rung named.
func As[T VolumePlugin](p VolumePlugin) (T, error) {
	if t, ok := p.(T); ok {
		return t, nil
	}
	var none T
	return none, &api.Error{
		Plugin: p.GetPluginName(),
		Kind:   api.ErrNotSupported,
		Err:    notSupported[T](p),
		Next:   "see what each plugin can do: kvol plugins",
	}
}
