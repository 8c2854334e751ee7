package paths

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kvol/kvol/internal/api"
)

const realNode = "../../testdata/real-node"

// entry is a line of tree.txt: what a real kubelet had below its root.
type entry struct {
	path string // below the root, "" for the root itself
	mode byte   // d directory, - file, l link, b block device, s socket
}

func readTree(t testing.TB) []entry {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(realNode, "tree.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var out []entry
	for line := range strings.Lines(string(data)) {
		// mode owner size dev=N path -> target
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		path, _, ok := strings.Cut(fields[len(fields)-1], " -> ")
		rel, below := strings.CutPrefix(path, root)
		if len(fields) != 5 || !ok || !below {
			t.Fatalf("not a line of the tree: %q", line)
		}
		out = append(out, entry{path: strings.TrimPrefix(rel, "/"), mode: fields[0][0]})
	}
	return out
}

// meanings says what the paths of the tree are, independently of the table of the
// package: the first expression that matches. Groups are the fields of a Path; mode
// is what may be there.
var meanings = func() []meaning {
	const (
		inPod = `pods/(?P<uid>[0-9a-f-]{32,36})`
		rest  = `(/(?P<rest>.*))?`
	)
	out := []meaning{
		{kind: RootDir, mode: "d", expr: ``},
		{kind: PodsDir, mode: "d", expr: `pods`},
		{kind: PluginsDir, mode: "d", expr: `plugins`},
		{kind: RegistryDir, mode: "d", expr: `plugins_registry`},
		{kind: RegistrationSocket, mode: "s", expr: `plugins_registry/(?P<file>.*-reg\.sock)`},
		{kind: KubeletOwn, mode: "ds-", expr: `(?P<file>[a-z_]*_state|checkpoints|device-plugins|image_manager|pod-resources|volumeplugins)` + rest},
		{kind: PodDir, mode: "d", expr: inPod},
		{kind: PodEtcHosts, mode: "-", expr: inPod + `/etc-hosts`},
		{kind: PodContainersDir, mode: "d", expr: inPod + `/containers`},
		{kind: PodContainerDir, mode: "d", expr: inPod + `/containers/(?P<container>main|second|c)`},
		{kind: PodContainerFile, mode: "-", expr: inPod + `/containers/(?P<container>main|second|c)/(?P<file>[0-9a-f]{8})`},
		{kind: PodPluginsDir, mode: "d", expr: inPod + `/plugins`},
		{kind: PodPluginDir, mode: "d", plugin: EmptyDirPlugin, expr: inPod + `/plugins/kubernetes.io~empty-dir`},
		{kind: PodPluginVolumeDir, mode: "d", plugin: EmptyDirPlugin, expr: inPod + `/plugins/kubernetes.io~empty-dir/(?P<volume>[^/]*)`},
		{kind: ReadyMarker, mode: "-", plugin: EmptyDirPlugin, expr: inPod + `/plugins/kubernetes.io~empty-dir/(?P<volume>[^/]*)/ready`},
		{kind: SubPathsDir, mode: "d", expr: inPod + `/volume-subpaths`},
		{kind: SubPathVolumeDir, mode: "d", expr: inPod + `/volume-subpaths/(?P<volume>[^/]*)`},
		{kind: SubPathContainerDir, mode: "d", expr: inPod + `/volume-subpaths/(?P<volume>[^/]*)/(?P<container>[^/]*)`},
		{kind: SubPath, mode: "d-", expr: inPod + `/volume-subpaths/(?P<volume>[^/]*)/(?P<container>[^/]*)/(?P<index>\d+)`},
		{kind: PodVolumesDir, mode: "d", expr: inPod + `/volumes`},
		{kind: PodDevicesDir, mode: "d", expr: inPod + `/volumeDevices`},
		{kind: PodVolumeMetadata, mode: "-", plugin: CSIPlugin, expr: inPod + `/volumes/kubernetes.io~csi/(?P<volume>[^/]*)/vol_data.json`},
		{kind: PodVolumeMount, mode: "d", plugin: CSIPlugin, expr: inPod + `/volumes/kubernetes.io~csi/(?P<volume>[^/]*)/mount` + rest},
		{kind: PodVolume, mode: "d", plugin: CSIPlugin, expr: inPod + `/volumes/kubernetes.io~csi/(?P<volume>[^/]*)`},
		{kind: PodVolumePluginDir, mode: "d", plugin: CSIPlugin, expr: inPod + `/volumes/kubernetes.io~csi`},

		{kind: DriverDir, mode: "d", expr: `plugins/(?P<driver>csi-hostpath|loopfs.test)`},
		{kind: DriverSocket, mode: "s", expr: `plugins/(?P<driver>csi-hostpath|loopfs.test)/csi.sock`},
		{kind: PluginNamespaceDir, mode: "d", expr: `plugins/kubernetes.io`},
		{kind: PluginDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi`},
		{kind: PluginDir, mode: "d", plugin: LocalPlugin, expr: `plugins/kubernetes.io/local-volume`},
		{kind: EscapedPluginDir, mode: "d", plugin: LocalPlugin, expr: `plugins/kubernetes.io~local-volume`},
		{kind: MountsDir, mode: "d", plugin: LocalPlugin, expr: `plugins/kubernetes.io/local-volume/mounts`},
		{kind: GlobalMount, mode: "d", plugin: LocalPlugin, expr: `plugins/kubernetes.io/local-volume/mounts/(?P<volume>[^/]*)` + rest},
		{kind: GlobalMapsDir, mode: "d", plugin: LocalPlugin, expr: `plugins/kubernetes.io~local-volume/volumeDevices`},
		{kind: GlobalMapDir, mode: "d", plugin: LocalPlugin, expr: `plugins/kubernetes.io~local-volume/volumeDevices/(?P<volume>[^/]*)`},
		{kind: GlobalMapDevice, mode: "b", plugin: LocalPlugin, expr: `plugins/kubernetes.io~local-volume/volumeDevices/(?P<volume>[^/]*)/(?P<uid>[^/]*)`},
		{kind: GlobalMapsDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices`},
		{kind: CSIBlockPublishesDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/publish`},
		{kind: CSIBlockPublishDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/publish/(?P<volume>[^/]*)`},
		{kind: CSIBlockPublish, mode: "b", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/publish/(?P<volume>[^/]*)/(?P<uid>[^/]*)`},
		{kind: CSIBlockStagingsDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/staging`},
		{kind: CSIBlockStaging, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/staging/(?P<volume>[^/]*)`},
		{kind: CSIBlockDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/(?P<volume>[^/]*)`},
		{kind: CSIBlockDataDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/(?P<volume>[^/]*)/data`},
		{kind: GlobalMapMetadata, mode: "-", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/(?P<volume>[^/]*)/data/vol_data.json`},
		{kind: GlobalMapDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/(?P<volume>[^/]*)/dev`},
		{kind: GlobalMapDevice, mode: "b", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/volumeDevices/(?P<volume>[^/]*)/dev/(?P<uid>[^/]*)`},
		{kind: CSIDriverVolumesDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/(?P<driver>[^/]*)`},
		{kind: CSIVolumeDir, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/(?P<driver>[^/]*)/(?P<hash>[0-9a-f]{64})`},
		{kind: GlobalMount, mode: "d", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/(?P<driver>[^/]*)/(?P<hash>[0-9a-f]{64})/globalmount` + rest},
		{kind: GlobalMetadata, mode: "-", plugin: CSIPlugin, expr: `plugins/kubernetes.io/csi/(?P<driver>[^/]*)/(?P<hash>[0-9a-f]{64})/vol_data.json`},
	}
	for name, plugin := range map[string]string{
		"configmap": ConfigMapPlugin, "downward-api": DownwardAPIPlugin, "empty-dir": EmptyDirPlugin,
		"local-volume": LocalPlugin, "projected": ProjectedPlugin, "secret": SecretPlugin,
	} {
		out = append(out,
			meaning{kind: PodVolumePluginDir, mode: "d", plugin: plugin, expr: inPod + `/volumes/kubernetes.io~` + name},
			meaning{kind: PodVolume, mode: "d", plugin: plugin, expr: inPod + `/volumes/kubernetes.io~` + name + `/(?P<volume>[^/]*)` + rest})
	}
	for name, plugin := range map[string]string{"csi": CSIPlugin, "local-volume": LocalPlugin} {
		out = append(out,
			meaning{kind: PodDeviceDir, mode: "d", plugin: plugin, expr: inPod + `/volumeDevices/kubernetes.io~` + name},
			meaning{kind: PodDevice, mode: "l", plugin: plugin, expr: inPod + `/volumeDevices/kubernetes.io~` + name + `/(?P<volume>[^/]*)`})
	}
	for i := range out {
		out[i].re = regexp.MustCompile("^" + out[i].expr + "$")
	}
	return out
}()

type meaning struct {
	kind         Kind
	plugin, expr string
	mode         string
	re           *regexp.Regexp
}

func (m meaning) path(found []string) Path {
	p := Path{Kind: m.kind, Plugin: m.plugin}
	for i, name := range m.re.SubexpNames() {
		switch value := found[i]; name {
		case "uid":
			p.PodUID = value
		case "volume":
			p.Volume = value
		case "container":
			p.Container = value
		case "index":
			p.Index, _ = strconv.Atoi(value)
		case "driver":
			p.Driver = value
		case "hash":
			p.HandleHash = value
		case "file":
			p.File = value
		case "rest":
			p.Rest = value
		}
	}
	return p
}

func TestRealNodeEveryPathIsExplained(t *testing.T) {
	l := layout1(t)
	seen := map[Kind]int{}
	tree := readTree(t)
	for _, e := range tree {
		abs := filepath.Join(root, e.path)
		got := l.Parse(abs)
		i := slices.IndexFunc(meanings, func(m meaning) bool { return m.re.MatchString(e.path) })
		if i < 0 {
			t.Errorf("the test has no meaning for %s, parsed as %+v", e.path, got)
			continue
		}
		m := meanings[i]
		want := m.path(m.re.FindStringSubmatch(e.path))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e.path, diff)
		}
		if got.Rest == "" && strings.IndexByte(m.mode, e.mode) < 0 {
			t.Errorf("%s is a %s, which is of type %q, not %c", e.path, m.kind, m.mode, e.mode)
		}
		if built, err := l.Build(got); err != nil || built != abs {
			t.Errorf("%s builds %s, %v", e.path, built, err)
		}
		seen[got.Kind]++
	}
	if seen[None] > 0 || len(tree) < 264 {
		t.Errorf("%d of %d paths are not explained", seen[None], len(tree))
	}
	for _, m := range meanings {
		if seen[m.kind] == 0 {
			t.Errorf("no path of the tree is a %s", m.kind)
		}
	}
}

// Every mount of the node below the root is of a kind that a list of mounts names.
func TestRealNodeEveryMountHasAKind(t *testing.T) {
	l := layout1(t)
	file, err := os.Open(filepath.Join(realNode, "mountinfo-kubelet-root.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := map[api.MountKind]int{}
	for s := bufio.NewScanner(file); s.Scan(); {
		fields := strings.Fields(s.Text())
		p := l.Parse(fields[4])
		if p.MountKind() == api.KindOther && p.Kind != RootDir {
			t.Errorf("%s is %+v", fields[4], p)
		}
		got[p.MountKind()]++
	}
	for _, k := range []api.MountKind{api.KindPodVolume, api.KindGlobalMount, api.KindGlobalMapDevice, api.KindSubPath} {
		if got[k] == 0 {
			t.Errorf("no mount is a %s", k)
		}
	}
}

// cluster is what the API server said of the node.
type cluster struct {
	pods []corev1.Pod
	pvs  map[string]corev1.PersistentVolume
	pvcs map[string]corev1.PersistentVolumeClaim // by namespace/name
}

func readObjects(t testing.TB) cluster {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(realNode, "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []runtime.RawExtension }
	if err := yaml.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	c := cluster{pvs: map[string]corev1.PersistentVolume{}, pvcs: map[string]corev1.PersistentVolumeClaim{}}
	for _, item := range list.Items {
		var meta metav1.TypeMeta
		decode(t, item.Raw, &meta)
		switch meta.Kind {
		case "Pod":
			var pod corev1.Pod
			decode(t, item.Raw, &pod)
			c.pods = append(c.pods, pod)
		case "PersistentVolume":
			var pv corev1.PersistentVolume
			decode(t, item.Raw, &pv)
			c.pvs[pv.Name] = pv
		case "PersistentVolumeClaim":
			var pvc corev1.PersistentVolumeClaim
			decode(t, item.Raw, &pvc)
			c.pvcs[pvc.Namespace+"/"+pvc.Name] = pvc
		default:
			t.Fatalf("unknown kind %q", meta.Kind)
		}
	}
	return c
}

func decode(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// resolve says what a volume of a pod is: its source, its spec name and whether
// it is a block volume.
func (c cluster) resolve(t testing.TB, pod corev1.Pod, v corev1.Volume) (Source, string, bool) {
	t.Helper()
	claim := ""
	switch {
	case v.EmptyDir != nil:
		return Direct{EmptyDirPlugin}, v.Name, false
	case v.Secret != nil:
		return Direct{SecretPlugin}, v.Name, false
	case v.ConfigMap != nil:
		return Direct{ConfigMapPlugin}, v.Name, false
	case v.DownwardAPI != nil:
		return Direct{DownwardAPIPlugin}, v.Name, false
	case v.Projected != nil:
		return Direct{ProjectedPlugin}, v.Name, false
	case v.HostPath != nil:
		return Direct{HostPathPlugin}, v.Name, false
	case v.CSI != nil:
		return CSI{Driver: v.CSI.Driver, Inline: true}, v.Name, false
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = pod.Name + "-" + v.Name
	default:
		t.Fatalf("unknown source of %s", v.Name)
	}
	pv, ok := c.pvs[c.pvcs[pod.Namespace+"/"+claim].Spec.VolumeName]
	if !ok {
		t.Fatalf("no PV of claim %s", claim)
	}
	block := *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
	if pv.Spec.CSI != nil {
		return CSI{Driver: pv.Spec.CSI.Driver, Handle: pv.Spec.CSI.VolumeHandle}, pv.Name, block
	}
	return Local{Device: strings.HasPrefix(pv.Spec.Local.Path, "/dev/")}, pv.Name, block
}

// expect gathers what the package builds for the pods.
type expect struct {
	t     testing.TB
	l     Layout
	paths map[string]bool
}

func (e expect) add(paths ...string) {
	for _, p := range paths {
		if p != "" {
			e.paths[p] = true
		}
	}
}

func (e expect) built(path string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Error(err)
	}
	e.add(path)
}

func (e expect) pod(c cluster, pod corev1.Pod) {
	uid := string(pod.UID)
	if static := pod.Annotations["kubernetes.io/config.hash"]; static != "" {
		uid = static // a mirror pod's own uid is not on disk
	}
	e.built(e.l.PodDir(uid))
	e.built(e.l.PodEtcHosts(uid))
	specName := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		source, name, block := c.resolve(e.t, pod, v)
		specName[v.Name] = name
		set, err := e.l.ForSource(source, name, uid, block)
		if err != nil {
			e.t.Error(err)
		}
		e.add(set.PodVolumePath, set.PodDeviceMapPath, set.GlobalMountPath, set.GlobalMapPath)
		e.add(set.Metadata...)
		if block {
			e.built(e.l.GlobalMapDevice(e.l.Parse(set.GlobalMapPath), uid))
			if _, ok := source.(CSI); ok {
				e.built(e.l.CSIBlockStagingPath(name))
				e.built(e.l.CSIBlockPublishPath(name, uid))
			}
		}
	}
	for _, container := range pod.Spec.Containers {
		e.built(e.l.PodContainerDir(uid, container.Name))
		for i, m := range container.VolumeMounts {
			if m.SubPath != "" || m.SubPathExpr != "" {
				e.built(e.l.SubPath(uid, specName[m.Name], container.Name, i))
			}
		}
	}
}

// What the package builds for the pods and PVs of the node is, both ways, what
// the tree has.
func TestRealNodeBuildsWhatTheTreeHas(t *testing.T) {
	c := readObjects(t)
	e := expect{t: t, l: layout1(t), paths: map[string]bool{}}
	if len(c.pods) != 5 || len(c.pvs) != 8 {
		t.Fatalf("read %d pods and %d PVs", len(c.pods), len(c.pvs))
	}
	for _, pod := range c.pods {
		e.pod(c, pod)
	}
	leaves := []Kind{
		PodDir, PodEtcHosts, PodContainerDir, PodVolume, PodVolumeMount, PodVolumeMetadata, PodDevice, SubPath, ReadyMarker,
		GlobalMount, GlobalMetadata, GlobalMapDir, GlobalMapDevice, GlobalMapMetadata, CSIBlockStaging, CSIBlockPublish,
	}
	tree := map[string]bool{}
	for _, entry := range readTree(t) {
		abs := filepath.Join(root, entry.path)
		p := e.l.Parse(abs)
		holdsMount := p.Kind == PodVolume && p.Plugin == CSIPlugin
		if p.Rest == "" && !holdsMount && slices.Contains(leaves, p.Kind) {
			tree[abs] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(tree)), slices.Sorted(maps.Keys(e.paths))); diff != "" {
		t.Errorf("-tree +built:\n%s", diff)
	}
}

// The identities in the node's vol_data.json files are what the package computes.
func TestRealNodeMetadata(t *testing.T) {
	l := layout1(t)
	data, err := os.ReadFile(filepath.Join(realNode, "vol_data.txt"))
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for block := range strings.SplitSeq(string(data), "## ") {
		path, text, ok := strings.Cut(block, "\n")
		if !ok {
			continue
		}
		files++
		var m map[string]string
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		p := l.Parse(path)
		switch p.Kind {
		case PodVolumeMetadata, GlobalMapMetadata:
			if p.Volume != m["specVolID"] {
				t.Errorf("%s: volume %s, want %s", path, p.Volume, m["specVolID"])
			}
			if got := CSIAttachmentID(m["volumeHandle"], m["driverName"], m["nodeName"]); got != m["attachmentID"] {
				t.Errorf("%s: attachment %s, want %s", path, got, m["attachmentID"])
			}
			if got := CSIInlineHandle(p.PodUID, p.Volume); m["volumeLifecycleMode"] == "Ephemeral" && got != m["volumeHandle"] {
				t.Errorf("%s: handle %s, want %s", path, got, m["volumeHandle"])
			}
		case GlobalMetadata:
			if p.Driver != m["driverName"] || p.HandleHash != HandleHash(m["volumeHandle"]) {
				t.Errorf("%s: %s %s, want %v", path, p.Driver, p.HandleHash, m)
			}
		default:
			t.Errorf("%s is a %s", path, p.Kind)
		}
	}
	if files != 11 {
		t.Errorf("%d files", files)
	}
}
