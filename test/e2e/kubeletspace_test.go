package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/testutil"
)

// hidden is a directory of the operator's that the kubelet sees nothing of.
func (n *node) hidden(k string) (dir, line string) {
	n.t.Helper()
	dir = filepath.Join(n.dir, k)
	must(n.t, os.Mkdir(dir, 0o755))
	return dir, "mount -t tmpfs none " + dir + "; "
}

// A kubelet that has a mount namespace of its own, in a container: what kvol does it
// does there, and all that the command line names is the operator's.
func TestKubeletNamespace(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	docs, hide := n.hidden("docs")
	n.state, n.run = docs+"/state", docs+"/run"
	k := n.kubelet(kubeletSpec{under: own, setup: hide + "echo 'other: file' > " + docs + "/pv.yaml"})
	must(t, os.Rename(n.pv("pv", n.dir+"/data"), docs+"/pv.yaml"))
	must(t, os.WriteFile(docs+"/config.yaml", []byte("run-dir: "+n.run+"\nstate-dir: "+n.state+"\n"), 0o600))
	n.env = []string{"KVOL_STATE_DIR=", "KVOL_RUN_DIR="}
	words := []string{"--config", "config.yaml", "--pod-uid", podA}

	o := n.check(n.plain(docs, "", append(words, "publish", "-f", "pv.yaml", "--dry-run")...), 0, fmt.Sprint("process ", k.pid))
	if k.sees(n.root) != 0 || exists(n.state) || exists(n.run) {
		t.Errorf("a dry run changes something:\n%v", o)
	}
	n.check(n.plain(docs, "", append(words, "publish", "-f", "pv.yaml")...), 0)
	if k.sees(n.root) != 1 || n.mounts() != "" {
		t.Fatalf("the kubelet sees %d mounts, and we see %q", k.sees(n.root), n.mounts())
	}
	if left := k.there("ls " + docs); left != "pv.yaml\n" {
		t.Errorf("kvol's own directories came to be where the kubelet is: %s", left)
	}
	n.check(n.plain(docs, "", "history", "--config", "config.yaml"), 0, "pv", "done")
	for _, root := range [][]string{nil, {"--root-dir", n.root}} {
		o := n.plain(docs, "", append([]string{"list-mounts", "--config", "config.yaml", "-o", "json"}, root...)...)
		if got := len(decode[api.List[api.Mount]](t, o.stdout).Items); got != 1 {
			t.Errorf("%d mounts are listed:\n%v", got, o)
		}
	}
	n.check(n.plain(docs, "", "unpublish", "pv", "--config", "config.yaml", "--pod-uid", podA, "--root-dir", n.root), 0)
	if k.sees(n.root) != 0 {
		t.Error("it is not taken down")
	}
	// By standard input, and by a pipe that only this process has.
	text, err := os.ReadFile(docs + "/pv.yaml")
	must(t, err)
	n.check(n.plain(docs, string(text), append(words, "publish", "-f", "-")...), 0)
	shell := fmt.Sprintf("%s unpublish -f <(cat pv.yaml) %s", n.kvolPath, strings.Join(words, " "))
	n.check(n.started(docs, "", "bash", "-c", shell), 0)
	if k.sees(n.root) != 0 {
		t.Error("it is not taken down by a document in a pipe")
	}
	o = n.check(n.plain(docs, "", "paths", "pv.yaml", "--config", "config.yaml", "-o", "json"), 0)
	if !strings.Contains(o.stdout, docs+"/pv.yaml") {
		t.Errorf("a path is not the operator's:\n%v", o)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Who works in the kubelet's namespace shares the locks with who works outside.
func TestKubeletNamespaceLocks(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA, "--root-dir", n.root)
	k := n.kubelet(kubeletSpec{under: own, setup: "mkdir -p " + n.run + "; mount -t tmpfs none " + n.run})
	locks, err := filepath.Glob(n.run + "/root-*.lock")
	must(t, err)
	f, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	must(t, err, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	n.mustPlain(10, []string{n.root}, "publish", "-f", file, "--pod-uid", podB, "--lock-timeout", "50ms")
	must(t, f.Close())
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podB)
	if k.sees(n.root) != 2 {
		t.Errorf("the kubelet sees %d mounts", k.sees(n.root))
	}
}

// The script of a dry run works only where it was made for.
func TestKubeletNamespaceScript(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	k := n.kubelet(kubeletSpec{under: own})
	script := n.file("script", n.mustPlain(0, nil, "publish", "-f", n.pv("pv", n.dir+"/data"), "--pod-uid", podA, "--dry-run", "-o", "shell").stdout)
	n.check(n.started(n.dir, "", "bash", script), 4, "mnt:[")
	n.check(n.started(n.dir, "", "nsenter", "--target", fmt.Sprint(k.pid), "--mount", "bash", script), 0)
	if k.sees(n.root) != 1 || n.mounts() != "" {
		t.Errorf("the kubelet sees %d mounts, and we see %q", k.sees(n.root), n.mounts())
	}
}

// A root directory that is only where the kubelet is, by the name that it has there:
// of a node in a container. A chroot in the same namespace is such a place too.
func TestKubeletElsewhere(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755), os.Mkdir(n.dir+"/own", 0o755))
	file, root := n.pv("pv", n.dir+"/data"), n.dir+"/own/kubelet"
	k := n.kubelet(kubeletSpec{under: own, setup: "mount -t tmpfs none " + n.dir + "/own", args: []string{"--root-dir=" + root}})
	for _, given := range [][]string{nil, {"--root-dir", root}, {"--mount-namespace", fmt.Sprint(k.pid)}} {
		n.mustPlain(0, nil, append([]string{"publish", "-f", file, "--pod-uid", podA}, given...)...)
		if k.sees(root) != 1 {
			t.Errorf("%v: the kubelet sees %d mounts", given, k.sees(root))
		}
		testutil.Poll(t, "completion has what the kubelet sees", func() bool { // which waits for nothing
			return strings.Contains(n.plain("", "", append(append([]string{"__complete", "unpublish"}, given...), "p")...).stdout, "pv\t")
		})
		n.mustPlain(0, []string{root}, append([]string{"unpublish", "pv", "--pod-uid", podA}, given...)...)
	}
	if exists(root) {
		t.Error("the directory came to be outside")
	}
	// A container that has the machine's /proc in another place.
	proc := n.dir + "/proc"
	must(t, os.Mkdir(proc, 0o755))
	testutil.Mount(t, "/proc", proc, "", unix.MS_BIND|unix.MS_REC, "")
	n.mustPlain(0, nil, "publish", "-f", file, "--pod-uid", podA, "--proc-root", proc)
	if k.sees(root) != 1 {
		t.Errorf("with another --proc-root the kubelet sees %d mounts", k.sees(root))
	}
	k.end()

	jail := n.dir + "/jail"
	must(t, os.Mkdir(jail, 0o755))
	n.kubelet(kubeletSpec{under: own, args: []string{"--root-dir=/var/lib/kubelet"}, env: []string{"FAKELET_ROOT=" + jail + "/var/lib/kubelet", "FAKELET_CHROOT=" + jail},
		setup: "cd " + jail + "; mkdir data dev proc sys; mount -t proc proc proc; mount --rbind /dev dev; mount --rbind /sys sys"})
	text := strings.ReplaceAll(string(first(os.ReadFile(file))), n.dir+"/data", "/data")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	n.mustPlain(0, []string{"/var/lib/kubelet/pods/" + podA}, "publish", "-f", file, "--pod-uid", podA)
	if !exists(jail+"/var/lib/kubelet/pods/"+podA) || exists("/var/lib/kubelet/pods/"+podA) {
		t.Error("the volume is not where the kubelet has its root")
	}
}

