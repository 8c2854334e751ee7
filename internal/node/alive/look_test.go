package alive

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kvol/kvol/internal/api"
)

// TestEveryCombinationOfServers asks real servers: each of kubelet, runtime and API
// server names the pod, does not, fails, names nobody, hangs and lies, with each of
// the others in each of these states. The ones that hang are what it takes time for,
// so the combinations are asked beside one another.
func TestEveryCombinationOfServers(t *testing.T) {
	s := newScratch(t)
	s.keyPair(kubeletClientCert, kubeletClientKey, "kubelet-client")
	common, pod := object(other, "other", fromAPI), object(dashed, "asked", fromAPI)
	handlers := map[string]http.HandlerFunc{
		"alive": podList(common, pod), "absent": podList(common), "failed": answerText(500, "no"), "empty": podList(),
		"slow": hang, "lying": liars["its answer breaks off"],
	}
	runtimes := map[string]*runtime{
		"alive":  {sandboxes: []*cri.PodSandbox{sandboxOf(other, "other", 0), sandboxOf(dashed, "asked", cri.PodSandboxState_SANDBOX_NOTREADY)}},
		"absent": {sandboxes: []*cri.PodSandbox{sandboxOf(other, "other", 0)}},
		"failed": {fail: errRuntime}, "empty": {}, "slow": {fail: hangRuntime}, "lying": {fail: noRuntime},
	}
	var states []string
	for state := range handlers {
		states = append(states, state)
	}
	slices.Sort(states)
	kubelets, configs, sockets := map[string]string{}, map[string]string{}, map[string]string{}
	for _, state := range states {
		kubelets[state], _ = s.ca.serve(only("kubelet-client", kubeletServer(handlers[state], handlers[state])))
		addr, _ := s.ca.serve(only("system:node:node1", handlers[state]))
		configs[state] = s.write("/etc/"+state+".conf", s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
		sockets[state] = s.listen("/run/"+state+".sock", runtimes[state])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	turn := make(chan struct{}, 24)
	n := 0
	for _, k := range states {
		for _, c := range states {
			for _, a := range states {
				n++
				turn <- struct{}{}
				wait.Go(func() {
					defer func() { <-turn }()
					h := *s.h
					h.RuntimeEndpoint, h.Kubeconfig = sockets[c], configs[a]
					sets, err := Look(ctx, &h, Options{KubeletEndpoint: kubelets[k], KubeletReadOnlyEndpoint: "127.0.0.1:1", Timeout: 2 * time.Second})
					if err != nil {
						t.Error(err)
						return
					}
					v, evidence := sets.Verdict(dashed, time.Now())
					if want := wantedOf(k, c, a); v != want {
						t.Errorf("kubelet %s, cri %s, api %s: %s, want %s: %v", k, c, a, v, want, evidence)
					}
				})
			}
		}
	}
	wait.Wait()
	t.Logf("%d combinations of real servers", n)
}

func wantedOf(states ...string) api.Verdict {
	absent := 0
	for _, state := range states {
		switch state {
		case "alive":
			return api.VerdictLive
		case "absent":
			absent++
		}
	}
	if absent >= 2 {
		return api.VerdictOrphan
	}
	return api.VerdictUnknown
}

// TestWhatEachSourceMisses is table 9.5 of the layout, a row each: what is on the
// node, what the sources say of it, and that the pod is not taken for gone.
func TestWhatEachSourceMisses(t *testing.T) {
	const self, hashed = dashed, static
	fromFile := map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hashed}
	pod, daemon := object(self, "web", fromAPI), object(other, "daemon", fromAPI)
	etcd := object(hashed, "etcd-node1", fromFile)
	mirror := object("5a5a5a5a-0000-4000-8000-000000000000", "etcd-node1", map[string]string{"kubernetes.io/config.mirror": hashed, "kubernetes.io/config.hash": hashed})
	sandboxes := func(pods ...*v1.Pod) (out []*cri.PodSandbox) {
		for _, p := range pods {
			out = append(out, sandboxOf(string(p.UID), p.Name, 0))
		}
		return out
	}
	none := []*v1.Pod(nil)
	for name, c := range map[string]struct {
		kubelet, running, cri, api []*v1.Pod // nil: it does not answer
		manifest                   bool
		uid                        string
		want                       api.Verdict
	}{
		"no sandbox yet":                        {[]*v1.Pod{pod, daemon}, []*v1.Pod{daemon}, []*v1.Pod{daemon}, []*v1.Pod{pod, daemon}, false, self, api.VerdictLive},
		"no sandbox yet, kubelet stopped":       {none, none, []*v1.Pod{daemon}, []*v1.Pod{pod, daemon}, false, self, api.VerdictLive},
		"force-deleted, running":                {[]*v1.Pod{daemon}, []*v1.Pod{daemon}, []*v1.Pod{pod, daemon}, []*v1.Pod{daemon}, false, self, api.VerdictLive},
		"force-deleted, running, no runtime":    {[]*v1.Pod{daemon}, []*v1.Pod{pod, daemon}, none, []*v1.Pod{daemon}, false, self, api.VerdictLive},
		"finished, sandbox collected":           {[]*v1.Pod{pod, daemon}, []*v1.Pod{daemon}, []*v1.Pod{daemon}, []*v1.Pod{pod, daemon}, false, self, api.VerdictLive},
		"kubelet restarted, not synced":         {[]*v1.Pod{etcd}, []*v1.Pod{etcd, daemon}, []*v1.Pod{etcd, daemon}, none, false, self, api.VerdictUnknown},
		"kubelet restarted, API server answers": {[]*v1.Pod{etcd}, []*v1.Pod{etcd, daemon}, []*v1.Pod{etcd, daemon}, []*v1.Pod{pod, daemon}, false, self, api.VerdictLive},
		"kubelet stopped":                       {none, none, []*v1.Pod{pod, daemon}, []*v1.Pod{pod, daemon}, false, self, api.VerdictLive},
		"kubelet stopped, API server away":      {none, none, []*v1.Pod{daemon}, none, false, self, api.VerdictUnknown},
		"runtime stopped":                       {[]*v1.Pod{pod, daemon}, none, none, []*v1.Pod{pod, daemon}, false, self, api.VerdictLive},
		"runtime stopped, API server away":      {[]*v1.Pod{daemon}, none, none, none, false, self, api.VerdictUnknown},
		"static pod":                            {[]*v1.Pod{etcd, daemon}, none, []*v1.Pod{etcd, daemon}, []*v1.Pod{daemon}, true, hashed, api.VerdictLive},
		"static pod by its mirror":              {none, none, []*v1.Pod{daemon}, []*v1.Pod{mirror, daemon}, true, hashed, api.VerdictLive},
		"static pod that nobody names":          {none, none, []*v1.Pod{daemon}, []*v1.Pod{daemon}, true, hashed, api.VerdictLive},
		"static pod whose manifest is gone":     {none, none, []*v1.Pod{daemon}, []*v1.Pod{daemon}, false, hashed, api.VerdictOrphan},
		"static pod after an upgrade":           {[]*v1.Pod{etcd, daemon}, none, []*v1.Pod{etcd, daemon}, none, true, "fedcba9876543210fedcba9876543210", api.VerdictOrphan},
		"moved to another node":                 {[]*v1.Pod{daemon}, []*v1.Pod{daemon}, []*v1.Pod{daemon}, []*v1.Pod{daemon}, false, self, api.VerdictOrphan},
		"wrong socket":                          {none, none, []*v1.Pod{}, []*v1.Pod{daemon}, false, self, api.VerdictUnknown},
		"socket of another cluster":             {none, none, []*v1.Pod{object("11111111-1111-4111-8111-111111111111", "x", nil)}, []*v1.Pod{daemon}, false, self, api.VerdictUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			s.keyPair(kubeletClientCert, kubeletClientKey, "kubelet-client")
			list := func(pods []*v1.Pod) http.HandlerFunc {
				if pods == nil {
					return answerText(503, "not now")
				}
				return podList(pods...)
			}
			o := Options{KubeletReadOnlyEndpoint: "127.0.0.1:1"}
			o.KubeletEndpoint, _ = s.ca.serve(only("kubelet-client", kubeletServer(list(c.kubelet), list(c.running))))
			addr, _ := s.ca.serve(list(c.api))
			s.write(kubeletConf, s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
			if c.cri != nil {
				s.listen("/run/crio/crio.sock", &runtime{sandboxes: sandboxes(c.cri...)})
			}
			if c.manifest {
				s.write("/etc/kubernetes/manifests/etcd.yaml", "metadata: {name: etcd, namespace: default}")
			}
			sets := s.look(o)
			v, evidence := sets.Verdict(c.uid, time.Now())
			if v != c.want {
				t.Errorf("%s, want %s: %v; %v", v, c.want, evidence, sets.Proof())
			}
			var who []string
			for _, e := range evidence {
				who = append(who, e.Source)
			}
			if got := strings.Join(who, " "); got != "kubelet runningpods cri api static cgroup process" {
				t.Errorf("evidence of %s", got)
			}
		})
	}
}
