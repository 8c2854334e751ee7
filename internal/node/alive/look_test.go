package alive

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
)

// TestEveryCombinationOfServers asks real servers: each of kubelet, runtime and API
// server names the pod, does not, fails, names nobody and hangs, with each of the
// others in each of these states. It takes time for those that hang, so they are
// asked beside one another.
func TestEveryCombinationOfServers(t *testing.T) {
	f := newFarm(t)
	var wait sync.WaitGroup
	turn := make(chan struct{}, 32)
	n := 0
	for _, k := range f.states {
		for _, c := range f.states {
			for _, a := range f.states {
				n++
				turn <- struct{}{}
				wait.Go(func() {
					defer func() { <-turn }()
					sets := f.look(k, c, a)
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

// farm is a server of each source in each state.
type farm struct {
	*scratch
	states                     []string
	kubelets, sockets, configs map[string]string
}

func newFarm(t *testing.T) *farm {
	s := newScratch(t)
	// Without the processes of this machine, which others look at.
	proc := s.mkdir(s.root + "/proc")
	if err := os.Symlink("/proc/self", proc+"/self"); err != nil {
		t.Fatal(err)
	}
	s.h.ProcRoot, s.h.Devices = proc, devices.New(s.h.SysRoot, "/dev", proc, s.h.Helper)
	s.keyPair(kubeletClientCert, kubeletClientKey, "kubelet-client")
	common, pod := object(other, "other", fromAPI), object(dashed, "asked", fromAPI)
	handlers := map[string]http.HandlerFunc{
		"alive": podList(common, pod), "absent": podList(common), "failed": answerText(500, "no"), "empty": podList(),
		"slow": hang,
	}
	runtimes := map[string]*runtime{
		"alive":  {sandboxes: []*cri.PodSandbox{sandboxOf(other, "other", 0), sandboxOf(dashed, "asked", cri.PodSandboxState_SANDBOX_NOTREADY)}},
		"absent": {sandboxes: []*cri.PodSandbox{sandboxOf(other, "other", 0)}},
		"failed": {fail: errRuntime}, "empty": {}, "slow": {fail: hangRuntime},
	}
	f := &farm{scratch: s, kubelets: map[string]string{}, sockets: map[string]string{}, configs: map[string]string{}}
	for state, handler := range handlers {
		f.states = append(f.states, state)
		f.kubelets[state], _ = s.ca.serve(only("kubelet-client", kubeletServer(handler, handler)))
		addr, _ := s.ca.serve(only("system:node:node1", handler))
		f.configs[state] = s.write("/etc/"+state+".conf", s.ca.kubeconfigOf("https://"+addr, "system:node:node1"))
		f.sockets[state] = s.listen("/run/"+state+".sock", runtimes[state])
	}
	return f
}

// look asks the servers of one combination; again where the machine was so busy that
// one was late that does not hang.
func (f *farm) look(k, c, a string) *Sets {
	hanging := map[string]bool{SourceKubelet: k == "slow", SourceRunningPods: k == "slow", SourceCRI: c == "slow", SourceAPI: a == "slow"}
	h := *f.h
	h.RuntimeEndpoint, h.Kubeconfig = f.sockets[c], f.configs[a]
	o := Options{KubeletEndpoint: f.kubelets[k], KubeletReadOnlyEndpoint: "127.0.0.1:1", Timeout: 30 * time.Second}
	if k == "slow" || c == "slow" || a == "slow" {
		o.Timeout = 1500 * time.Millisecond
	}
	for {
		sets, err := Look(f.t.Context(), &h, o)
		if err != nil {
			f.t.Error(err)
			return &Sets{}
		}
		late := func(r Report) bool {
			return !hanging[r.Source] && (strings.Contains(r.Reason, "no answer within") || strings.Contains(r.Reason, "deadline"))
		}
		if !slices.ContainsFunc(sets.Reports(), late) {
			return sets
		}
		o.Timeout *= 2
	}
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

// Who has failed is not late: its answer was there when another one had been waited for.
func TestFailedIsNotLate(t *testing.T) {
	failed := errors.New("it failed")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select takes either where both are there
		from := make(chan answer, 1)
		from <- answer{err: failed}
		if a := wait(over, from, time.Second); !errors.Is(a.err, failed) {
			t.Fatal(a.err)
		}
		from <- answer{err: context.DeadlineExceeded}
		if a := wait(over, from, time.Second); a.err.Error() != "no answer within 1s" {
			t.Fatal(a.err)
		}
		if a := wait(over, from, time.Second); a.err.Error() != "no answer within 1s" {
			t.Fatal(a.err)
		}
	}
}
