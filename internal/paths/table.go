package paths

import "strings"

// The names of the volume plugins, as they are on disk once escaped.
const (
	AWSEBSPlugin      = "kubernetes.io/aws-ebs"
	AzureDiskPlugin   = "kubernetes.io/azure-disk"
	AzureFilePlugin   = "kubernetes.io/azure-file"
	CephFSPlugin      = "kubernetes.io/cephfs"
	CinderPlugin      = "kubernetes.io/cinder"
	ConfigMapPlugin   = "kubernetes.io/configmap"
	CSIPlugin         = "kubernetes.io/csi"
	DownwardAPIPlugin = "kubernetes.io/downward-api"
	EmptyDirPlugin    = "kubernetes.io/empty-dir"
	FCPlugin          = "kubernetes.io/fc"
	FlockerPlugin     = "kubernetes.io/flocker"
	GCEPDPlugin       = "kubernetes.io/gce-pd"
	GitRepoPlugin     = "kubernetes.io/git-repo"
	GlusterFSPlugin   = "kubernetes.io/glusterfs"
	HostPathPlugin    = "kubernetes.io/host-path"
	ImagePlugin       = "kubernetes.io/image"
	ISCSIPlugin       = "kubernetes.io/iscsi"
	LocalPlugin       = "kubernetes.io/local-volume"
	NFSPlugin         = "kubernetes.io/nfs"
	PhotonPDPlugin    = "kubernetes.io/photon-pd"
	PortworxPlugin    = "kubernetes.io/portworx-volume"
	ProjectedPlugin   = "kubernetes.io/projected"
	QuobytePlugin     = "kubernetes.io/quobyte"
	RBDPlugin         = "kubernetes.io/rbd"
	ScaleIOPlugin     = "kubernetes.io/scaleio"
	SecretPlugin      = "kubernetes.io/secret"
	StorageOSPlugin   = "kubernetes.io/storageos"
	VSpherePlugin     = "kubernetes.io/vsphere-volume"
)

// KubernetesPlugins are the names that Kubernetes has, or had.
var KubernetesPlugins = []string{
	AWSEBSPlugin, AzureDiskPlugin, AzureFilePlugin, CephFSPlugin, CinderPlugin, ConfigMapPlugin, CSIPlugin,
	DownwardAPIPlugin, EmptyDirPlugin, FCPlugin, FlockerPlugin, GCEPDPlugin, GitRepoPlugin, GlusterFSPlugin,
	HostPathPlugin, ImagePlugin, ISCSIPlugin, LocalPlugin, NFSPlugin, PhotonPDPlugin, PortworxPlugin,
	ProjectedPlugin, QuobytePlugin, RBDPlugin, ScaleIOPlugin, SecretPlugin, StorageOSPlugin, VSpherePlugin,
}

// layout is one line of the table: a path below the root and what it is.
//
// An element of the path is text, a {variable}, or text before a {variable}
// (see variables). {id...} takes as many elements as span says. At each element
// text wins over a variable, and then the longer path over the shorter, so the
// order of the table is for the reader only.
type layout struct {
	kind   Kind
	plugin string // the plugin, where the path does not have it as a variable
	path   string
	old    bool
	span   func(elems []string) int
}

