package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
)

const (
	realNode    = "../../testdata/real-node"
	kubeletRoot = "/var/lib/kubelet"
)

// realTree is every path that a real kubelet had below its root.
func realTree(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(realNode + "/tree.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		// mode owner size dev=N path -> target
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		path, _, ok := strings.Cut(fields[len(fields)-1], " -> ")
		if len(fields) != 5 || !ok || path != kubeletRoot && !strings.HasPrefix(path, kubeletRoot+"/") {
			t.Fatalf("not a line of the tree: %q", line)
		}
		out = append(out, path)
	}
	return out
}

// kvol paths tells of every path of a real node what it is. That the layout reads
// them rightly is a test of its own in internal/paths, with expressions that do
// not come from its table; here nothing is lost on the way out.
func TestRealNodePaths(t *testing.T) {
	n := newNode(t)
	n.root = kubeletRoot
	tree := realTree(t)
	l, err := paths.New(kubeletRoot)
	if err != nil {
		t.Fatal(err)
	}
	got := decode[api.List[api.PathInfo]](t, n.must(0, append([]string{"paths", "-o", "json"}, tree...)...).stdout)
	if len(got.Items) != len(tree) || len(tree) < 264 {
		t.Fatalf("%d paths of %d", len(got.Items), len(tree))
	}
	for i, is := range got.Items {
		at := l.Parse(tree[i])
		if is.Kind == "none" || is.Path != tree[i] || is.Kind != at.Kind.String() || is.Plugin != at.Plugin || is.PodUID != at.PodUID ||
			is.Container != at.Container || is.Driver != at.Driver || is.Rest != at.Rest || at.Volume != "" && is.Volume != at.Volume {
			t.Errorf("%s is told as %+v, and parsed as %+v", tree[i], is, at)
		}
		if strings.Contains(is.Path, "/volumes/") && strings.Count(is.Path, "/") > 7 && (is.Plugin == "" || is.Volume == "" || is.PodUID == "") {
			t.Errorf("%s is of a pod's volume, and told as %+v", is.Path, is)
		}
	}
}

// A path of each kind that a node's volumes have, written down by hand.
func TestRealNodePathsByHand(t *testing.T) {
	const (
		pod    = "52a4fa2e-7e24-44be-a5e5-06648a756e67"
		static = "1072a062805fbab9885e59f2499da950"
		csi    = "kubernetes.io/csi"
		local  = "kubernetes.io/local-volume"
		pvc    = "pvc-ab405fc2-5f42-4166-9782-ed3dba0e569f"
	)
	want := []api.PathInfo{
		{Path: "plugins/kubernetes.io/local-volume/mounts/local-devfs", Plugin: local, Volume: "local-devfs"},
		{Path: "plugins/kubernetes.io/local-volume/mounts/local-devfs/lost+found", Plugin: local, Volume: "local-devfs", Rest: "lost+found"},
		{Path: "plugins/kubernetes.io~local-volume/volumeDevices/local-blk/" + pod, Plugin: local, Volume: "local-blk", PodUID: pod},
		{Path: "plugins/kubernetes.io/csi/volumeDevices/" + pvc + "/dev/" + pod, Plugin: csi, Volume: pvc, PodUID: pod},
		{Path: "plugins/kubernetes.io/csi/volumeDevices/staging/" + pvc, Plugin: csi, Volume: pvc},
		{Path: "pods/" + static + "/volumes/kubernetes.io~empty-dir/e", Plugin: "kubernetes.io/empty-dir", Volume: "e", PodUID: static},
		{Path: "pods/" + pod + "/containers/main/4f937ac4", PodUID: pod, Container: "main"},
	}
	tree := realTree(t)
	n := newNode(t)
	n.root = kubeletRoot
	for _, w := range want {
		path := kubeletRoot + "/" + w.Path
		if !slices.Contains(tree, path) {
			t.Errorf("%s is not in the tree", path)
			continue
		}
		is := decode[api.List[api.PathInfo]](t, n.must(0, "paths", path, "-o", "json").stdout).Items[0]
		w.Path, w.Kind, w.Index, is.Index = path, is.Kind, 0, 0
		if is != w || is.Kind == "none" {
			t.Errorf("%s is told as\n%+v, wanted\n%+v", path, is, w)
		}
	}
}

// The real node's own mount table, moved below another root, is listed whole, and
// every mount but of the kubelet's root itself as one of a volume.
func TestRealNodeMounts(t *testing.T) {
	n := newNode(t)
	data, err := os.ReadFile(realNode + "/mountinfo-kubelet-root.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.dir+"/proc/self", 0o755); err != nil {
		t.Fatal(err)
	}
	n.file("proc/self/mountinfo", strings.ReplaceAll(string(data), kubeletRoot, n.root))
	mounts := n.list("--no-probe", "--proc-root", n.dir+"/proc")
	lines := 0
	for line := range strings.Lines(string(data)) {
		path := n.root + strings.TrimPrefix(strings.Fields(line)[4], kubeletRoot)
		if path == n.root {
			continue
		}
		lines++
		m, ok := mounts[path]
		if !ok || !m.Mounted || m.Kind == api.KindOther || m.Volume == "" && m.Plugin == "" {
			t.Errorf("%s is listed as %+v", path, m)
		}
	}
	if lines < 20 {
		t.Errorf("only %d mounts", lines)
	}
}
