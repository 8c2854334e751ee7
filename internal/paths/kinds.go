package paths

// Kind says which path of the layout a path is.
type Kind string

// The kinds. Directories that only hold others have kinds of their own, so that
// every directory a kubelet makes is explained.
const (
	None    Kind = "none"
	RootDir Kind = "rootDir"
	// KubeletOwn is state of the kubelet that has nothing to do with volumes.
	KubeletOwn Kind = "kubeletOwn"

	PodsDir            Kind = "podsDir"
	PodDir             Kind = "podDir"
	PodVolumesDir      Kind = "podVolumesDir"
	PodVolumePluginDir Kind = "podVolumePluginDir"
	// PodVolume is the volume's directory in the pod: where most plugins mount.
	PodVolume Kind = "podVolume"
	// PodVolumeMount is where a CSI driver mounts: "mount" in the PodVolume.
	PodVolumeMount    Kind = "podVolumeMount"
	PodVolumeMetadata Kind = "podVolumeMetadata"
	PodDevicesDir     Kind = "podDevicesDir"
	PodDeviceDir      Kind = "podDeviceDir"
	// PodDevice is the symbolic link to a block volume's device.
	PodDevice           Kind = "podDevice"
	SubPathsDir         Kind = "subPathsDir"
	SubPathVolumeDir    Kind = "subPathVolumeDir"
	SubPathContainerDir Kind = "subPathContainerDir"
	// SubPath is the bind mount of one volumeMount with a subPath.
	SubPath              Kind = "subPath"
	PodPluginsDir        Kind = "podPluginsDir"
	PodPluginDir         Kind = "podPluginDir"
	PodPluginVolumeDir   Kind = "podPluginVolumeDir"
	ReadyMarker          Kind = "readyMarker"
	PodPluginMetadata    Kind = "podPluginMetadata"
	PodContainersDir     Kind = "podContainersDir"
	PodContainerDir      Kind = "podContainerDir"
	PodContainerFile     Kind = "podContainerFile"
	PodEtcHosts          Kind = "podEtcHosts"
	PodUserNS            Kind = "podUserNS"
	RegistryDir          Kind = "registryDir"
	RegistrationSocket   Kind = "registrationSocket"
	PluginsDir           Kind = "pluginsDir"
	PluginNamespaceDir   Kind = "pluginNamespaceDir"
	PluginDir            Kind = "pluginDir"
	EscapedPluginDir     Kind = "escapedPluginDir"
	DriverDir            Kind = "driverDir"
	DriverSocket         Kind = "driverSocket"
	MountsDir            Kind = "mountsDir"
	IfaceDir             Kind = "ifaceDir"
	GlobalMount          Kind = "globalMount"
	GlobalMetadata       Kind = "globalMetadata"
	GlobalMapsDir        Kind = "globalMapsDir"
	MapIfaceDir          Kind = "mapIfaceDir"
	GlobalMapDir         Kind = "globalMapDir"
	GlobalMapDevice      Kind = "globalMapDevice"
	GlobalMapMetadata    Kind = "globalMapMetadata"
	SharedMount          Kind = "sharedMount"
	SharedVolume         Kind = "sharedVolume"
	CSIDriverVolumesDir  Kind = "csiDriverVolumesDir"
	CSIVolumeDir         Kind = "csiVolumeDir"
	CSIBlockDir          Kind = "csiBlockDir"
	CSIBlockDataDir      Kind = "csiBlockDataDir"
	CSIBlockStagingsDir  Kind = "csiBlockStagingsDir"
	CSIBlockStaging      Kind = "csiBlockStaging"
	CSIBlockPublishesDir Kind = "csiBlockPublishesDir"
	// CSIBlockPublishDir holds a file per pod. Up to about Kubernetes 1.16 it was
	// itself the published file, shared by all pods: the type on disk tells.
	CSIBlockPublishDir Kind = "csiBlockPublishDir"
	CSIBlockPublish    Kind = "csiBlockPublish"
)

