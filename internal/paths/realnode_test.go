package paths

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
