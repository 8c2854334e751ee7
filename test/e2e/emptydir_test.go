package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// ephemeralPod writes a Pod with one emptyDir of each medium, and more lines of its spec.
func (n *node) ephemeralPod(more ...string) string {
	n.t.Helper()
	return n.file("pod.yaml", `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: d, uid: `+podA+`}
spec:
  containers:
  - {name: c, image: x, resources: {requests: {hugepages-2Mi: 4Mi}}}
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 3Mi}}
  - {name: unlimited, emptyDir: {medium: Memory}}
  - {name: huge, emptyDir: {medium: HugePages}}
  - {name: bad, emptyDir: {medium: Floppy}}
  - {name: odd, emptyDir: {medium: HugePages-16Mi}}
`+strings.Join(more, "\n"))
}

func (n *node) emptyDir(name string) string {
	return n.root + "/pods/" + podA + "/volumes/kubernetes.io~empty-dir/" + name
}

func (n *node) ready(name string) string {
	return n.root + "/pods/" + podA + "/plugins/kubernetes.io~empty-dir/" + name + "/ready"
}

// Each medium goes up and down twice, and is on the way what a kubelet makes of it.
func TestEmptyDirUpAndDown(t *testing.T) {
	n := newNode(t)
	pod := n.ephemeralPod()
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for name, mount := range map[string]string{
		"disk": "", "memory": `tmpfs "tmpfs" rw,relatime rw,size=3072k`, "unlimited": `tmpfs "tmpfs" rw,relatime rw`,
		"huge": `hugetlbfs "nodev" rw,relatime rw,pagesize=2M`,
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			n.must(0, "unpublish", name, "--pod-uid", podA)
			n.must(0, "setup", "-f", pod, "--volume", name)
			if m := n.mounts(); mount == "" && m != "" || !strings.Contains(m, mount) {
				t.Errorf("mounted is %s, want %s", m, mount)
			}
			if info, err := os.Stat(n.emptyDir(name)); err != nil || name == "disk" && info.Mode().Perm() != 0o777 {
				t.Errorf("%v %v", info.Mode(), err)
			}
			if raw, err := os.ReadFile(n.ready(name)); err != nil || len(raw) > 0 {
				t.Errorf("the ready marker: %q %v", raw, err)
			}
			if m := n.list()[n.emptyDir(name)]; m.Plugin != "kubernetes.io/empty-dir" || m.State != "ok" || m.Mounted != (mount != "") {
				t.Errorf("list-mounts has %+v", m)
			}
			twice(n, []string{"setup", "-f", pod, "--volume", name})
			twice(n, []string{"publish", "-f", pod, "--volume", name})
			n.must(0, "teardown", name, "--pod-uid", podA)
			twice(n, []string{"teardown", name, "--pod-uid", podA})
			twice(n, []string{"teardown", "-f", pod, "--volume", name})
			if exists(n.emptyDir(name)) || exists(filepath.Dir(n.ready(name))) || n.mounts() != "" {
				t.Errorf("left:\n%s%s", n.tree(), n.mounts())
			}
		})
	}
}

// What is in an emptyDir is a pod's: it stays until its owner gives it away, and on
// disk even then.
func TestEmptyDirKeepsItsContent(t *testing.T) {
	n := newNode(t)
	pod, away := n.ephemeralPod(), n.dir+"/away"
	must(t, os.Mkdir(away, 0o700))
	for _, name := range []string{"disk", "memory"} {
		n.must(0, "setup", "-f", pod, "--volume", name)
		must(t, os.MkdirAll(n.emptyDir(name)+"/a/b", 0o755), os.WriteFile(n.emptyDir(name)+"/a/b/f", []byte("12345"), 0o644))
		flags := [][]string{nil, {"--quarantine", away}, {"--lazy", "--force-umount"}}
		if name == "disk" {
			flags = append(flags, []string{"--discard-ephemeral"})
		}
		before := n.tree() + n.mounts()
		for _, verb := range []string{"unpublish", "teardown"} {
			for _, f := range flags {
				for _, dry := range []string{"--dry-run=true", "--dry-run=false"} {
					o := n.must(4, append([]string{verb, name, "--pod-uid", podA, dry}, f...)...)
					if !strings.Contains(o.stderr, "3 entries with 5 bytes") || !strings.Contains(o.stderr, "--discard-ephemeral") && !strings.Contains(o.stderr, "--quarantine DIR") {
						t.Errorf("%v", o)
					}
				}
			}
		}
		if after := n.tree() + n.mounts(); after != before {
			t.Errorf("a refusal changed\n%s\nto\n%s", before, after)
		}
		discard := []string{"teardown", name, "--pod-uid", podA, "--discard-ephemeral", "--quarantine", away}
		n.must(0, append(discard, "--dry-run")...)
		if after := n.tree() + n.mounts(); after != before {
			t.Errorf("a dry run changed\n%s\nto\n%s", before, after)
		}
		o := n.must(0, discard...)
		kept := away + "/" + podA + "_kubernetes.io~empty-dir_" + name
		if said := strings.Contains(o.stderr, kept); exists(kept+"/a/b/f") != (name == "disk") || said != (name == "disk") {
			t.Errorf("kept %t, said %v", exists(kept+"/a/b/f"), o)
		}
		n.must(0, discard...)
	}
	if h := n.must(0, "history", "-o", "json").stdout; !strings.Contains(h, `"--discard-ephemeral"`) {
		t.Errorf("the history does not have the risk:\n%s", h)
	}
}

