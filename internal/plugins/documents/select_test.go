package documents

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/plugins"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const (
	nsPVC    = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: claim, namespace: team, uid: u1}\nspec: {accessModes: [ReadWriteOnce]}\n"
	freePVC  = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: claim}\nspec: {accessModes: [ReadWriteOnce]}\n"
	inline   = "  - {name: tmp, emptyDir: {}}\n"
	roClaim  = "  - {name: vol, persistentVolumeClaim: {claimName: claim, readOnly: true}}\n"
	rwClaim  = "  - {name: rw, persistentVolumeClaim: {claimName: claim}}\n"
	geneph   = "  - {name: scratch, ephemeral: {volumeClaimTemplate: {spec: {}}}}\n"
	ephPVC   = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: web-scratch, ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: UID, controller: true}]}\nspec: {volumeName: data}\n"
	mirrored = "apiVersion: v1\nkind: Pod\nmetadata: {name: static, uid: api-uid, annotations: {kubernetes.io/config.mirror: 1072a062805fbab9885e59f2499da950}}\nspec:\n  volumes:\n"
	noUID    = "apiVersion: v1\nkind: Pod\nmetadata: {name: static}\nspec:\n  volumes:\n"
	pod2     = "apiVersion: v1\nkind: Pod\nmetadata: {name: other, uid: 0f5c1a52-0002}\nspec:\n  volumes:\n"
)

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		name             string
		docs             []string
		volume, uid      string
		spec             string // name, source, ro
		pod              string // uid; "" for none
		noPod            string // what the reason mentions
		wantName, wantNS string
	}{
		{name: "a volume alone", docs: []string{goodPV}, spec: "data local", noPod: "no pod is given"},
		{name: "and a pod's uid", docs: []string{goodPV}, uid: "u", spec: "data local", pod: "u"},
		{name: "named", docs: []string{goodPV, pvNamed("b")}, volume: "b", spec: "b local", noPod: "no pod"},
		{name: "with its claim", docs: []string{goodPV, goodPVC}, spec: "data local", noPod: "no pod"},
		{name: "bound from its side only", docs: []string{claimed("name: claim"), freePVC}, spec: "data local", noPod: "no pod"},
		{name: "bound from both", docs: []string{claimed("name: claim, namespace: team, uid: u1"), strings.Replace(nsPVC, "spec: {", "spec: {volumeName: data, volumeMode: Filesystem, ", 1)}, spec: "data local", noPod: "no pod"},
		{name: "other claims do not matter to a named one", docs: []string{goodPV, strings.Replace(goodPVC, "volumeName: data", "volumeName: gone", 1)}, volume: "data", spec: "data local", noPod: "no pod"},
		{name: "a pod's claim", docs: []string{goodPV, goodPVC, goodPod}, spec: "data local", pod: "0f5c1a52-0001", wantName: "web", wantNS: "default"},
		{name: "read-only", docs: []string{goodPV, goodPVC, podWith(roClaim)}, spec: "data local ro", pod: "0f5c1a52-0001"},
		{name: "by the pod's name of it", docs: []string{goodPV, goodPVC, podWith(roClaim + inline)}, volume: "vol", spec: "data local ro", pod: "0f5c1a52-0001"},
		{name: "by its own name", docs: []string{goodPV, goodPVC, podWith(roClaim + inline)}, volume: "data", spec: "data local ro", pod: "0f5c1a52-0001"},
		{name: "inline", docs: []string{goodPV, goodPVC, podWith(roClaim + inline)}, volume: "tmp", spec: "tmp emptyDir", pod: "0f5c1a52-0001"},
		{name: "claimed without the claim's document", docs: []string{claimed("name: claim"), podWith(rwClaim)}, spec: "data local", pod: "0f5c1a52-0001"},
		{name: "twice in a pod by two names", docs: []string{goodPV, goodPVC, podWith(roClaim + rwClaim)}, volume: "rw", spec: "data local", pod: "0f5c1a52-0001"},
		{name: "twice in a pod alike", docs: []string{goodPV, goodPVC, podWith(rwClaim + strings.Replace(rwClaim, "name: rw", "name: r2", 1))}, spec: "data local", pod: "0f5c1a52-0001"},
		{name: "the name on disk wins", docs: []string{goodPV, goodPVC, podWith("  - {name: data, persistentVolumeClaim: {claimName: b}}\n" + rwClaim)}, volume: "data", spec: "data local", pod: "0f5c1a52-0001"},
		{name: "generic ephemeral", docs: []string{goodPV, strings.Replace(ephPVC, "UID", "0f5c1a52-0001", 1), podWith(geneph)}, spec: "data local", pod: "0f5c1a52-0001"},
		{name: "an unclaimed volume and a pod", docs: []string{goodPV, podWith("")}, spec: "data local", pod: "0f5c1a52-0001"},
		{name: "static pod by its mirror", docs: []string{mirrored + inline}, spec: "tmp emptyDir", pod: "1072a062805fbab9885e59f2499da950"},
		{name: "named by the mirror's uid", docs: []string{mirrored + inline, pod2}, uid: "api-uid", spec: "tmp emptyDir", pod: "1072a062805fbab9885e59f2499da950"},
		{name: "named by the static uid", docs: []string{mirrored + inline, pod2}, uid: "1072a062805fbab9885e59f2499da950", spec: "tmp emptyDir", pod: "1072a062805fbab9885e59f2499da950"},
		{name: "manifest and --pod-uid", docs: []string{noUID + inline}, uid: "1072a062805fbab9885e59f2499da950", spec: "tmp emptyDir", pod: "1072a062805fbab9885e59f2499da950", wantName: "static"},
		{name: "manifest, volume that needs no pod", docs: []string{claimed("name: claim"), noUID + rwClaim}, spec: "data local", noPod: "--pod-uid"},
		{name: "one of two pods", docs: []string{goodPV, goodPVC, podWith(rwClaim), pod2 + roClaim}, uid: "0f5c1a52-0002", spec: "data local ro", pod: "0f5c1a52-0002", wantName: "other"},
		{name: "two pods, volume that needs none", docs: []string{goodPV, goodPVC, podWith(rwClaim), pod2 + roClaim}, spec: "data local", noPod: "2 pods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sel, err := read(t, c.docs...).Select(c.volume, c.uid)
			if err != nil {
				t.Fatal(err)
			}
			if len(sel.Specs) != 1 {
				t.Fatalf("specs: %v", sel.Specs)
			}
			got := sel.Specs[0].Name() + " " + sel.Specs[0].Source()
			if sel.Specs[0].ReadOnly {
				got += " ro"
			}
			if got != c.spec || sel.Pod.UID != c.pod && sel.HasPod || sel.HasPod != (c.pod != "") {
				t.Errorf("got %q, pod %v %+v", got, sel.HasPod, sel.Pod)
			}
			if c.wantName != "" && sel.Pod.Name != c.wantName || c.wantNS != "" && sel.Pod.Namespace != c.wantNS {
				t.Errorf("pod %+v", sel.Pod)
			}
			if sel.HasPod {
				if sel.NoPod != nil {
					t.Errorf("there is a pod, and: %v", sel.NoPod)
				}
				return
			}
			checkRefusal(t, sel.NoPod, c.noPod, "--pod-uid")
			if !errors.Is(sel.NoPod, api.ErrUsage) {
				t.Errorf("its kind: %v", sel.NoPod)
			}
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, c := range []struct {
		name        string
		docs        []string
		volume, uid string
		kind        error
		want        []string
	}{
		{"two volumes and no name", []string{goodPV, pvNamed("b")}, "", "", api.ErrUsage, []string{"2 volumes", "data, b", "--volume"}},
		{"a name that none has", []string{goodPV, pvNamed("b")}, "c", "", api.ErrUsage, []string{"--volume c", "data, b"}},
		{"a bad name", []string{goodPV}, "../a", "", api.ErrInput, []string{`"../a"`}},
		{"no volume", []string{podWith("")}, "", "", api.ErrUsage, []string{"no volume"}},
		{"only a claim", []string{goodPVC}, "", "", api.ErrInput, []string{`PersistentVolumeClaim "claim"`, `"data" is not in the input`, "kubectl get pv data"}},
		{"a pod with two volumes", []string{goodPV, goodPVC, podWith(rwClaim + inline)}, "", "", api.ErrUsage, []string{"2 volumes", "data (rw of the pod), tmp"}},
		{"two accesses", []string{goodPV, goodPVC, podWith(rwClaim + roClaim)}, "data", "", api.ErrUsage, []string{"data (rw of the pod), data (vol of the pod)", "pod's own name"}},
		{"claim without document", []string{podWith(rwClaim)}, "", "", api.ErrInput, []string{`Pod "web"`, `volume "rw"`, "default/claim", "kubectl get pvc -n default claim"}},
		{"claim without volume", []string{goodPVC, podWith(rwClaim)}, "", "", api.ErrInput, []string{`volume "rw"`, `"data"`, "kubectl get pv data"}},
		{"claim that is not bound", []string{freePVC, goodPV, podWith(rwClaim)}, "rw", "", api.ErrInput, []string{"names no PersistentVolume"}},
		{"two volumes of one claim", []string{claimed("name: claim"), strings.Replace(claimed("name: claim"), "name: data", "name: b", 1), podWith(rwClaim)}, "rw", "", api.ErrInput, []string{"2 PersistentVolumes", "default/claim"}},
		{"claim in another namespace", []string{claimed("name: claim, namespace: team"), podWith(rwClaim)}, "", "", api.ErrInput, []string{"default/claim"}},
		{"a volume that the pod does not use", []string{claimed("name: other"), podWith(inline)}, "data", "", api.ErrInput, []string{"default/web does not use"}},
		{"another pod's ephemeral claim", []string{goodPV, strings.Replace(ephPVC, "UID", "other", 1), podWith(geneph)}, "", "", api.ErrInput, []string{"default/web-scratch", "another pod"}},
		// A claim and a volume that disagree.
		{"neither names the other", []string{goodPV, freePVC}, "", "", api.ErrInput, []string{"names no PersistentVolume"}},
		{"claim names another", []string{goodPV, strings.Replace(goodPVC, "volumeName: data", "volumeName: b", 1)}, "", "", api.ErrInput, []string{`spec.volumeName: PersistentVolume "b" is not in the input`}},
		{"claimRef of another name", []string{claimed("name: b"), goodPVC}, "", "", api.ErrInput, []string{"document 2", "disagrees", "default/b", "default/claim"}},
		{"claimRef of another namespace", []string{claimed("name: claim, namespace: team"), goodPVC}, "", "", api.ErrInput, []string{"team/claim", "default/claim"}},
		{"claimRef of another uid", []string{claimed("name: claim, namespace: team, uid: u0"), nsPVC}, "", "", api.ErrInput, []string{"u0", "u1", "made anew"}},
		{"volumeName of another", []string{claimed("name: claim"), pvNamed("b"), strings.Replace(goodPVC, "volumeName: data", "volumeName: b", 1)}, "data", "", api.ErrInput, []string{"spec.volumeName", `"b"`}},
		{"volumeMode of the volume", []string{goodPV + "  volumeMode: Block\n", goodPVC}, "", "", api.ErrInput, []string{"volumeMode", "Block", "Filesystem"}},
		{"volumeMode of the claim", []string{goodPV, strings.Replace(goodPVC, "spec: {", "spec: {volumeMode: Block, ", 1), goodPod}, "", "", api.ErrInput, []string{"volumeMode"}},
		{"access modes", []string{goodPV, strings.Replace(goodPVC, "[ReadWriteOnce]", "[ReadWriteOnce, ReadWriteMany]", 1)}, "", "", api.ErrInput, []string{"accessModes", "ReadWriteMany", "has ReadWriteOnce"}},
		// The pod.
		{"uid with ..", []string{goodPV}, "", "..", api.ErrInput, []string{"--pod-uid", `".."`}},
		{"uid with /", []string{goodPV}, "", "a/b", api.ErrInput, []string{"--pod-uid"}},
		{"uid with NUL", []string{goodPV}, "", "a\x00", api.ErrInput, []string{"--pod-uid"}},
		{"uid with newline", []string{goodPV}, "", "a\n", api.ErrInput, []string{"--pod-uid"}},
		{"uid with leading -", []string{goodPV}, "", "-a", api.ErrInput, []string{"--pod-uid"}},
		{"uid of no pod", []string{goodPod, goodPV}, "data", "0f5c1a52-9999", api.ErrUsage, []string{"0f5c1a52-9999", "none of the pods"}},
		{"pod without uid, inline volume", []string{noUID + inline}, "", "", api.ErrUsage, []string{`Pod "static"`, "metadata.uid", "--pod-uid"}},
		{"two pods, inline volume", []string{podWith(inline), pod2}, "tmp", "", api.ErrUsage, []string{"2 pods", "default/other 0f5c1a52-0002", "--pod-uid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(t, c.docs...).Select(c.volume, c.uid)
			checkRefusal(t, err, c.want...)
			if !errors.Is(err, c.kind) {
				t.Errorf("its kind is %s", api.Reason(err))
			}
			if testing.Verbose() {
				t.Log(err, "|", api.NewErrorDoc(err).Next)
			}
		})
	}
}

func TestPodRef(t *testing.T) {
	sel, err := read(t, strings.Replace(podWith(inline), "spec:\n",
		"spec:\n  serviceAccountName: sa\n  securityContext: {fsGroup: 2000, fsGroupChangePolicy: OnRootMismatch}\n", 1)).Select("", "")
	if err != nil {
		t.Fatal(err)
	}
	group := int64(2000)
	want := plugins.PodRef{UID: "0f5c1a52-0001", Name: "web", Namespace: "default", ServiceAccount: "sa", FSGroup: &group, FSGroupChangePolicy: v1.FSGroupChangeOnRootMismatch}
	if diff := cmp.Diff(want, sel.Pod); diff != "" {
		t.Error(diff)
	}
}

// Every volume of every pod of a real node resolves to what its kubelet made of
// it: the tree has these names.
func TestSelectOnARealNode(t *testing.T) {
	d := read(t, string(realNode(t)))
	static := 0
	for _, pod := range d.Pods {
		for _, v := range pod.Spec.Volumes {
			sel, err := d.Select(v.Name, string(pod.UID))
			if err != nil {
				t.Errorf("%s of %s: %v", v.Name, pod.Name, err)
				continue
			}
			spec := sel.Specs[0]
			isPV := v.PersistentVolumeClaim != nil || v.Ephemeral != nil
			if isPV != (spec.PersistentVolume != nil) || !isPV && spec.Name() != v.Name {
				t.Errorf("%s of %s is %s", v.Name, pod.Name, spec)
			}
			if sel.Pod.UID != string(pod.UID) {
				static++
			}
		}
	}
	if static == 0 {
		t.Error("the static pod is not known by its own uid")
	}
	for volume, want := range map[string]string{"geneph": "pvc-80140b17-75e3-4b79-9037-a42115803534", "localdevfs": "local-devfs", "csifs": "pvc-3375dde1-10a0-459b-ab14-e8cb141ff78f"} {
		if sel, err := d.Select(volume, "52a4fa2e-7e24-44be-a5e5-06648a756e67"); err != nil || sel.Specs[0].Name() != want {
			t.Errorf("%s: %v", volume, err)
		}
	}
	_, err := d.Select("", "")
	checkRefusal(t, err, "volumes in the input", "local-devfs", "--volume")
	if sel, err := d.Select("local-devfs", ""); err != nil || sel.HasPod || !errors.Is(sel.NoPod, api.ErrUsage) {
		t.Errorf("a volume and no pod: %v", err)
	}
}
