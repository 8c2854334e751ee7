package alive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

const containerdSocket = "/run/containerd/containerd.sock"

// containerdConfig is for a scratch directory: images unpacked by copying, no network.
const containerdConfig = `version = 2
root = "@/root"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "` + containerdSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
`

// startContainerd runs a containerd of its own in a pid namespace, so that what it
// starts ends with it, and waits until it answers.
func startContainerd(t *testing.T, s *scratch) cri.RuntimeServiceClient {
	testutil.Tool(t, "containerd", "ctr", "runc")
	dir := s.mkdir(strings.TrimSuffix(s.root, "/kubelet") + "/containerd")
	s.write(dir+"/config.toml", strings.ReplaceAll(containerdConfig, "@", dir))
	s.write("/etc/hosts", "127.0.0.1 localhost\n")
	s.write("/etc/resolv.conf", "")
	s.write("/etc/hostname", "node1\n")
	var log bytes.Buffer
	cmd := exec.Command("sh", "-ec", "mount -t proc proc /proc; exec containerd --config "+dir+"/config.toml --log-level warn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("containerd: %s", log.Bytes())
		}
	})
	conn, err := grpc.NewClient("unix://"+containerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := cri.NewRuntimeServiceClient(conn)
	testutil.Poll(t, "containerd", func() bool {
		if c, err := net.Dial("unix", containerdSocket); err == nil {
			_ = c.Close()
			_, err = client.Version(t.Context(), &cri.VersionRequest{})
			return err == nil
		}
		return false
	})
	return client
}

// TestContainerd asks a real containerd: it names nobody, which is no answer, then a
// sandbox that runs, one that was stopped, and nobody again.
func TestContainerd(t *testing.T) {
	s := newScratch(t)
	client := startContainerd(t, s)
	s.h.SysRoot = "/sys"
	if r := s.report(Options{From: []string{"cri"}}, SourceCRI); r.Answered || r.Reason != "it names no pod, which is no answer" {
		t.Fatalf("an empty containerd: %+v", r)
	}
	image := s.write("/run/pause.tar", pauseImage(t))
	if out, err := exec.Command("ctr", "-n", "k8s.io", "-a", containerdSocket, "images", "import", "--snapshotter", "native", image).CombinedOutput(); err != nil {
		t.Fatalf("import: %v: %s", err, out)
	}
	uid := uuid.NewString()
	parent := "kvol-test-" + uid[:8]
	started, err := client.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: uid}, Labels: podLabels(uid, "web"),
		LogDirectory: "/run/log",
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/" + parent + "/kubepods/burstable/pod" + uid, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}, Privileged: true,
		}},
	}})
	if err != nil {
		t.Fatalf("RunPodSandbox: %v", err)
	}
	t.Cleanup(func() { removeCgroups(t, parent) })
	for _, state := range []string{"READY", "NOTREADY"} {
		sets := s.look(Options{From: []string{"cri"}})
		p, ok := sets.Pod(uid)
		if v, e := sets.Verdict(uid, time.Now()); v != api.VerdictLive || !ok || p.Name != "web" || p.State != state {
			t.Errorf("%s: %s %+v: %v", state, v, p, e)
		}
		inGroup := len(reportOf(t, sets, SourceCgroup).Pods) > 0
		if inGroup != (state == "READY") {
			t.Errorf("%s: processes in its control group: %v", state, inGroup)
		}
		if _, err := client.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: started.PodSandboxId}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: started.PodSandboxId}); err != nil {
		t.Fatal(err)
	}
	if lives, e := s.look(Options{From: []string{"cri"}}).Lives(uid); lives {
		t.Errorf("it was removed: %v", e)
	}
}

// pauseImage is an image whose only file is a program that waits for ever.
func pauseImage(t *testing.T) string {
	var program string
	switch goruntime.GOARCH {
	case "amd64": // pause(2) in a loop
		program = "\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7"
	default:
		testutil.Skip(t, "no program for %s", goruntime.GOARCH)
	}
	layer := archive(t, map[string]string{"pause": elf(program)})
	config, err := json.Marshal(map[string]any{
		"architecture": goruntime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(layer)))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, map[string]string{
		"layer.tar": layer, "config.json": string(config),
		"manifest.json": `[{"Config":"config.json","RepoTags":["localhost/pause:1"],"Layers":["layer.tar"]}]`,
	})
}

// elf puts machine code behind an ELF header and one program header (elf(5)).
func elf(code string) string {
	const base, header = 0x400000, 64 + 56
	u64 := func(v uint64) string {
		var b [8]byte
		for i := range b {
			b[i] = byte(v >> (8 * i))
		}
		return string(b[:])
	}
	size := u64(uint64(header + len(code)))
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x3e\x00\x01\x00\x00\x00" + u64(base+header) + u64(64) + u64(0) +
		"\x00\x00\x00\x00\x40\x00\x38\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x01\x00\x00\x00\x05\x00\x00\x00" + u64(0) + u64(base) + u64(base) + size + size + u64(0x1000) + code
}

func archive(t *testing.T, files map[string]string) string {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o755})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
