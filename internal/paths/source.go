package paths

import (
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Source is the identity of a volume as its plugin knows it: what, with the spec
// name, decides where the volume is on the node.
type Source interface {
	// PluginName is the name of the plugin, "kubernetes.io/nfs".
	PluginName() string
	// place says where the volume is; name is the validated spec name.
	place(name string) (place, error)
}

// place is where a volume is. A path of Kind "" is one that it does not have.
type place struct {
	podVolume Path // without the pod's uid, as all of them
	global    Path
	globalMap Path
	// Metadata of a file-system and of a block volume.
	metadata, blockMetadata []Path
	podDevice               bool
}

// ForSource says where a volume is: in the pod's directory (podUID "" leaves that
// out) and node-wide, as a file system or as a block device. A path that it does
// not have is empty; so is the global mount of a local directory, which is the
// user's own directory outside the root. PodVolumePath of a CSI volume is the
// directory "mount" that the driver mounts on.
func (l Layout) ForSource(s Source, name, podUID string, block bool) (api.PathSet, error) {
	set := api.PathSet{Plugin: s.PluginName(), Volume: name, Metadata: []string{}}
	if err := ValidVolumeName(EscapePlugin(name)); err != nil {
		return set, err
	}
	where, err := s.place(name)
	if err != nil {
		return set, err
	}
	var b builder
	metadata := where.metadata
	if block {
		metadata = where.blockMetadata
		set.GlobalMapPath = b.build(l, where.globalMap)
		if podUID != "" && where.podDevice {
			set.PodDeviceMapPath = b.build(l, Path{Kind: PodDevice, PodUID: podUID, Plugin: s.PluginName(), Volume: podVolumeName(s.PluginName(), name)})
		}
	} else {
		set.GlobalMountPath = b.build(l, where.global)
		set.PodVolumePath = b.build(l, inPod(where.podVolume, podUID))
	}
	for _, p := range metadata {
		if m := b.build(l, inPod(p, podUID)); m != "" {
			set.Metadata = append(set.Metadata, m)
		}
	}
	return set, b.err
}

// builder builds paths until the first error.
type builder struct{ err error }

func (b *builder) build(l Layout, p Path) string {
	if p.Kind == "" || b.err != nil {
		return ""
	}
	path, err := l.Build(p)
	b.err = err
	return path
}

// inPod fills the pod into a path that is in one; without a pod there is none.
func inPod(p Path, uid string) Path {
	switch p.Kind {
	case PodVolume, PodVolumeMount, PodVolumeMetadata, ReadyMarker, PodPluginMetadata:
		if uid == "" {
			return Path{}
		}
		p.PodUID = uid
	}
	return p
}

// disk is the place of a plugin with a global mount and a global map of one id.
func disk(plugin, name string, global, globalMap Path) place {
	global.Kind, global.Plugin = GlobalMount, plugin
	globalMap.Kind, globalMap.Plugin = GlobalMapDir, plugin
	return place{
		podVolume: Path{Kind: PodVolume, Plugin: plugin, Volume: name},
		global:    global, globalMap: globalMap, podDevice: true,
	}
}

// Direct is a volume with nothing node-wide: it is mounted or made in the pod's
// directory. emptyDir, secret, configMap, downwardAPI, projected, gitRepo, nfs,
// cephfs, glusterfs, azureFile, portworx, flocker, scaleIO; hostPath and image
// have not even that.
type Direct struct{ Plugin string }

// PluginName is the plugin that the value names.
func (s Direct) PluginName() string { return s.Plugin }

func (s Direct) place(name string) (place, error) {
	where := place{podVolume: Path{Kind: PodVolume, Plugin: s.Plugin, Volume: name}}
	switch s.Plugin {
	case HostPathPlugin, ImagePlugin:
		return place{}, nil
	case EmptyDirPlugin, GitRepoPlugin:
		where.metadata = []Path{{Kind: ReadyMarker, Plugin: s.Plugin, Volume: name}}
	case SecretPlugin, ConfigMapPlugin, DownwardAPIPlugin, ProjectedPlugin:
		// They set up an emptyDir of this name at their own path.
		where.metadata = []Path{{Kind: ReadyMarker, Plugin: EmptyDirPlugin, Volume: "wrapped_" + name}}
	case ScaleIOPlugin:
		where.metadata = []Path{{Kind: PodPluginMetadata, Plugin: s.Plugin}}
	case NFSPlugin, CephFSPlugin, GlusterFSPlugin, AzureFilePlugin, PortworxPlugin, FlockerPlugin:
	default:
		return place{}, bad("plugin", s.Plugin, "it is not one whose volumes are in the pod's directory only", "see the names: kvol plugins")
	}
	return where, nil
}

// Local is a local PV; its directories have the PV's name.
type Local struct {
	// Device tells that the source is a block device: with a file system it is
	// mounted globally, which a directory is not.
	Device bool
}

// PluginName is kubernetes.io/local-volume.
func (Local) PluginName() string { return LocalPlugin }

func (s Local) place(name string) (place, error) {
	where := disk(LocalPlugin, name, Path{Volume: name}, Path{Volume: name})
	if !s.Device {
		where.global = Path{}
	}
	return where, nil
}

// CSI is a volume of a CSI driver.
type CSI struct {
	Driver, Handle string
	// Inline volumes are not staged; their handle is CSIInlineHandle.
	Inline bool
	// Old has the staging directory named by the PV, as up to about Kubernetes 1.23.
	Old bool
}

// PluginName is kubernetes.io/csi.
func (CSI) PluginName() string { return CSIPlugin }

func (s CSI) place(name string) (place, error) {
	if err := ValidDriverName(s.Driver); err != nil {
		return place{}, err
	}
	if s.Handle == "" && !s.Inline {
		return place{}, bad("CSI volume handle", s.Handle, "it is empty", "take spec.csi.volumeHandle of the PV")
	}
	dir := podVolumeName(CSIPlugin, name)
	where := place{
		podVolume: Path{Kind: PodVolumeMount, Plugin: CSIPlugin, Volume: dir},
		metadata:  []Path{{Kind: PodVolumeMetadata, Plugin: CSIPlugin, Volume: dir}},
	}
	if s.Inline {
		return where, nil
	}
	where.podDevice = true
	where.global = Path{Kind: GlobalMount, Plugin: CSIPlugin, Driver: s.Driver, HandleHash: HandleHash(s.Handle)}
	if s.Old {
		where.global = Path{Kind: GlobalMount, Plugin: CSIPlugin, Volume: name, Old: true}
	}
	meta := where.global
	meta.Kind = GlobalMetadata
	where.metadata = append(where.metadata, meta)
	where.globalMap = Path{Kind: GlobalMapDir, Plugin: CSIPlugin, Volume: dir}
	where.blockMetadata = []Path{{Kind: GlobalMapMetadata, Plugin: CSIPlugin, Volume: dir}}
	return where, nil
}

// Flex is a volume of a FlexVolume driver, "vendor/driver" or "driver".
type Flex struct{ Driver string }

// PluginName is the driver's name.
func (s Flex) PluginName() string { return s.Driver }

func (s Flex) place(name string) (place, error) {
	where := disk(s.Driver, name, Path{Volume: name}, Path{})
	where.globalMap, where.podDevice = Path{}, false // no block support
	return where, nil
}

// Quobyte is a volume inside the one mount of all Quobyte volumes; it has no
// directory in a pod.
type Quobyte struct{ User, Group, Volume string }

// PluginName is kubernetes.io/quobyte.
func (Quobyte) PluginName() string { return QuobytePlugin }

// The kubelet takes root and nfsnobody where the spec names no user or group.
func (s Quobyte) place(string) (place, error) {
	user, group := s.User, s.Group
	if user == "" {
		user = "root"
	}
	if group == "" {
		group = "nfsnobody"
	}
	if err := check("Quobyte volume", s.Volume, true, "", "take volume of the PV"); err != nil {
		return place{}, err
	}
	return place{
		podVolume: Path{Kind: SharedVolume, Plugin: QuobytePlugin, ID: user + "#" + group + "@" + s.Volume},
		global:    Path{Kind: SharedMount, Plugin: QuobytePlugin},
	}, nil
}

// StorageOS is a StorageOS volume of a namespace.
type StorageOS struct{ Namespace, Name string }

// PluginName is kubernetes.io/storageos.
func (StorageOS) PluginName() string { return StorageOSPlugin }

func (s StorageOS) place(name string) (place, error) {
	full := name + "." + s.Namespace + "." + s.Name
	where := disk(StorageOSPlugin, name, Path{Volume: full}, Path{})
	where.globalMap, where.podDevice = Path{}, false
	// A name with dots could not be taken apart again.
	if s.Namespace != "" && s.Name != "" && !strings.Contains(s.Name, ".") {
		where.podVolume.Volume = full
	}
	return where, nil
}

// AzureDisk is an Azure disk.
type AzureDisk struct {
	DiskName, URI string
	Managed       bool
}

// PluginName is kubernetes.io/azure-disk.
func (AzureDisk) PluginName() string { return AzureDiskPlugin }

// The mount is "m" (managed) or "b" (blob) and the decimal CRC-32 (IEEE) of the
// lower-cased URI; the block map is the disk's name.
func (s AzureDisk) place(name string) (place, error) {
	if s.URI == "" {
		return place{}, bad("Azure disk URI", s.URI, "it is empty", "take diskURI of the PV")
	}
	if err := validDiskID("Azure disk name", s.DiskName); err != nil {
		return place{}, err
	}
	kind := "b"
	if s.Managed {
		kind = "m"
	}
	sum := crc32.ChecksumIEEE([]byte(strings.ToLower(s.URI)))
	return disk(AzureDiskPlugin, name, Path{ID: kind + strconv.FormatUint(uint64(sum), 10)}, Path{ID: s.DiskName}), nil
}
