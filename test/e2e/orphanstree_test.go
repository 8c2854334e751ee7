package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// orphanNode is a node with pods as a kubelet leaves them.
type orphanNode struct {
	*csiNode
	files map[string]string // what users wrote: path, content
}

func newOrphans(t *testing.T, change ...func(*testutil.CSIControl)) *orphanNode {
	t.Helper()
	return &orphanNode{newCSI(t, change...), map[string]string{}}
}

// podGone is an API server's pod that no list has; podA lives in these tests, podStatic
// is gone as well.
const podGone = "0a1b2c3d-0000-4000-8000-0000000000ff"

func (n *orphanNode) pod(uid string) string { return n.root + "/pods/" + uid }

// write makes a file with the directories above it.
func (n *orphanNode) write(path, text string) {
	n.t.Helper()
	must(n.t, os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o644))
}

// user is write, of what must never be lost.
func (n *orphanNode) user(path, text string) {
	n.t.Helper()
	n.write(path, text)
	n.files[path] = text
}

// kept wants what users wrote where they wrote it, or where that was moved to.
func (n *orphanNode) kept(moved ...string) {
	n.t.Helper()
	for path, text := range n.files {
		for i := 0; i+1 < len(moved); i += 2 {
			path = strings.Replace(path, moved[i], moved[i+1], 1)
		}
		if got := readText(n.t, path); got != text {
			n.t.Errorf("%s holds %q, not %q", path, got, text)
		}
	}
}

// leave makes what a kubelet has of every pod, and these volumes: an empty emptyDir, a
// configMap on disk, a secret and a Memory emptyDir.
func (n *orphanNode) leave(uid string) {
	n.t.Helper()
	pod := n.pod(uid)
	n.write(pod+"/etc-hosts", "127.0.0.1 localhost\n")
	n.write(pod+"/userns", "{}")
	n.write(pod+"/containers/main/4f937ac4", "")
	n.write(pod+"/containers/main/5f937ac4", "last words")
	for _, name := range []string{"empty", "mem", "wrapped_cm", "wrapped_sec"} {
		n.write(pod+"/plugins/kubernetes.io~empty-dir/"+name+"/ready", "")
	}
	for _, volume := range []string{"empty-dir/empty", "empty-dir/mem", "secret/sec", "configmap/cm"} {
		must(n.t, os.MkdirAll(pod+"/volumes/kubernetes.io~"+volume, 0o777))
	}
	testutil.Tmpfs(n.t, pod+"/volumes/kubernetes.io~empty-dir/mem")
	testutil.Tmpfs(n.t, pod+"/volumes/kubernetes.io~secret/sec")
	n.written(pod + "/volumes/kubernetes.io~secret/sec")
	n.written(pod + "/volumes/kubernetes.io~configmap/cm")
	n.subPath(uid, "empty", 0, pod+"/volumes/kubernetes.io~empty-dir/empty")
	n.subPath(uid, "cm", 1, pod+"/volumes/kubernetes.io~configmap/cm/..2026_11_21_10_00_00.21/a.conf")
}

// written is what the atomic writer makes, with a key in a directory and what an
// interrupted update left.
func (n *orphanNode) written(dir string) {
	n.t.Helper()
	n.write(dir+"/..2026_11_21_10_00_00.21/a.conf", "a=1\n")
	n.write(dir+"/..2026_11_21_10_00_00.21/sub/b.conf", "b=1\n")
	n.write(dir+"/..2026_11_20_10_00_00.20/old", "")
	must(n.t, os.Mkdir(dir+"/sub", 0o755), os.Symlink("..2026_11_21_10_00_00.21", dir+"/..data"), os.Symlink("..2026_11_20_10_00_00.20", dir+"/..data_tmp"),
		os.Symlink("..data/a.conf", dir+"/a.conf"), os.Symlink("../..data/sub/b.conf", dir+"/sub/b.conf"))
}

func (n *orphanNode) subPath(uid, volume string, index int, from string) {
	n.t.Helper()
	at := n.pod(uid) + "/volume-subpaths/" + volume + "/main/" + string(rune('0'+index))
	info, err := os.Stat(from)
	must(n.t, err)
	if info.IsDir() {
		must(n.t, os.MkdirAll(at, 0o750))
	} else {
		n.write(at, "")
	}
	testutil.Bind(n.t, from, at, false)
}

// disk is a loop device that everything is taken off in time at the end.
func (n *orphanNode) disk(bytes int64) (dev, img string) {
	n.t.Helper()
	dev, img = testutil.LoopImage(n.t, bytes)
	n.t.Cleanup(n.sweep)
	return dev, img
}

