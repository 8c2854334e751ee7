package alive

import (
	"bufio"
	"net"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCRI(t *testing.T) {
	s := newScratch(t)
	r := &runtime{
		sandboxes: []*cri.PodSandbox{
			sandboxOf(dashed, "web", cri.PodSandboxState_SANDBOX_READY),
			sandboxOf(static, "etcd-node1", cri.PodSandboxState_SANDBOX_NOTREADY),
			{Id: "x", Metadata: &cri.PodSandboxMetadata{Uid: "by-metadata", Name: "crictl", Namespace: "default"}},
		},
		containers: []*cri.Container{
			{Labels: podLabels(dashed, "web")},
			{Labels: podLabels(other, "left"), State: cri.ContainerState_CONTAINER_EXITED},
			{Labels: map[string]string{"io.kubernetes.container.name": "no pod's"}},
		},
	}
	s.h.RuntimeEndpoint = "unix://" + s.listen("/run/a.sock", r)
	sets := s.look(Options{From: []string{"cri"}})
	report := reportOf(t, sets, SourceCRI)
	if !report.Answered || len(report.Pods) != 4 {
		t.Fatalf("%+v", report)
	}
	for uid, want := range map[string]string{dashed: "default/web, READY", static: "default/etcd-node1, NOTREADY", other: "default/left, EXITED", "by-metadata": "default/crictl, READY"} {
		lives, evidence := sets.Lives(uid)
		if p, ok := sets.Pod(uid); !lives || !ok || p.Namespace != "default" {
			t.Errorf("%s: %+v", uid, p)
		}
		for _, e := range evidence {
			if e.Source == SourceCRI && e.Detail != want {
				t.Errorf("%s: %+v, want %q", uid, e, want)
			}
		}
	}
}

// TestCRIWhichSocket: with none named, those that are there are asked.
func TestCRIWhichSocket(t *testing.T) {
	pods := func(uid string) *runtime {
		return &runtime{sandboxes: []*cri.PodSandbox{sandboxOf(uid, "web", cri.PodSandboxState_SANDBOX_READY)}}
	}
	const containerd, crio = "/run/containerd/containerd.sock", "/run/crio/crio.sock"
	stale := func(s *scratch, path string) {
		s.mkdir("/run/crio")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	for name, c := range map[string]struct {
		make   func(s *scratch)
		pods   int
		reason string // of what is no answer
	}{
		"none":                   {func(*scratch) {}, 0, "none of the usual sockets is there"},
		"one":                    {func(s *scratch) { s.listen(containerd, pods(dashed)) }, 1, ""},
		"two":                    {func(s *scratch) { s.listen(containerd, pods(dashed)); s.listen(crio, pods(other)) }, 2, ""},
		"one of them empty":      {func(s *scratch) { s.listen(containerd, &runtime{}); s.listen(crio, pods(other)) }, 1, ""},
		"both empty":             {func(s *scratch) { s.listen(containerd, &runtime{}); s.listen(crio, &runtime{}) }, 0, "it names no pod"},
		"one broken":             {func(s *scratch) { s.listen(containerd, pods(dashed)); s.listen(crio, &runtime{fail: errRuntime}) }, 1, "metadata store is broken; name the kubelet's runtime with --runtime-endpoint"},
		"one nobody's":           {func(s *scratch) { s.listen(containerd, pods(dashed)); stale(s, crio) }, 1, ""},
		"one not for Kubernetes": {func(s *scratch) { s.listen(containerd, &runtime{fail: noRuntime}); s.listen(crio, pods(dashed)) }, 1, ""},
		"only nobody's":          {func(s *scratch) { stale(s, crio) }, 0, "nobody listens on this socket"},
		"no socket":              {func(s *scratch) { s.write(containerd, "") }, 0, "is a regular file, not a socket"},
		"crictl's": {func(s *scratch) {
			s.listen(crio, pods(dashed))
			s.write("/etc/crictl.yaml", "runtime-endpoint: unix://"+s.listen("/run/x.sock", pods(other)))
		}, 1, ""},
		"the kubelet's": {func(s *scratch) {
			s.listen(crio, pods(dashed))
			s.write(s.root+"/config.yaml", "containerRuntimeEndpoint: unix://"+s.listen("/run/x.sock", pods(other)))
		}, 1, ""},
		"the kubelet's gone": {func(s *scratch) {
			s.listen(crio, pods(dashed))
			s.write(s.root+"/config.yaml", "containerRuntimeEndpoint: unix:///run/x.sock")
		}, 0, "there is no such socket"},
		"no unix socket": {func(s *scratch) { s.write(s.root+"/config.yaml", "containerRuntimeEndpoint: tcp://10.0.0.1:1") }, 0, "no unix socket"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			c.make(s)
			r := s.report(Options{From: []string{"cri"}}, SourceCRI)
			if len(r.Pods) != c.pods || r.Answered != (c.reason == "") || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestCRILies: whatever is behind the socket, it is no answer.
func TestCRILies(t *testing.T) {
	s := newScratch(t)
	raw := func(path string, talk func(net.Conn)) string {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer conn.Close(); talk(conn) }()
			}
		}()
		return path
	}
	big := &runtime{}
	for range 200 {
		big.sandboxes = append(big.sandboxes, &cri.PodSandbox{Metadata: &cri.PodSandboxMetadata{Uid: dashed}, Labels: map[string]string{"x": strings.Repeat("x", 100<<10)}})
	}
	for name, c := range map[string]struct{ path, reason string }{
		"another protocol": {raw("/run/http.sock", func(c net.Conn) {
			_, _ = bufio.NewReader(c).ReadString('\n')
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
		}), "the container runtime does not answer"},
		"hangs up":    {raw("/run/shut.sock", func(net.Conn) {}), "the container runtime does not answer"},
		"no runtime":  {s.listen("/run/image.sock", &runtime{fail: noRuntime}), "Unimplemented"},
		"fails":       {s.listen("/run/fails.sock", &runtime{fail: errRuntime}), "metadata store is broken"},
		"huge":        {s.listen("/run/huge.sock", big), "larger than max"},
		"empty":       {s.listen("/run/empty.sock", &runtime{}), "it names no pod, which is no answer"},
		"not there":   {"/run/nowhere.sock", "there is no such socket"},
		"a directory": {"/run", "is a directory, not a socket"},
	} {
		s.h.RuntimeEndpoint = c.path
		if r := s.report(Options{From: []string{"cri"}}, SourceCRI); r.Answered || len(r.Pods) > 0 || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
