package alive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvol/kvol/internal/api"
)

// RuntimeSockets are where container runtimes listen.
var RuntimeSockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/var/run/cri-dockerd.sock",
	"/run/k3s/containerd/containerd.sock",
	"/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
}

// maxMessage is what the kubelet takes of its runtime.
const maxMessage = 16 << 20

// askCRI asks the runtime: the one that was named, else that of the kubelet, else
// those that are there. Where several are there and none was named, each is asked,
// and one that fails leaves the question open, unless it is none: nobody listens, or
// it is not for Kubernetes (as the containerd that belongs to Docker).
func (l *look) askCRI(ctx context.Context) answer {
	named, found := l.endpoints(ctx)
	if named != "" {
		return l.askRuntime(ctx, named)
	}
	var all answer
	var asked, none []string
	for i, path := range found {
		// Each has its share of the time, so that one that hangs leaves some to the others.
		share, cancel := shareOf(ctx, len(found)-i)
		a := l.askRuntime(share, path)
		cancel()
		all.pods = append(all.pods, a.pods...)
		switch {
		case errors.Is(a.err, api.ErrMissingTool), errors.Is(a.err, api.ErrNotSupported):
			none = append(none, a.err.Error())
		case a.err != nil:
			all.err = cmp.Or(all.err, fmt.Errorf("%w; name the kubelet's runtime with --runtime-endpoint", a.err))
		default:
			asked = append(asked, fmt.Sprintf("%s names %s", path, api.Count(len(a.pods), "pod", "pods")))
		}
	}
	if all.err == nil && len(asked) == 0 {
		all.err = api.Errorf(api.ErrMissingTool, "no container runtime found (%s); name it with --runtime-endpoint",
			cmp.Or(strings.Join(none, "; "), "none of the usual sockets is there")).WithNext("name it: --runtime-endpoint SOCKET")
	}
	all.note = strings.Join(append(asked, none...), "; ")
	return all
}

// endpoints gives the socket that was named, or those that are there.
func (l *look) endpoints(ctx context.Context) (named string, found []string) {
	if named = cmp.Or(l.host.RuntimeEndpoint, l.config.ContainerRuntimeEndpoint); named != "" {
		return named, nil
	}
	var crictl struct {
		Endpoint string `json:"runtime-endpoint"`
	}
	if file, err := l.files.Read(ctx, "/etc/crictl.yaml"); err == nil && yaml.Unmarshal(file.Data, &crictl) == nil && crictl.Endpoint != "" {
		return crictl.Endpoint, nil
	}
	for _, path := range RuntimeSockets {
		if l.files.Exists(ctx, path) {
			found = append(found, path)
		}
	}
	return "", found
}

// askRuntime asks one runtime for its sandboxes, whatever their state (one that is
// not ready can be started again, and its volumes may still be mounted), and for
// its containers.
func (l *look) askRuntime(ctx context.Context, endpoint string) answer {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return answer{err: api.Errorf(api.ErrInput, "the endpoint %q of the container runtime is no unix socket", endpoint).
			WithNext("name its socket: --runtime-endpoint unix:///run/containerd/containerd.sock")}
	}
	conn, err := l.host.Dial(ctx, path)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = conn.Close() }()
	first := make(chan net.Conn, 1)
	first <- conn
	c, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case conn := <-first:
				return conn, nil
			default:
				return nil, errors.New("the connection broke off")
			}
		}))
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = c.Close() }()
	runtime := cri.NewRuntimeServiceClient(c)
	var a answer
	sandboxes, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err == nil {
		for _, s := range sandboxes.Items {
			a.pods = append(a.pods, sandbox(s.Metadata, s.Labels, strings.TrimPrefix(s.State.String(), "SANDBOX_")))
		}
		var containers *cri.ListContainersResponse
		if containers, err = runtime.ListContainers(ctx, &cri.ListContainersRequest{}); err == nil {
			for _, k := range containers.Containers {
				a.pods = append(a.pods, sandbox(nil, k.Labels, strings.TrimPrefix(k.State.String(), "CONTAINER_")))
			}
		}
	}
	a.pods, a.err = unique(a.pods), criError(err, path)
	return a
}

// sandbox is a pod as the runtime knows it: by the labels that the kubelet gives, and
// what it is called by for the runtime itself. They say the same, and where they do
// not, both count.
func sandbox(meta *cri.PodSandboxMetadata, labels map[string]string, state string) Pod {
	p := Pod{
		UID: cmp.Or(labels["io.kubernetes.pod.uid"], meta.GetUid()), State: state,
		Name:      cmp.Or(labels["io.kubernetes.pod.name"], meta.GetName()),
		Namespace: cmp.Or(labels["io.kubernetes.pod.namespace"], meta.GetNamespace()),
	}
	if uid := meta.GetUid(); uid != "" && uid != p.UID {
		p.Aliases = []string{uid}
	}
	return p
}

// unique leaves out containers of pods that are there already, and what is no pod's.
func unique(pods []Pod) []Pod {
	var out []Pod
	seen := map[string]bool{}
	for _, p := range pods {
		if p.UID != "" && !seen[p.UID] {
			seen[p.UID] = true
			out = append(out, p)
		}
	}
	return out
}

func criError(err error, path string) error {
	var kind error
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.DeadlineExceeded:
		kind = api.ErrTimeout
	case codes.Unimplemented:
		kind = api.ErrNotSupported
	}
	return &api.Error{Path: path, Kind: kind, Err: fmt.Errorf("the container runtime does not answer: %w", err),
		Next: "see whether it answers others: crictl info; or ask other sources whose the pods are: --pods-from"}
}

// shareOf gives one of n that are asked in turn its part of the time.
func shareOf(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
}
