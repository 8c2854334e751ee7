package alive

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvol/kvol/internal/api"
)

const (
	dashed = "3f2b8c1e-7d44-4a56-9b0e-5f1d2c3a4b5c"
	static = "0123456789abcdef0123456789abcdef"
	other  = "9a8b7c6d-5e4f-4321-8765-0fedcba98765"
)

// object is a pod as the kubelet and the API server have it.
func object(uid, name string, annotations map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "default", Annotations: annotations}}
}

var fromAPI = map[string]string{"kubernetes.io/config.source": "api"}

// states are what a source can say of the pod that is asked about. In the table
// below each source is in each of its states together with all the others.
var states = map[string][]string{
	SourceKubelet:     {"alive", "absent", "failed", "empty", "partly", "unsynced"},
	SourceRunningPods: {"alive", "absent"},
	SourceCRI:         {"alive", "absent", "failed", "empty", "partly", "foreign"},
	SourceAPI:         {"alive", "absent", "failed", "empty", "partly"},
	SourceFile:        {"none", "alive", "absent", "young"},
	SourceStatic:      {"absent", "lost", "failed"},
	SourceCgroup:      {"alive", "absent", "failed", "missing"},
	SourceProcess:     {"alive", "absent", "failed"},
}

// answers are made once, for all combinations.
var answers = map[string]answer{}

func answerIn(state string) answer {
	a, ok := answers[state]
	if !ok {
		a = makeAnswer(state)
		answers[state] = a
	}
	return a
}

func makeAnswer(state string) answer {
	common := podOf(object(other, "other", fromAPI))
	pod, hashed := podOf(object(dashed, "asked", fromAPI)), podOf(object(static, "static", fromAPI))
	switch state {
	case "alive":
		return answer{pods: []Pod{common, pod, hashed}}
	case "absent":
		return answer{pods: []Pod{common}}
	case "partly": // a page of a list, and an error
		return answer{pods: []Pod{pod, hashed}, err: errors.New("its answer breaks off")}
	case "unsynced":
		return answer{pods: []Pod{podOf(object("fedcba9876543210fedcba9876543210", "etcd", map[string]string{"kubernetes.io/config.source": "file"})), {UID: other, Object: &v1.Pod{}}}}
	case "foreign":
		return answer{pods: []Pod{{UID: "00000000-0000-4000-8000-000000000000"}}}
	case "failed":
		return answer{err: errors.New("connection refused")}
	case "missing":
		return answer{err: api.Errorf(api.ErrNotFound, "there is none")}
	case "lost":
		return answer{pods: []Pod{{Name: "etcd-node", Namespace: "kube-system", State: "/etc/kubernetes/manifests/etcd.yaml"}}}
	}
	return answer{} // empty
}

// TestEveryCombination holds the verdict against the rule of product.md, written
// down a second time, for every state of every source with every other.
func TestEveryCombination(t *testing.T) {
	order := []string{SourceFile, SourceKubelet, SourceRunningPods, SourceCRI, SourceAPI, SourceStatic, SourceCgroup, SourceProcess}
	now := time.Now()
	n, orphans := 0, 0
	var each func(at map[string]string)
	each = func(at map[string]string) {
		if len(at) < len(order) {
			source := order[len(at)]
			for _, state := range states[source] {
				at[source] = state
				each(at)
			}
			delete(at, source)
			return
		}
		for _, word := range []bool{false, true} {
			if word && !slices.Contains(slices.Collect(maps.Values(at)), "empty") {
				continue // it changes nothing
			}
			s := combine(order, at, now, word)
			for _, uid := range []string{dashed, static} {
				n++
				got, evidence := s.Verdict(uid, now.Add(-time.Hour))
				if at[SourceFile] == "young" {
					got, evidence = s.Verdict(uid, now.Add(time.Hour))
				}
				if want := wanted(at, uid, word); got != want {
					t.Fatalf("%v of %s, --assert-no-pods %v: %s, want %s: %v", at, uid, word, got, want, evidence)
				}
				if lives, _ := s.Lives(uid); lives && got != api.VerdictLive {
					t.Fatalf("%v: it lives and is %s", at, got)
				}
				if got == api.VerdictOrphan {
					orphans++
				}
			}
		}
	}
	each(map[string]string{})
	t.Logf("%d combinations, %d of them prove the pod gone", n, orphans)
}