// The directory for what is moved away has to be one where nothing is lost, or shown
// to others; it is looked at before anything is done.
func TestEmptyDirQuarantineRefused(t *testing.T) {
	n := newNode(t)
	n.must(0, "setup", "-f", n.ephemeralPod(), "--volume", "disk")
	must(t, os.WriteFile(n.emptyDir("disk")+"/f", nil, 0o644), os.Mkdir(n.dir+"/other", 0o700), os.Mkdir(n.dir+"/open", 0o755),
		os.Mkdir(n.root+"/inside", 0o700), os.Symlink(n.dir+"/open", n.dir+"/link"), os.WriteFile(n.dir+"/file", nil, 0o600))
	testutil.Tmpfs(t, n.dir+"/other")
	before := n.tree()
	for dir, code := range map[string]int{
		n.dir + "/missing": 5, n.dir + "/other": 4, n.dir + "/open": 4, n.root + "/inside": 4, n.dir + "/link": 4, n.dir + "/file": 4, "relative": 2,
	} {
		n.must(code, "unpublish", "disk", "--pod-uid", podA, "--discard-ephemeral", "--quarantine", dir)
		if after := n.tree(); after != before {
			t.Errorf("%s: the refusal changed the tree to\n%s", dir, after)
		}
	}
}

// The marker says that a volume is ready; what it says of one that is not is no
// reason to leave it so, and what is there without it is no reason to lose it.
func TestEmptyDirMarker(t *testing.T) {
	n := newNode(t)
	pod := n.ephemeralPod()
	for _, name := range []string{"disk", "memory"} {
		up := []string{"setup", "-f", pod, "--volume", name}
		n.must(0, up...)
		whole := n.tree() + n.mounts()
		// The directory, or the mount, is gone.
		if name == "disk" {
			must(t, os.Remove(n.emptyDir(name)))
		} else {
			must(t, unix.Unmount(n.emptyDir(name), 0))
		}
		n.must(0, up...)
		// The marker is gone: a run that was cut short.
		must(t, os.WriteFile(n.emptyDir(name)+"/f", []byte("1"), 0o644), os.Remove(n.ready(name)))
		if name == "disk" {
			must(t, os.Chmod(n.emptyDir(name), 0o700)) // by a umask
		}
		n.must(0, up...)
		must(t, os.Remove(n.emptyDir(name)+"/f"))
		if again := n.tree() + n.mounts(); again != whole {
			t.Errorf("was\n%s\nis\n%s", whole, again)
		}
	}
	// A restart of the node: mounts are gone, files are not.
	must(t, unix.Unmount(n.emptyDir("memory"), 0))
	n.must(0, "teardown", "memory", "--pod-uid", podA)
	if exists(n.emptyDir("memory")) || exists(n.ready("memory")) {
		t.Errorf("left:\n%s", n.tree())
	}
}

// fsGroup is applied when the volume is made, as far as it was not; what the pod did
// with it since is its own.
func TestEmptyDirFSGroup(t *testing.T) {
	n := newNode(t)
	pod := n.ephemeralPod("  securityContext: {fsGroup: 2001}")
	for _, name := range []string{"disk", "memory", "huge"} {
		n.must(0, "setup", "-f", pod, "--volume", name)
		var st unix.Stat_t
		must(t, unix.Stat(n.emptyDir(name), &st))
		if st.Gid != 2001 || st.Mode&0o2770 != 0o2770 {
			t.Errorf("%s: group %d, mode %o", name, st.Gid, st.Mode)
		}
		must(t, os.Chown(n.emptyDir(name), 7, 7))
		twice(n, []string{"setup", "-f", pod, "--volume", name})
		must(t, os.Remove(n.ready(name)))
		n.must(0, "setup", "-f", pod, "--volume", name)
		must(t, unix.Stat(n.emptyDir(name), &st))
		if st.Gid != 2001 {
			t.Errorf("%s: group %d after a run that was cut short", name, st.Gid)
		}
	}
}

