package paths

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

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
