package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// What a Memory emptyDir holds is found also under an empty one that was mounted over
// it, and where only a container's subpath still shows it.
func TestOrphansMemoryUnderMemory(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	volumes, part := n.pod(podGone)+"/volumes/kubernetes.io~empty-dir", n.pod(podGone)+"/volume-subpaths/part/main/0"
	for _, path := range []string{volumes + "/under", volumes + "/part", part, n.pod(podGone) + "/volume-subpaths/sec/main/0"} {
		must(t, os.MkdirAll(path, 0o750))
	}
	testutil.Tmpfs(t, volumes+"/under")
	n.user(volumes+"/under/file", "under an empty one")
	testutil.Tmpfs(t, volumes+"/under")
	testutil.Tmpfs(t, volumes+"/part")
	n.write(volumes+"/part/dir/file", "in a container's part")
	testutil.Bind(t, volumes+"/part/dir", part, false)
	must(t, unix.Unmount(volumes+"/part", 0))
	n.files[part+"/file"] = "in a container's part"
	// What the atomic writer made is no such content: its volume is unmounted, too.
	testutil.Tmpfs(t, volumes+"/part")
	n.written(volumes + "/part")
	testutil.Bind(t, volumes+"/part/..2026_11_21_10_00_00.21", n.pod(podGone)+"/volume-subpaths/sec/main/0", false)
	must(t, unix.Unmount(volumes+"/part", 0))

	n.must(6, "gc-orphans", "--pods-from", "file:"+n.live(podA), "--min-age", "0", "-o", "shell")
	var stays []string
	for _, s := range n.gc(3, "--apply")["pods/"+podGone].Stays {
		stays = append(stays, s.BlockedBy+" "+s.Path)
	}
	if want := []string{"data " + part, "data " + volumes + "/under"}; !slices.Equal(stays, want) {
		t.Errorf("%q stay, want %q", stays, want)
	}
	n.kept()
	n.gc(0, "--apply", "--discard-ephemeral")
	absent(t, n.pod(podGone))
}

// A directory whose name only begins as the atomic writer's do is somebody's.
func TestOrphansAtomicWriterLookAlike(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podGone)
	for _, dir := range []string{"..mine", "..2026", "..2026_11_21_10_00_00.21.old"} {
		n.user(n.pod(podGone)+"/volumes/kubernetes.io~configmap/cm/"+dir+"/file", dir)
	}
	n.gc(3, "--apply")
	n.kept()
}

// A loop device of another mount namespace, over a file that is called there as a map
// is here, is that one's: a kubelet in a container has the same root directory.
func TestOrphansLoopOfAnotherNamespace(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podGone)
	dir := n.root + "/plugins/kubernetes.io~local-volume/volumeDevices/pv"
	must(t, os.MkdirAll(dir, 0o750))
	file := dir + "/" + podGone
	n.node.user(true, "mount -t tmpfs t "+n.root+"/plugins; mkdir -p "+dir+"; truncate -s 1M "+file+"; losetup -f "+file)
	t.Cleanup(n.sweep)
	if len(loopsBelow(dir)) != 1 {
		t.Fatal("there is no loop device")
	}
	n.gc(0, "--apply")
	if len(loopsBelow(dir)) != 1 {
		t.Error("it was detached")
	}
	absent(t, n.pod(podGone))
}

// A list of live pods that is a part of one, or from another time, proves nothing; how
// a uid is written does not matter.
func TestOrphansDoubtfulLists(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podB)
	n.leave(podGone)
	list := n.file("list", "")
	gc := func(code int, says, text string) {
		t.Helper()
		must(t, os.WriteFile(list, []byte(text), 0o600))
		if o := n.must(code, "gc-orphans", "--apply", "--pods-from", "file:"+list, "--min-age", "0"); !strings.Contains(o.stderr, says) {
			t.Errorf("nothing of %q: %v", says, o)
		}
	}
	item := `{"metadata":{"name":"web","uid":"` + podB + `"}}`
	gc(2, "continue", `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"x"},"items":[`+item+`]}`)
	gc(2, "breaks off", "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: web\n    uid: "+podB+"\n")
	must(t, os.WriteFile(list, []byte(podB), 0o600), os.Chtimes(list, time.Time{}, time.Now().Add(time.Hour)))
	n.must(2, "gc-orphans", "--apply", "--pods-from", "file:"+list, "--min-age", "0")
	gc(0, "", strings.ToUpper(podA)+"\n"+podB+"\n")
	absent(t, n.pod(podGone))
	for _, uid := range []string{podA, podB} {
		if !exists(n.pod(uid) + "/etc-hosts") {
			t.Errorf("pod %s was touched", uid)
		}
	}
}

// What a plan names and what is no leftover was not taken away already.
func TestOrphansPlanOfOtherPaths(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podGone)
	list := "file:" + n.live(podA)
	plan := n.must(0, "gc-orphans", "--pods-from", list, "--min-age", "0", "-o", "json").stdout
	for path, want := range map[string]string{
		n.pod("none"): "already", n.root + "/plugins": "refused", "/etc": "refused", n.root + "/pods/../..": "refused", n.root + `/\u0000`: "refused",
	} {
		text := n.file("plan.json", strings.ReplaceAll(plan, `"path":"`+n.pod(podGone)+`"`, `"path":"`+path+`"`))
		o := n.kvol("gc-orphans", "--apply", "--from-plan", text, "--pods-from", list, "--min-age", "0", "-o", "json")
		items := decode[api.List[api.Orphan]](t, o.stdout).Items
		if len(items) != 1 || items[0].Outcome != want || (o.code == 0) != (want == "already") {
			t.Errorf("%q, wanted %s: %v", path, want, o)
		}
	}
}

// Where a bind leads to the kubelet's root, to kvol's journal or to the system, nothing
// is deleted through it.
func TestReclaimThroughABind(t *testing.T) {
	n := newTmp(t)
	n.must(4, "recycle", "-f", n.hostPath("/tmp/none", "")) // makes kvol's own directories
	vol := "/tmp/vol"
	must(t, os.Mkdir(vol, 0o755), os.MkdirAll(n.root+"/pods/"+podA+"/volumes/kubernetes.io~empty-dir/e", 0o750),
		os.WriteFile(n.root+"/pods/"+podA+"/volumes/kubernetes.io~empty-dir/e/file", []byte("live"), 0o600))
	before := testutil.Tree(t, n.root) + testutil.Tree(t, n.state)
	for from, paths := range map[string][]string{
		n.root: {"", "/pods"}, filepath.Dir(n.root): {"", "/kubelet/pods"}, n.state: {""},
		n.root + "/pods/" + podA + "/volumes/kubernetes.io~empty-dir/e": {""},
		"/etc": {"", "/ssh"}, "/usr/share": {""}, "/var/lib": {""}, "/": {"", "/etc", "/var/lib"},
	} {
		must(t, unix.Mount(from, vol, "", unix.MS_BIND, ""))
		for _, path := range paths {
			for _, verb := range []string{"recycle", "delete"} {
				// Never in earnest: a test that fails must not do it.
				o := n.kvol(verb, "-f", n.hostPath(vol+path, ""), "--dry-run")
				if o.code != api.ExitRefused && o.code != api.ExitBusy {
					t.Errorf("%s%s: %v", from, path, o)
				}
			}
		}
		must(t, exec.Command("umount", vol).Run())
	}
	if after := testutil.Tree(t, n.root) + testutil.Tree(t, n.state); after != before {
		t.Errorf("something was deleted:\n%s", after)
	}
}