// volumes brings a volume of every kind up for a pod; name is in the names of all.
func (n *orphanNode) volumes(uid, name string) {
	n.t.Helper()
	local := n.dir + "/local-" + name
	must(n.t, os.Mkdir(local, 0o755))
	n.must(0, "setup", "-f", n.pv("dir-"+name, local), "--pod-uid", uid)
	n.user(local+"/precious", "local "+name)
	n.subPath(uid, "dir-"+name, 2, n.podVolume(uid, "dir-"+name)+"/precious")

	disk, _ := n.disk(16 << 20)
	testutil.Mkfs(n.t, disk, "ext4")
	n.must(0, "setup", "-f", n.pv("disk-"+name, disk, "fsType: ext4"), "--pod-uid", uid)
	n.write(n.podVolume(uid, "disk-"+name)+"/precious", "disk "+name)
	raw, _ := n.disk(4 << 20)
	n.must(0, "setup", "-f", n.pv("raw-"+name, raw, "volumeMode: Block"), "--pod-uid", uid)

	n.must(0, setUp(uid, n.unattached(), n.volume("csi-"+name, "vol-"+name))...)
	n.write(n.target(uid, "csi-"+name)+"/precious", "csi "+name)
	n.must(0, setUp(uid, n.unattached(), n.volume("block-"+name, "blk-"+name, "volumeMode: Block"))...)
	pod := n.inlinePod(uid)
	n.must(0, setUp("", n.driver("attachRequired: false", "podInfoOnMount: true", "volumeLifecycleModes: [Ephemeral]"), pod)...)
}

// again wants what was written into volumes of their own file systems, by having
// them up in another pod.
func (n *orphanNode) again(name string) {
	n.t.Helper()
	n.must(0, "setup", "-f", n.dir+"/disk-"+name+".yaml", "--pod-uid", podGone)
	n.must(0, setUp(podGone, n.unattached(), n.dir+"/csi-"+name+".yaml")...)
	for path, want := range map[string]string{n.podVolume(podGone, "disk-"+name): "disk " + name, n.target(podGone, "csi-"+name): "csi " + name} {
		if got := readText(n.t, path+"/precious"); got != want {
			n.t.Errorf("%s holds %q, not %q", path, got, want)
		}
	}
}

// gc runs gc-orphans with the list of live pods, and gives what it says by path below
// the root.
func (n *orphanNode) gc(code int, args ...string) map[string]api.Orphan {
	n.t.Helper()
	args = append([]string{"gc-orphans", "--pods-from", "file:" + n.live(podA), "--min-age", "0", "-o", "json"}, args...)
	return n.byPath(n.must(code, args...))
}

func (n *orphanNode) byPath(o out) map[string]api.Orphan {
	n.t.Helper()
	all := map[string]api.Orphan{}
	for _, item := range decode[api.List[api.Orphan]](n.t, o.stdout).Items {
		all[strings.TrimPrefix(item.Path, n.root+"/")] = item
	}
	return all
}

// live is a list of live pods that was written now.
func (n *orphanNode) live(uids ...string) string {
	n.t.Helper()
	path, now := n.file("pods.txt", strings.Join(uids, "\n")+"\n"), time.Now() // the clock that files are stamped by is behind
	must(n.t, os.Chtimes(path, now, now))
	return path
}

// complaints are what a kubelet's housekeeping would have to say of a pod's directory
// (cleanupOrphanedPodDirs, kubelet-layout.md 7.2): volume paths that are mounted or
// cannot be removed, subpaths, and files in the volumes directory.
func (n *orphanNode) complaints(uid string) []string {
	n.t.Helper()
	var out []string
	mounted := n.mounts()
	volumes, _ := filepath.Glob(n.pod(uid) + "/volumes/*/*")
	for _, path := range volumes {
		if filepath.Base(filepath.Dir(path)) == "kubernetes.io~csi" {
			if path += "/mount"; !exists(path) {
				continue
			}
		}
		entries, err := os.ReadDir(path)
		if strings.Contains(mounted, `"`+strings.Replace(path, n.root, ".", 1)+`"`) || err != nil || len(entries) > 0 {
			out = append(out, path)
		}
	}
	subPaths, _ := filepath.Glob(n.pod(uid) + "/volume-subpaths/*/*/*")
	out = append(out, subPaths...)
	_ = filepath.WalkDir(n.pod(uid)+"/volumes", func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.ContainsFunc(out, func(p string) bool { return strings.HasPrefix(path, p+"/") }) {
			out = append(out, path)
		}
		return nil
	})
	return out
}
