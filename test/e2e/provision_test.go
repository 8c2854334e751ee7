package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/testutil"
)

// newTmp is a node that has /tmp for itself.
func newTmp(t *testing.T) *node {
	t.Helper()
	t.Setenv("TMPDIR", "/var/tmp")
	n := newNode(t)
	raw, err := os.ReadFile(n.kvolPath)
	n.kvolPath = n.dir + "/kvol"
	must(t, err, os.WriteFile(n.kvolPath, raw, 0o755))
	testutil.Mount(t, "tmp", "/tmp", "tmpfs", 0, "mode=1777")
	return n
}

// claim writes a claim and its class, and gives the words that name both.
func (n *node) claim(more ...string) []string {
	n.t.Helper()
	return []string{"-f", n.file("pvc.yaml", `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: db, uid: 6a0dd2a5-0000-4000-8000-00000000000a}
spec:
  storageClassName: test
  resources: {requests: {storage: 1Gi}}
  `+strings.Join(more, "\n  ")+"\n"), "-f", n.file("class.yaml", `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: test}
provisioner: kubernetes.io/host-path
reclaimPolicy: Retain
`)}
}

// A volume that was provisioned goes through its life: made, set up, recycled, deleted,
// each as often as one likes.
func TestProvisionedVolume(t *testing.T) {
	n := newTmp(t)
	provision := append([]string{"provision"}, n.claim()...)
	n.must(0, append(provision, "--dry-run")...)
	if exists("/tmp/hostpath_pv") {
		t.Error("a dry run has made it")
	}
	yaml := n.must(0, provision...).stdout
	if again := n.must(0, provision...).stdout; again != yaml {
		t.Errorf("the same claim got\n%s\nand\n%s", yaml, again)
	}
	var pv v1.PersistentVolume
	must(t, json.Unmarshal([]byte(n.must(0, append(provision, "-o", "json")...).stdout), &pv))
	path := pv.Spec.HostPath.Path
	if pv.Kind != "PersistentVolume" || pv.Name != "pvc-6a0dd2a5-0000-4000-8000-00000000000a" || pv.Spec.PersistentVolumeReclaimPolicy != "Retain" ||
		pv.Spec.ClaimRef.Namespace != "db" || pv.Spec.StorageClassName != "test" || !strings.HasPrefix(path, "/tmp/hostpath_pv/") {
		t.Errorf("%+v", pv)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", info, err)
	}
	file := n.file("pv.yaml", yaml)
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	must(t, os.WriteFile(path+"/f", []byte("1"), 0o600))
	n.must(0, provision...)
	for _, verb := range []string{"recycle", "delete"} {
		n.must(4, verb, "-f", file)
		n.must(0, verb, "-f", file, "--dry-run")
		n.must(6, verb, "-f", file, "--dry-run", "-o", "shell")
		if !exists(path + "/f") {
			t.Fatalf("%s without its flag deleted", verb)
		}
		n.must(0, verb, "-f", file, "--yes-delete-data")
		twice(n, []string{verb, "-f", file, "--yes-delete-data"})
		if exists(path+"/f") || exists(path) != (verb == "recycle") {
			t.Errorf("%s left %t", verb, exists(path))
		}
		n.must(0, provision...)
		must(t, os.WriteFile(path+"/f", []byte("1"), 0o600))
	}
	n.must(4, "delete", "-f", n.file("bound.yaml", strings.Replace(yaml, "status: {}", "status: {phase: Bound}", 1)), "--yes-delete-data")
	if h := n.must(0, "history", "-o", "json").stdout; !strings.Contains(h, `"--yes-delete-data"`) {
		t.Errorf("the history does not have the risk:\n%s", h)
	}
}