func combine(order []string, at map[string]string, now time.Time, word bool) *Sets {
	s := &Sets{node: "node", written: now}
	for _, source := range order {
		if at[source] == "none" {
			continue
		}
		r := Report{Source: source, VetoOnly: slices.Contains([]string{SourceStatic, SourceCgroup, SourceProcess}, source)}
		a := answerIn(at[source])
		if r.VetoOnly && at[source] == "absent" {
			a.pods = nil
		}
		s.take(&r, a, word)
		s.reports = append(s.reports, r)
	}
	s.index()
	return s
}

// wanted is the rule.
func wanted(at map[string]string, uid string, word bool) api.Verdict {
	for source, state := range at {
		if state == "alive" || state == "partly" || source == SourceStatic && state == "lost" && uid == static {
			return api.VerdictLive
		}
	}
	for _, source := range []string{SourceStatic, SourceCgroup, SourceProcess} {
		if at[source] == "failed" {
			return api.VerdictUnknown
		}
	}
	switch at[SourceFile] {
	case "young":
		return api.VerdictUnknown
	case "absent":
		return api.VerdictOrphan
	}
	said := func(source string) bool { return at[source] == "absent" || word && at[source] == "empty" }
	able := []bool{said(SourceKubelet) || at[SourceKubelet] == "unsynced" && said(SourceAPI), said(SourceCRI), said(SourceAPI)}
	count := 0
	for _, yes := range able {
		if yes {
			count++
		}
	}
	// A runtime with pods that nobody else has heard of is not this node's; beside one
	// that names none by the operator's word it has nobody to disagree with.
	if at[SourceCRI] == "foreign" && count == 1 {
		for _, source := range []string{SourceKubelet, SourceAPI} {
			if word && at[source] == "empty" {
				return api.VerdictOrphan
			}
		}
	}
	if count >= 2 {
		return api.VerdictOrphan
	}
	return api.VerdictUnknown
}

func TestPodIsFoundByAlias(t *testing.T) {
	s := &Sets{reports: []Report{
		{Source: SourceCRI, Answered: true, Pods: []Pod{{UID: static, Name: "etcd-node", Namespace: "kube-system", State: "READY"}}},
		{Source: SourceAPI, Answered: true, Pods: []Pod{podOf(object(dashed, "etcd-node", map[string]string{"kubernetes.io/config.mirror": static}))}},
		{Source: SourceStatic, Answered: true, VetoOnly: true, Pods: []Pod{{Name: "etcd-node", Namespace: "kube-system"}}},
	}}
	s.index()
	for _, uid := range []string{static, dashed} {
		p, ok := s.Pod(uid)
		if !ok || p.Name != "etcd-node" || p.Object == nil {
			t.Errorf("Pod(%s) = %+v, %v: want the one with an object", uid, p, ok)
		}
	}
	if _, ok := s.Pod(other); ok {
		t.Error("a pod that nobody names has a name")
	}
	if v, e := s.Verdict("fedcba9876543210fedcba9876543210", time.Now()); v != api.VerdictOrphan {
		t.Errorf("the manifest's pod is known, and another hash is %s: %v", v, e)
	}
}

func TestProofSaysHowToGetIt(t *testing.T) {
	s := &Sets{node: "node1", reports: []Report{{Source: SourceCRI, Answered: true, Pods: []Pod{{UID: other}}}, {Source: SourceAPI, Reason: "x509: certificate signed by unknown authority"}}}
	s.index()
	err := s.Proof()
	doc := api.NewErrorDoc(err)
	if !errors.Is(err, api.ErrRefused) || doc.Code != api.ExitRefused {
		t.Fatalf("%v is not a refusal", err)
	}
	for _, want := range []string{"cri: answered, 1 pod", "api: x509: certificate signed by unknown authority"} {
		if !slices.Contains(doc.Details, want) {
			t.Errorf("%q is not in %q", want, doc.Details)
		}
	}
	if want := "kubectl get pods -A --field-selector spec.nodeName=node1 -o json > pods.json"; !strings.Contains(doc.Next, want) {
		t.Error(doc.Next)
	}
}
