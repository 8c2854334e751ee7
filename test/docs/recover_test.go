package docs

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

const script = "docs/tasks/recover-a-node.sh"

// The pods that are gone from the broken node, by what they left there.
const (
	goneFUSE    = "5e2d7a90-0000-4000-8000-000000000001"
	goneGluster = "5e2d7a90-0000-4000-8000-000000000002"
	goneBinds   = "5e2d7a90-0000-4000-8000-000000000003"
	goneStacked = "5e2d7a90-0000-4000-8000-000000000004"
	goneLeft    = "5e2d7a90-0000-4000-8000-000000000005"
	goneBusy    = "5e2d7a90-0000-4000-8000-000000000006"
	goneLoop    = "5e2d7a90-0000-4000-8000-000000000008"
	goneData    = "5e2d7a90-0000-4000-8000-000000000007"
)

// odd are names that no API server gives, of directories that somebody mounted on.
var odd = []string{"a blank", "a\nnewline", "it's \"quoted\"", "$(touch pwned) `touch pwned`", "-rf", "Größe 容量", `back\040slash`, "*"}

// oddBusy is the place of a dead mount that has to stay, since a process is in it, and how
// a shell shows it.
const oddBusy, oddShown = root + "/plugins/odd/in use\n(here)", root + `/plugins/odd/in use\n(here)`

// broken is a node with everything broken on it that the script is for.
type broken struct {
	*scene
	data map[string]string // what users wrote: where it is, and its digest
}

func newBroken(t *testing.T) *broken {
	s := newScene(t)
	b := &broken{scene: s, data: map[string]string{}}
	leaked := "plugins/kubernetes.io/local-volume/mounts/leaked"
	dirs := []string{"pods/" + web, leaked, strings.TrimPrefix(stagingOf("bucket/models"), root+"/"), strings.TrimPrefix(stagingOf("bucket/live"), root+"/")}
	for _, uid := range []string{goneFUSE, goneGluster, goneBinds, goneStacked, goneLeft, goneBusy, goneLoop, goneData} {
		dirs = append(dirs, "pods/"+uid)
	}
	s.old(dirs...)
	s.pods("pods.json", pod("web", web, "data"))
	s.env = append(s.env, "KVOL_PODS_FROM=file:"+s.dir+"/pods.json")

	b.live()
	// 1, 2: dead FUSE file systems, of a CSI driver and of another plugin.
	s.fuse("models", "bucket/models", goneFUSE).Kill()
	for _, name := range []string{"gv0", "gv 1\n$(touch pwned)"} {
		gluster := podDir(goneGluster) + "/volumes/kubernetes.io~glusterfs/" + name
		s.mkdir(gluster)
		testutil.FUSE(t, gluster, testutil.FUSEDead)
	}
	b.binds()
	b.leftovers()
	b.leak(leaked)
	b.stays()
	// 10: dead mounts that are no volumes, called what nobody should call anything.
	for _, name := range odd {
		at := root + "/plugins/odd/" + name
		s.mkdir(at)
		testutil.FUSE(t, at, testutil.FUSEDead)
	}
	s.mkdir(oddBusy)
	m := testutil.FUSE(t, oddBusy, testutil.FUSEAlive)
	b.daemon("cd $'" + strings.ReplaceAll(oddBusy, "\n", `\n`) + "' && exec sleep 1000")
	m.Kill()
	return b
}

// live is a pod that lives: with a volume whose metadata was cut short (7), one that is
// well, and one that is dead.
func (b *broken) live() {
	b.csi(web)
	b.user(target(web, pv) + "/orders")
	must(b.t, os.Truncate(csiDir(web, pv)+"/vol_data.json", 40))
	b.user(podDir(web) + "/volumes/kubernetes.io~empty-dir/cache/page")
	b.fuse("live", "bucket/live", web).Kill()
}

// binds are binds of directories: of one that was removed (3), and three on one another
// (4).
func (b *broken) binds() {
	stale := podDir(goneBinds) + "/volumes/kubernetes.io~local-volume/removed"
	source := b.dir + "/removed"
	b.mkdir(source)
	b.mkdir(stale)
	testutil.Bind(b.t, source, stale, false)
	must(b.t, os.Remove(source))

	stacked := podDir(goneStacked) + "/volumes/kubernetes.io~local-volume/stacked"
	b.mkdir(stacked)
	b.user(b.dir + "/stacked/file")
	for range 3 {
		testutil.Bind(b.t, b.dir+"/stacked", stacked, false)
	}
}

// leftovers are what is left of a pod when its mounts are gone (5).
func (b *broken) leftovers() {
	at := podDir(goneLeft)
	b.write(csiDir(goneLeft, pv)+"/vol_data.json", "")
	b.mkdir(target(goneLeft, pv))
	b.mkdir(at + "/volumes/kubernetes.io~empty-dir/cache")
	b.mkdir(at + "/volume-subpaths/data/main/0")
	b.write(at+"/volume-subpaths/data/main/1", "")
	b.write(at+"/etc-hosts", "127.0.0.1 localhost\n")
}

