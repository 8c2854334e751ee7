package kubelet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// tree is a /proc of a test's own.
type tree struct {
	t   *testing.T
	dir string
}

func newTree(t *testing.T) *tree {
	p := &tree{t, t.TempDir()}
	p.add("self", process{})
	return p
}

// process is one in it. The zero value is a kubelet of root in our namespaces.
type process struct {
	comm, exe, cmdline string
	uids, caps         string
	user, mount, root  string
	sockets            string // net/unix
	fds                []string
	start, parent      string
}

func (p *tree) write(path, text string) {
	p.t.Helper()
	path = filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tree) link(path, to string) {
	p.t.Helper()
	path = filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tree) add(pid string, s process) {
	p.t.Helper()
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	p.write(pid+"/comm", or(s.comm, "kubelet")+"\n")
	p.write(pid+"/cmdline", strings.ReplaceAll(or(s.cmdline, "/usr/bin/kubelet"), " ", "\x00")+"\x00")
	p.write(pid+"/status", "Name:\tkubelet\nUid:\t"+or(s.uids, "0\t0\t0\t0")+"\nCapPrm:\t000001ffffffffff\nCapEff:\t"+or(s.caps, "000001ffffffffff")+"\n")
	p.write(pid+"/stat", pid+" (a) b (kube) S "+or(s.parent, "1")+" "+strings.Repeat("0 ", 17)+or(s.start, "100")+" 0 0\n")
	p.write(pid+"/net/unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"+s.sockets)
	p.link(pid+"/exe", or(s.exe, "/usr/bin/kubelet"))
	p.link(pid+"/cwd", "/srv")
	p.link(pid+"/root", or(s.root, "/"))
	p.link(pid+"/ns/user", or(s.user, "user:[1]"))
	p.link(pid+"/ns/mnt", or(s.mount, "mnt:[1]"))
	for i, fd := range s.fds {
		p.link(fmt.Sprintf("%s/fd/%d", pid, i+3), fd)
	}
}

