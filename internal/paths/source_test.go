package paths

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/api"
)

const (
	inTree = root + "/plugins/kubernetes.io/"
	pod    = root + "/pods/u/"
)

// sources has the volume sources with their paths written out: as a file system
// (fs) and as a block device.
var sources = []struct {
	name   string
	source Source
	volume string
	fs     api.PathSet // Plugin and Volume are filled in by the test
	block  api.PathSet
}{
	{
		name: "emptyDir", source: Direct{EmptyDirPlugin}, volume: "e",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~empty-dir/e", Metadata: []string{pod + "plugins/kubernetes.io~empty-dir/e/ready"}},
	},
	{
		name: "configMap", source: Direct{ConfigMapPlugin}, volume: "cm",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~configmap/cm", Metadata: []string{pod + "plugins/kubernetes.io~empty-dir/wrapped_cm/ready"}},
	},
	{
		name: "secret", source: Direct{SecretPlugin}, volume: "s",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~secret/s", Metadata: []string{pod + "plugins/kubernetes.io~empty-dir/wrapped_s/ready"}},
	},
	{
		name: "downwardAPI", source: Direct{DownwardAPIPlugin}, volume: "d",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~downward-api/d", Metadata: []string{pod + "plugins/kubernetes.io~empty-dir/wrapped_d/ready"}},
	},
	{
		name: "projected", source: Direct{ProjectedPlugin}, volume: "p",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~projected/p", Metadata: []string{pod + "plugins/kubernetes.io~empty-dir/wrapped_p/ready"}},
	},
	{
		name: "gitRepo", source: Direct{GitRepoPlugin}, volume: "g",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~git-repo/g", Metadata: []string{pod + "plugins/kubernetes.io~git-repo/g/ready"}},
	},
	{name: "hostPath", source: Direct{HostPathPlugin}, volume: "h"},
	{name: "image", source: Direct{ImagePlugin}, volume: "i"},
	{name: "nfs", source: Direct{NFSPlugin}, volume: "pv1", fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~nfs/pv1"}},
	{name: "cephfs", source: Direct{CephFSPlugin}, volume: "pv1", fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~cephfs/pv1"}},
	{name: "glusterfs", source: Direct{GlusterFSPlugin}, volume: "pv1", fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~glusterfs/pv1"}},
	{name: "azureFile", source: Direct{AzureFilePlugin}, volume: "pv1", fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~azure-file/pv1"}},
	{name: "portworx", source: Direct{PortworxPlugin}, volume: "pv1", fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~portworx-volume/pv1"}},
	{name: "flocker", source: Direct{FlockerPlugin}, volume: "pv1", fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~flocker/pv1"}},
	{
		name: "scaleIO", source: Direct{ScaleIOPlugin}, volume: "pv1",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~scaleio/pv1", Metadata: []string{pod + "plugins/kubernetes.io/scaleio/sioconf.dat"}},
	},
	{
		name: "local directory", source: Local{}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~local-volume/pv1"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~local-volume/pv1", GlobalMapPath: root + "/plugins/kubernetes.io~local-volume/volumeDevices/pv1"},
	},
	{
		name: "local device", source: Local{Device: true}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~local-volume/pv1", GlobalMountPath: inTree + "local-volume/mounts/pv1"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~local-volume/pv1", GlobalMapPath: root + "/plugins/kubernetes.io~local-volume/volumeDevices/pv1"},
	},
	{
		name: "csi", source: CSI{Driver: "loopfs.test", Handle: "/var/lib/loopvols/v1.img"}, volume: "pv1",
		fs: api.PathSet{
			PodVolumePath:   pod + "volumes/kubernetes.io~csi/pv1/mount",
			GlobalMountPath: inTree + "csi/loopfs.test/" + hash + "/globalmount",
			Metadata:        []string{pod + "volumes/kubernetes.io~csi/pv1/vol_data.json", inTree + "csi/loopfs.test/" + hash + "/vol_data.json"},
		},
		block: api.PathSet{
			PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~csi/pv1", GlobalMapPath: inTree + "csi/volumeDevices/pv1/dev",
			Metadata: []string{inTree + "csi/volumeDevices/pv1/data/vol_data.json"},
		},
	},
	{
		name: "csi, old", source: CSI{Driver: "d", Handle: "h", Old: true}, volume: "pv1",
		fs: api.PathSet{
			PodVolumePath: pod + "volumes/kubernetes.io~csi/pv1/mount", GlobalMountPath: inTree + "csi/pv/pv1/globalmount",
			Metadata: []string{pod + "volumes/kubernetes.io~csi/pv1/vol_data.json", inTree + "csi/pv/pv1/vol_data.json"},
		},
		block: api.PathSet{
			PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~csi/pv1", GlobalMapPath: inTree + "csi/volumeDevices/pv1/dev",
			Metadata: []string{inTree + "csi/volumeDevices/pv1/data/vol_data.json"},
		},
	},
	{
		name: "csi, inline", source: CSI{Driver: "d", Inline: true}, volume: "v",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~csi/v/mount", Metadata: []string{pod + "volumes/kubernetes.io~csi/v/vol_data.json"}},
	},
	{
		name: "csi, translated inline", source: CSI{Driver: "csi.vsphere.vmware.com", Inline: true}, volume: "csi.vsphere.vmware.com-[ds] k/d.vmdk",
		fs: api.PathSet{
			PodVolumePath: pod + "volumes/kubernetes.io~csi/csi.vsphere.vmware.com-[ds] k~d.vmdk/mount",
			Metadata:      []string{pod + "volumes/kubernetes.io~csi/csi.vsphere.vmware.com-[ds] k~d.vmdk/vol_data.json"},
		},
	},
	{
		name: "flexVolume", source: Flex{"vendor/driver"}, volume: "v",
		fs: api.PathSet{PodVolumePath: pod + "volumes/vendor~driver/v", GlobalMountPath: inTree + "flexvolume/vendor/driver/mounts/v"},
	},
	{
		name: "flexVolume without vendor", source: Flex{"driver"}, volume: "v",
		fs: api.PathSet{PodVolumePath: pod + "volumes/driver/v", GlobalMountPath: inTree + "flexvolume/driver/mounts/v"},
	},
	{
		name: "quobyte", source: Quobyte{Volume: "vol"}, volume: "pv1",
		fs: api.PathSet{PodVolumePath: root + "/plugins/kubernetes.io~quobyte/root#nfsnobody@vol", GlobalMountPath: root + "/plugins/kubernetes.io~quobyte"},
	},
	{
		name: "storageOS", source: StorageOS{Namespace: "ns", Name: "vol"}, volume: "pv1",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~storageos/pv1.ns.vol", GlobalMountPath: root + "/plugins/kubernetes.io~storageos/mounts/pv1.ns.vol"},
	},
	{
		name: "storageOS with a dot", source: StorageOS{Namespace: "ns", Name: "v.ol"}, volume: "pv1",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~storageos/pv1", GlobalMountPath: root + "/plugins/kubernetes.io~storageos/mounts/pv1.ns.v.ol"},
	},
	{
		name: "azureDisk", source: AzureDisk{DiskName: "d1", URI: "/subscriptions/S/resourceGroups/rg/providers/Microsoft.Compute/disks/d1", Managed: true}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~azure-disk/pv1", GlobalMountPath: inTree + "azure-disk/mounts/m921323411"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~azure-disk/pv1", GlobalMapPath: inTree + "azure-disk/volumeDevices/d1"},
	},
	{
		name: "iscsi", source: ISCSI{Portal: "10.0.0.1", IQN: "iqn.2001-04.com.example:x", LUN: 3}, volume: "pv1",
		fs: api.PathSet{
			PodVolumePath: pod + "volumes/kubernetes.io~iscsi/pv1", GlobalMountPath: inTree + "iscsi/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-3",
			Metadata: []string{inTree + "iscsi/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-3/iscsi.json"},
		},
		block: api.PathSet{
			PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~iscsi/pv1", GlobalMapPath: inTree + "iscsi/volumeDevices/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-3",
			Metadata: []string{inTree + "iscsi/volumeDevices/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-3/iscsi.json"},
		},
	},
	{
		name: "iscsi with an initiator", source: ISCSI{Portal: "[fd00::1]:3261", IQN: "eui.0123456789abcdef", Iface: "bond0", InitiatorName: "iqn.2001-04.com.example:node"}, volume: "pv1",
		fs: api.PathSet{
			PodVolumePath: pod + "volumes/kubernetes.io~iscsi/pv1", GlobalMountPath: inTree + "iscsi/iface-[fd00::1]:3261:pv1/[fd00::1]:3261-eui.0123456789abcdef-lun-0",
			Metadata: []string{inTree + "iscsi/iface-[fd00::1]:3261:pv1/[fd00::1]:3261-eui.0123456789abcdef-lun-0/iscsi.json"},
		},
		block: api.PathSet{
			PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~iscsi/pv1", GlobalMapPath: inTree + "iscsi/volumeDevices/iface-[fd00::1]:3261:pv1/[fd00::1]:3261-eui.0123456789abcdef-lun-0",
			Metadata: []string{inTree + "iscsi/volumeDevices/iface-[fd00::1]:3261:pv1/[fd00::1]:3261-eui.0123456789abcdef-lun-0/iscsi.json"},
		},
	},
	{
		name: "fc by wwn", source: FC{WWNs: []string{"50060e801049cfd1", "50060e801049cfd0"}, LUN: 10}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~fc/pv1", GlobalMountPath: inTree + "fc/50060e801049cfd1-lun-10"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~fc/pv1", GlobalMapPath: inTree + "fc/volumeDevices/50060e801049cfd1-lun-10"},
	},
	{
		name: "fc by wwid", source: FC{WWIDs: []string{"3600508b4 x y"}}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~fc/pv1", GlobalMountPath: inTree + "fc/3600508b4_x_y"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~fc/pv1", GlobalMapPath: inTree + "fc/volumeDevices/3600508b4_x_y"},
	},
	{
		name: "rbd", source: RBD{Pool: "kube", Image: "img"}, volume: "pv1",
		fs: api.PathSet{
			PodVolumePath: pod + "volumes/kubernetes.io~rbd/pv1", GlobalMountPath: inTree + "rbd/mounts/kube-image-img",
			Metadata: []string{inTree + "rbd/mounts/kube-image-img/rbd.json"},
		},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~rbd/pv1", GlobalMapPath: inTree + "rbd/volumeDevices/kube-image-img"},
	},
	{
		name: "rbd, old", source: RBD{Pool: "kube", Image: "img", Old: true}, volume: "pv1",
		fs: api.PathSet{
			PodVolumePath: pod + "volumes/kubernetes.io~rbd/pv1", GlobalMountPath: inTree + "rbd/rbd/kube-image-img",
			Metadata: []string{inTree + "rbd/rbd/kube-image-img/rbd.json"},
		},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~rbd/pv1", GlobalMapPath: inTree + "rbd/volumeDevices/kube-image-img"},
	},
	{
		name: "awsElasticBlockStore", source: AWSEBS{"vol-1"}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~aws-ebs/pv1", GlobalMountPath: inTree + "aws-ebs/mounts/vol-1"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~aws-ebs/pv1", GlobalMapPath: inTree + "aws-ebs/volumeDevices/vol-1"},
	},
	{
		name: "awsElasticBlockStore with a zone", source: AWSEBS{"aws://us-east-1a/vol-1"}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~aws-ebs/pv1", GlobalMountPath: inTree + "aws-ebs/mounts/aws/us-east-1a/vol-1"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~aws-ebs/pv1", GlobalMapPath: inTree + "aws-ebs/volumeDevices/aws:/us-east-1a/vol-1"},
	},
	{
		name: "awsElasticBlockStore without a zone", source: AWSEBS{"aws:///vol-1"}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~aws-ebs/pv1", GlobalMountPath: inTree + "aws-ebs/mounts/aws/vol-1"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~aws-ebs/pv1", GlobalMapPath: inTree + "aws-ebs/volumeDevices/aws:/vol-1"},
	},
	{
		name: "vsphereVolume", source: VSphere{"[my store] kube vols/d.vmdk"}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~vsphere-volume/pv1", GlobalMountPath: inTree + "vsphere-volume/mounts/[my store] kube vols/d.vmdk"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~vsphere-volume/pv1", GlobalMapPath: inTree + "vsphere-volume/volumeDevices/[my store] kube vols/d.vmdk"},
	},
	{
		name: "gcePersistentDisk", source: Disk{GCEPDPlugin, "pd-1"}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~gce-pd/pv1", GlobalMountPath: inTree + "gce-pd/mounts/pd-1"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~gce-pd/pv1", GlobalMapPath: inTree + "gce-pd/volumeDevices/pd-1"},
	},
	{
		name: "cinder", source: Disk{CinderPlugin, "bd82f7e2"}, volume: "pv1",
		fs:    api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~cinder/pv1", GlobalMountPath: inTree + "cinder/mounts/bd82f7e2"},
		block: api.PathSet{PodDeviceMapPath: pod + "volumeDevices/kubernetes.io~cinder/pv1", GlobalMapPath: inTree + "cinder/volumeDevices/bd82f7e2"},
	},
	{
		name: "photonPersistentDisk", source: Disk{PhotonPDPlugin, "pd-1"}, volume: "pv1",
		fs: api.PathSet{PodVolumePath: pod + "volumes/kubernetes.io~photon-pd/pv1", GlobalMountPath: inTree + "photon-pd/mounts/pd-1"},
	},
}

