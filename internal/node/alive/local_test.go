package alive

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// spawn runs a shell script that ends in a process which stays, and waits until it
// has said ready.
func spawn(t *testing.T, script string) int {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s: said %q, %v", script, line, err)
	}
	return cmd.Process.Pid
}

// TestProcesses: what of a pod's directory a process of whatever mount namespace
// uses, and what only looks like it.
func TestProcesses(t *testing.T) {
	s := newScratch(t)
	const stay = "; echo ready; exec sleep 1000"
	elsewhere := "exec unshare -m --propagation private sh -ec '%'"
	in := func(script string) string { return strings.Replace(elsewhere, "%", script+stay, 1) }
	s.mkdir("/run/elsewhere/pods")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kvol := "exec env " + envStay + "=1 " + self
	cases := map[string]struct {
		lives  bool
		script string // @ is the pod's directory, % the uid
	}{
		"nobody":                               {false, "true" + stay},
		"its directory":                        {true, "cd @" + stay},
		"an open file":                         {true, "exec 3<@/etc-hosts" + stay},
		"an open file of a volume":             {true, "exec 3<@/volumes/kubernetes.io~empty-dir/mem/file" + stay},
		"its program":                          {true, "cp $(command -v sleep) @/sleep; echo ready; exec @/sleep 1000"},
		"another kvol":                         {false, "exec 3<@/etc-hosts; " + kvol},
		"the same program in a container":      {true, strings.Replace(elsewhere, "%", "exec 3<@/etc-hosts; "+kvol, 1)},
		"a container":                          {true, in("mount --bind @/etc-hosts /run/hosts")},
		"a container's volume":                 {true, in("mount --bind @/volumes/kubernetes.io~empty-dir/disk /run/data")},
		"a copy of the node's":                 {false, in("true")},
		"an agent's copy":                      {false, in("mount --rbind " + s.root + " /run/agent")},
		"an open file in an agent's copy":      {true, in("mount --rbind " + s.root + " /run/agent; exec 3</run/agent/pods/%/etc-hosts")},
		"an open file of a volume in the copy": {true, in("mount --rbind " + s.root + " /run/agent; exec 3</run/agent/pods/%/volumes/kubernetes.io~empty-dir/mem/file")},
		"a directory of the copy":              {true, in("mount --rbind " + s.root + "/pods /run/agent; cd /run/agent/%")},
		"somebody's bind, copied":              {false, in("true")},
		"another kubelet's":                    {false, in("mkdir -p /run/elsewhere/pods/%; echo x >/run/elsewhere/pods/%/etc-hosts; mount --bind /run/elsewhere/pods/%/etc-hosts /run/hosts; cd /run/elsewhere/pods/%")},
	}
	s.write("/run/hosts", "")
	s.mkdir("/run/data")
	s.mkdir("/run/agent")
	uids := map[string]string{}
	pods := s.root + "/pods/"
	for name := range cases {
		uid := uuid.NewString()
		uids[name] = uid
		s.write(pods+uid+"/etc-hosts", "127.0.0.1 localhost\n")
		s.mkdir(pods + uid + "/volumes/kubernetes.io~empty-dir/disk/sub")
		testutil.Tmpfs(t, s.mkdir(pods+uid+"/volumes/kubernetes.io~empty-dir/mem"))
		s.write(pods+uid+"/volumes/kubernetes.io~empty-dir/mem/file", "x")
		// A subpath: its root field has the uid, as a container's has.
		testutil.Bind(t, pods+uid+"/volumes/kubernetes.io~empty-dir/disk/sub", s.mkdir(pods+uid+"/volume-subpaths/disk/app/0"), false)
	}
	testutil.Bind(t, pods+uids["somebody's bind, copied"]+"/volumes", s.mkdir("/run/look"), false)
	for name, c := range cases {
		spawn(t, strings.NewReplacer("@", pods+uids[name], "%", uids[name]).Replace(c.script))
	}
	sets := s.look(Options{From: []string{"cri"}})
	if r := reportOf(t, sets, SourceProcess); !r.Answered || !r.VetoOnly {
		t.Fatalf("%+v", r)
	}
	for name, c := range cases {
		v, evidence := sets.Verdict(uids[name], time.Now())
		if (v == api.VerdictLive) != c.lives {
			t.Errorf("%s: %s: %v", name, v, evidence)
		}
		if lives, _ := sets.Lives(uids[name]); lives {
			t.Errorf("%s: to use a directory proves life", name)
		}
		for _, e := range evidence {
			if c.lives && e.Source == SourceProcess && !strings.HasPrefix(e.Detail, "process ") {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// TestProcessesWherePodsIsAMount: the root field of a container's mount has no "pods"
// in it then, and a static pod's manifest may give any uid.
func TestProcessesWherePodsIsAMount(t *testing.T) {
	s := newScratch(t)
	testutil.Tmpfs(t, s.root+"/pods")
	s.write(s.root+"/pods/my-own_uid/etc-hosts", "x")
	s.write("/run/hosts", "")
	if r := s.report(Options{From: []string{"cri"}}, SourceProcess); len(r.Pods) != 0 {
		t.Errorf("%+v", r)
	}
	pid := spawn(t, "exec unshare -m --propagation private sh -ec 'mount --bind "+s.root+"/pods/my-own_uid/etc-hosts /run/hosts; echo ready; exec sleep 1000'")
	r := s.report(Options{From: []string{"cri"}}, SourceProcess)
	who, what := "process "+strconv.Itoa(pid)+" (", ") has /my-own_uid/etc-hosts mounted on /run/hosts" // a shell, or what it became
	if len(r.Pods) != 1 || r.Pods[0].UID != "my-own_uid" || !strings.HasPrefix(r.Pods[0].State, who) || !strings.HasSuffix(r.Pods[0].State, what) {
		t.Errorf("%+v", r)
	}
}

// TestCgroups: in a tree of plain directories with what the kernel has in them.
func TestCgroups(t *testing.T) {
	s := newScratch(t)
	if r := s.report(Options{From: []string{"cri"}}, SourceCgroup); r.Answered || !strings.Contains(r.Reason, "no control groups are mounted") {
		t.Errorf("%+v", r)
	}
	uids := map[string]string{}
	group := func(name, dir string, procs string) {
		uid := uuid.NewString()
		if name == "static" {
			uid = static
		}
		uids[name] = uid
		dir = s.h.SysRoot + "/fs/cgroup/" + strings.NewReplacer("@", uid, "_", strings.ReplaceAll(uid, "-", "_")).Replace(dir)
		for ; dir != s.h.SysRoot+"/fs"; dir = filepath.Dir(dir) {
			s.write(dir+"/cgroup.procs", procs)
			procs = ""
		}
	}
	group("cgroupfs", "kubepods/burstable/pod@/0123", "17\n")
	group("v1", "memory/kubepods/besteffort/pod@/0123", "17\n")
	group("v1, one controller", "cpu/kubepods/pod@", "17\n")
	group("systemd", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_.slice/cri-containerd-0123.scope", "17\n")
	group("guaranteed", "kubepods.slice/kubepods-pod_.slice/crio-0123.scope/container", "17\n")
	group("another pid namespace", "kubepods/pod@/0123", "0\n0\n")
	group("of a cgroup root", "system.slice/docker-1.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod_.slice/x.scope", "17\n")
	group("static", "kubepods/pod@/0123", "17\n")
	for name, uid := range uids {
		if lives, e := s.look(Options{From: []string{"cri"}}).Lives(uid); !lives {
			t.Errorf("%s: %v", name, e)
		}
	}
	group("empty", "kubepods/pod@/0123", "")
	group("of no pod", "kubepods/x@/0123", "17\n")
	sets := s.look(Options{From: []string{"cri"}})
	for _, name := range []string{"empty", "of no pod"} {
		if v, e := sets.Verdict(uids[name], time.Now()); v != api.VerdictUnknown {
			t.Errorf("%s: %s: %v", name, v, e)
		}
	}
}

// TestCgroupsOfTheKernel does the same with the kernel's own, of both versions.
func TestCgroupsOfTheKernel(t *testing.T) {
	s := newScratch(t)
	s.h.SysRoot = "/sys"
	trees := 0
	for _, tree := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"} {
		uid := uuid.NewString()
		top := tree + "/kvol-test-" + uid[:8] + "-"
		for name, dir := range map[string]string{
			uid:  top + "fs/kubepods/burstable/pod" + uid + "/0123",
			"us": top + "systemd/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/x.scope",
		} {
			if _, err := os.Stat(tree + "/cgroup.procs"); err != nil {
				break // no tree is mounted there
			}
			if err := os.MkdirAll(dir, 0o755); errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			trees++
			t.Cleanup(func() { removeCgroups(t, "kvol-test-"+uid[:8]+"-*") })
			if v, e := s.look(Options{From: []string{"cri"}}).Lives(uid); v {
				t.Errorf("%s of an empty group %s: %v", name, dir, e)
			}
			pid := spawn(t, "echo ready; exec sleep 1000")
			if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
				t.Fatal(err)
			}
			if v, e := s.look(Options{From: []string{"cri"}}).Lives(uid); !v {
				t.Errorf("%s with a process in %s: %v", name, dir, e)
			}
			if err := os.WriteFile(tree+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if trees == 0 {
		testutil.Skip(t, "no control groups can be made here")
	}
	t.Logf("%d groups", trees)
}

func TestStaticManifests(t *testing.T) {
	s := newScratch(t)
	const dir = "/etc/kubernetes/manifests/"
	etcd := "kind: Pod\nmetadata: {name: Etcd, namespace: kube-system}\n"
	known := answer{pods: []Pod{{UID: static, Name: "etcd-node1", Namespace: "kube-system"}}}
	unknownHash := "fedcba9876543210fedcba9876543210"
	for name, c := range map[string]struct {
		files map[string]string
		lost  string
	}{
		"none":              {nil, ""},
		"known":             {map[string]string{"etcd.yaml": etcd}, ""},
		"unknown":           {map[string]string{"etcd.yaml": etcd, "proxy.yaml": "metadata: {name: proxy}"}, "proxy.yaml"},
		"of another space":  {map[string]string{"etcd.yaml": "metadata: {name: etcd}"}, "etcd.yaml"},
		"JSON":              {map[string]string{"etcd.json": `{"metadata": {"name": "etcd", "namespace": "kube-system"}}`}, ""},
		"hidden":            {map[string]string{".etcd.yaml": "metadata: {name: x}"}, ""},
		"broken":            {map[string]string{"etcd.yaml": "a: ["}, "etcd.yaml"},
		"no pod":            {map[string]string{"README": "hello"}, "README"},
		"with a uid":        {map[string]string{"x.yaml": "metadata: {name: x, uid: my-own}"}, ""},
		"a backup":          {map[string]string{"etcd.yaml": etcd, "etcd.yaml.bak": etcd}, ""},
		"a directory":       {map[string]string{"d/etcd.yaml": "metadata: {name: x}"}, ""},
		"of the other name": {map[string]string{"etcd.yaml": "metadata: {name: etcd-node1, namespace: kube-system}"}, "etcd.yaml"},
	} {
		testutil.Tmpfs(t, s.mkdir(dir))
		for file, text := range c.files {
			s.write(dir+file, text)
		}
		sets := s.look(Options{From: []string{"static"}})
		r := Report{Source: SourceCRI}
		sets.take(&r, known, false)
		sets.reports = append(sets.reports, r)
		sets.index()
		v, evidence := sets.Verdict(unknownHash, time.Now())
		if (v == api.VerdictLive) != (c.lost != "") {
			t.Errorf("%s: %s: %v", name, v, evidence)
		}
		for _, e := range evidence {
			if e.Source == SourceStatic && !strings.Contains(e.Detail, c.lost) {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if v, e := sets.Verdict(dashed, time.Now()); v == api.VerdictLive {
			t.Errorf("%s: a pod that is not static: %v", name, e)
		}
		if v, e := sets.Verdict("my-own", time.Now()); (v == api.VerdictLive) != (name == "with a uid") {
			t.Errorf("%s: the manifest's own uid: %s %v", name, v, e)
		}
	}
	// A file that does not answer may be a manifest.
	testutil.FUSE(t, s.mkdir("/run/hung"), testutil.FUSEHung)
	s.write(s.root+"/config.yaml", "staticPodPath: /run/hung/manifests\n")
	sets := s.look(Options{From: []string{"static"}, Timeout: time.Second})
	if r := reportOf(t, sets, SourceStatic); r.Answered || !slices.Contains(sets.blind, SourceStatic) {
		t.Errorf("%+v, blind: %v", r, sets.blind)
	}
	s.write(s.root+"/config.yaml", "staticPodPath: "+s.mkdir("/run/mine")+"\n")
	s.write("/run/mine/x.yaml", "metadata: {name: x}")
	if r := s.report(Options{From: []string{"static"}}, SourceStatic); len(r.Pods) != 1 || r.Pods[0].Name != "x-node1" || r.Pods[0].Namespace != "default" {
		t.Errorf("%+v", r)
	}
}

// removeCgroups removes groups of a name in every tree, with the empty ones in them.
func removeCgroups(t *testing.T, name string) {
	for _, tree := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		tops, _ := filepath.Glob(tree + name)
		for _, top := range tops {
			var dirs []string
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				testutil.Poll(t, "an empty control group "+dir, func() bool { return !errors.Is(unix.Rmdir(dir), unix.EBUSY) })
			}
		}
	}
}