func (p *tree) find() []Process {
	p.t.Helper()
	all, err := Find(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

// What a kubelet was told, by each way to say it.
func TestFindSettings(t *testing.T) {
	const socket = "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /data/kubelet/pod-resources/kubelet.sock\n"
	k3sExe := "/var/lib/rancher/k3s/data/0a1b/bin/k3s"
	for name, c := range map[string]struct {
		process
		want Process // none where it has no root directory
	}{
		"nothing":           {want: Process{RootDir: "/var/lib/kubelet"}},
		"one word":          {process{cmdline: "kubelet --root-dir=/a --kubeconfig=/k"}, Process{RootDir: "/a", Kubeconfig: "/k"}},
		"two words":         {process{cmdline: "kubelet --v 2 --root-dir /a --hostname-override N1"}, Process{RootDir: "/a", NodeName: "n1"}},
		"underscores":       {process{cmdline: "kubelet --root_dir=/a --hostname_override=n"}, Process{RootDir: "/a", NodeName: "n"}},
		"the last":          {process{cmdline: "kubelet --root-dir=/a --root-dir /b"}, Process{RootDir: "/b"}},
		"no flag":           {process{cmdline: "kubelet -- --root-dir=/a"}, Process{RootDir: "/var/lib/kubelet"}},
		"a relative path":   {process{cmdline: "kubelet --root-dir=a"}, Process{RootDir: "/srv/a"}},
		"half a flag":       {process{cmdline: "kubelet --root-dir"}, Process{RootDir: "/var/lib/kubelet"}},
		"static pods":       {process{cmdline: "kubelet --pod-manifest-path=/m"}, Process{RootDir: "/var/lib/kubelet", StaticPodPath: "/m"}},
		"replaced on disk":  {process{exe: "/usr/bin/kubelet (deleted)"}, Process{RootDir: "/var/lib/kubelet"}},
		"another mount ns":  {process{mount: "mnt:[2]"}, Process{RootDir: "/var/lib/kubelet", MountNS: "mnt:[2]", OtherNamespace: true}},
		"a chroot":          {process{root: "/proc"}, Process{RootDir: "/var/lib/kubelet", OtherNamespace: true}},
		"hyperkube":         {process{comm: "hyperkube", exe: "/hyperkube", cmdline: "/hyperkube kubelet --root-dir=/a"}, Process{RootDir: "/a"}},
		"hyperkube, a link": {process{exe: "/hyperkube", cmdline: "/kubelet --root-dir=/a"}, Process{RootDir: "/a"}},
		"hyperkube, other":  {process: process{comm: "hyperkube", exe: "/hyperkube", cmdline: "/hyperkube scheduler"}},
		"k3s": {process{comm: "k3s-server", exe: k3sExe, cmdline: "/usr/local/bin/k3s\u00a0server", sockets: socket, fds: []string{"socket:[1]", "socket:[4711]"}},
			Process{RootDir: "/data/kubelet", Kubeconfig: "/var/lib/rancher/k3s/agent/kubelet.kubeconfig", StaticPodPath: "/var/lib/rancher/k3s/agent/pod-manifests"}},
		"k3s, another's socket": {process{comm: "k3s-agent", exe: "/k3s", sockets: socket, fds: []string{"socket:[1]"}}, Process{RootDir: "/var/lib/kubelet"}},
		"k3s that starts": {process{comm: "k3s-agent", exe: "/k3s", cmdline: "k3s agent --kubelet-arg v=2 --kubelet-arg=root-dir=/a --node-name N2"},
			Process{RootDir: "/a", NodeName: "n2"}},
		"k3s without an agent": {process: process{comm: "k3s-server", exe: "/k3s", cmdline: "k3s server --disable-agent"}},
		"k3s kubectl":          {process: process{comm: "k3s", exe: "/k3s", cmdline: "k3s kubectl get pods"}},
		"rke2 itself":          {process: process{comm: "rke2", exe: "/usr/local/bin/rke2", cmdline: "rke2 server"}},
		"kubectl":              {process: process{comm: "kubectl", exe: "/usr/bin/kubectl"}},
		"sudo, by a link":      {process: process{exe: "/usr/bin/sudo", cmdline: "kubelet --root-dir=/evil"}},
		"somebody":             {process: process{uids: "1000\t1000\t1000\t1000"}},
		"somebody, set-uid":    {process: process{uids: "1000\t0\t0\t0"}},
		"a container's root":   {process: process{caps: "00000000a80425fb"}},
		"another user ns":      {process: process{user: "user:[2]"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTree(t)
			p.add("12", c.process)
			p.add("13", process{comm: "sh"})
			got := p.find()
			if c.want.RootDir == "" {
				if len(got) > 0 {
					t.Fatalf("it is taken for a kubelet: %+v", got)
				}
				return
			}
			c.want.PID = 12
			if c.want.MountNS == "" {
				c.want.MountNS = "mnt:[1]"
			}
			if diff := cmp.Diff([]Process{c.want}, got, cmpopts.IgnoreFields(Process{}, "Started", "Args")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Files are read as the kubelet sees them: links lead where they lead from its root.
func TestFindReadsItsFiles(t *testing.T) {
	p := newTree(t)
	root := t.TempDir()
	inside := &tree{t, root}
	inside.write("etc/real.yaml", "kind: KubeletConfiguration\nstaticPodPath: /etc/manifests\n")
	inside.link("etc/kubelet.yaml", "/etc/real.yaml")
	inside.write("var/snap/microk8s/77/args/kubelet", "--root-dir=${SNAP_COMMON}/var/lib/kubelet\n--kubeconfig=$SNAP_DATA/credentials/kubelet.config\n")
	p.add("12", process{root: root, cmdline: "kubelet --config=/etc/kubelet.yaml --pod-manifest-path=/old"})
	p.add("13", process{root: root, start: "200", comm: "kubelite", exe: "/snap/microk8s/77/kubelite",
		cmdline: "kubelite --kubelet-args-file=/var/snap/microk8s/77/args/kubelet"})
	got := p.find()
	if len(got) != 2 || got[0].StaticPodPath != "/etc/manifests" {
		t.Fatalf("got %+v", got)
	}
	if k := got[1]; k.RootDir != "/var/snap/microk8s/common/var/lib/kubelet" || k.Kubeconfig != "/var/snap/microk8s/77/credentials/kubelet.config" {
		t.Errorf("got %+v", k)
	}
}

// A configuration that is none keeps nobody waiting.
func TestFindOddFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"none":        func(string) error { return nil },
		"fifo":        func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory":   func(path string) error { return os.Mkdir(path, 0o755) },
		"no YAML":     func(path string) error { return os.WriteFile(path, []byte("\x00\x01{"), 0o600) },
		"without end": func(path string) error { return os.Symlink("/dev/zero", path) },
		"huge": func(path string) error {
			return os.WriteFile(path, []byte("staticPodPath: /x\n#"+strings.Repeat("x", 2*maxFile)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTree(t)
			path := filepath.Join(t.TempDir(), "config")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			p.add("12", process{cmdline: "kubelet --config " + path})
			if got := p.find(); len(got) != 1 || got[0].RootDir != DefaultRoot {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A process of which half is gone already is none.
func TestFindVanishing(t *testing.T) {
	for _, name := range []string{"comm", "status", "exe", "stat", "ns/user", "ns/mnt"} {
		p := newTree(t)
		p.add("12", process{})
		p.add("13", process{})
		if err := os.Remove(filepath.Join(p.dir, "12", name)); err != nil {
			t.Fatal(err)
		}
		if got := p.find(); len(got) != 1 || got[0].PID != 13 {
			t.Errorf("without %s: got %+v", name, got)
		}
	}
	if _, err := Find(t.TempDir() + "/none"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("without a /proc the error is %v", err)
	}
}

// A kubelet that starts a program is no second one, and neither is it none.
func TestFindForking(t *testing.T) {
	p := newTree(t)
	p.add("12", process{start: "100"})
	p.add("13", process{start: "200", parent: "12"})
	p.add("14", process{start: "300"})
	if got := p.find(); len(got) != 2 || got[0].PID != 12 || got[1].PID != 14 {
		t.Errorf("got %+v", got)
	}
}

// The start is by the clock on the wall: it is compared with the birth of files.
func TestStarted(t *testing.T) {
	before := time.Now()
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	after := time.Now()
	_, began, err := proc{"/proc/" + strconv.Itoa(cmd.Process.Pid)}.stat()
	if err != nil {
		t.Fatal(err)
	}
	const tick = 10 * time.Millisecond // what the kernel tells it to
	if got := began.time(); got.Before(before.Add(-2*tick)) || got.After(after.Add(2*tick)) {
		t.Errorf("started at %v, and was between %v and %v", got, before, after)
	}
}