func TestForSource(t *testing.T) {
	l := layout1(t)
	for _, c := range sources {
		for _, block := range []bool{false, true} {
			want := c.fs
			if block {
				want = c.block
			}
			want.Plugin, want.Volume = c.source.PluginName(), c.volume
			if want.Metadata == nil {
				want.Metadata = []string{}
			}
			got, err := l.ForSource(c.source, c.volume, "u", block)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, block %t (-want +got):\n%s", c.name, block, diff)
			}
			direct := strings.HasPrefix(c.name, "csi") || want.GlobalMountPath+want.GlobalMapPath == ""
			for _, path := range []string{want.PodVolumePath, want.PodDeviceMapPath, want.GlobalMountPath, want.GlobalMapPath} {
				if file := l.MetadataPath(path); direct && (file != "") != (path != "" && len(want.Metadata) > 0) || file != "" && !slices.Contains(want.Metadata, file) {
					t.Errorf("%s: the metadata of %q is %q, want one of %q", c.name, path, file, want.Metadata)
				}
			}
			noPod, err := l.ForSource(c.source, c.volume, "", block)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, p := range append(noPod.Metadata, noPod.PodVolumePath, noPod.PodDeviceMapPath) {
				if strings.HasPrefix(p, root+"/pods/") {
					t.Errorf("%s: %s without a pod", c.name, p)
				}
			}
		}
	}
}

