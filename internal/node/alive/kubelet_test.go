package alive

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// kubeletServer answers both paths of the kubelet.
func kubeletServer(pods, running http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pods":
			pods(w, r)
		case "/runningpods/":
			running(w, r)
		default:
			http.NotFound(w, r)
		}
	}
}

func (s *scratch) keyPair(cert, key, name string) {
	c, k := s.ca.issue(name)
	if cert == key {
		c += k
	}
	s.write(key, k)
	s.write(cert, c)
}

const (
	kubeletClientCert = "/etc/kubernetes/pki/apiserver-kubelet-client.crt"
	kubeletClientKey  = "/etc/kubernetes/pki/apiserver-kubelet-client.key"
)

func TestKubeletPods(t *testing.T) {
	s := newScratch(t)
	s.keyPair(kubeletClientCert, kubeletClientKey, "kube-apiserver-kubelet-client")
	pod := object(dashed, "web", fromAPI)
	static := object(static, "etcd-node1", map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": static})
	addr, cert := s.ca.serve(only("kube-apiserver-kubelet-client", kubeletServer(podList(pod, static), podList(object(other, "forced", nil)))))
	s.write(s.root+"/pki/kubelet.crt", cert)
	sets := s.look(Options{From: []string{"kubelet"}, KubeletEndpoint: addr})
	r := reportOf(t, sets, SourceKubelet)
	if !r.Answered || len(r.Pods) != 2 || r.Pods[0].Object == nil || len(r.Pods[1].Aliases) != 0 || r.Reason != "as "+kubeletClientCert {
		t.Errorf("%+v", r)
	}
	if r := reportOf(t, sets, SourceRunningPods); !r.Answered || r.Pods[0].UID != other {
		t.Errorf("%+v", r)
	}
	if lives, e := sets.Lives(other); !lives {
		t.Errorf("a pod that runs and was deleted with force does not live: %v", e)
	}
	if r := reportOf(t, sets, SourceCRI); r.Answered || r.Reason != "not asked (--pods-from)" {
		t.Errorf("%+v", r)
	}
}

// TestKubeletCredentials: each of what a node can have to show gets in where the
// kubelet knows it, and where it does not the report says so.
func TestKubeletCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		user string
		give func(s *scratch)
	}{
		"apiserver's": {"kube-apiserver-kubelet-client", func(s *scratch) { s.keyPair(kubeletClientCert, kubeletClientKey, "kube-apiserver-kubelet-client") }},
		"admin's": {"kubernetes-admin", func(s *scratch) {
			s.write("/etc/kubernetes/admin.conf", s.ca.kubeconfigOf("https://x", "kubernetes-admin"))
		}},
		"super-admin's": {"super", func(s *scratch) { s.write("/etc/kubernetes/super-admin.conf", s.ca.kubeconfigOf("https://x", "super")) }},
		"--kubeconfig": {"token t0k3n", func(s *scratch) {
			s.h.Kubeconfig = s.write("/etc/mine", `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "https://x"}}], users: [{name: a, user: {token: t0k3n}}]}`)
		}},
		"node's": {"system:node:node1", func(s *scratch) {
			s.keyPair(s.root+"/pki/kubelet-client-current.pem", s.root+"/pki/kubelet-client-current.pem", "system:node:node1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			c.give(s)
			addr, cert := s.ca.serve(only(c.user, podList(object(dashed, "web", fromAPI))))
			s.write(s.root+"/pki/kubelet-server-current.pem", cert)
			o := Options{From: []string{"kubelet"}, KubeletEndpoint: addr}
			if r := s.report(o, SourceKubelet); !r.Answered || len(r.Pods) != 1 {
				t.Errorf("as %s: %+v", c.user, r)
			}
			addr, cert = s.ca.serve(only("somebody else", podList(object(dashed, "web", fromAPI))))
			s.write(s.root+"/pki/kubelet-server-current.pem", cert)
			o.KubeletEndpoint = addr
			r := s.report(o, SourceKubelet)
			if r.Answered || !strings.Contains(r.Reason, "it lets none of 2 credentials in") || !strings.Contains(r.Reason, "it answers 403 Forbidden: Forbidden (user="+c.user) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestKubeletIsTheKubelet: whoever listens in its place is not believed where its
// certificate is on disk, and never gets a token to see.
func TestKubeletIsTheKubelet(t *testing.T) {
	s := newScratch(t)
	var shown atomic.Bool
	addr, cert := s.ca.serve(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(shown.Load() || user(r) != "")
		if strings.HasPrefix(user(r), "token") {
			podList(object(dashed, "web", fromAPI))(w, r)
			return
		}
		http.Error(w, "no", http.StatusUnauthorized)
	})
	s.h.Kubeconfig = s.write("/etc/mine", `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: "https://x"}}], users: [{name: a, user: {token: t0k3n}}]}`)
	o := Options{From: []string{"kubelet"}, KubeletEndpoint: addr}
	if r := s.report(o, SourceKubelet); r.Answered || !strings.Contains(r.Reason, "1 tokens were not shown") {
		t.Errorf("%+v", r)
	}
	if shown.Load() {
		t.Error("a server that may be anybody has seen the token")
	}
	another, _ := s.ca.issue("node1")
	s.write(s.root+"/pki/kubelet.crt", another)
	if r := s.report(o, SourceKubelet); r.Answered || !strings.Contains(r.Reason, "its certificate is none of the kubelet's") {
		t.Errorf("%+v", r)
	}
	s.write(s.root+"/pki/kubelet.crt", cert)
	if r := s.report(o, SourceKubelet); !r.Answered {
		t.Errorf("%+v", r)
	}
}

func TestKubeletReadOnlyPort(t *testing.T) {
	s := newScratch(t)
	plain := httptest.NewServer(kubeletServer(podList(object(dashed, "web", fromAPI)), http.NotFound))
	t.Cleanup(plain.Close)
	addr, _ := s.ca.serve(answerText(401, "Unauthorized"))
	readOnly := strings.TrimPrefix(plain.URL, "http://")
	o := Options{From: []string{"kubelet"}, KubeletEndpoint: addr, KubeletReadOnlyEndpoint: readOnly}
	if r := s.report(o, SourceKubelet); !r.Answered || r.Reason != "by the read-only port" {
		t.Errorf("%+v", r)
	}
	_, port, _ := strings.Cut(readOnly, ":")
	o.KubeletReadOnlyEndpoint = ""
	s.write(s.root+"/config.yaml", "kind: KubeletConfiguration\nreadOnlyPort: "+port+"\n")
	if r := s.report(o, SourceKubelet); !r.Answered {
		t.Errorf("the port of the kubelet's configuration: %+v", r)
	}
	s.write(s.root+"/config.yaml", "kind: KubeletConfiguration\n")
	if r := s.report(o, SourceKubelet); r.Answered || strings.Contains(r.Reason, "10255") {
		t.Errorf("a port that the kubelet does not serve: %+v", r)
	}
}

func TestKubeletLies(t *testing.T) {
	s := newScratch(t)
	for words, lie := range liars {
		addr, _ := s.ca.serve(lie)
		r := s.report(Options{From: []string{"kubelet"}, KubeletEndpoint: addr, KubeletReadOnlyEndpoint: "127.0.0.1:1"}, SourceKubelet)
		if r.Answered || !strings.Contains(r.Reason, words) {
			t.Errorf("%s: %+v", words, r)
		}
	}
	plain := httptest.NewServer(podList(object(dashed, "web", fromAPI)))
	t.Cleanup(plain.Close)
	r := s.report(Options{From: []string{"kubelet"}, KubeletEndpoint: strings.TrimPrefix(plain.URL, "http://"), KubeletReadOnlyEndpoint: "127.0.0.1:1"}, SourceKubelet)
	if r.Answered || !strings.Contains(r.Reason, "HTTP response to HTTPS client") {
		t.Errorf("a server without TLS: %+v", r)
	}
	r = s.report(Options{From: []string{"kubelet"}, KubeletEndpoint: "127.0.0.1:1", KubeletReadOnlyEndpoint: "127.0.0.1:1"}, SourceKubelet)
	if r.Answered || !strings.Contains(r.Reason, "connection refused") {
		t.Errorf("nobody: %+v", r)
	}
}