func TestEmptyDirBadInput(t *testing.T) {
	n := newNode(t)
	pod := n.ephemeralPod()
	before := n.tree()
	n.must(2, "setup", "-f", pod, "--volume", "bad")
	n.must(6, "setup", "-f", pod, "--volume", "odd", "--dry-run")
	n.must(6, "setup", "-f", pod, "--volume", "odd")
	for what, spec := range map[string]string{
		"no request for huge pages": "volumes: [{name: v, emptyDir: {medium: HugePages}}]",
		"two sizes": `containers: [{name: c, image: x, resources: {requests: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi}}}]
  volumes: [{name: v, emptyDir: {medium: HugePages}}]`,
		"a negative limit": "volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: -1Mi}}]",
		"an odd mode":      "volumes: [{name: v, emptyDir: {mode: 4095}}]",
		"no size":          "volumes: [{name: v, emptyDir: {medium: HugePages-}}]",
	} {
		file := n.file("bad.yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: d, uid: %s}\nspec:\n  %s\n", podB, spec))
		if o := n.kvol("setup", "-f", file); o.code != 2 {
			t.Errorf("%s: %v", what, o)
		}
	}
	if after := n.tree(); after != before {
		t.Errorf("bad input left\n%s", after)
	}
	// Something else where the volume belongs, and something mounted inside of it.
	must(t, os.MkdirAll(n.emptyDir("disk"), 0o777), os.MkdirAll(n.emptyDir("huge"), 0o777), os.WriteFile(n.emptyDir("memory"), nil, 0o600))
	testutil.Tmpfs(t, n.emptyDir("disk"))
	testutil.Tmpfs(t, n.emptyDir("huge"))
	for _, name := range []string{"disk", "huge", "memory"} {
		n.must(4, "setup", "-f", pod, "--volume", name)
	}
	n.must(4, "teardown", "memory", "--pod-uid", podA)
	must(t, unix.Unmount(n.emptyDir("disk"), 0))
	n.must(0, "setup", "-f", pod, "--volume", "disk")
	must(t, os.Mkdir(n.emptyDir("disk")+"/in", 0o755))
	testutil.Tmpfs(t, n.emptyDir("disk")+"/in")
	n.must(9, "teardown", "disk", "--pod-uid", podA, "--discard-ephemeral", "--quarantine", n.dir)
	if !exists(n.ready("disk")) {
		t.Error("a refusal took the ready marker")
	}
}

// The scripts of the plans do what the verbs do.
func TestScriptOfEmptyDir(t *testing.T) {
	newVolume := func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		must(t, os.Mkdir(n.dir+"/away", 0o700))
		return n, n.ephemeralPod("  securityContext: {fsGroup: 2001}"), "none"
	}
	vol := `"$ROOT/pods/$UID_A/volumes/kubernetes.io~empty-dir/`
	for _, name := range []string{"disk", "memory", "huge"} {
		up := `kvol setup -f "$FILE" --volume ` + name
		scenario{"up " + name, "", strings.TrimPrefix(up, "kvol ")}.same(t, newVolume)
		scenario{"down " + name, up, "teardown " + name + " --pod-uid $UID_A"}.same(t, newVolume)
	}
	scenario{"marker without a directory", `kvol setup -f "$FILE" --volume disk; rmdir ` + vol + `disk"`, `setup -f "$FILE" --volume disk`}.same(t, newVolume)
	scenario{"content moved away", `kvol setup -f "$FILE" --volume disk; echo 1 >` + vol + `disk/f"`,
		`teardown disk --pod-uid $UID_A --discard-ephemeral --quarantine "$DIR/away"`}.same(t, newVolume)
	scenario{"content lost", `kvol setup -f "$FILE" --volume memory; echo 1 >` + vol + `memory/f"`,
		`teardown memory --pod-uid $UID_A --discard-ephemeral`}.same(t, newVolume)
}

// The flags are those of the commands that take a volume from a pod.
func TestDiscardFlags(t *testing.T) {
	n := newNode(t)
	for _, verb := range []string{"setup", "publish", "detach", "unmount-device", "expand", "unpublish", "teardown"} {
		help := n.kvol(verb, "--help").stdout
		if has := strings.Contains(help, "--discard-ephemeral"); has != slices.Contains([]string{"unpublish", "teardown"}, verb) {
			t.Errorf("kvol %s has --discard-ephemeral: %t", verb, has)
		}
	}
}
