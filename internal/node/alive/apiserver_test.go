package alive

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvol/kvol/internal/api"
)

const kubeletConf = "/etc/kubernetes/kubelet.conf"

// recorded is what a real API server answered, by kind (testdata/real-node).
func recorded(t *testing.T) (pods []*v1.Pod, node v1.Node, claims map[string]v1.PersistentVolumeClaim) {
	t.Helper()
	raw, err := os.ReadFile("../../../testdata/real-node/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	claims = map[string]v1.PersistentVolumeClaim{}
	var list struct{ Items []map[string]any }
	if err := yaml.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		text, err := yaml.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		var into any
		switch item["kind"] {
		case "Pod":
			pods = append(pods, &v1.Pod{})
			into = pods[len(pods)-1]
		case "Node":
			into = &node
		case "PersistentVolumeClaim":
			pvc := v1.PersistentVolumeClaim{}
			if err := yaml.Unmarshal(text, &pvc); err != nil {
				t.Fatal(err)
			}
			claims[pvc.Namespace+"/"+pvc.Name] = pvc
			continue
		default:
			continue
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	return pods, node, claims
}

// apiServerOf answers as an API server does: a page of two pods at a time, to the one
// user who may list the pods of that node only.
func apiServerOf(t *testing.T, pods []*v1.Pod, node v1.Node, claims map[string]v1.PersistentVolumeClaim) http.HandlerFunc {
	return only("system:node:node1", func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
		parts := strings.Split(path, "/")
		switch {
		case path == "pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=node1":
			page := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList"}}
			from := slices.IndexFunc(pods, func(p *v1.Pod) bool { return string(p.UID) == r.URL.Query().Get("continue") })
			for _, p := range pods[max(from, 0):] {
				if len(page.Items) == 2 {
					page.Continue = string(p.UID)
					break
				}
				page.Items = append(page.Items, *p)
			}
			answerJSON(page)(w, r)
		case path == "nodes/node1":
			answerJSON(node)(w, r)
		case len(parts) == 4 && parts[2] == "persistentvolumeclaims":
			if pvc, ok := claims[parts[1]+"/"+parts[3]]; ok {
				answerJSON(pvc)(w, r)
				return
			}
			http.NotFound(w, r)
		default:
			t.Errorf("asked for %s", r.URL)
			http.NotFound(w, r)
		}
	})
}

func TestAPIServerRecorded(t *testing.T) {
	s := newScratch(t)
	pods, node, claims := recorded(t)
	if len(pods) < 3 {
		t.Fatalf("%d pods recorded", len(pods))
	}
	node.Kind, node.Name = "Node", "node1"
	node.Status.VolumesInUse = []v1.UniqueVolumeName{"kubernetes.io/csi/d^h"}
	node.Status.VolumesAttached = []v1.AttachedVolume{{Name: "kubernetes.io/csi/d^a"}}
	addr, _ := s.ca.serve(apiServerOf(t, pods, node, claims))
	s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr+"/", "system:node:node1"))
	sets := s.look(Options{From: []string{"api"}})
	r := reportOf(t, sets, SourceAPI)
	if !r.Answered || len(r.Pods) != len(pods) {
		t.Fatalf("%+v", r)
	}
	got, err := sets.NodeVolumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []Claim
	for _, p := range pods {
		for _, v := range p.Spec.Volumes {
			name := ""
			if v.PersistentVolumeClaim != nil {
				name = v.PersistentVolumeClaim.ClaimName
			} else if v.Ephemeral != nil {
				name = p.Name + "-" + v.Name
			}
			if pvc, ok := claims["default/"+name]; ok {
				want = append(want, Claim{PodUID: string(p.UID), Namespace: "default", Name: name, PV: pvc.Spec.VolumeName})
			}
		}
	}
	if len(want) < 3 || !strings.HasPrefix(want[0].PV, "pvc-") {
		t.Fatalf("recorded claims: %+v", want)
	}
	if diff := cmp.Diff(NodeVolumes{InUse: []string{"kubernetes.io/csi/d^h"}, Attached: []string{"kubernetes.io/csi/d^a"}, Claims: want}, got); diff != "" {
		t.Error(diff)
	}
}

