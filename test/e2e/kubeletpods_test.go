package e2e

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// podList writes the pods that a kubelet names, each "uid name phase".
func (n *node) podList(pods ...string) string {
	n.t.Helper()
	text := "apiVersion: v1\nkind: PodList\nmetadata: {}\nitems:\n"
	for _, pod := range pods {
		f := strings.Fields(pod)
		text += fmt.Sprintf("- apiVersion: v1\n  kind: Pod\n  metadata: {uid: %s, name: %s, namespace: shop, annotations: {kubernetes.io/config.source: api}}\n"+
			"  spec: {containers: [{name: c}]}\n  status: {phase: %s}\n", f[0], f[1], f[2])
	}
	return n.file("pods.yaml", text)
}

// answering starts a kubelet whose list of pods can be had.
func (n *node) answering(s kubeletSpec, pods ...string) *runningKubelet {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(n.t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(n.t, l.Close())
	config := n.file("kubelet.yaml", fmt.Sprintf("kind: KubeletConfiguration\nreadOnlyPort: %d\n", port))
	s.args = []string{"--root-dir=" + n.root, "--config", config}
	s.env = append(s.env, "FAKELET_PODS="+n.podList(pods...))
	return n.kubelet(s)
}

// A volume is taken from a pod that lives only at the operator's word: in a kubelet's
// own namespace, and where it is that of all.
func TestKubeletLivePod(t *testing.T) {
	for name, under := range map[string][]string{"namespace of its own": own, "same namespace": nil} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			must(t, os.Mkdir(n.dir+"/data", 0o755))
			file := n.pv("pv", n.dir+"/data")
			k := n.answering(kubeletSpec{under: under}, podA+" web Running")
			n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA)
			says := []string{"pod " + podA + " (shop/web) lives", "kubelet says it lives: shop/web, Running", "kubectl delete pod -n shop web"}
			for _, more := range [][]string{nil, {"--dry-run"}, {"--root-dir", n.root}} {
				place := "" // a root that is given belongs to the next command too
				if len(more) == 2 {
					place = " --root-dir=" + n.root
				}
				for _, words := range []string{"unpublish pv --pod-uid " + podA, "teardown pv --pod-uid " + podA, "unmount-device pv", "detach pv"} {
					verb, rest, _ := strings.Cut(words, " ")
					next := fmt.Sprintf("kvol %s%s %s --allow-active-pod", verb, place, rest)
					n.mustPlain(4, append(says, next), append(strings.Fields(words), more...)...)
				}
				n.mustPlain(4, append(says, "the same command with --allow-active-pod"), append([]string{"detach", "-f", file}, more...)...)
			}
			if k.sees(n.root) != 1 {
				t.Fatal("the volume is not there any more")
			}
			// The pod still uses it: the risk is no leave to detach what is busy.
			n.mustPlain(9, []string{podA}, "detach", "pv", "--allow-active-pod")
			n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA, "--allow-active-pod")
			if k.sees(n.root) != 0 {
				t.Error("the volume is still there")
			}
			// Done is done: nothing is taken from anybody.
			n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA)
			n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA)
			n.risk("--allow-active-pod")
			// No proof of life is no obstacle.
			n.podList(podB + " db Running")
			n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA)
		})
	}
}

// risk wants one operation of the history to have been at a risk, and no other.
func (n *node) risk(flag string) {
	n.t.Helper()
	o := n.mustPlain(0, nil, "history", "-o", "json", "--limit", "0")
	found := 0
	for _, op := range decode[api.List[api.Operation]](n.t, o.stdout).Items {
		if strings.Join(op.Risks, " ") == flag && op.Outcome == string(api.OutcomeDone) {
			found++
		}
	}
	if found != 1 {
		n.t.Errorf("%d operations were done at the risk %s:\n%s", found, flag, o.stdout)
	}
}

// A kubelet that is there and does not answer proves nothing; a list that the operator
// has does, from where he has it.
func TestKubeletSilent(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	docs, hide := n.hidden("docs")
	n.kubelet(kubeletSpec{under: own, setup: hide})
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA)
	n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA)
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA)
	must(t, os.Rename(n.podList(podA+" web Running"), docs+"/list.yaml"))
	down := []string{"unpublish", "pv", "--pod-uid", podA}
	n.check(n.plain(docs, "", append(down, "--pods-from", "file:list.yaml")...), 4, "file says it lives")
	n.check(n.plain(docs, "", append(down, "--pods-from", "file:"+docs+"/list.yaml")...), 4, "file says it lives")
	n.mustPlain(0, nil, down...)
}

// A kubelet takes apart what is published for a pod that it does not know.
func TestKubeletUnmanagedPod(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	k := n.answering(kubeletSpec{under: own}, podB+" db Running")
	says := []string{fmt.Sprintf("the kubelet of this node (pid %d) answers and does not know pod %s", k.pid, podA), "--allow-unmanaged-pod"}
	n.unchanged(func() {
		n.mustPlain(4, says, "publish", "-f", file, "--pod-uid", podA)
		n.mustPlain(4, says, "publish", "-f", file, "--pod-uid", podA, "--dry-run")
		n.mustPlain(4, says, "setup", "-f", file, "--pod-uid", podA)
	})
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podB)
	n.mustPlain(0, nil, "setup", "-f", file, "--pod-uid", podA, "--allow-unmanaged-pod")
	n.risk("--allow-unmanaged-pod")
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA) // it is there
	n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA)
	// Who names nobody has not heard from its API server yet.
	n.podList()
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA)
}

// A pod that lives and claims the volume is about to have it, also where nothing of it
// is in the pod's directory yet.
func TestLiveClaim(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	phase := "Pending"
	answers := map[string]func() string{
		"/api/v1/pods": func() string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[{"metadata":{"uid":%q,"name":"web","namespace":"shop"},`+
				`"spec":{"nodeName":"node1","containers":[{"name":"c"}],"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]},"status":{"phase":%q}}]}`, podA, phase)
		},
		"/api/v1/nodes/node1": func() string { return `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node1"},"status":{}}` },
		"/api/v1/namespaces/shop/persistentvolumeclaims/c": func() string {
			return `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c","namespace":"shop"},"spec":{"volumeName":"pv"},"status":{"phase":"Bound"}}`
		},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := answers[r.URL.Path]; answer != nil {
			_, _ = w.Write([]byte(answer()))
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config := n.file("kubeconfig", fmt.Sprintf(`{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: t}}],
clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]}`, server.URL, base64.StdEncoding.EncodeToString(ca)))
	detach := []string{"detach", "-f", file, "--kubeconfig", config, "--node-name", "node1"}
	n.wants(4, []string{"pod " + podA + " (shop/web) lives", "api says it lives: shop/web, Pending", "--allow-active-pod"}, detach...)
	n.must(0, append(detach, "--allow-active-pod")...)
	phase = "Succeeded"
	n.must(0, detach...)
}
