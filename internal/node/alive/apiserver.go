package alive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
)

// apiServer is a server that was found, and what it is asked about.
type apiServer struct {
	access
	client *http.Client
}

// pageSize is what the server is asked for at a time; it may give fewer.
const pageSize = 500

// connect reads where the API server is. It asks nothing.
func (l *look) connect(ctx context.Context) (*apiServer, error) {
	path := cmp.Or(l.host.Kubeconfig, l.runs.Kubeconfig, "/etc/kubernetes/kubelet.conf")
	a, err := l.kubeconfig(ctx, path)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.server)
	if err != nil || u.Scheme != "https" {
		// Nothing proves who answers without TLS, and a token would be for all to read.
		return nil, api.Errorf(api.ErrInput, "the kubeconfig names a server that is no https URL").At(path)
	}
	a.server = strings.TrimSuffix(a.server, "/")
	return &apiServer{*a, client(a.tls, true)}, nil
}

func (s *apiServer) get(ctx context.Context, into any, path ...string) error {
	return get(ctx, s.client, s.server+"/api/v1/"+strings.Join(path, ""), s.token, into)
}

// askAPI lists the pods that are bound to this node. The selector is needed: a
// node's own credential may list its own pods only.
func (l *look) askAPI(ctx context.Context) answer {
	server, err := l.connect(ctx)
	if err != nil {
		return answer{err: err}
	}
	a := answer{server: server}
	query := url.Values{"fieldSelector": {"spec.nodeName=" + l.host.NodeName}, "limit": {fmt.Sprint(pageSize)}}
	for {
		var list v1.PodList
		if a.err = server.get(ctx, &list, "pods?", query.Encode()); a.err != nil {
			return a // an expired continue token, too: part of a list is none
		}
		var page []Pod
		page, a.err = podsOf(&list)
		a.pods = append(a.pods, page...)
		if a.err != nil || list.Continue == "" {
			return a
		}
		if list.Continue == query.Get("continue") {
			a.err = errors.New("it gives the same page of its list again and again")
			return a
		}
		query.Set("continue", list.Continue)
	}
}

// NodeVolumes is what the API server knows of this node's volumes.
type NodeVolumes struct {
	// InUse and Attached are unique volume names ("kubernetes.io/csi/DRIVER^HANDLE"),
	// from node.status.volumesInUse and volumesAttached.
	InUse, Attached []string
	// Claims are those of every live pod, also of a generic ephemeral volume.
	Claims []Claim
}

// Claim is a PersistentVolumeClaim that a live pod names.
type Claim struct {
	PodUID          string // what the pod's directory is named
	Namespace, Name string
	PV              string // "" while it is not bound
	Finished        bool   // the pod has run to its end, and nothing is mounted for it any more
}

// claimWorkers bounds the claims that are asked for at a time.
const claimWorkers = 8

// NodeVolumes asks the API server. An error means not known: also where a pod lives
// whose claims nobody tells, as the runtime knows of none.
func (s *Sets) NodeVolumes(ctx context.Context) (NodeVolumes, error) {
	unknown := func(err error) (NodeVolumes, error) {
		return NodeVolumes{}, &api.Error{Kind: api.ErrUncertain, Err: fmt.Errorf("which volumes the pods of this node claim is not known: %w", err)}
	}
	if !s.answered(SourceAPI) {
		return unknown(errors.New("the API server did not answer"))
	}
	var node v1.Node
	if err := s.api.get(ctx, &node, "nodes/", url.PathEscape(s.node)); err != nil {
		return unknown(err)
	}
	if node.Kind != "Node" || node.Name != s.node {
		return unknown(fmt.Errorf("the API server answers with %q %q, not with the Node %q", node.Kind, node.Name, s.node))
	}
	claims, err := s.claims()
	if err != nil {
		return unknown(err)
	}
	if err := s.bind(ctx, claims); err != nil {
		return unknown(err)
	}
	out := NodeVolumes{Claims: claims}
	for _, name := range node.Status.VolumesInUse {
		out.InUse = append(out.InUse, string(name))
	}
	for _, v := range node.Status.VolumesAttached {
		out.Attached = append(out.Attached, string(v.Name))
	}
	return out, nil
}

// claims are those of the live pods.
func (s *Sets) claims() ([]Claim, error) {
	var out []Claim
	seen := map[string]bool{}
	for _, r := range s.reports {
		for _, known := range r.Pods {
			if r.Source == SourceStatic || r.Source == SourceProcess || seen[known.UID] {
				continue
			}
			p, ok := s.Pod(known.UID)
			if !ok || p.Object == nil {
				return nil, fmt.Errorf("no source tells what pod %s uses, which lives by %s", known.UID, r.Source)
			}
			for _, uid := range append([]string{known.UID, p.UID}, p.Aliases...) {
				seen[uid] = true
			}
			if node := p.Object.Spec.NodeName; node == "" || node == s.node {
				out = append(out, claimsOf(p)...)
			}
		}
	}
	return out, nil
}

func claimsOf(p Pod) []Claim {
	var out []Claim
	phase := p.Object.Status.Phase
	c := Claim{PodUID: p.UID, Namespace: p.Namespace, Finished: phase == v1.PodSucceeded || phase == v1.PodFailed}
	for _, v := range p.Object.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			c.Name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			c.Name = p.Name + "-" + v.Name
		default:
			continue
		}
		out = append(out, c)
	}
	return out
}

// bind asks which volume each claim has. One that is not there has none.
func (s *Sets) bind(ctx context.Context, claims []Claim) error {
	errs := make([]error, len(claims))
	var wait sync.WaitGroup
	turn := make(chan struct{}, claimWorkers)
	for i := range claims {
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			var pvc v1.PersistentVolumeClaim
			c := &claims[i]
			err := s.api.get(ctx, &pvc, "namespaces/", url.PathEscape(c.Namespace), "/persistentvolumeclaims/", url.PathEscape(c.Name))
			if status, ok := errors.AsType[*statusError](err); ok && status.code == http.StatusNotFound {
				return
			}
			if err == nil && pvc.Kind != "PersistentVolumeClaim" {
				err = fmt.Errorf("it answers with %q, not with a PersistentVolumeClaim", pvc.Kind)
			}
			c.PV, errs[i] = pvc.Spec.VolumeName, err
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
