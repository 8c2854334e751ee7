package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// hostPath writes a PersistentVolume of a path and a type, "" for none.
func (n *node) hostPath(path, kind string, more ...string) string {
	n.t.Helper()
	if kind != "" {
		kind = ", type: " + kind
	}
	return n.file("host.yaml", fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: host}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: %q%s}
  %s
`, path, kind, strings.Join(more, "\n  ")))
}

// Every type takes what it names and nothing else; what is missing is made only where
// the type says so, as a kubelet makes it.
func TestHostPathTypes(t *testing.T) {
	n := newNode(t)
	at := n.dir + "/things"
	must(t, os.Mkdir(at, 0o755), os.Mkdir(at+"/Directory", 0o700), os.WriteFile(at+"/File", nil, 0o600),
		unix.Mknod(at+"/Socket", unix.S_IFSOCK|0o600, 0), unix.Mknod(at+"/CharDevice", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))),
		unix.Mknod(at+"/BlockDevice", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))), unix.Mkfifo(at+"/fifo", 0o600), os.Symlink("File", at+"/link"))
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	things := []string{"Directory", "File", "Socket", "CharDevice", "BlockDevice", "fifo", "missing/deep"}
	for _, kind := range []string{"", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "CharDevice", "BlockDevice"} {
		is, create := strings.CutSuffix(kind, "OrCreate")
		for _, thing := range things {
			want := 2
			switch {
			case kind == "" || is == thing:
				want = 0
			case thing == "missing/deep" && is == "Directory" && create:
				want = 0
			case thing == "missing/deep":
				want = 5
			}
			if o := n.kvol("publish", "-f", n.hostPath(at+"/"+thing, kind), "--pod-uid", podA, "--dry-run"); o.code != want {
				t.Errorf("type %q of %s, wanted %d: %v", kind, thing, want, o)
			}
		}
	}
	n.must(0, "publish", "-f", n.hostPath(at+"/link", "File"), "--pod-uid", podA)
	for path, kind := range map[string]string{"/new/deep": "DirectoryOrCreate", "/newfile": "FileOrCreate"} {
		file := n.hostPath(at+path, kind)
		got := n.outcomes(0, "setup", "-f", file, "--pod-uid", podA)
		if got["publish"] != api.OutcomeDone {
			t.Errorf("%s: %v", path, got)
		}
		twice(n, []string{"setup", "-f", file, "--pod-uid", podA})
	}
	for path, mode := range map[string]os.FileMode{"/new": 0o755, "/new/deep": 0o755, "/newfile": 0o644} {
		if info, err := os.Stat(at + path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	if n.mounts() != "" || strings.Contains(n.tree(), podA) {
		t.Errorf("something is in the kubelet's root:\n%s%s", n.tree(), n.mounts())
	}
}

// A hostPath volume has no place in the pod: every verb says so and is content.
func TestHostPathVerbsInAnyOrder(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/data", 0o755), os.WriteFile(n.dir+"/data/f", nil, 0o600))
	file := n.hostPath(n.dir+"/data", "Directory")
	for _, verb := range []string{"teardown", "unpublish", "setup", "publish", "mount-device", "attach", "publish", "unpublish", "unmount-device", "detach", "teardown"} {
		args := []string{verb, "-f", file}
		if verb == "teardown" || strings.Contains(verb, "publish") || verb == "setup" {
			args = append(args, "--pod-uid", podA)
		}
		for rung, o := range n.outcomes(0, args...) {
			if o != api.OutcomeSkipped && o != api.OutcomeAlready {
				t.Errorf("%s: %s is %s", verb, rung, o)
			}
		}
	}
	if o := n.must(0, "publish", "-f", file, "--pod-uid", podA); !strings.Contains(o.stdout, "the container runtime binds "+n.dir+"/data") {
		t.Errorf("%v", o)
	}
	n.must(0, "unpublish", "host", "--pod-uid", podA)
	if !exists(n.dir + "/data/f") {
		t.Error("the data is gone")
	}
	n.must(6, "expand", "-f", file)
}

func TestHostPathBadInput(t *testing.T) {
	n := newNode(t)
	for _, path := range []string{"relative", "/data/../etc", "/..", "/a\x01b", ""} {
		if o := n.kvol("publish", "-f", n.hostPath(path, "Directory"), "--pod-uid", podA); o.code != 2 {
			t.Errorf("%q: %v", path, o)
		}
	}
	n.must(2, "publish", "-f", n.hostPath(n.dir, "Folder"), "--pod-uid", podA)
	n.must(2, "publish", "-f", n.hostPath(n.dir, "", "mountOptions: [noatime]"), "--pod-uid", podA)
	n.must(6, "publish", "-f", n.hostPath(n.dir, "", "volumeMode: Block"), "--pod-uid", podA)
	// What is made is not made through a link that lies in its place, and not below a file.
	must(t, os.Symlink(n.dir+"/elsewhere", n.dir+"/dangling"), os.WriteFile(n.dir+"/file", nil, 0o600))
	for kind, path := range map[string]string{"FileOrCreate": "/dangling", "DirectoryOrCreate": "/dangling"} {
		if o := n.kvol("publish", "-f", n.hostPath(n.dir+path, kind), "--pod-uid", podA); o.code == 0 || exists(n.dir+"/elsewhere") {
			t.Errorf("through a link: %v", o)
		}
	}
	// Below the kubelet's root pods can have made links.
	must(t, os.Mkdir(n.dir+"/evil", 0o755), os.Mkdir(n.root+"/pods/x", 0o755), os.Symlink(n.dir+"/evil", n.root+"/pods/x/link"))
	n.must(4, "publish", "-f", n.hostPath(n.root+"/pods/x/link/new", "DirectoryOrCreate"), "--pod-uid", podA)
	n.must(0, "publish", "-f", n.hostPath(n.root+"/pods/x/new", "DirectoryOrCreate"), "--pod-uid", podA)
	if exists(n.dir+"/evil/new") || !exists(n.root+"/pods/x/new") {
		t.Error("made through a pod's link, or not at all")
	}
	if o := n.kvol("publish", "-f", n.hostPath(n.dir+"/file/x", "DirectoryOrCreate"), "--pod-uid", podA); o.code == 0 {
		t.Errorf("below a file: %v", o)
	}
}

// The scripts of the plans do what the verbs do.
func TestScriptOfHostPath(t *testing.T) {
	for kind, path := range map[string]string{"DirectoryOrCreate": "new/deep", "FileOrCreate": "newfile", "Directory": "."} {
		newVolume := func(t *testing.T) (*node, string, string) {
			n := newNode(t)
			return n, n.hostPath(n.root+"/made/"+path, kind), "none"
		}
		prepare := `mkdir -p "$ROOT/made"`
		scenario{kind, prepare, `setup -f "$FILE" --pod-uid $UID_A`}.same(t, newVolume)
	}
}

// A path that does not answer is told so in time.
func TestHostPathOnADeadFileSystem(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.dir+"/hung", 0o755))
	testutil.FUSE(t, n.dir+"/hung", testutil.FUSEHung)
	for _, kind := range []string{"Directory", "DirectoryOrCreate", "FileOrCreate"} {
		n.must(8, "publish", "-f", n.hostPath(n.dir+"/hung/data", kind), "--pod-uid", podA, "--timeout", "1s")
	}
}
