package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// settings are those that config view shows, by name.
func (n *node) settings(words ...string) map[string]api.Setting {
	n.t.Helper()
	o := n.mustPlain(0, nil, append([]string{"config", "view", "--show-origin", "-o", "json"}, words...)...)
	all := map[string]api.Setting{}
	for _, s := range decode[api.List[api.Setting]](n.t, o.stdout).Items {
		all[s.Name] = s
	}
	return all
}

// A kubelet that runs says where the root directory is and how the node is called,
// unless the operator does.
func TestKubeletSaysTheRoot(t *testing.T) {
	n := newNode(t)
	if s := n.settings()["root-dir"]; s.Value != "/var/lib/kubelet" || s.Origin != "default" {
		t.Errorf("without a kubelet the root directory is %+v", s)
	}
	k := n.kubelet(kubeletSpec{args: []string{"--v=2", "--root-dir", n.root, "--hostname_override=Node7"}})
	origin := fmt.Sprintf("kubelet (pid %d)", k.pid)
	for name, want := range map[string]string{"root-dir": n.root, "node-name": "node7"} {
		if s := n.settings()[name]; s.Value != want || s.Origin != origin {
			t.Errorf("%s is %+v, want %s of %s", name, s, want, origin)
		}
	}
	if s := n.settings("--root-dir", "/else")["root-dir"]; s.Value != "/else" || s.Origin != "flag" {
		t.Errorf("a root directory that is given is %+v", s)
	}
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file := n.pv("pv", n.dir+"/data")
	n.mustPlain(0, []string{n.podVolume(podA, "pv")}, "publish", "-f", file, "--pod-uid", podA)
	n.mustPlain(0, []string{n.podVolume(podA, "pv")}, "list-mounts")
	n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA)
	k.end()
	if s := n.settings()["root-dir"]; s.Origin != "default" {
		t.Errorf("after the kubelet's end the root directory is %+v", s)
	}
}

// The kubelet's root directory is one, however it is called: by the kubelet, by the
// operator, by a second kubelet (one that is being replaced).
func TestKubeletRootByLink(t *testing.T) {
	n := newNode(t)
	link := n.dir + "/link"
	must(t, os.Symlink("kubelet", link), os.Mkdir(n.dir+"/data", 0o755))
	k := n.kubelet(kubeletSpec{under: own, args: []string{"--root-dir=" + link}})
	file := n.pv("pv", n.dir+"/data")
	for _, root := range [][]string{nil, {"--root-dir", n.root}, {"--root-dir", link}} {
		n.mustPlain(0, nil, append([]string{"publish", "-f", file, "--pod-uid", podA}, root...)...)
		if k.sees(n.root) != 1 || n.mounts() != "" {
			t.Errorf("%v: the kubelet sees %d mounts, we see %q", root, k.sees(n.root), n.mounts())
		}
		n.mustPlain(0, nil, append([]string{"unpublish", "pv", "--pod-uid", podA}, root...)...)
	}
	n.kubelet(kubeletSpec{})
	n.mustPlain(0, nil, "list-mounts")

	// By a name that means something else where the kubelet is.
	n, view := newNode(t), n.dir+"/view"
	must(t, os.Mkdir(view, 0o755))
	k = n.kubelet(kubeletSpec{under: own, setup: "mount --bind " + n.root + " " + view + "; mount -t tmpfs none " + n.root, args: []string{"--root-dir=" + view}})
	n.mustPlain(0, []string{view}, "publish", "-f", file, "--pod-uid", podA, "--root-dir", n.root)
	if k.sees(view) != 1 || k.sees(n.root) != 0 {
		t.Errorf("the kubelet sees %d mounts in its root and %d in another", k.sees(view), k.sees(n.root))
	}
}