// Every in-tree plugin has a source here.
func TestSourcesCoverThePlugins(t *testing.T) {
	have := map[string]bool{}
	for _, c := range sources {
		have[c.source.PluginName()] = true
	}
	for _, p := range []string{
		AWSEBSPlugin, AzureDiskPlugin, AzureFilePlugin, CephFSPlugin, CinderPlugin, ConfigMapPlugin, CSIPlugin, DownwardAPIPlugin,
		EmptyDirPlugin, FCPlugin, FlockerPlugin, GCEPDPlugin, GitRepoPlugin, GlusterFSPlugin, HostPathPlugin, ImagePlugin, ISCSIPlugin,
		LocalPlugin, NFSPlugin, PhotonPDPlugin, PortworxPlugin, ProjectedPlugin, QuobytePlugin, RBDPlugin, ScaleIOPlugin, SecretPlugin,
		StorageOSPlugin, VSpherePlugin, "vendor/driver",
	} {
		if !have[p] {
			t.Errorf("no source of %s", p)
		}
	}
}

func TestIdentify(t *testing.T) {
	l := layout1(t)
	for _, c := range sources {
		for _, block := range []bool{false, true} {
			set, err := l.ForSource(c.source, c.volume, "", block)
			if err != nil {
				t.Fatal(err)
			}
			path := set.GlobalMountPath + set.GlobalMapPath
			got, ok := Identify(l.Parse(path))
			switch c.source.(type) {
			case ISCSI, FC, RBD, AWSEBS, VSphere, Disk:
				if path == "" {
					continue
				}
				if !ok {
					t.Errorf("%s: %s is not identified", c.name, path)
					continue
				}
				again, err := l.ForSource(got, c.volume, "", block)
				if err != nil || again.GlobalMountPath+again.GlobalMapPath != path {
					t.Errorf("%s: %+v has %+v, %v, want %s", c.name, got, again, err, path)
				}
			case Local:
			default:
				if ok {
					t.Errorf("%s: %s is identified as %+v", c.name, path, got)
				}
			}
		}
	}
	for id, want := range map[string]Source{
		"my-host:3260-iqn.2001-04.com.example:a-b-lun-5-lun-12":   ISCSI{Portal: "my-host:3260", IQN: "iqn.2001-04.com.example:a-b-lun-5", LUN: 12, Iface: "i"},
		"[fd00::1]:3260-naa.0123456789abcdef-lun-0":               ISCSI{Portal: "[fd00::1]:3260", IQN: "naa.0123456789abcdef", Iface: "i"},
		"10.0.0.1:3260-iqn.2001-04.com.example:x-lun-99999999999": nil,
		"10.0.0.1:3260-iqn.2001-04.com.example:x":                 nil,
		"10.0.0.1:3260-lun-0":                                     nil,
		"lun-0":                                                   nil,
	} {
		got, ok := Identify(Path{Kind: GlobalMount, Plugin: ISCSIPlugin, Iface: "i", ID: id})
		if ok != (want != nil) || ok && got != want {
			t.Errorf("%s is %+v, %t", id, got, ok)
		}
	}
	for _, p := range []Path{
		{},
		{Kind: PodVolume, Plugin: RBDPlugin, ID: "a-image-b"},
		{Kind: GlobalMount, Plugin: RBDPlugin, ID: "a-image-b-image-c"},
		{Kind: GlobalMount, Plugin: RBDPlugin, ID: "a"},
		{Kind: GlobalMount, Plugin: FCPlugin, ID: "x-lun-y"},
		{Kind: GlobalMount, Plugin: AzureDiskPlugin, ID: "m1"},
		{Kind: GlobalMount, Plugin: GCEPDPlugin, ID: "a b"},
	} {
		if got, ok := Identify(p); ok {
			t.Errorf("%+v is identified as %+v", p, got)
		}
	}
}

