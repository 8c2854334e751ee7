package paths

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/api"
)

const (
	root = "/var/lib/kubelet"
	uid  = "52a4fa2e-7e24-44be-a5e5-06648a756e67"
	hash = "936ffc4f84f56d6239c15d504d5d1b8718c6d7cdc5f43768cb93127cb31a2599"
)

func layout1(t testing.TB) Layout {
	t.Helper()
	l, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// everyPath has every path of the layout, written out: what is built and what is
// read back.
var everyPath = []struct {
	path string
	want Path
}{
	{"pods", Path{Kind: PodsDir}},
	{"plugins", Path{Kind: PluginsDir}},
	{"plugins_registry", Path{Kind: RegistryDir}},
	{"plugins_registry/d.example.com-reg.sock", Path{Kind: RegistrationSocket, File: "d.example.com-reg.sock"}},
	{"cpu_manager_state", Path{Kind: KubeletOwn, File: "cpu_manager_state"}},
	{"pki/kubelet-client-current.pem", Path{Kind: KubeletOwn, File: "pki", Rest: "kubelet-client-current.pem"}},

	{"pods/" + uid, Path{Kind: PodDir, PodUID: uid}},
	{"pods/1072a062805fbab9885e59f2499da950", Path{Kind: PodDir, PodUID: "1072a062805fbab9885e59f2499da950"}},
	{"pods/my-static.uid_1", Path{Kind: PodDir, PodUID: "my-static.uid_1"}},
	{"pods/u/unheard-of/x", Path{Kind: PodDir, PodUID: "u", Rest: "unheard-of/x"}},
	{"pods/u/etc-hosts", Path{Kind: PodEtcHosts, PodUID: "u"}},
	{"pods/u/userns", Path{Kind: PodUserNS, PodUID: "u"}},
	{"pods/u/containers", Path{Kind: PodContainersDir, PodUID: "u"}},
	{"pods/u/containers/c", Path{Kind: PodContainerDir, PodUID: "u", Container: "c"}},
	{"pods/u/containers/c/4f937ac4", Path{Kind: PodContainerFile, PodUID: "u", Container: "c", File: "4f937ac4"}},
	{"pods/u/volumes", Path{Kind: PodVolumesDir, PodUID: "u"}},
	{"pods/u/volumes/kubernetes.io~nfs", Path{Kind: PodVolumePluginDir, PodUID: "u", Plugin: NFSPlugin}},
	{"pods/u/volumes/kubernetes.io~nfs/v", Path{Kind: PodVolume, PodUID: "u", Plugin: NFSPlugin, Volume: "v"}},
	{"pods/u/volumes/kubernetes.io~nfs/v/mount/x", Path{Kind: PodVolume, PodUID: "u", Plugin: NFSPlugin, Volume: "v", Rest: "mount/x"}},
	{"pods/u/volumes/vendor~driver/v", Path{Kind: PodVolume, PodUID: "u", Plugin: "vendor/driver", Volume: "v"}},
	{"pods/u/volumes/driver/v", Path{Kind: PodVolume, PodUID: "u", Plugin: "driver", Volume: "v"}},
	{"pods/u/volumes/kubernetes.io~storageos/pv.ns.name", Path{Kind: PodVolume, PodUID: "u", Plugin: StorageOSPlugin, Volume: "pv.ns.name"}},
	{"pods/u/volumes/kubernetes.io~csi/v", Path{Kind: PodVolume, PodUID: "u", Plugin: CSIPlugin, Volume: "v"}},
	{"pods/u/volumes/kubernetes.io~csi/v/mount", Path{Kind: PodVolumeMount, PodUID: "u", Plugin: CSIPlugin, Volume: "v"}},
	{"pods/u/volumes/kubernetes.io~csi/v/mount/a/b", Path{Kind: PodVolumeMount, PodUID: "u", Plugin: CSIPlugin, Volume: "v", Rest: "a/b"}},
	{"pods/u/volumes/kubernetes.io~csi/v/vol_data.json", Path{Kind: PodVolumeMetadata, PodUID: "u", Plugin: CSIPlugin, Volume: "v"}},
	{"pods/u/volumeDevices", Path{Kind: PodDevicesDir, PodUID: "u"}},
	{"pods/u/volumeDevices/kubernetes.io~csi", Path{Kind: PodDeviceDir, PodUID: "u", Plugin: CSIPlugin}},
	{"pods/u/volumeDevices/kubernetes.io~local-volume/pv", Path{Kind: PodDevice, PodUID: "u", Plugin: LocalPlugin, Volume: "pv"}},
	{"pods/u/volume-subpaths", Path{Kind: SubPathsDir, PodUID: "u"}},
	{"pods/u/volume-subpaths/v", Path{Kind: SubPathVolumeDir, PodUID: "u", Volume: "v"}},
	{"pods/u/volume-subpaths/v/c", Path{Kind: SubPathContainerDir, PodUID: "u", Volume: "v", Container: "c"}},
	{"pods/u/volume-subpaths/v/c/0", Path{Kind: SubPath, PodUID: "u", Volume: "v", Container: "c"}},
	{"pods/u/volume-subpaths/v/c/12", Path{Kind: SubPath, PodUID: "u", Volume: "v", Container: "c", Index: 12}},
	{"pods/u/volume-subpaths/v/c/012", Path{Kind: SubPathContainerDir, PodUID: "u", Volume: "v", Container: "c", Rest: "012"}},
	{"pods/u/plugins", Path{Kind: PodPluginsDir, PodUID: "u"}},
	{"pods/u/plugins/kubernetes.io~empty-dir", Path{Kind: PodPluginDir, PodUID: "u", Plugin: EmptyDirPlugin}},
	{"pods/u/plugins/kubernetes.io~empty-dir/wrapped_s", Path{Kind: PodPluginVolumeDir, PodUID: "u", Plugin: EmptyDirPlugin, Volume: "wrapped_s"}},
	{"pods/u/plugins/kubernetes.io~empty-dir/e/ready", Path{Kind: ReadyMarker, PodUID: "u", Plugin: EmptyDirPlugin, Volume: "e"}},
	{"pods/u/plugins/kubernetes.io/scaleio/sioconf.dat", Path{Kind: PodPluginMetadata, PodUID: "u", Plugin: ScaleIOPlugin}},

	{"plugins/csi-hostpath", Path{Kind: DriverDir, Driver: "csi-hostpath"}},
	{"plugins/csi-hostpath/csi.sock", Path{Kind: DriverSocket, Driver: "csi-hostpath"}},
	{"plugins/csi-hostpath/data/x", Path{Kind: DriverDir, Driver: "csi-hostpath", Rest: "data/x"}},
	{"plugins/kubernetes.io", Path{Kind: PluginNamespaceDir}},
	{"plugins/kubernetes.io~new", Path{Kind: EscapedPluginDir, Plugin: "kubernetes.io/new"}},
	{"plugins/kubernetes.io/new", Path{Kind: PluginDir, Plugin: "kubernetes.io/new"}},
	{"plugins/kubernetes.io/new/mounts", Path{Kind: MountsDir, Plugin: "kubernetes.io/new"}},
	{"plugins/kubernetes.io/new/mounts/id", Path{Kind: GlobalMount, Plugin: "kubernetes.io/new", ID: "id"}},
	{"plugins/kubernetes.io/new/volumeDevices", Path{Kind: GlobalMapsDir, Plugin: "kubernetes.io/new"}},
	{"plugins/kubernetes.io/new/volumeDevices/id", Path{Kind: GlobalMapDir, Plugin: "kubernetes.io/new", ID: "id"}},
	{"plugins/kubernetes.io/new/volumeDevices/id/u", Path{Kind: GlobalMapDevice, Plugin: "kubernetes.io/new", ID: "id", PodUID: "u"}},
	{"plugins/kubernetes.io/gce-pd/mounts/pd-1", Path{Kind: GlobalMount, Plugin: GCEPDPlugin, ID: "pd-1"}},
	{"plugins/kubernetes.io/azure-disk/mounts/m1234567890", Path{Kind: GlobalMount, Plugin: AzureDiskPlugin, ID: "m1234567890"}},

	{"plugins/kubernetes.io/aws-ebs/mounts/vol-1", Path{Kind: GlobalMount, Plugin: AWSEBSPlugin, ID: "vol-1"}},
	{"plugins/kubernetes.io/aws-ebs/mounts/vol-1/x", Path{Kind: GlobalMount, Plugin: AWSEBSPlugin, ID: "vol-1", Rest: "x"}},
	{"plugins/kubernetes.io/aws-ebs/mounts/aws/us-east-1a/vol-1", Path{Kind: GlobalMount, Plugin: AWSEBSPlugin, ID: "aws/us-east-1a/vol-1"}},
	{"plugins/kubernetes.io/aws-ebs/mounts/aws/us-east-1a/vol-1/lost+found", Path{Kind: GlobalMount, Plugin: AWSEBSPlugin, ID: "aws/us-east-1a/vol-1", Rest: "lost+found"}},
	{"plugins/kubernetes.io/aws-ebs/mounts/aws/us-east-1a", Path{Kind: MountsDir, Plugin: AWSEBSPlugin, Rest: "aws/us-east-1a"}},
	{"plugins/kubernetes.io/aws-ebs/volumeDevices/aws:/us-east-1a/vol-1", Path{Kind: GlobalMapDir, Plugin: AWSEBSPlugin, ID: "aws:/us-east-1a/vol-1"}},
	{"plugins/kubernetes.io/aws-ebs/volumeDevices/aws:/us-east-1a/vol-1/u", Path{Kind: GlobalMapDevice, Plugin: AWSEBSPlugin, ID: "aws:/us-east-1a/vol-1", PodUID: "u"}},
	{"plugins/kubernetes.io/aws-ebs/volumeDevices/vol-1/u", Path{Kind: GlobalMapDevice, Plugin: AWSEBSPlugin, ID: "vol-1", PodUID: "u"}},
	{"plugins/kubernetes.io/vsphere-volume/mounts/[ds 1] kubevols/a b/d.vmdk", Path{Kind: GlobalMount, Plugin: VSpherePlugin, ID: "[ds 1] kubevols/a b/d.vmdk"}},
	{"plugins/kubernetes.io/vsphere-volume/mounts/[ds 1] kubevols/d.vmdk/x", Path{Kind: GlobalMount, Plugin: VSpherePlugin, ID: "[ds 1] kubevols/d.vmdk", Rest: "x"}},
	{"plugins/kubernetes.io/vsphere-volume/mounts/[ds 1] kubevols", Path{Kind: MountsDir, Plugin: VSpherePlugin, Rest: "[ds 1] kubevols"}},
	{"plugins/kubernetes.io/vsphere-volume/volumeDevices/[ds] k/d.vmdk", Path{Kind: GlobalMapDir, Plugin: VSpherePlugin, ID: "[ds] k/d.vmdk"}},
	{"plugins/kubernetes.io/vsphere-volume/volumeDevices/[ds] k/d.vmdk/u", Path{Kind: GlobalMapDevice, Plugin: VSpherePlugin, ID: "[ds] k/d.vmdk", PodUID: "u"}},
	{"plugins/kubernetes.io/rbd/mounts/kube-image-img", Path{Kind: GlobalMount, Plugin: RBDPlugin, ID: "kube-image-img"}},
	{"plugins/kubernetes.io/rbd/mounts/kube-image-img/rbd.json", Path{Kind: GlobalMetadata, Plugin: RBDPlugin, ID: "kube-image-img"}},
	{"plugins/kubernetes.io/rbd/rbd/kube-image-img", Path{Kind: GlobalMount, Plugin: RBDPlugin, ID: "kube-image-img", Old: true}},
	{"plugins/kubernetes.io/rbd/rbd/kube-image-img/rbd.json", Path{Kind: GlobalMetadata, Plugin: RBDPlugin, ID: "kube-image-img", Old: true}},
	{"plugins/kubernetes.io/rbd/volumeDevices/kube-image-img/u", Path{Kind: GlobalMapDevice, Plugin: RBDPlugin, ID: "kube-image-img", PodUID: "u"}},

	{"plugins/kubernetes.io/iscsi/iface-default", Path{Kind: IfaceDir, Plugin: ISCSIPlugin, Iface: "default"}},
	{"plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2001-04.com.example:x-lun-0", Path{Kind: GlobalMount, Plugin: ISCSIPlugin, Iface: "default", ID: "10.0.0.1:3260-iqn.2001-04.com.example:x-lun-0"}},
	{"plugins/kubernetes.io/iscsi/iface-10.0.0.1:3260:pv/p-iqn-lun-0/iscsi.json", Path{Kind: GlobalMetadata, Plugin: ISCSIPlugin, Iface: "10.0.0.1:3260:pv", ID: "p-iqn-lun-0"}},
	{"plugins/kubernetes.io/iscsi/volumeDevices/iface-default", Path{Kind: MapIfaceDir, Plugin: ISCSIPlugin, Iface: "default"}},
	{"plugins/kubernetes.io/iscsi/volumeDevices/iface-default/p-lun-0", Path{Kind: GlobalMapDir, Plugin: ISCSIPlugin, Iface: "default", ID: "p-lun-0"}},
	{"plugins/kubernetes.io/iscsi/volumeDevices/iface-default/p-lun-0/u", Path{Kind: GlobalMapDevice, Plugin: ISCSIPlugin, Iface: "default", ID: "p-lun-0", PodUID: "u"}},
	{"plugins/kubernetes.io/iscsi/volumeDevices/iface-default/p-lun-0/iscsi.json", Path{Kind: GlobalMapMetadata, Plugin: ISCSIPlugin, Iface: "default", ID: "p-lun-0"}},
	{"plugins/kubernetes.io/fc/50060e801049cfd1-lun-0", Path{Kind: GlobalMount, Plugin: FCPlugin, ID: "50060e801049cfd1-lun-0"}},
	{"plugins/kubernetes.io/fc/volumeDevices", Path{Kind: GlobalMapsDir, Plugin: FCPlugin}},
	{"plugins/kubernetes.io/fc/volumeDevices/3600508b400105e210000900000490000", Path{Kind: GlobalMapDir, Plugin: FCPlugin, ID: "3600508b400105e210000900000490000"}},
	{"plugins/kubernetes.io/fc/volumeDevices/3600508b400105e210000900000490000/u", Path{Kind: GlobalMapDevice, Plugin: FCPlugin, ID: "3600508b400105e210000900000490000", PodUID: "u"}},
	{"plugins/kubernetes.io/local-volume/mounts/pv", Path{Kind: GlobalMount, Plugin: LocalPlugin, Volume: "pv"}},
	{"plugins/kubernetes.io~local-volume/volumeDevices", Path{Kind: GlobalMapsDir, Plugin: LocalPlugin}},
	{"plugins/kubernetes.io~local-volume/volumeDevices/pv", Path{Kind: GlobalMapDir, Plugin: LocalPlugin, Volume: "pv"}},
	{"plugins/kubernetes.io~local-volume/volumeDevices/pv/u", Path{Kind: GlobalMapDevice, Plugin: LocalPlugin, Volume: "pv", PodUID: "u"}},
	{"plugins/kubernetes.io/local-volume/volumeDevices/pv", Path{Kind: PluginDir, Plugin: LocalPlugin, Rest: "volumeDevices/pv"}},
	{"plugins/kubernetes.io/flexvolume/vendor/driver/mounts", Path{Kind: MountsDir, Plugin: "vendor/driver"}},
	{"plugins/kubernetes.io/flexvolume/vendor/driver/mounts/v", Path{Kind: GlobalMount, Plugin: "vendor/driver", Volume: "v"}},
	{"plugins/kubernetes.io/flexvolume/driver/mounts", Path{Kind: MountsDir, Plugin: "driver"}},
	{"plugins/kubernetes.io/flexvolume/driver/mounts/v", Path{Kind: GlobalMount, Plugin: "driver", Volume: "v"}},
	{"plugins/kubernetes.io~quobyte", Path{Kind: SharedMount, Plugin: QuobytePlugin}},
	{"plugins/kubernetes.io~quobyte/root#nfsnobody@vol", Path{Kind: SharedVolume, Plugin: QuobytePlugin, ID: "root#nfsnobody@vol"}},
	{"plugins/kubernetes.io~storageos/mounts", Path{Kind: MountsDir, Plugin: StorageOSPlugin}},
	{"plugins/kubernetes.io~storageos/mounts/pv.ns.name", Path{Kind: GlobalMount, Plugin: StorageOSPlugin, Volume: "pv.ns.name"}},
	{"plugins/kubernetes.io/scaleio/mounts/service/vol", Path{Kind: GlobalMount, Plugin: ScaleIOPlugin, ID: "service/vol", Old: true}},

	{"plugins/kubernetes.io/csi/d.example.com", Path{Kind: CSIDriverVolumesDir, Plugin: CSIPlugin, Driver: "d.example.com"}},
	{"plugins/kubernetes.io/csi/d.example.com/" + hash, Path{Kind: CSIVolumeDir, Plugin: CSIPlugin, Driver: "d.example.com", HandleHash: hash}},
	{"plugins/kubernetes.io/csi/d.example.com/" + hash + "/globalmount", Path{Kind: GlobalMount, Plugin: CSIPlugin, Driver: "d.example.com", HandleHash: hash}},
	{"plugins/kubernetes.io/csi/d.example.com/" + hash + "/vol_data.json", Path{Kind: GlobalMetadata, Plugin: CSIPlugin, Driver: "d.example.com", HandleHash: hash}},
	{"plugins/kubernetes.io/csi/pv", Path{Kind: CSIDriverVolumesDir, Plugin: CSIPlugin, Old: true}},
	{"plugins/kubernetes.io/csi/pv/pv1", Path{Kind: CSIVolumeDir, Plugin: CSIPlugin, Volume: "pv1", Old: true}},
	{"plugins/kubernetes.io/csi/pv/pv1/globalmount", Path{Kind: GlobalMount, Plugin: CSIPlugin, Volume: "pv1", Old: true}},
	{"plugins/kubernetes.io/csi/pv/pv1/vol_data.json", Path{Kind: GlobalMetadata, Plugin: CSIPlugin, Volume: "pv1", Old: true}},
	{"plugins/kubernetes.io/csi/volumeDevices", Path{Kind: GlobalMapsDir, Plugin: CSIPlugin}},
	{"plugins/kubernetes.io/csi/volumeDevices/pv1", Path{Kind: CSIBlockDir, Plugin: CSIPlugin, Volume: "pv1"}},
	{"plugins/kubernetes.io/csi/volumeDevices/pv1/dev", Path{Kind: GlobalMapDir, Plugin: CSIPlugin, Volume: "pv1"}},
	{"plugins/kubernetes.io/csi/volumeDevices/pv1/dev/u", Path{Kind: GlobalMapDevice, Plugin: CSIPlugin, Volume: "pv1", PodUID: "u"}},
	{"plugins/kubernetes.io/csi/volumeDevices/pv1/data", Path{Kind: CSIBlockDataDir, Plugin: CSIPlugin, Volume: "pv1"}},
	{"plugins/kubernetes.io/csi/volumeDevices/pv1/data/vol_data.json", Path{Kind: GlobalMapMetadata, Plugin: CSIPlugin, Volume: "pv1"}},
	{"plugins/kubernetes.io/csi/volumeDevices/staging", Path{Kind: CSIBlockStagingsDir, Plugin: CSIPlugin}},
	{"plugins/kubernetes.io/csi/volumeDevices/staging/pv1", Path{Kind: CSIBlockStaging, Plugin: CSIPlugin, Volume: "pv1"}},
	{"plugins/kubernetes.io/csi/volumeDevices/publish", Path{Kind: CSIBlockPublishesDir, Plugin: CSIPlugin}},
	{"plugins/kubernetes.io/csi/volumeDevices/publish/pv1", Path{Kind: CSIBlockPublishDir, Plugin: CSIPlugin, Volume: "pv1"}},
	{"plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u", Path{Kind: CSIBlockPublish, Plugin: CSIPlugin, Volume: "pv1", PodUID: "u"}},
}

func TestEveryPathBothWays(t *testing.T) {
	l := layout1(t)
	used := map[string]bool{}
	rows, own := table()
	for _, c := range everyPath {
		abs := root + "/" + c.path
		if diff := cmp.Diff(c.want, l.Parse(abs)); diff != "" {
			t.Errorf("Parse(%s) (-want +got):\n%s", c.path, diff)
		}
		if got, err := l.Build(c.want); err != nil || got != abs {
			t.Errorf("Build(%+v)\n got %s, %v\nwant %s", c.want, got, err, abs)
		}
		for i := range rows {
			if _, ok := rows[i].match(strings.Split(c.path, "/"), own); ok {
				used[rows[i].path] = true
				break
			}
		}
	}
	for _, r := range layouts {
		if !used[r.path] {
			t.Errorf("no path in this table for %s", r.path)
		}
	}
}

func TestEveryKindIsInTheTableAndExplained(t *testing.T) {
	kinds := map[Kind]bool{None: true, RootDir: true}
	for _, r := range layouts {
		kinds[r.kind] = true
	}
	for k := range kinds {
		if k.What() == "" {
			t.Errorf("kind %s says nothing about itself", k)
		}
	}
	for k := range what {
		if !kinds[k] {
			t.Errorf("kind %s has no path", k)
		}
	}
}

func TestNoTwoRowsSayTheSamePath(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range layouts {
		if seen[r.path] {
			t.Errorf("%s is in the table twice", r.path)
		}
		seen[r.path] = true
	}
}

func TestParseNone(t *testing.T) {
	l := layout1(t)
	for _, path := range []string{
		"", ".", "/", "/var/lib", "/var/lib/kubelet2", "/var/lib/kubelet2/pods/u", "pods/u", "var/lib/kubelet/pods",
		root + "/", root + "//pods", root + "/pods/../..", root + "/pods/u/../../x", root + "/./pods", root + "/pods\x00", root + "/pods/u\x00",
		root + "/unheard-of", root + "/unheard-of/pods/u",
	} {
		if got := l.Parse(path); got != (Path{Kind: None}) {
			t.Errorf("Parse(%q) = %+v", path, got)
		}
	}
	if got := l.Parse(root); got != (Path{Kind: RootDir}) {
		t.Errorf("the root is %+v", got)
	}
	if got, err := l.Build(Path{Kind: RootDir}); got != root || err != nil {
		t.Errorf("Build of the root is %q, %v", got, err)
	}
}

// What is there under an odd name is shown, and not built.
func TestOddNamesAreReadAndNotBuilt(t *testing.T) {
	l := layout1(t)
	for path, want := range map[string]Path{
		"pods/a b\nc":                                        {Kind: PodDir, PodUID: "a b\nc"},
		"pods/-rf/volumes/x~y~z/-v":                          {Kind: PodVolume, PodUID: "-rf", Plugin: "x/y/z", Volume: "-v"},
		"pods/u/volumes/a~~b/\x1b[31m":                       {Kind: PodVolume, PodUID: "u", Plugin: "a//b", Volume: "\x1b[31m"},
		"pods/u/volume-subpaths/v/C C/3":                     {Kind: SubPath, PodUID: "u", Volume: "v", Container: "C C", Index: 3},
		"pods/u/volume-subpaths/v/c/-1":                      {Kind: SubPathContainerDir, PodUID: "u", Volume: "v", Container: "c", Rest: "-1"},
		"plugins/kubernetes.io/csi/d/not-a-hash/globalmount": {Kind: GlobalMount, Plugin: CSIPlugin, Driver: "d", HandleHash: "not-a-hash"},
		"pods/\xff": {Kind: PodDir, PodUID: "\xff"},
		"plugins/kubernetes.io/flexvolume/kubernetes.io/x/mounts/v": {Kind: PluginDir, Plugin: "kubernetes.io/flexvolume", Rest: "kubernetes.io/x/mounts/v"},
	} {
		if diff := cmp.Diff(want, l.Parse(root+"/"+path)); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", path, diff)
		}
		if want.Kind == PluginDir {
			continue
		}
		if got, err := l.Build(want); !errors.Is(err, api.ErrInput) {
			t.Errorf("Build(%+v) = %q, %v", want, got, err)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	l := layout1(t)
	for name, p := range map[string]Path{
		"nothing":                        {},
		"none":                           {Kind: None},
		"an unknown kind":                {Kind: "nonsense"},
		"the root with more":             {Kind: RootDir, Rest: "etc"},
		"no uid":                         {Kind: PodDir},
		"dots":                           {Kind: PodDir, PodUID: ".."},
		"a slash":                        {Kind: PodDir, PodUID: "a/b"},
		"a NUL":                          {Kind: PodDir, PodUID: "a\x00"},
		"a newline":                      {Kind: PodVolume, PodUID: "u", Plugin: NFSPlugin, Volume: "a\nb"},
		"a dash":                         {Kind: PodVolume, PodUID: "u", Plugin: NFSPlugin, Volume: "-a"},
		"a long name":                    {Kind: PodVolume, PodUID: "u", Plugin: NFSPlugin, Volume: strings.Repeat("v", 256)},
		"three parts of a plugin":        {Kind: PodVolume, PodUID: "u", Plugin: "a/b/c", Volume: "v"},
		"a tilde in a plugin":            {Kind: PodVolume, PodUID: "u", Plugin: "a~b", Volume: "v"},
		"no plugin":                      {Kind: PodVolume, PodUID: "u", Volume: "v"},
		"a negative index":               {Kind: SubPath, PodUID: "u", Volume: "v", Container: "c", Index: -1},
		"a field too many":               {Kind: PodDir, PodUID: "u", Volume: "v"},
		"old where there is no old":      {Kind: PodDir, PodUID: "u", Old: true},
		"a rest that leaves":             {Kind: PodDir, PodUID: "u", Rest: "../x"},
		"a rest that is another kind":    {Kind: PodDir, PodUID: "u", Rest: "volumes"},
		"a mount as rest":                {Kind: PodVolume, PodUID: "u", Plugin: CSIPlugin, Volume: "v", Rest: "mount"},
		"an absolute rest":               {Kind: PodDir, PodUID: "u", Rest: "/etc"},
		"a block PV called staging":      {Kind: GlobalMapDir, Plugin: CSIPlugin, Volume: "staging"},
		"a block PV called publish":      {Kind: CSIBlockDir, Plugin: CSIPlugin, Volume: "publish"},
		"a driver called pv":             {Kind: GlobalMount, Plugin: CSIPlugin, Driver: "pv", HandleHash: hash},
		"a driver called volumeDevices":  {Kind: GlobalMount, Plugin: CSIPlugin, Driver: "volumeDevices", HandleHash: hash},
		"a hash that is none":            {Kind: GlobalMount, Plugin: CSIPlugin, Driver: "d", HandleHash: "abc"},
		"iscsi without an interface":     {Kind: GlobalMount, Plugin: ISCSIPlugin, ID: "x-lun-0"},
		"iscsi under mounts":             {Kind: GlobalMount, Plugin: ISCSIPlugin, Volume: "x"},
		"local by id":                    {Kind: GlobalMount, Plugin: LocalPlugin, ID: "x"},
		"an id that leaves":              {Kind: GlobalMount, Plugin: VSpherePlugin, ID: "../../x.vmdk"},
		"an id with an empty element":    {Kind: GlobalMount, Plugin: VSpherePlugin, ID: "[ds]//x.vmdk"},
		"an id too deep":                 {Kind: GlobalMount, Plugin: GCEPDPlugin, ID: "a/b"},
		"a disk file in a disk file":     {Kind: GlobalMount, Plugin: VSpherePlugin, ID: "[ds] a.vmdk/b.vmdk"},
		"fc called volumeDevices":        {Kind: GlobalMount, Plugin: FCPlugin, ID: "volumeDevices"},
		"a flex vendor of kubernetes.io": {Kind: GlobalMount, Plugin: "kubernetes.io/csi", Volume: "v"},
		"a driver dir of a plugin":       {Kind: DriverDir, Driver: "kubernetes.io"},
		"a file that is not a kubelet's": {Kind: KubeletOwn, File: "pods"},
	} {
		got, err := l.Build(p)
		if !errors.Is(err, api.ErrInput) {
			t.Errorf("%s: Build(%+v) = %q, %v", name, p, got, err)
			continue
		}
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Next == "" {
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
	if _, err := (Layout{}).Build(Path{Kind: PodsDir}); !errors.Is(err, api.ErrInput) {
		t.Errorf("a layout without root builds: %v", err)
	}
}

func TestNew(t *testing.T) {
	for in, want := range map[string]string{"/var/lib/kubelet": root, "/var/lib/kubelet/": root, "/var//lib/kubelet": root, "/k": "/k", "/a b": "/a b"} {
		if got, err := New(in); err != nil || got.Root != want {
			t.Errorf("New(%q) = %q, %v", in, got.Root, err)
		}
	}
	for _, in := range []string{"", "/", "//", "/.", "kubelet", "./k", "/a/../b", "/..", "/a\x00", "/a\nb", "/\xff"} {
		if got, err := New(in); !errors.Is(err, api.ErrInput) {
			t.Errorf("New(%q) = %q, %v", in, got.Root, err)
		}
	}
}

func TestMountKind(t *testing.T) {
	l := layout1(t)
	for path, want := range map[string]api.MountKind{
		"pods/u/volumes/kubernetes.io~nfs/v":                        api.KindPodVolume,
		"pods/u/volumes/kubernetes.io~nfs/v/deeper":                 api.KindOther,
		"pods/u/volumes/kubernetes.io~csi/v":                        api.KindOther,
		"pods/u/volumes/kubernetes.io~csi/v/mount":                  api.KindPodVolume,
		"pods/u/volumeDevices/kubernetes.io~csi/v":                  api.KindPodDevice,
		"pods/u/volume-subpaths/v/c/0":                              api.KindSubPath,
		"plugins/kubernetes.io/csi/volumeDevices/publish/v/u":       api.KindGlobalMapDevice,
		"plugins/kubernetes.io~local-volume/volumeDevices/pv/u":     api.KindGlobalMapDevice,
		"plugins/kubernetes.io/csi/d/" + hash + "/globalmount":      api.KindGlobalMount,
		"plugins/kubernetes.io/csi/d/" + hash + "/globalmount/vol":  api.KindGlobalMount,
		"plugins/kubernetes.io/csi/d/" + hash + "/globalmount/a/b":  api.KindOther,
		"plugins/kubernetes.io/csi/volumeDevices/staging/v":         api.KindGlobalMount,
		"plugins/kubernetes.io/csi/volumeDevices/staging/v/dev":     api.KindGlobalMount,
		"plugins/kubernetes.io/csi/volumeDevices/staging/v/a/b":     api.KindOther,
		"plugins/kubernetes.io/csi/volumeDevices/v/data":            api.KindOther,
		"plugins/kubernetes.io/gce-pd/mounts/disk/inner":            api.KindOther,
		"plugins/kubernetes.io~quobyte":                             api.KindGlobalMount,
		"plugins/kubernetes.io~quobyte/root#nfsnobody@v":            api.KindOther,
		"plugins/driver/somewhere":                                  api.KindOther,
		"unheard-of":                                                api.KindOther,
		"pods/1072a062805fbab9885e59f2499da950/etc-hosts":           api.KindOther,
		"plugins/kubernetes.io/aws-ebs/mounts/aws/us-east-1a/vol-1": api.KindGlobalMount,
	} {
		if got := l.Parse(root + "/" + path).MountKind(); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func inside(l Layout, path string) bool {
	rel, err := filepath.Rel(l.Root, path)
	return err == nil && filepath.IsLocal(rel) && filepath.Clean(path) == path
}