// TestNodeVolumesNotKnown: what cannot be known of a live pod is not taken for none.
func TestNodeVolumesNotKnown(t *testing.T) {
	s := newScratch(t)
	pod := object(dashed, "web", nil)
	pod.Spec.Volumes = []v1.Volume{
		{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
	}
	away := pod.DeepCopy()
	away.UID, away.Spec.NodeName = other, "node2"
	node := v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	addr, _ := s.ca.serve(apiServerOf(t, []*v1.Pod{pod, away}, node, nil))
	s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
	sets := s.look(Options{From: []string{"api"}})
	got, err := sets.NodeVolumes(t.Context())
	want := []Claim{{PodUID: dashed, Namespace: "default", Name: "data"}, {PodUID: dashed, Namespace: "default", Name: "web-scratch"}}
	if diff := cmp.Diff(want, got.Claims); err != nil || diff != "" {
		t.Errorf("claims that are not there have no volume: %v %s", err, diff)
	}
	sets.reports = append(sets.reports, Report{Source: SourceCRI, Answered: true, Pods: []Pod{{UID: static}}})
	sets.index()
	if _, err := sets.NodeVolumes(t.Context()); !errors.Is(err, api.ErrUncertain) || !strings.Contains(err.Error(), static) {
		t.Errorf("a pod that only the runtime knows: %v", err)
	}
	sets = s.look(Options{From: []string{"cri"}})
	if _, err := sets.NodeVolumes(t.Context()); !errors.Is(err, api.ErrUncertain) {
		t.Errorf("without an API server: %v", err)
	}
	addr, _ = s.ca.serve(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/pods"):
			podList(pod)(w, r)
		case strings.HasSuffix(r.URL.Path, "/nodes/node1"):
			answerJSON(node)(w, r)
		default:
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
	})
	s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
	if _, err := s.look(Options{From: []string{"api"}}).NodeVolumes(t.Context()); !errors.Is(err, api.ErrUncertain) || !strings.Contains(err.Error(), "503") {
		t.Errorf("a claim that is not told: %v", err)
	}
}

func TestAPIServerLies(t *testing.T) {
	s := newScratch(t)
	for words, lie := range liars {
		addr, _ := s.ca.serve(lie)
		s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
		if r := s.report(Options{From: []string{"api"}}, SourceAPI); r.Answered || !strings.Contains(r.Reason, words) {
			t.Errorf("%s: %+v", words, r)
		}
	}
}