// Where kvol cannot go it changes nothing and says how; who only looks is told that
// it sees something else.
func TestKubeletOutOfReach(t *testing.T) {
	testutil.Tool(t, "setpriv")
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	bare := []string{"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", n.kvolPath}
	const without = "its /proc does not have this process"
	for name, c := range map[string]struct {
		kubelet, kvol []string
		why           string
	}{
		"no right":          {own, bare, "operation not permitted"},
		"its own processes": {append(slices.Clone(own), "--pid", "--fork", "--kill-child", "--mount-proc"), []string{n.kvolPath}, without},
		"no /proc":          {own, []string{n.kvolPath}, without},
	} {
		t.Run(name, func(t *testing.T) {
			s := kubeletSpec{under: c.kubelet}
			if name == "no /proc" {
				s.setup = "mount -t tmpfs none /proc"
			}
			k := n.kubelet(s)
			pid := k.pid
			if name == "its own processes" {
				pid = child(t, k.pid)
			}
			way := fmt.Sprintf("nsenter --target %d --mount", pid)
			n.unchanged(func() {
				n.check(n.started(n.dir, "", append(c.kvol, "publish", "-f", file, "--pod-uid", podA)...), 4, c.why, way, "publish -f "+file)
				n.check(n.started(n.dir, "", append(c.kvol, "publish", "-f", file, "--pod-uid", podA, "--root-dir", n.root)...), 4, way)
				n.check(n.started(n.dir, "", append(c.kvol, "publish", "-f", file, "--pod-uid", podA, "--dry-run")...), 4, way)
			})
			n.check(n.started(n.dir, "", append(c.kvol, "list-mounts")...), 0, fmt.Sprintf("the kubelet (pid %d) is in another mount namespace; what it sees differs", pid))
			n.check(n.started(n.dir, "", append(c.kvol, "list-mounts", "--mount-namespace", fmt.Sprint(pid))...), 4, way)
			k.end()
		})
	}
	n.mustPlain(5, []string{"no process 2999999"}, "list-mounts", "--mount-namespace", "2999999")
	n.mustPlain(2, nil, "list-mounts", "--mount-namespace", "-1")
}