// leak is a global mount that no pod has (6).
func (b *broken) leak(dir string) {
	testutil.Mkfs(b.t, b.disk(16<<20), "ext4")
	testutil.Mount(b.t, sdb, root+"/"+dir, "ext4", 0, "")
	b.user(root + "/" + dir + "/ledger")
}

// stays is what has to stay: a volume that a process is in, which may be its pod's, and
// one with a file that is a disk (8), and data below a mount point (9).
func (b *broken) stays() {
	for _, uid := range []string{goneBusy, goneLoop} {
		b.mkdir(busy(uid))
		b.user(b.dir + "/" + uid + "/file")
		testutil.Bind(b.t, b.dir+"/"+uid, busy(uid), false)
	}
	b.daemon("cd " + busy(goneBusy) + " && exec sleep 1000")
	b.must("truncate -s 1M " + b.dir + "/" + goneLoop + "/disk")
	testutil.Loop(b.t, busy(goneLoop)+"/disk")
	b.user(podDir(goneData) + "/volumes/kubernetes.io~nfs/share/written while unmounted")
}

func busy(uid string) string { return podDir(uid) + "/volumes/kubernetes.io~local-volume/busy" }

// user writes what must not be lost.
func (b *broken) user(path string) {
	b.t.Helper()
	b.write(path, "of "+path)
	b.data[path] = digest(b.t, path)
}

func digest(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// The script takes away all that can go from a broken node, loses nothing of anybody,
// says what stays, and says the same when it is run again.
func TestRecoverANode(t *testing.T) {
	testutil.Tool(t, "shellcheck")
	b := newBroken(t)
	path := b.repository(script)
	b.must("shellcheck " + path)
	t.Logf("before:\n%s", b.must("kvol list-mounts"))

	first, code := b.run("bash " + path + " --unmount-others")
	t.Logf("%s", first)
	if code != 3 {
		t.Errorf("it ended with %d, not 3", code)
	}
	b.recovered(first)
	again, code := b.run("bash " + path + " --unmount-others")
	if code != 3 {
		t.Errorf("the second time it ended with %d, not 3:\n%s", code, again)
	}
	b.recovered(again)
	b.kept()
}

// It ends with 0 where all that was broken is gone, with 3 where nobody can tell what is
// gone, and with 2 where it is called wrongly.
func TestRecoverEnds(t *testing.T) {
	for _, c := range []struct {
		name, scene, words string
		code               int
		says               string
	}{
		{"all well", "orphans", "", 0, "== What stays ==\nnothing\n"},
		{"not proven", "live", "", 3, "refused, or not proven: which pods are gone\n"},
		{"wrong words", "empty", "--force", 2, "usage: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stage(t, c.scene)
			if said, code := s.run(s.repository(script) + " " + c.words); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("it ended with %d:\n%s", code, said)
			}
		})
	}
}

// recovered wants what can go to be gone, and what stays to be there and reported.
func (b *broken) recovered(said string) {
	b.t.Helper()
	mounted := b.must("cat /proc/self/mountinfo")
	for _, uid := range []string{goneFUSE, goneGluster, goneBinds, goneStacked, goneLeft} {
		if exists(podDir(uid)) {
			b.t.Errorf("%s is still there:\n%s", podDir(uid), b.must("find "+podDir(uid)+" 2>&1; kvol gc-orphans -o wide"))
		}
	}
	if n := strings.Count(mounted, "plugins/odd"); n != 1 { // the one in use
		b.t.Errorf("%d of plugins/odd are mounted:\n%s", n, mounted)
	}
	for _, what := range []string{"mounts/leaked", stagingOf("bucket/models")} {
		if strings.Contains(mounted, what) {
			b.t.Errorf("%s is still mounted:\n%s", what, mounted)
		}
	}
	_, report, _ := strings.Cut(said, "== What stays ==\n")
	if strings.Contains(report, "--apply") {
		b.t.Errorf("it gives advice that it has followed:\n%s", report)
	}
	for _, what := range []string{
		"not known: " + busy(goneBusy), "gone: " + busy(goneLoop),
		podDir(goneData) + "/volumes/kubernetes.io~nfs/share",
		target(web, "live"), "umount could not: $'" + oddShown + "'", "kvol gc-orphans -o wide",
	} {
		if !strings.Contains(report, what) {
			b.t.Errorf("it says nothing of %s:\n%s", what, report)
		}
	}
	for _, path := range []string{busy(goneBusy), busy(goneLoop), target(web, pv), target(web, "live")} {
		if !strings.Contains(mounted, " "+path+" ") {
			b.t.Errorf("%s is not mounted any more", path)
		}
	}
	if data, err := os.ReadFile(csiDir(web, pv) + "/vol_data.json"); err != nil || !strings.Contains(string(data), handle) {
		b.t.Errorf("the metadata was not rebuilt: %v %s", err, data)
	}
	if found, _ := filepath.Glob(b.dir + "/pwned*"); len(found) > 0 {
		b.t.Error("a name was run as a command")
	}
}