func TestForSourceRefuses(t *testing.T) {
	l := layout1(t)
	for name, c := range map[string]struct {
		source Source
		volume string
		uid    string
	}{
		"no name":                        {Direct{NFSPlugin}, "", "u"},
		"a name that leaves":             {Direct{NFSPlugin}, "..", "u"},
		"a name with a slash":            {Direct{NFSPlugin}, "a/b", "u"},
		"a uid that leaves":              {Direct{NFSPlugin}, "v", "../.."},
		"an unknown direct plugin":       {Direct{"kubernetes.io/what"}, "v", "u"},
		"an iqn that leaves":             {ISCSI{Portal: "10.0.0.1", IQN: "iqn.2001-04.com.example:x/../../../../y"}, "v", "u"},
		"a portal that leaves":           {ISCSI{Portal: "../10.0.0.1", IQN: "iqn.2001-04.com.example:x"}, "v", "u"},
		"a negative lun":                 {ISCSI{Portal: "10.0.0.1", IQN: "iqn.2001-04.com.example:x", LUN: -1}, "v", "u"},
		"an interface that leaves":       {ISCSI{Portal: "10.0.0.1", IQN: "iqn.2001-04.com.example:x", Iface: "x/../y"}, "v", "u"},
		"an initiator and a bad name":    {ISCSI{Portal: "10.0.0.1", IQN: "iqn.2001-04.com.example:x", InitiatorName: "i"}, "a b", "u"},
		"fc without target":              {FC{}, "v", "u"},
		"a wwn that is none":             {FC{WWNs: []string{"../x"}}, "v", "u"},
		"a wwid that leaves":             {FC{WWIDs: []string{"../x"}}, "v", "u"},
		"a pool that leaves":             {RBD{Pool: "..", Image: "i"}, "v", "u"},
		"an image with a slash":          {RBD{Pool: "p", Image: "a/b"}, "v", "u"},
		"an EBS id that leaves":          {AWSEBS{"aws://../../x"}, "v", "u"},
		"an EBS id with nothing":         {AWSEBS{""}, "v", "u"},
		"an EBS id too deep":             {AWSEBS{"aws://a/b/c/vol-1"}, "v", "u"},
		"a vmdk path that leaves":        {VSphere{"[ds] ../../x.vmdk/../../../y.vmdk"}, "v", "u"},
		"a vmdk path that is absolute":   {VSphere{"/etc/x.vmdk"}, "v", "u"},
		"a vmdk path that is none":       {VSphere{"[ds] dir/disk"}, "v", "u"},
		"a disk id that leaves":          {Disk{GCEPDPlugin, "../x"}, "v", "u"},
		"a disk of another plugin":       {Disk{NFSPlugin, "x"}, "v", "u"},
		"azure without a uri":            {AzureDisk{DiskName: "d"}, "v", "u"},
		"azure with a bad name":          {AzureDisk{DiskName: "../d", URI: "u"}, "v", "u"},
		"csi without a driver":           {CSI{Handle: "h"}, "v", "u"},
		"csi without a handle":           {CSI{Driver: "d"}, "v", "u"},
		"a csi driver that leaves":       {CSI{Driver: "..", Handle: "h"}, "v", "u"},
		"a flex driver that leaves":      {Flex{"../x"}, "v", "u"},
		"a flex driver of kubernetes.io": {Flex{"kubernetes.io/csi"}, "v", "u"},
		"a quobyte volume that leaves":   {Quobyte{Volume: "../x"}, "v", "u"},
		"a quobyte user that leaves":     {Quobyte{User: "../..", Volume: "x"}, "v", "u"},
		"a storageOS name that leaves":   {StorageOS{Namespace: "../..", Name: "x"}, "v", "u"},
	} {
		got, err := l.ForSource(c.source, c.volume, c.uid, false)
		if !errors.Is(err, api.ErrInput) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
