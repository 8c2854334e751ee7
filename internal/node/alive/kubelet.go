package alive

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
)

// kubeletConfig is what is needed of a KubeletConfiguration.
type kubeletConfig struct {
	StaticPodPath            string `json:"staticPodPath"`
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	TLSCertFile              string `json:"tlsCertFile"`
	Port                     int    `json:"port"`
	ReadOnlyPort             int    `json:"readOnlyPort"`

	known bool
}

// findKubelet learns what the kubelet of this root was told: one that runs by its
// arguments and its file, one that does not by the file that kubeadm puts into its
// root directory. Arguments win, as in the kubelet.
func (l *look) findKubelet(ctx context.Context) {
	// Of processes that cannot be looked at nothing is known, as if none ran.
	l.runs, _ = l.host.Kubelet(ctx)
	args := arguments(l.runs.Args)
	ctx, cancel := context.WithTimeout(ctx, l.limit(ctx))
	defer cancel()
	file, err := l.files.Read(ctx, cmp.Or(args["config"], filepath.Join(l.host.Layout.Root, "config.yaml")))
	l.config.known = err == nil && yaml.Unmarshal(file.Data, &l.config) == nil
	for name, to := range map[string]*string{"container-runtime-endpoint": &l.config.ContainerRuntimeEndpoint, "tls-cert-file": &l.config.TLSCertFile} {
		*to = cmp.Or(args[name], *to)
	}
	for name, to := range map[string]*int{"port": &l.config.Port, "read-only-port": &l.config.ReadOnlyPort} {
		if n, err := strconv.Atoi(args[name]); err == nil {
			*to = n
		}
	}
	l.config.StaticPodPath = cmp.Or(l.runs.StaticPodPath, l.config.StaticPodPath, "/etc/kubernetes/manifests")
}

// arguments are flags with their values.
func arguments(words []string) map[string]string {
	out := map[string]string{}
	for i, word := range words {
		name, value, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		if strings.HasPrefix(word, "--") {
			out[name] = value
		}
	}
	return out
}

func (l *look) askKubelet(ctx context.Context) answer {
	// The half of the time is for the port that asks nobody who he is.
	end, _ := ctx.Deadline()
	half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
	defer cancel()
	a := l.kubeletPods(half, "/pods")
	at := l.KubeletReadOnlyEndpoint
	switch {
	case a.err == nil:
		return a
	case at == "" && l.config.known && l.config.ReadOnlyPort == 0:
		// The kubelet does not serve there, so that whoever does is somebody else:
		// every user of the node may take that port.
		return a
	}
	var list v1.PodList
	at = cmp.Or(at, "127.0.0.1:"+strconv.Itoa(cmp.Or(l.config.ReadOnlyPort, 10255)))
	err := get(ctx, client(nil, false), "http://"+at+"/pods", exec.Secret{}, &list)
	if err == nil {
		var pods []Pod
		pods, err = podsOf(&list)
		return answer{pods: pods, err: err, note: "by the read-only port"}
	}
	return answer{err: fmt.Errorf("%w; %w", a.err, err)}
}

// askRunningPods asks for what the kubelet sees in its runtime.
func (l *look) askRunningPods(ctx context.Context) answer { return l.kubeletPods(ctx, "/runningpods/") }

