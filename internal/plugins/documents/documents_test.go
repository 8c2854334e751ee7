package documents

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func read(t testing.TB, texts ...string) *Documents {
	t.Helper()
	d, err := Read([]Input{input(docs(texts...))})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// realNode is what a real API server said of a node (testdata/real-node/README.md).
func realNode(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../../../testdata/real-node/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func counts(d *Documents) []int {
	return []int{len(d.PVs), len(d.PVCs), len(d.Pods), len(d.Secrets), len(d.ConfigMaps), len(d.StorageClasses), len(d.CSIDrivers), len(d.VolumeAttachments)}
}

func TestEveryKindIsRead(t *testing.T) {
	each := []string{
		goodPV, goodPVC, goodPod,
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==, b: Yg==}\nstringData: {b: c}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\nbinaryData: {x: AAE=}\nimmutable: true\n",
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: sc}\nprovisioner: x\nmountOptions: [noatime]\n",
		"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d}\nspec: {attachRequired: false}\n",
		"apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nmetadata: {name: csi-1}\nspec: {attacher: d, nodeName: node1, source: {persistentVolumeName: v}}\nstatus: {attached: true, attachmentMetadata: {path: x}}\n",
	}
	one := []int{1, 1, 1, 1, 1, 1, 1, 1}
	d := read(t, each...)
	if got := counts(d); !reflect.DeepEqual(got, one) {
		t.Errorf("documents: %v", got)
	}
	if got := d.Secrets[0]; string(got.Data["a"]) != "a" || string(got.Data["b"]) != "c" || got.StringData != nil {
		t.Errorf("secret: %v", got.Data)
	}

	var list, stream strings.Builder
	list.WriteString("apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n")
	for _, text := range each {
		list.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n")
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		stream.Write(data)
	}
	listJSON, err := yaml.YAMLToJSON([]byte(list.String()))
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, listJSON, "", "\t"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": list.String(), "list in JSON": string(listJSON), "JSON with tabs": pretty.String(), "JSON one after another": stream.String(),
		"CRLF": strings.ReplaceAll(docs(each...), "\n", "\r\n"), "BOM": "\xef\xbb\xbf" + docs(each...),
		"comments": "# first\n---\n# only a comment\n---\n" + docs(each...) + "---\n\n--- # end\n...\n",
		"nested":   `{"kind":"List","apiVersion":"v1","items":[` + string(listJSON) + `]}`,
	} {
		got := read(t, text)
		if diff := cmp.Diff(d, got, cmpopts.IgnoreUnexported(Documents{})); diff != "" {
			t.Errorf("%s differs: %s", name, diff)
		}
	}
}

// What a plugin asks in place of the API server.
func TestObjects(t *testing.T) {
	d := read(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: other}\n",
		"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d}\nspec: {}\n")
	if s, err := d.Secret("", "s"); err != nil || s != d.Secrets[0] {
		t.Errorf("secret without a namespace: %v, %v", s, err)
	}
	if s, err := d.Secret("other", "s"); err != nil || s != d.Secrets[1] {
		t.Errorf("secret of a namespace: %v, %v", s, err)
	}
	if c, err := d.CSIDriver("d"); err != nil || c != d.CSIDrivers[0] {
		t.Errorf("driver: %v, %v", c, err)
	}
	if _, err := d.VolumeAttachment("csi-1"); !errors.Is(err, api.ErrNotFound) || !strings.Contains(api.NewErrorDoc(err).Next, "kubectl get volumeattachment csi-1") {
		t.Errorf("an attachment that was not given: %v", err)
	}
}