// TestAPIServerBreaksOff: the pods of the first page live, and the answer is none.
func TestAPIServerBreaksOff(t *testing.T) {
	s := newScratch(t)
	page := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList"}, ListMeta: metav1.ListMeta{Continue: "2"}, Items: []v1.Pod{*object(dashed, "web", nil)}}
	for words, second := range map[string]http.HandlerFunc{
		"410 Gone: The provided continue parameter is too old": answerText(410, `{"kind":"Status","message":"The provided continue parameter is too old"}`),
		"same page of its list again":                          answerJSON(page),
	} {
		addr, _ := s.ca.serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("continue") {
				second(w, r)
				return
			}
			answerJSON(page)(w, r)
		})
		s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
		sets := s.look(Options{From: []string{"api"}})
		if r := reportOf(t, sets, SourceAPI); r.Answered || !strings.Contains(r.Reason, words) {
			t.Errorf("%+v", r)
		}
		if lives, e := sets.Lives(dashed); !lives {
			t.Errorf("%s: the pod of the first page does not live: %v", words, e)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	s := newScratch(t)
	addr, _ := s.ca.serve(only("token t0k3n", podList(object(dashed, "web", nil))))
	s.write("/etc/k/ca.crt", s.ca.pem)
	s.write("/etc/k/token", "t0k3n\n")
	cert, key := s.ca.issue("system:node:node1")
	s.write("/etc/k/both.pem", cert+key)
	file := func(cluster, user string) string {
		return `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "https://` + addr + `", ` + cluster + `}}], users: [{name: a, user: {` + user + `}}]}`
	}
	for name, c := range map[string]struct{ text, reason string }{
		"token":              {file("certificate-authority: /etc/k/ca.crt", "token: t0k3n"), ""},
		"token file wins":    {file("certificate-authority: ca.crt", "token: old, tokenFile: token"), ""},
		"insecure":           {file("insecure-skip-tls-verify: true", "token: t0k3n"), ""},
		"certificate":        {file("certificate-authority: ca.crt", "client-certificate: both.pem, client-key: both.pem"), "403 Forbidden: Forbidden (user=system:node:node1"},
		"nobody":             {file("certificate-authority: ca.crt", ""), "401"},
		"unknown authority":  {file("", "token: t0k3n"), "certificate signed by unknown authority"},
		"other name":         {file("certificate-authority: ca.crt, tls-server-name: other", "token: t0k3n"), "valid for"},
		"program":            {file("certificate-authority: ca.crt", "exec: {command: aws}"), "kvol runs none"},
		"auth provider":      {file("certificate-authority: ca.crt", "auth-provider: {name: gcp}"), "kvol runs none"},
		"no key":             {file("certificate-authority: ca.crt", "client-certificate: both.pem, client-key: ca.crt"), "client certificate"},
		"missing token":      {file("certificate-authority: ca.crt", "tokenFile: nowhere"), "/etc/k/nowhere"},
		"missing authority":  {file("certificate-authority: nowhere", ""), "/etc/k/nowhere"},
		"no authority in it": {file("certificate-authority: token", ""), "authority without a certificate"},
		"no context":         {`{current-context: b}`, `no server in its current context "b"`},
		"not YAML":           {"a: [", "is not YAML"},
		"wrong type":         {"clusters: 1", "not of the right type"},
		"plain http":         {strings.ReplaceAll(file("", "token: t0k3n"), "https", "http"), "no https URL"},
		"nobody listens":     {strings.ReplaceAll(file("", "token: t0k3n"), addr, "127.0.0.1:1"), "connection refused"},
		"no file":            {"", "no such file"},
	} {
		s.h.Kubeconfig = "/etc/k/none"
		if c.text != "" {
			s.h.Kubeconfig = s.write("/etc/k/config", c.text)
		}
		r := s.report(Options{From: []string{"api"}}, SourceAPI)
		if r.Answered != (c.reason == "") || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%s: %+v", name, r)
		}
		if strings.Contains(r.Reason, "t0k3n") {
			t.Errorf("%s: the token is in %q", name, r.Reason)
		}
	}
}

// TestTimeouts: each source that hangs costs its own time and no more, and all of
// them together no more than one.
func TestTimeouts(t *testing.T) {
	s := newScratch(t)
	addr, _ := s.ca.serve(hang)
	s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
	s.h.RuntimeEndpoint = s.listen("/run/hangs.sock", &runtime{fail: hangRuntime})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	sets, err := Look(ctx, s.h, Options{KubeletEndpoint: addr, KubeletReadOnlyEndpoint: "127.0.0.1:1", Timeout: time.Minute})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("it took all the time: %v, %v", err, ctx.Err())
	}
	for _, source := range []string{SourceRunningPods, SourceCRI, SourceAPI} {
		if r := reportOf(t, sets, source); r.Answered || !strings.HasPrefix(r.Reason, "no answer within ") {
			t.Errorf("%+v", r)
		}
	}
	if r := reportOf(t, sets, SourceKubelet); r.Answered {
		t.Errorf("%+v", r)
	}
	if v, e := sets.Verdict(dashed, time.Now()); v != api.VerdictUnknown {
		t.Errorf("%s: %v", v, e)
	}
}