// Two kubelets that have different roots: which is meant has to be said.
func TestKubeletsApart(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	file, other := n.pv("pv", n.dir+"/data"), n.dir+"/other"
	a, b := n.kubelet(kubeletSpec{}), n.kubelet(kubeletSpec{under: own, args: []string{"--root-dir=" + other}})
	both := []string{fmt.Sprintf("pid %d: root directory %s", a.pid, n.root), fmt.Sprintf("pid %d: root directory %s", b.pid, other), "--root-dir", "--mount-namespace"}
	publish := []string{"publish", "-f", file, "--pod-uid", podA}
	n.mustPlain(4, both, publish...)
	n.mustPlain(4, both, append(publish, "--dry-run")...)
	n.mustPlain(4, both, "list-mounts")
	n.mustPlain(4, both, "inspect", "pv")
	n.mustPlain(0, nil, "history") // what needs no root directory needs no choice
	n.mustPlain(0, nil, "plugins")
	if s := n.settings()["root-dir"]; s.Value != "" || s.Origin != "several kubelets" {
		t.Errorf("the root directory is %+v", s)
	}
	// A document, for a script.
	e := decode[api.ErrorDoc](t, n.mustPlain(4, nil, "list-mounts", "-o", "json").stderr)
	if e.Reason != "Refused" || len(e.Details) != 2 {
		t.Errorf("%+v", e)
	}
	n.mustPlain(0, nil, append(publish, "--root-dir", n.root)...)
	n.mustPlain(0, nil, append(publish, "--mount-namespace", fmt.Sprint(b.pid))...)
	if b.sees(other) != 1 || b.sees(n.root) != 0 || a.sees(n.root) != 1 || a.sees(other) != 0 {
		t.Errorf("a:\n%s\nb:\n%s", a.there("cat /proc/self/mountinfo"), b.there("cat /proc/self/mountinfo"))
	}
	b.end()
	n.mustPlain(0, []string{n.podVolume(podA, "pv")}, "list-mounts")
	n.mustPlain(0, nil, "unpublish", "pv", "--pod-uid", podA)
}

// Everybody can call a program kubelet. Only the administrator's own can say where kvol
// works.
func TestKubeletThatIsNone(t *testing.T) {
	testutil.Tool(t, "setpriv")
	evil := []string{"--root-dir=/tmp"}
	for name, as := range map[string][]string{
		"another user":            {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"},
		"another user's, set-uid": {"setpriv", "--ruid=65534"},
		"root of a container":     {"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"},
		"root of its own":         {"unshare", "--user", "--map-root-user"},
		"root of its own, again":  {"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", "unshare", "--user", "--map-root-user"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			place := n.dir + "/evil"
			must(t, os.Chmod(n.dir, 0o755), os.Mkdir(place, 0o777), os.Chmod(place, 0o777))
			n.kubelet(kubeletSpec{as: as, args: evil, env: []string{"FAKELET_ROOT=" + place}})
			if s := n.settings()["root-dir"]; s.Origin != "default" {
				t.Errorf("it is believed: %+v", s)
			}
		})
	}
	t.Run("a link to another program", func(t *testing.T) {
		n := newNode(t)
		must(t, os.Mkdir(n.dir+"/real", 0o755), os.Mkdir(n.dir+"/bin", 0o755))
		path, err := testutil.Program("test/cmd/fakelet")
		must(t, err, os.Symlink(path, n.dir+"/bin/kubelet"))
		k := n.kubelet(kubeletSpec{args: evil, env: []string{"FAKELET_ROOT=" + n.dir + "/real"}})
		if comm, err := os.ReadFile(k.proc + "/comm"); err != nil || strings.TrimSpace(string(comm)) != "kubelet" {
			t.Fatalf("it is called %s (%v)", comm, err)
		}
		if s := n.settings()["root-dir"]; s.Origin != "default" {
			t.Errorf("it is believed: %+v", s)
		}
	})
}

// What has its kubelet within itself tells the root directory in its own way.
func TestKubeletWithin(t *testing.T) {
	for _, c := range []struct {
		name string
		kubeletSpec
		none bool
	}{
		{name: "k3s by its socket", kubeletSpec: kubeletSpec{name: "k3s", args: []string{"server"}}},
		{name: "k3s without an agent", kubeletSpec: kubeletSpec{name: "k3s", args: []string{"server", "--disable-agent"}}, none: true},
		{name: "k3s kubectl", kubeletSpec: kubeletSpec{name: "k3s", args: []string{"kubectl", "get", "pods"}}, none: true},
		{name: "kubelite", kubeletSpec: kubeletSpec{name: "kubelite", args: []string{"--start-control-plane=true"}}},
		{name: "hyperkube", kubeletSpec: kubeletSpec{name: "hyperkube", args: []string{"kubelet", "--root-dir", "ROOT"}}},
		{name: "hyperkube apiserver", kubeletSpec: kubeletSpec{name: "hyperkube", args: []string{"apiserver", "--root-dir", "ROOT"}}, none: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			for i, word := range c.args {
				c.args[i] = strings.Replace(word, "ROOT", n.root, 1)
			}
			c.env = []string{"FAKELET_ROOT=" + n.root}
			n.kubelet(c.kubeletSpec)
			want := n.root
			if c.none {
				want = "/var/lib/kubelet"
			}
			if s := n.settings()["root-dir"]; s.Value != want {
				t.Errorf("the root directory is %+v, want %s", s, filepath.Base(want))
			}
		})
	}
}