// what says each kind in a few words, for people.
var what = map[Kind]string{
	None:                 "nothing that a kubelet makes for volumes",
	RootDir:              "the kubelet's root directory",
	KubeletOwn:           "the kubelet's own, not of a volume",
	PodsDir:              "holds a directory per pod",
	PodDir:               "everything of one pod",
	PodVolumesDir:        "holds the pod's volumes by plugin",
	PodVolumePluginDir:   "holds the pod's volumes of one plugin",
	PodVolume:            "a volume of the pod",
	PodVolumeMount:       "where a CSI driver publishes a volume into the pod",
	PodVolumeMetadata:    "what the kubelet needs to unpublish a CSI volume",
	PodDevicesDir:        "holds the pod's block volumes by plugin",
	PodDeviceDir:         "holds the pod's block volumes of one plugin",
	PodDevice:            "symbolic link to a block volume's device",
	SubPathsDir:          "holds the pod's subPath mounts by volume",
	SubPathVolumeDir:     "holds the subPath mounts of one volume by container",
	SubPathContainerDir:  "holds the subPath mounts of one container by index",
	SubPath:              "bind mount of a subPath; the name is the index in volumeMounts",
	PodPluginsDir:        "holds what plugins keep per pod",
	PodPluginDir:         "what one plugin keeps per pod",
	PodPluginVolumeDir:   "what one plugin keeps per volume of the pod",
	ReadyMarker:          "says that the volume was set up completely",
	PodPluginMetadata:    "configuration that the plugin keeps per pod",
	PodContainersDir:     "holds a directory per container",
	PodContainerDir:      "holds the termination messages of one container",
	PodContainerFile:     "termination message of one run of a container",
	PodEtcHosts:          "the pod's /etc/hosts",
	PodUserNS:            "the pod's user namespace mapping",
	RegistryDir:          "holds the sockets by which plugins register",
	RegistrationSocket:   "socket by which a plugin registers",
	PluginsDir:           "holds node-wide plugin data",
	PluginNamespaceDir:   "holds the in-tree plugins' node-wide data",
	PluginDir:            "node-wide data of one plugin",
	EscapedPluginDir:     "node-wide data of one plugin, under its escaped name",
	DriverDir:            "a CSI driver's private directory",
	DriverSocket:         "a CSI driver's socket, by convention",
	MountsDir:            "holds the plugin's global mounts",
	IfaceDir:             "holds the global mounts of one iSCSI interface",
	GlobalMount:          "where the volume is mounted once for the node",
	GlobalMetadata:       "what the plugin needs to undo the global mount",
	GlobalMapsDir:        "holds the plugin's block volumes",
	MapIfaceDir:          "holds the block volumes of one iSCSI interface",
	GlobalMapDir:         "holds a bind of the block device per pod",
	GlobalMapDevice:      "bind mount of the block device for one pod",
	GlobalMapMetadata:    "what the plugin needs to undo the block map",
	SharedMount:          "the one mount that all volumes of this plugin share",
	SharedVolume:         "a volume inside the plugin's shared mount",
	CSIDriverVolumesDir:  "holds the staged volumes of one CSI driver",
	CSIVolumeDir:         "one staged CSI volume",
	CSIBlockDir:          "one CSI block volume",
	CSIBlockDataDir:      "holds the metadata of one CSI block volume",
	CSIBlockStagingsDir:  "holds the staging directories of CSI block volumes",
	CSIBlockStaging:      "staging directory of one CSI block volume",
	CSIBlockPublishesDir: "holds the published CSI block volumes",
	CSIBlockPublishDir:   "holds one CSI block volume's file per pod (old: is the file)",
	CSIBlockPublish:      "the CSI block device published for one pod",
}

// String is the kind as results have it.
func (k Kind) String() string { return string(k) }

// What says in a few words what a path of this kind is, "" for an unknown kind.
func (k Kind) What() string { return what[k] }