// kubeletPods asks the kubelet with each of what the node has to show, until one is
// let in: on a worker none may be (kubelet-layout.md 9.1).
func (l *look) kubeletPods(ctx context.Context, path string) answer {
	at := cmp.Or(l.KubeletEndpoint, "127.0.0.1:"+strconv.Itoa(cmp.Or(l.config.Port, 10250)))
	server, pinned, err := l.kubeletTLS(ctx, at)
	if err != nil {
		return answer{err: err}
	}
	tried, tokens := 0, 0
	var first error
	for _, who := range l.credentials(ctx) {
		if len(who.token.Reveal()) > 0 && !pinned {
			tokens++
			continue // a token is for the kubelet, not for whoever listens there
		}
		config := server.Clone()
		if who.cert != nil {
			config.Certificates = []tls.Certificate{*who.cert}
		}
		var list v1.PodList
		err := get(ctx, client(config, false), "https://"+at+path, who.token, &list)
		if err == nil {
			pods, err := podsOf(&list)
			return answer{pods: pods, err: err, note: "as " + who.name}
		}
		if !refused(err) {
			return answer{err: err}
		}
		tried++
		if first == nil {
			first = fmt.Errorf("as %s: %w", who.name, err)
		}
	}
	if tokens > 0 {
		return answer{err: fmt.Errorf("it lets none of %d credentials in: %w; %d tokens were not shown, as its certificate is not on disk to tell it by", tried, first, tokens)}
	}
	return answer{err: fmt.Errorf("it lets none of %d credentials in: %w", tried, first)}
}

// kubeletTLS says how to tell that a server is the kubelet. Its certificate is
// mostly self-signed, so no authority vouches for it; but it lies on this disk, where
// only root writes, and has to be that very one. Where it is not there (a path that
// only a stopped kubelet knew) any certificate will do on the loopback address: only
// a process of this node can listen there, a client certificate does not give
// anything away, and what is learned can only add to the pods that live unless
// another source says the same. No token is shown then.
func (l *look) kubeletTLS(ctx context.Context, at string) (config *tls.Config, pinned bool, err error) {
	pki := filepath.Join(l.host.Layout.Root, "pki")
	var pins [][]byte
	for _, path := range []string{l.config.TLSCertFile, filepath.Join(pki, "kubelet-server-current.pem"), filepath.Join(pki, "kubelet.crt")} {
		if path == "" {
			continue
		}
		if file, err := l.files.Read(ctx, path); err == nil {
			if block, ok := certificate(file.Data); ok {
				pins = append(pins, block)
			}
		}
	}
	name, _, err := net.SplitHostPort(at)
	if err != nil {
		return nil, false, api.Errorf(api.ErrUsage, "the kubelet's endpoint %q is no HOST:PORT", at)
	}
	if len(pins) == 0 && !net.ParseIP(name).IsLoopback() {
		return &tls.Config{}, true, nil // the system's authorities
	}
	return &tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
		for _, pin := range pins {
			if len(raw) > 0 && bytes.Equal(pin, raw[0]) {
				return nil
			}
		}
		if len(pins) == 0 {
			return nil
		}
		return errors.New("its certificate is none of the kubelet's in " + pki)
	}}, len(pins) > 0, nil
}

// certificate gives the first certificate of a file.
func certificate(data []byte) ([]byte, bool) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return block.Bytes, true
		}
	}
	return nil, false
}

// credential is something that the node has to show who it is.
type credential struct {
	name  string
	cert  *tls.Certificate
	token exec.Secret
}

// credentials are what the kubelet may know, the likeliest first.
func (l *look) credentials(ctx context.Context) []credential {
	var out []credential
	pair := func(cert, key string) {
		c, errC := l.files.Read(ctx, cert)
		k, errK := l.files.Read(ctx, key)
		if errC != nil || errK != nil {
			return
		}
		if loaded, err := tls.X509KeyPair(c.Data, k.Data); err == nil {
			out = append(out, credential{name: cert, cert: &loaded})
		}
	}
	const etc = "/etc/kubernetes/"
	pair(etc+"pki/apiserver-kubelet-client.crt", etc+"pki/apiserver-kubelet-client.key")
	for _, path := range []string{l.host.Kubeconfig, etc + "admin.conf", etc + "super-admin.conf"} {
		if path == "" {
			continue
		}
		if access, err := l.kubeconfig(ctx, path); err == nil {
			out = append(out, credential{path, access.cert, access.token})
		}
	}
	current := filepath.Join(l.host.Layout.Root, "pki/kubelet-client-current.pem")
	pair(current, current)
	return append(out, credential{name: "nobody"})
}