// The script of the plan makes the same directory.
func TestProvisionScript(t *testing.T) {
	n := newTmp(t)
	provision := append([]string{"provision"}, n.claim()...)
	plan := n.must(0, append(provision, "--dry-run", "-o", "shell")...).stdout
	goodScript(t, plan)
	for range 2 {
		if out, err := exec.Command("bash", "-c", plan).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	by := testutil.Tree(t, "/tmp")
	n.must(0, provision...)
	if after := testutil.Tree(t, "/tmp"); after != by {
		t.Errorf("the script left\n%s\nand the verb\n%s", by, after)
	}
}

// /tmp is everybody's: what somebody has put there in the volume's place is not taken.
func TestProvisionOnlyBelowRootsOwn(t *testing.T) {
	n := newTmp(t)
	provision := append([]string{"provision"}, n.claim()...)
	must(t, os.Mkdir(n.dir+"/evil", 0o700))
	for name, put := range map[string]func(path string) error{
		"link":             func(path string) error { return os.Symlink(n.dir+"/evil", path) },
		"another's":        func(path string) error { return cmpErr(os.Mkdir(path, 0o755), os.Chown(path, 7, 7)) },
		"open to everyone": func(path string) error { return cmpErr(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)) },
		"file":             func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		must(t, put("/tmp/hostpath_pv"))
		if o := n.kvol(provision...); o.code != 4 {
			t.Errorf("%s: %v", name, o)
		}
		must(t, os.Remove("/tmp/hostpath_pv"))
	}
	if left := testutil.Tree(t, n.dir+"/evil"); strings.Count(left, "\n") != 1 {
		t.Errorf("made through the link:\n%s", left)
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestProvisionRefused(t *testing.T) {
	n := newTmp(t)
	for _, c := range []struct {
		code int
		line string
	}{
		{6, "volumeMode: Block"}, {6, "accessModes: [ReadWriteMany]"}, {2, "volumeName: other"},
		{6, "dataSource: {kind: PersistentVolumeClaim, name: x}"}, {6, "selector: {matchLabels: {a: b}}"},
	} {
		if o := n.kvol(append([]string{"provision"}, n.claim(c.line)...)...); o.code != c.code {
			t.Errorf("%s, wanted %d: %v", c.line, c.code, o)
		}
	}
	if exists("/tmp/hostpath_pv") {
		t.Error("a refusal has made something")
	}
}

// Neither recycle nor delete takes what is not the volume's, or what anybody uses.
func TestReclaimRefused(t *testing.T) {
	n := newTmp(t)
	vol := "/tmp/vol"
	must(t, os.MkdirAll(vol+"/dir", 0o755), os.WriteFile(vol+"/dir/f", []byte("1"), 0o600), os.Symlink(vol, "/tmp/link"),
		os.WriteFile("/tmp/file", []byte("1"), 0o600), os.MkdirAll(n.root+"/pods/x", 0o755), os.Mkdir("/tmp/c", 0o755))
	refused := func(what, codes, path string) {
		t.Helper()
		file := n.hostPath(path, "")
		before := testutil.Tree(t, "/tmp") + testutil.Tree(t, n.root)
		for _, verb := range []string{"recycle", "delete"} {
			for _, dry := range []string{"--dry-run=true", "--dry-run=false"} {
				if what == "the machine's own" && dry == "--dry-run=false" {
					continue // a test that fails must not do it
				}
				if o := n.kvol(verb, "-f", file, "--yes-delete-data", dry); !strings.Contains(codes, string(rune('0'+o.code))) {
					t.Errorf("%s: %v", what, o)
				}
			}
		}
		if after := testutil.Tree(t, "/tmp") + testutil.Tree(t, n.root); after != before {
			t.Fatalf("%s: deleted something:\n%s", what, after)
		}
	}
	for _, path := range []string{"/", "/etc", "/etc/ssh", "/usr/share", "/var/lib", "/proc/self", "/dev"} {
		refused("the machine's own", "4", path)
	}
	n.must(4, "recycle", "-f", n.hostPath(vol, "")) // makes kvol's own directories
	for _, path := range []string{"/tmp", "/tmp/", n.root, n.root + "/pods/x", filepath.Dir(n.root), n.state} {
		refused(path, "4", path)
	}
	refused("a link", "4", "/tmp/link")
	refused("..", "2", "/tmp/vol/../vol")
	mount := func(what string, on func()) {
		t.Helper()
		on()
		refused(what, "49", vol)
		must(t, exec.Command("bash", "-c", "umount -l /tmp/vol/dir /tmp/vol/dir/f /tmp/c 2>/dev/null || :").Run())
	}
	mount("a mount inside", func() { must(t, unix.Mount("x", vol+"/dir", "tmpfs", 0, "")) })
	mount("a bind of the same file system inside", func() { must(t, unix.Mount("/tmp/c", vol+"/dir", "", unix.MS_BIND, "")) })
	mount("a bind of a file inside", func() { must(t, unix.Mount("/tmp/file", vol+"/dir/f", "", unix.MS_BIND, "")) })
	mount("the volume bound elsewhere", func() { must(t, unix.Mount(vol, "/tmp/c", "", unix.MS_BIND, "")) })
	mount("a part of it bound elsewhere", func() { must(t, unix.Mount(vol+"/dir", "/tmp/c", "", unix.MS_BIND, "")) })
	// A container has it, which only its own mount namespace tells; or has something mounted in it.
	for _, script := range []string{"mount --bind /tmp/vol /tmp/c", "mount -t tmpfs x /tmp/vol/dir", "mount --bind /tmp/vol/dir/f /tmp/file"} {
		u := n.user(true, script)
		refused(script, "9", vol)
		u.end()
	}
	n.must(0, "recycle", "-f", n.hostPath(vol, ""), "--yes-delete-data")
	if exists(vol+"/dir") || !exists("/tmp/file") {
		t.Error("once nobody uses it, it is not recycled")
	}
}
