package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// What somebody puts in the way of a clean-up leads it nowhere: links, names, mounts,
// binds of the node's own file system.
func TestOrphansHostile(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podGone)
	pod := n.pod(podGone)
	n.user(n.dir+"/outside/file", "outside")
	for _, path := range []string{
		"volumes/kubernetes.io~nfs/link", "volumes/kubernetes.io~csi/link", "volume-subpaths/link", "containers/link", "plugins/link",
		"volumeDevices/kubernetes.io~nfs/x/y", "volumes/kubernetes.io~secret/two/..data", "volumes/linked~plugin",
	} {
		at := pod + "/" + path
		must(t, os.MkdirAll(at[:strings.LastIndex(at, "/")], 0o750), os.Symlink(n.dir+"/outside", at))
	}
	must(t, os.Mkdir(n.dir+"/bound", 0o755))
	n.user(n.dir+"/bound/db", "same file system")
	odd := pod + "/volumes/kubernetes.io~nfs/a b\nc"
	must(t, os.MkdirAll(odd, 0o750), os.MkdirAll(pod+"/volumes/kubernetes.io~nfs/-rf *", 0o750), os.Mkdir(n.root+"/pods/"+podGone+"\n", 0o750))
	testutil.Bind(t, n.dir+"/bound", odd, false)
	n.subPath(podGone, "a b", 3, n.dir+"/bound/db")
	n.user(n.root+"/pods/..2026/file", "no pod")
	n.user(n.root+"/pods/"+strings.ToUpper(podStatic)+"/file", "no pod")

	o := n.gc(3, "--apply")["pods/"+podGone]
	for _, s := range o.Stays {
		if s.BlockedBy != "data" {
			t.Errorf("%+v", s)
		}
	}
	absent(t, odd, pod+"/volumes/kubernetes.io~nfs/-rf *", pod+"/etc-hosts", pod+"/volume-subpaths/a b")
	if !exists(n.pod(podGone)+"\n") || !exists(pod+"/containers/link") {
		t.Error("what is no pod's was touched")
	}
	n.kept()
}

// A mount of a pod's volume that another mount namespace has is not pulled from under
// it, and a file system that somebody there uses is not taken down for the node.
func TestOrphansUsedElsewhere(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podGone)
	dev, _ := n.disk(16 << 20)
	testutil.Mkfs(t, dev, "ext4")
	n.must(0, "setup", "-f", n.pv("disk", dev, "fsType: ext4"), "--pod-uid", podGone)
	n.must(0, "unpublish", "disk", "--pod-uid", podGone)
	must(t, os.Mkdir(n.dir+"/data", 0o755))
	global := strings.TrimPrefix(n.global("disk"), n.root+"/")

	u := n.node.user(true, fmt.Sprintf("mount --bind %s %s/data", n.global("disk"), n.dir))
	if v := n.gc(0, "--apply")[global]; v.Verdict != "live" || !strings.Contains(v.Reason, "mount namespace") {
		t.Errorf("%+v", v)
	}
	n.isMounted(true, n.global("disk"))
	u.end()

	// The same in this namespace: whose it is cannot be told.
	testutil.Bind(t, n.global("disk"), n.dir+"/data", false)
	if v := n.gc(0)[global]; v.Verdict != "unknown" || !strings.Contains(v.Reason, n.dir+"/data") {
		t.Errorf("%+v", v)
	}
}

// Every pod would be an orphan, or nothing is proven: refused, and nothing is done.
func TestOrphansRefused(t *testing.T) {
	n := newOrphans(t)
	n.leave(podGone)
	before, mounts := n.tree(), n.mounts()
	for says, args := range map[string][]string{
		"would be an orphan": {"--pods-from", "file:" + n.live(podA), "--min-age", "0"},
		"cannot be known":    {"--min-age", "0"},
		"--assert-no-pods":   {"--pods-from", "file:" + n.dir + "/pods.txt", "--min-age", "0"},
		"nowhere.txt":        {"--pods-from", "file:" + n.dir + "/nowhere.txt"},
	} {
		o := n.kvol(append([]string{"gc-orphans", "--apply"}, args...)...)
		if o.code != 4 && o.code != 2 || !strings.Contains(o.stderr, says) {
			t.Errorf("%v", o)
		}
	}
	if n.tree() != before || n.mounts() != mounts {
		t.Error("a refused clean-up changed something")
	}
	o := n.must(0, "gc-orphans", "--apply", "--pods-from", "file:"+n.dir+"/pods.txt", "--min-age", "0", "--assert-no-pods")
	if exists(n.pod(podGone)) || !strings.Contains(n.must(0, "history", "-o", "json").stdout, "--assert-no-pods") {
		t.Errorf("%v", o)
	}
	// An age counts from the directory's birth.
	n.leave(podGone)
	n.leave(podA)
	if o := n.gc(0, "--apply", "--min-age", "1h")["pods/"+podGone]; o.Verdict != "unknown" || o.BlockedBy != "age" || !exists(n.pod(podGone)) {
		t.Errorf("%+v", o)
	}
	// --max ends it, and --exit-code tells.
	n.leave(podStatic)
	all := n.gc(3, "--apply", "--max", "1")
	if done, skipped := n.outcomesOf(all, "done"), n.outcomesOf(all, "skipped"); done != 1 || skipped != 1 {
		t.Errorf("%d done, %d left alone", done, skipped)
	}
	n.gc(11, "--exit-code")
	n.gc(0, "--apply")
	n.gc(0, "--exit-code")
}

// Only what two looks, before and under the lock, take for an orphan goes: a pod that is
// not on the list any more when the lock is had was on it a moment ago.
func TestOrphansThatLivedALookAgo(t *testing.T) {
	n := newOrphans(t)
	n.leave(podA)
	n.leave(podStatic)
	n.gc(0, "--apply") // which makes the lock
	n.leave(podGone)
	n.leave(podStatic)
	locks, err := filepath.Glob(n.run + "/root-*.lock")
	if err != nil || len(locks) != 1 {
		t.Fatalf("%v %v", locks, err)
	}
	lock, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	must(t, err, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	defer lock.Close()

	list := "file:" + n.live(podA, podGone)
	var stdout strings.Builder
	cmd := exec.Command(n.kvolPath, append([]string{"gc-orphans", "--apply", "--pods-from", list, "--min-age", "0", "-o", "json"}, n.flags()...)...)
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	must(t, cmd.Start())
	testutil.Poll(t, "it waits for the lock", func() bool {
		open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		return slices.ContainsFunc(open, func(fd string) bool {
			to, _ := os.Readlink(fd)
			return to == locks[0]
		})
	})
	n.live(podA)
	must(t, lock.Close(), cmd.Wait())
	done := n.byPath(out{stdout: stdout.String()})
	if o := done["pods/"+podStatic]; o.Outcome != "done" {
		t.Errorf("%+v", o)
	}
	if o := done["pods/"+podGone]; o.Verdict != "unknown" || !strings.Contains(o.Reason, "a look just before") || !exists(n.pod(podGone)) {
		t.Errorf("%+v", o)
	}
}

func (n *orphanNode) outcomesOf(all map[string]api.Orphan, outcome string) (count int) {
	for _, o := range all {
		if o.Outcome == outcome {
			count++
		}
	}
	return count
}