// child is the only child of a process.
func child(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	must(t, err)
	var child int
	_, err = fmt.Sscan(string(text), &child)
	must(t, err)
	return child
}

// kvol goes to another namespace once, and acts there only while there is a kubelet:
// the namespace of one that ended would end with kvol, and its mounts with it.
func TestKubeletGoneMeanwhile(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	ns, err := os.Readlink("/proc/self/ns/mnt")
	must(t, err)
	handed := func(mountNS string, left time.Duration) out {
		text, err := exact.Marshal(struct {
			PID              int
			MountNS, RootDir string
			Kubelet          bool
			Until            time.Time
			Origins          map[string]string
			Files            map[string][]byte
		}{12345, mountNS, n.root, true, time.Now().Add(left), map[string]string{}, map[string][]byte{file: first(os.ReadFile(file)), "/etc/kvol/config.yaml": nil}})
		must(t, err)
		fd, err := unix.MemfdCreate("handed", 0)
		must(t, err)
		letter := os.NewFile(uintptr(fd), "handed")
		defer letter.Close()
		if _, err = letter.Write(text); err == nil {
			_, err = letter.Seek(0, 0)
		}
		must(t, err)
		cmd := exec.CommandContext(context.Background(), n.kvolPath, append([]string{"publish", "-f", file, "--pod-uid", podA}, n.flags()...)...)
		cmd.Env = append(os.Environ(), "KVOL_HANDED_OVER=3", "NO_COLOR=1")
		cmd.ExtraFiles = []*os.File{letter}
		said, _ := cmd.CombinedOutput()
		return out{args: cmd.Args, code: cmd.ProcessState.ExitCode(), stderr: string(said)}
	}
	n.unchanged(func() {
		n.check(handed(ns, time.Minute), 8, "the kubelet (pid 12345) has ended meanwhile")
		n.check(handed("mnt:[1]", time.Minute), 1, "and not in mnt:[1]")
	})
	n.kubelet(kubeletSpec{})
	n.unchanged(func() { n.check(handed(ns, -time.Minute), 8) }) // there is one limit for both
	n.check(handed(ns, time.Minute), 0)
	n.env = []string{"KVOL_HANDED_OVER=77"}
	n.mustPlain(2, []string{"KVOL_HANDED_OVER"}, "list-mounts")
}