// layouts is the kubelet's layout, all of it.
var layouts = []layout{
	// The root.
	{kind: PodsDir, path: "pods"},
	{kind: PluginsDir, path: "plugins"},
	{kind: RegistryDir, path: "plugins_registry"},
	{kind: RegistrationSocket, path: "plugins_registry/{file}"},
	{kind: KubeletOwn, path: "{kubeletfile}"},

	// A pod.
	{kind: PodDir, path: "pods/{uid}"},
	{kind: PodEtcHosts, path: "pods/{uid}/etc-hosts"},
	{kind: PodUserNS, path: "pods/{uid}/userns"},
	{kind: PodContainersDir, path: "pods/{uid}/containers"},
	{kind: PodContainerDir, path: "pods/{uid}/containers/{container}"},
	{kind: PodContainerFile, path: "pods/{uid}/containers/{container}/{file}"},
	{kind: PodVolumesDir, path: "pods/{uid}/volumes"},
	{kind: PodVolumePluginDir, path: "pods/{uid}/volumes/{plugin}"},
	{kind: PodVolume, path: "pods/{uid}/volumes/{plugin}/{volume}"},
	{kind: PodVolumeMount, plugin: CSIPlugin, path: "pods/{uid}/volumes/kubernetes.io~csi/{volume}/mount"},
	{kind: PodVolumeMetadata, plugin: CSIPlugin, path: "pods/{uid}/volumes/kubernetes.io~csi/{volume}/vol_data.json"},
	{kind: PodDevicesDir, path: "pods/{uid}/volumeDevices"},
	{kind: PodDeviceDir, path: "pods/{uid}/volumeDevices/{plugin}"},
	{kind: PodDevice, path: "pods/{uid}/volumeDevices/{plugin}/{volume}"},
	{kind: SubPathsDir, path: "pods/{uid}/volume-subpaths"},
	{kind: SubPathVolumeDir, path: "pods/{uid}/volume-subpaths/{volume}"},
	{kind: SubPathContainerDir, path: "pods/{uid}/volume-subpaths/{volume}/{container}"},
	{kind: SubPath, path: "pods/{uid}/volume-subpaths/{volume}/{container}/{index}"},
	{kind: PodPluginsDir, path: "pods/{uid}/plugins"},
	{kind: PodPluginDir, path: "pods/{uid}/plugins/{plugin}"},
	{kind: PodPluginVolumeDir, path: "pods/{uid}/plugins/{plugin}/{volume}"},
	{kind: ReadyMarker, path: "pods/{uid}/plugins/{plugin}/{volume}/ready"},
	// ScaleIO passes its name unescaped (pkg/volume/scaleio/sio_volume.go).
	{kind: PodPluginMetadata, plugin: ScaleIOPlugin, path: "pods/{uid}/plugins/kubernetes.io/scaleio/sioconf.dat"},

	// Node-wide, of any plugin: aws-ebs, azure-disk, cinder, gce-pd, photon-pd, rbd
	// and vsphere-volume are like this, but for what is listed below.
	{kind: DriverDir, path: "plugins/{driver}"},
	{kind: DriverSocket, path: "plugins/{driver}/csi.sock"},
	{kind: PluginNamespaceDir, path: "plugins/kubernetes.io"},
	{kind: EscapedPluginDir, path: "plugins/kubernetes.io~{name}"},
	{kind: PluginDir, path: "plugins/kubernetes.io/{name}"},
	{kind: MountsDir, path: "plugins/kubernetes.io/{name}/mounts"},
	{kind: GlobalMount, path: "plugins/kubernetes.io/{name}/mounts/{id}"},
	{kind: GlobalMapsDir, path: "plugins/kubernetes.io/{name}/volumeDevices"},
	{kind: GlobalMapDir, path: "plugins/kubernetes.io/{name}/volumeDevices/{id}"},
	{kind: GlobalMapDevice, path: "plugins/kubernetes.io/{name}/volumeDevices/{id}/{uid}"},

	// An EBS id is "vol-1" or "aws://zone/vol-1": nested.
	{kind: GlobalMount, plugin: AWSEBSPlugin, path: "plugins/kubernetes.io/aws-ebs/mounts/{id...}", span: awsSpan("aws")},
	{kind: GlobalMapDir, plugin: AWSEBSPlugin, path: "plugins/kubernetes.io/aws-ebs/volumeDevices/{id...}", span: awsSpan("aws:")},
	{kind: GlobalMapDevice, plugin: AWSEBSPlugin, path: "plugins/kubernetes.io/aws-ebs/volumeDevices/{id...}/{uid}", span: awsSpan("aws:")},

	// A vSphere id is "[datastore] dir/disk.vmdk": nested, with blanks.
	{kind: GlobalMount, plugin: VSpherePlugin, path: "plugins/kubernetes.io/vsphere-volume/mounts/{id...}", span: vmdkSpan},
	{kind: GlobalMapDir, plugin: VSpherePlugin, path: "plugins/kubernetes.io/vsphere-volume/volumeDevices/{id...}", span: vmdkSpan},
	{kind: GlobalMapDevice, plugin: VSpherePlugin, path: "plugins/kubernetes.io/vsphere-volume/volumeDevices/{id...}/{uid}", span: vmdkSpan},

	{kind: GlobalMount, plugin: RBDPlugin, path: "plugins/kubernetes.io/rbd/rbd/{id}", old: true},
	{kind: GlobalMetadata, plugin: RBDPlugin, path: "plugins/kubernetes.io/rbd/mounts/{id}/rbd.json"},
	{kind: GlobalMetadata, plugin: RBDPlugin, path: "plugins/kubernetes.io/rbd/rbd/{id}/rbd.json", old: true},

	{kind: IfaceDir, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/iface-{iface}"},
	{kind: GlobalMount, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/iface-{iface}/{id}"},
	{kind: GlobalMetadata, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/iface-{iface}/{id}/iscsi.json"},
	{kind: MapIfaceDir, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/volumeDevices/iface-{iface}"},
	{kind: GlobalMapDir, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/volumeDevices/iface-{iface}/{id}"},
	{kind: GlobalMapDevice, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/volumeDevices/iface-{iface}/{id}/{uid}"},
	{kind: GlobalMapMetadata, plugin: ISCSIPlugin, path: "plugins/kubernetes.io/iscsi/volumeDevices/iface-{iface}/{id}/iscsi.json"},

	{kind: GlobalMount, plugin: FCPlugin, path: "plugins/kubernetes.io/fc/{id}"},
	{kind: GlobalMapsDir, plugin: FCPlugin, path: "plugins/kubernetes.io/fc/volumeDevices"},
	{kind: GlobalMapDir, plugin: FCPlugin, path: "plugins/kubernetes.io/fc/volumeDevices/{id}"},
	{kind: GlobalMapDevice, plugin: FCPlugin, path: "plugins/kubernetes.io/fc/volumeDevices/{id}/{uid}"},

	// local is by PV name, and its block maps are under the escaped plugin name.
	{kind: GlobalMount, plugin: LocalPlugin, path: "plugins/kubernetes.io/local-volume/mounts/{volume}"},
	{kind: GlobalMapsDir, plugin: LocalPlugin, path: "plugins/kubernetes.io~local-volume/volumeDevices"},
	{kind: GlobalMapDir, plugin: LocalPlugin, path: "plugins/kubernetes.io~local-volume/volumeDevices/{volume}"},
	{kind: GlobalMapDevice, plugin: LocalPlugin, path: "plugins/kubernetes.io~local-volume/volumeDevices/{volume}/{uid}"},

	// FlexVolume: the driver's name is one element or, with a vendor, two.
	{kind: MountsDir, path: "plugins/kubernetes.io/flexvolume/{vendor}/{flexdriver}/mounts"},
	{kind: GlobalMount, path: "plugins/kubernetes.io/flexvolume/{vendor}/{flexdriver}/mounts/{volume}"},
	{kind: MountsDir, path: "plugins/kubernetes.io/flexvolume/{flexplugin}/mounts"},
	{kind: GlobalMount, path: "plugins/kubernetes.io/flexvolume/{flexplugin}/mounts/{volume}"},

	{kind: SharedMount, plugin: QuobytePlugin, path: "plugins/kubernetes.io~quobyte"},
	{kind: SharedVolume, plugin: QuobytePlugin, path: "plugins/kubernetes.io~quobyte/{id}"},
	{kind: MountsDir, plugin: StorageOSPlugin, path: "plugins/kubernetes.io~storageos/mounts"},
	{kind: GlobalMount, plugin: StorageOSPlugin, path: "plugins/kubernetes.io~storageos/mounts/{volume}"},
	{kind: GlobalMount, plugin: ScaleIOPlugin, path: "plugins/kubernetes.io/scaleio/mounts/{id...}", old: true, span: twoElements},

	// CSI file systems. By PV name up to about Kubernetes 1.23.
	{kind: CSIDriverVolumesDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/{driver}"},
	{kind: CSIVolumeDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/{driver}/{hash}"},
	{kind: GlobalMount, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/{driver}/{hash}/globalmount"},
	{kind: GlobalMetadata, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/{driver}/{hash}/vol_data.json"},
	{kind: CSIDriverVolumesDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/pv", old: true},
	{kind: CSIVolumeDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/pv/{volume}", old: true},
	{kind: GlobalMount, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/pv/{volume}/globalmount", old: true},
	{kind: GlobalMetadata, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/pv/{volume}/vol_data.json", old: true},

	// CSI block volumes, by PV name.
	{kind: GlobalMapsDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices"},
	{kind: CSIBlockDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/{volume}"},
	{kind: GlobalMapDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/{volume}/dev"},
	{kind: GlobalMapDevice, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/{volume}/dev/{uid}"},
	{kind: CSIBlockDataDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/{volume}/data"},
	{kind: GlobalMapMetadata, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/{volume}/data/vol_data.json"},
	{kind: CSIBlockStagingsDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/staging"},
	{kind: CSIBlockStaging, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/staging/{volume}"},
	{kind: CSIBlockPublishesDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/publish"},
	{kind: CSIBlockPublishDir, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/publish/{volume}"},
	{kind: CSIBlockPublish, plugin: CSIPlugin, path: "plugins/kubernetes.io/csi/volumeDevices/publish/{volume}/{uid}"},
}

// kubeletFiles are the names in the root that are not of volumes.
var kubeletFiles = map[string]bool{
	"actuated_pods_state": true, "allocated_pods_state": true, "bootstrap-kubeconfig": true, "checkpoints": true,
	"config.yaml": true, "cpu_manager_state": true, "device-plugins": true, "dra_manager_state": true,
	"image_manager": true, "kubeadm-flags.env": true, "kubeconfig": true, "memory_manager_state": true, "pki": true,
	"plugin-containers": true, "pod-resources": true, "pod_status_manager_state": true, "volumeplugins": true,
}

// awsSpan counts the elements of an EBS id: "<scheme>/zone/vol-1", "<scheme>/vol-1"
// (from "aws:///vol-1") or "vol-1". The mount has "://" replaced by "/"; the block
// map has the id as it is, of which joining leaves "aws:/zone/vol-1"
// (pkg/volume/awsebs/aws_util.go, aws_ebs_block.go).
func awsSpan(scheme string) func([]string) int {
	return func(elems []string) int {
		switch {
		case elems[0] != scheme:
			return 1
		case len(elems) >= 2 && strings.HasPrefix(elems[1], "vol-"):
			return 2
		case len(elems) >= 3:
			return 3
		}
		return 0
	}
}

// vmdkSpan ends a vSphere id at its disk file; the directories above it are not
// volumes.
func vmdkSpan(elems []string) int {
	for i, e := range elems {
		if strings.HasSuffix(e, ".vmdk") {
			return i + 1
		}
	}
	return 0
}

func twoElements(elems []string) int {
	if len(elems) < 2 {
		return 0
	}
	return 2
}
