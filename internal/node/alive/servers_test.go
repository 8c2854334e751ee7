package alive

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/testutil"
)

// scratch is a node without anything: no runtime, kubelet or configuration. /etc and
// /run are empty, in this test's own mount namespace.
type scratch struct {
	t    *testing.T
	root string
	h    *host.Host
	ca   *authority
}

func newScratch(t *testing.T) *scratch {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	testutil.Tmpfs(t, "/etc")
	testutil.Tmpfs(t, "/run")
	s := &scratch{t: t, root: dir + "/kubelet", ca: newAuthority(t)}
	s.mkdir(s.root + "/pods")
	s.mkdir(s.root + "/plugins")
	h, err := host.New(host.Options{RootDir: s.root, StateDir: dir + "/state", RunDir: dir + "/run", SysRoot: s.mkdir(dir + "/sys"), NodeName: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	s.h = h
	return s
}

func (s *scratch) mkdir(dir string) string {
	s.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

func (s *scratch) write(path, text string) string {
	s.t.Helper()
	s.mkdir(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// look asks with a context that leaves each source 30 s, far more than any needs.
func (s *scratch) look(o Options) *Sets {
	s.t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 100*time.Second)
	defer cancel()
	sets, err := Look(ctx, s.h, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return sets
}

func (s *scratch) report(o Options, source string) Report {
	s.t.Helper()
	return reportOf(s.t, s.look(o), source)
}

func reportOf(t *testing.T, s *Sets, source string) Report {
	t.Helper()
	for _, r := range s.Reports() {
		if r.Source == source {
			return r
		}
	}
	t.Fatalf("no report of %s in %+v", source, s.Reports())
	return Report{}
}

// authority signs certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
	n    int64
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t}
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.pem, a.key = a.sign(a.cert)
	return a
}

// issue gives a certificate and its key, in PEM.
func (a *authority) issue(name string) (cert, key string) {
	cert, private := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func (a *authority) sign(c *x509.Certificate) (string, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(a.n), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), signer)
	if err == nil && c == a.cert {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key
}

// serve starts an HTTPS server that asks for client certificates of the authority
// and takes connections without, as the kubelet and the API server do. It gives its
// address and its certificate.
func (a *authority) serve(handler http.HandlerFunc) (addr, cert string) {
	a.t.Helper()
	cert, key := a.issue("node1")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s.Listener.Addr().String(), cert
}

// user is who a request comes from, "" for nobody.
func user(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return "token " + token
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName
}

// only lets one user in.
func only(name string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch user(r) {
		case name:
			next(w, r)
		case "":
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{Message: "Forbidden (user=" + user(r) + ", verb=get, resource=nodes, subresource=proxy)"})
		}
	}
}

// podList answers with pods, as a PodList of the API.
func podList(pods ...*v1.Pod) http.HandlerFunc {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return answerJSON(list)
}

func answerJSON(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
}

func answerText(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// hang answers when whoever asked has gone.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// liars are servers that do not answer what was asked, by the words that are said of
// them.
var liars = map[string]http.HandlerFunc{
	"500 Internal Server Error": answerText(500, "etcdserver: leader changed"),
	"503 Service Unavailable":   answerText(503, `{"kind":"Status","message":"apiserver not ready"}`),
	"302 Found": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
	},
	"not the JSON that it should be: invalid character '<'":  answerText(200, "<html>captive portal</html>"),
	"not the JSON that it should be: unexpected end":         answerText(200, `{"kind":"PodList","items":[{"metadata":{"uid":"`+other+`"}}`),
	"not the JSON that it should be: json: cannot unmarshal": answerText(200, `{"kind":"PodList","items":"none"}`),
	`it answers with "Status"`:                               answerText(200, `{"kind":"Status","items":[]}`),
	`it answers with ""`:                                     answerText(200, `{}`),
	"a pod without a uid":                                    answerText(200, `{"kind":"PodList","items":[{"metadata":{"name":"x"}}]}`),
	"it names no pod, which is no answer":                    answerText(200, `{"kind":"PodList","items":null}`),
	"its answer breaks off": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"kind":"PodList"`)
	},
	"its answer is longer than": func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	},
}

// runtime is a container runtime.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
	fail       func(context.Context) error // instead of an answer
}

func (r *runtime) ListPodSandbox(ctx context.Context, _ *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if r.fail != nil {
		return nil, r.fail(ctx)
	}
	return &cri.ListPodSandboxResponse{Items: r.sandboxes}, nil
}

func (r *runtime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: r.containers}, nil
}

func podLabels(uid, name string) map[string]string {
	return map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default"}
}

func sandboxOf(uid, name string, state cri.PodSandboxState) *cri.PodSandbox {
	return &cri.PodSandbox{Id: fmt.Sprintf("%064x", name), State: state, Labels: podLabels(uid, name),
		Metadata: &cri.PodSandboxMetadata{Uid: uid, Name: name, Namespace: "default"}}
}

// listen serves the runtime on a socket.
func (s *scratch) listen(path string, r *runtime) string {
	s.t.Helper()
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, r)
	s.mkdir(filepath.Dir(path))
	l, err := net.Listen("unix", path)
	if err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	s.t.Cleanup(server.Stop)
	return path
}

func errRuntime(context.Context) error {
	return status.Error(codes.Internal, "metadata store is broken")
}

func noRuntime(context.Context) error { return status.Error(codes.Unimplemented, "unknown service") }

func hangRuntime(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// kubeconfigOf is one with certificates in it, as kubeadm writes it.
func (a *authority) kubeconfigOf(server, userName string) string {
	cert, key := a.issue(userName)
	b64 := func(s string) string { b, _ := json.Marshal([]byte(s)); return string(b) }
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts: [{name: elsewhere, context: {cluster: none, user: none}}, {name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}]
`, server, b64(a.pem), b64(cert), b64(key))
}