func TestTypedListWithoutKinds(t *testing.T) {
	d := read(t, "apiVersion: v1\nkind: PersistentVolumeList\nmetadata: {}\nitems:\n- {metadata: {name: a}, spec: {nfs: {server: s, path: /}}}\n"+
		"- {kind: PersistentVolume, apiVersion: v1, metadata: {name: b}, spec: {nfs: {server: s, path: /}}}\n",
		"kind: PodList\napiVersion: v1\nitems: [{metadata: {name: p, uid: u}}]\n", "kind: SecretList\napiVersion: v1\nitems:\n",
		"kind: CSIDriverList\napiVersion: storage.k8s.io/v1\nitems: [{metadata: {name: d}}]\n")
	if got, want := counts(d), []int{2, 0, 1, 0, 0, 0, 1, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// What the decoder makes of good input is what Kubernetes' own makes of it.
func TestDecodeIsThatOfKubernetes(t *testing.T) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(realNode(t), &list); err != nil {
		t.Fatal(err)
	}
	want := &Documents{}
	add := func(data []byte) {
		unmarshal := func(data []byte, into any) error { return yaml.Unmarshal(data, into) }
		if json.Valid(data) {
			unmarshal = json.Unmarshal // the YAML library knows no surrogate pairs
		}
		var meta metav1.TypeMeta
		if err := unmarshal(data, &meta); err != nil {
			t.Fatal(err)
		}
		obj, _ := newObject(meta.Kind)
		if err := unmarshal(data, obj); err != nil {
			t.Fatal(err)
		}
		switch x := obj.(type) {
		case *v1.PersistentVolume:
			want.PVs = append(want.PVs, x)
		case *v1.PersistentVolumeClaim:
			want.PVCs = append(want.PVCs, x)
		case *v1.Pod:
			want.Pods = append(want.Pods, x)
		case *v1.ConfigMap:
			want.ConfigMaps = append(want.ConfigMaps, x)
		case *storagev1.CSIDriver:
			want.CSIDrivers = append(want.CSIDrivers, x)
		case *storagev1.VolumeAttachment:
			want.VolumeAttachments = append(want.VolumeAttachments, x)
		}
	}
	for _, item := range list.Items {
		add(item)
	}
	odd := []string{
		// Every kind of value, and the ways of YAML to write it.
		podHead + `  containers:
  - name: c
    resources: {limits: {cpu: 1, memory: 1.5Gi}, requests: {cpu: 100m, memory: "128974848", nvidia.com/gpu: 2}}
    livenessProbe: {httpGet: {port: http}}
    readinessProbe: {httpGet: {port: 80}}
    args: ["", '1', "yes", 2026-11-21T12:01:27Z, !!str 7, ~x]
  hostNetwork: yes
  hostPID: off
  hostIPC: True
  terminationGracePeriodSeconds: 0x10
  activeDeadlineSeconds: +60
  nodeName:
  tolerations: []
  overhead: {}
  securityContext: {fsGroup: 0, fsGroupChangePolicy: OnRootMismatch, supplementalGroups: [1, 2]}
  volumes:
  - name: c
    configMap: {name: c, defaultMode: 0644, items: [{key: k, path: p, mode: 292}]}
`,
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: &l {a: b}\n  annotations: *l\n  creationTimestamp: null\n" +
			"  managedFields: [{manager: m, time: 2026-11-21T12:01:27Z, fieldsV1: {'f:data': {.: {}, 'f:a': [1, x, null, 1.5]}}}]\n" +
			"data:\n  1: a\n  <<: {a: merged, b: merged}\n  a: own\n  text: |\n    # not a comment\n    ---\n  fold: >-\n    a\n    b\n",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"j"},"data":{"a":"\ud83d\ude00\/\u0041\t"}}`,
	}
	for _, text := range odd {
		add([]byte(text))
	}
	got, err := Read([]Input{input(string(realNode(t))), input(docs(odd[:2]...)), input(odd[2])})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Documents{})); diff != "" {
		t.Errorf("differs: %s", diff)
	}
	if n := len(want.PVs) + len(want.PVCs) + len(want.Pods) + len(want.ConfigMaps); n != len(list.Items)+3 {
		t.Errorf("compared %d of %d", n, len(list.Items)+3)
	}
}

func TestStatusOfANewerReleaseIsLetPass(t *testing.T) {
	d := read(t, goodPV+"status: {phase: Bound, fromTheFuture: {a: 1}}\n")
	if d.PVs[0].Status.Phase != v1.VolumeBound {
		t.Errorf("status: %v", d.PVs[0].Status)
	}
}

func TestVolumeWithoutSourceIsAnEmptyDir(t *testing.T) {
	d := read(t, podWith("  - {name: a}\n"))
	if d.Pods[0].Spec.Volumes[0].EmptyDir == nil {
		t.Error("it is not")
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range badInputs {
		if len(c.text) < 1<<16 {
			f.Add([]byte(c.text))
		}
	}
	f.Add(realNode(f))
	f.Add([]byte(docs(goodPV, goodPVC, goodPod)))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Read([]Input{input(string(data))})
		if err != nil {
			checkRefusal(t, err, "in.yaml")
			if strings.Contains(err.Error(), "library failed") {
				t.Errorf("panic: %v", err)
			}
			return
		}
		for _, volume := range []string{"", "data", "vol"} {
			sel, err := d.Select(volume, "")
			if err == nil && (len(sel.Specs) != 1 || sel.Specs[0].Source() == "" || sel.HasPod == (sel.NoPod != nil)) {
				t.Errorf("selected %+v", sel)
			}
			if err != nil {
				checkRefusal(t, err)
			}
		}
	})
}