// kept wants all that users wrote, where it was or on the disk that was taken off.
func (b *broken) kept() {
	b.t.Helper()
	b.mkdir(root + "/plugins/kubernetes.io/local-volume/mounts/leaked")
	testutil.Mount(b.t, sdb, root+"/plugins/kubernetes.io/local-volume/mounts/leaked", "ext4", 0, "")
	for path, want := range b.data {
		if got := digest(b.t, path); got != want {
			b.t.Errorf("%s is not what it was", path)
		}
	}
	for _, name := range odd {
		if !exists(root + "/plugins/odd/" + name) {
			b.t.Errorf("%q is gone", name)
		}
	}
}

// It unmounts nothing that only has the path of what is dead: where kvol works in another
// mount namespace, and where a list of names was cut short.
func TestRecoverOtherMounts(t *testing.T) {
	const dead, other = root + "/plugins/odd/10", root + "/plugins/odd/1"
	s := newScene(t)
	s.pods("pods.json", pod("web", web))
	s.env = append(s.env, "KVOL_PODS_FROM=file:"+s.dir+"/pods.json")
	for _, at := range []string{dead, other} {
		s.mkdir(at)
	}
	testutil.Mount(t, "tmpfs", other, "tmpfs", 0, "")
	s.write(other+"/file", "of somebody")
	testutil.FUSE(t, dead, testutil.FUSEDead)

	s.write("bin/kvol", "#!/bin/bash\n"+
		`[[ $* != *--kind\ other* ]] || { `+s.bin+`/kvol "$@" | head -c -2; exit 1; }; exec `+s.bin+"/kvol \"$@\"\n")
	said, code := s.run("chmod +x bin/kvol && PATH=$PWD/bin:$PATH bash " + s.repository(script) + " --unmount-others")
	if code != 1 || !exists(other+"/file") {
		t.Errorf("with half a list it ended with %d:\n%s", code, said)
	}
	said, code = s.run("bash " + s.repository(script))
	if mounts := s.must("findmnt -rno TARGET " + dead); code != 3 || !strings.Contains(said, "not well: "+dead) || mounts == "" {
		t.Errorf("without the leave to unmount it ended with %d:\n%s", code, said)
	}

	s.daemon("mkfifo in && exec unshare --mount --propagation private bash -c '" + s.bin + "/kubelet <>in >ready & exec sleep 1000'")
	testutil.Poll(t, "the kubelet is ready", func() bool {
		text, _ := os.ReadFile(s.dir + "/ready")
		return len(text) > 0
	})
	s.must("umount " + dead)
	testutil.Mount(t, "tmpfs", dead, "tmpfs", 0, "")
	s.write(dead+"/file", "of somebody")
	said, code = s.run("bash " + s.repository(script) + " --unmount-others")
	if code != 3 || !exists(dead+"/file") || !strings.Contains(said, "not well: "+dead) {
		t.Errorf("beside another mount namespace it ended with %d:\n%s", code, said)
	}
}

// It leaves the volumes of a pod that may live, dead as they are, and does not end with 0
// over one, also where the driver is missing, or over one that is hidden from its pod.
func TestRecoverUnknown(t *testing.T) {
	s := newScene(t)
	s.pods("pods.json", pod("reports", reports))
	s.csi(web).Stop() // younger than the list
	s.env = append(s.env, "KVOL_PODS_FROM=file:"+s.dir+"/pods.json")
	hidden := podDir(reports) + "/volumes/kubernetes.io~nfs/share"
	for _, at := range []string{hidden, filepath.Dir(hidden)} {
		s.mkdir(at)
		testutil.Mount(t, "tmpfs", at, "tmpfs", 0, "")
	}
	dead, inner := podDir(gone)+"/volumes/kubernetes.io~local-volume/dead", podDir(reports)+"/volumes/kubernetes.io~empty-dir/cache/inner"
	for _, at := range []string{dead, inner} {
		s.mkdir(at)
		testutil.FUSE(t, at, testutil.FUSEDead)
	}
	said, code := s.run(s.repository(script))
	for _, line := range []string{"whether its pod lives is not known: " + target(web, pv), "not known: " + dead, "not well: " + dead, "not well: " + inner, "not well: " + hidden} {
		if code != 3 || !strings.Contains(said, line+"\n") {
			t.Errorf("it ended with %d, without %q:\n%s", code, line, said)
		}
	}
}
