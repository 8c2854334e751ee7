package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/testutil"
)

// disk is a local volume on a loop device with a file system, or raw where fsType
// is empty.
func (n *node) disk(name, fsType string, more ...string) (file, dev string) {
	n.t.Helper()
	size := int64(32 << 20)
	switch fsType {
	case "xfs":
		size = 320 << 20 // mkfs takes no less than 300 MiB
	case "btrfs":
		size = 128 << 20 // no less than 109 MiB
	}
	dev, _ = testutil.LoopImage(n.t, size)
	n.t.Cleanup(n.sweep) // before the disk is taken away
	if fsType == "" {
		more = append(more, "volumeMode: Block")
	} else {
		testutil.Mkfs(n.t, dev, fsType)
	}
	return n.pv(name, dev, more...), dev
}

// sweep takes off what a test that failed left mounted or mapped.
func (n *node) sweep() {
	for _, dev := range loopsBelow(n.root) { // first: without its mount a file has no path
		_ = exec.Command("losetup", "-d", dev).Run()
	}
	table, err := mounts.Read("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, m := range slices.Backward(table.Under(n.dir)) {
		_ = unix.Unmount(m.MountPoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // TempDir looks again
	}
}

// loopsBelow gives the loop devices over what lies below a directory, by path.
func loopsBelow(dir string) map[string]string {
	all := map[string]string{}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), dir+"/") {
			all[strings.TrimSpace(string(b))] = "/dev/" + strings.Split(f, "/")[3]
		}
	}
	return all
}

// dataDir is a local volume that is a directory with one file.
func (n *node) dataDir(name string, more ...string) (file, dir string) {
	n.t.Helper()
	dir = n.dir + "/" + name
	must(n.t, os.Mkdir(dir, 0o755), os.WriteFile(dir+"/file", []byte("data\n"), 0o644))
	return n.pv(name, dir, more...), dir
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// user is a process beside kvol that does something and then waits.
type user struct {
	t     *testing.T
	pid   int
	stdin io.Closer
	cmd   *exec.Cmd
}

// user runs a bash script that ends in waiting: in this mount namespace, or with
// apart in one of its own, which then has copies of all that is mounted.
func (n *node) user(apart bool, script string) *user {
	n.t.Helper()
	args := []string{"bash", "-euc", script + "\necho ready\nread -r _ || :"}
	if apart {
		args = append([]string{"unshare", "-m", "--propagation", "private"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must(n.t, err, err2, cmd.Start())
	u := &user{n.t, cmd.Process.Pid, in, cmd}
	n.t.Cleanup(u.end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		n.t.Fatalf("%s: said %q, %v", script, line, err)
	}
	return u
}

// end lets the process end and waits for that.
func (u *user) end() {
	if u.cmd.ProcessState == nil {
		u.stdin.Close()
		_ = u.cmd.Wait()
	}
}

// wants runs kvol, wants an exit code and every one of some words in what it says.
func (n *node) wants(code int, words []string, args ...string) out {
	n.t.Helper()
	o := n.must(code, args...)
	for _, w := range words {
		if !strings.Contains(o.stdout+o.stderr, w) {
			n.t.Errorf("nothing says %q:\n%v", w, o)
		}
	}
	return o
}

// unchanged wants f to leave the tree and the mount table as they are.
func (n *node) unchanged(f func()) {
	n.t.Helper()
	tree, mounts := n.tree(), n.mounts()
	f()
	if after := n.tree(); after != tree {
		n.t.Errorf("the tree changed from\n%s\nto\n%s", tree, after)
	}
	if after := n.mounts(); after != mounts {
		n.t.Errorf("the mounts changed from\n%s\nto\n%s", mounts, after)
	}
}

// reasons are the reasons that a verb gave, by rung.
func (n *node) reasons(code int, args ...string) map[string]string {
	n.t.Helper()
	all := map[string]string{}
	for _, r := range decode[api.List[api.Result]](n.t, n.must(code, append(args, "-o", "json")...).stdout).Items {
		all[r.Op] = r.Reason
	}
	return all
}

func write(path string) error { return os.WriteFile(path, []byte("written\n"), 0o644) }

func TestTwoPodsOnOneDisk(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			twoPods(newNode(t), fs)
		})
	}
}

func twoPods(n *node, fs string) {
	t := n.t
	file, dev := n.disk("pv", fs)
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	must(t, write(n.podVolume(podA, "pv")+"/from-a"))
	n.must(0, "setup", "-f", file, "--pod-uid", podB)
	if _, err := os.Stat(n.podVolume(podB, "pv") + "/from-a"); err != nil {
		t.Error(err)
	}
	both := []string{podA, podB}
	n.unchanged(func() {
		for _, by := range [][]string{{"pv"}, {"-f", file}, {dev}, {n.global("pv")}} {
			n.wants(9, both, append([]string{"unmount-device"}, by...)...)
			n.wants(9, both, append([]string{"detach"}, by...)...)
		}
	})
	reasons := n.reasons(0, "teardown", "pv", "--pod-uid", podA)
	for _, rung := range []string{"unmount-device", "detach"} {
		if !strings.Contains(reasons[rung], podB) || strings.Contains(reasons[rung], podA) {
			t.Errorf("%s says %q, and only %s has the volume", rung, reasons[rung], podB)
		}
	}
	n.wants(9, []string{podB}, "unmount-device", "pv")
	must(t, write(n.podVolume(podB, "pv")+"/from-b"))
	n.must(0, "unpublish", "pv", "--pod-uid", podB)
	n.wants(9, []string{"global mount", n.global("pv")}, "detach", "pv")
	n.wants(9, []string{"global mount"}, "detach", "-f", file)
	n.wants(9, []string{"global mount"}, "detach", dev)
	n.wants(9, []string{"global mount"}, "detach", n.global("pv"))
	n.must(0, "unmount-device", "pv")
	for _, by := range [][]string{{"pv"}, {"-f", file}, {dev}, {n.global("pv")}} {
		n.must(0, append([]string{"detach"}, by...)...)
	}
	if m := n.mounts(); m != "" {
		t.Errorf("still mounted:\n%s", m)
	}
}

// Something other than a pod that has the file system mounted keeps a teardown
// from ending well.
func TestTeardownBesideAnotherMount(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	other := n.dir + "/other"
	must(t, os.Mkdir(other, 0o755))
	testutil.Mount(t, dev, other, "ext4", 0, "")
	n.wants(9, []string{other}, "teardown", "pv", "--pod-uid", podA)
	n.wants(9, []string{other}, "teardown", "-f", file, "--pod-uid", podA)
	must(t, unix.Unmount(other, 0))
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}

// A mount that a process works in is left as it is, and with it all that is above.
func TestBusyPodMount(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	u := n.user(false, "cd "+n.podVolume(podA, "pv"))
	n.unchanged(func() {
		n.wants(9, []string{n.podVolume(podA, "pv")}, "unpublish", "pv", "--pod-uid", podA)
		n.must(9, "teardown", "pv", "--pod-uid", podA)
	})
	n.must(0, "unpublish", "pv", "--pod-uid", podA, "--lazy")
	n.must(0, "unmount-device", "pv")
	for _, by := range [][]string{{"pv"}, {dev}} {
		n.wants(9, []string{"still has a file system"}, append([]string{"detach"}, by...)...)
	}
	u.end()
	n.must(0, "detach", "pv")
	n.must(0, "detach", "-f", file)
}

func TestReadOnlyStaysReadOnly(t *testing.T) {
	pod := func(n *node, name, uid string, readOnly bool) string {
		return n.file(name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, uid: %s}
spec:
  containers: [{name: c, image: i}]
  securityContext: {fsGroup: 2000}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: claim, readOnly: %v}
`, name, uid, readOnly))
	}
	claim := []string{"claimRef: {namespace: default, name: claim}"}
	modes := map[string]func(n *node) string{
		"device":    func(n *node) string { f, _ := n.disk("pv", "ext4", claim...); return f },
		"directory": func(n *node) string { f, _ := n.dataDir("pv", claim...); return f },
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			pv := mode(n)
			rw, ro := pod(n, "rw", podA, false), pod(n, "ro", podB, true)
			// Read-write first: the read-only pod is read-only beside it.
			n.must(0, "setup", "-f", pv, "-f", rw)
			n.must(0, "setup", "-f", pv, "-f", ro)
			twice(n, []string{"setup", "-f", pv, "-f", ro})
			twice(n, []string{"setup", "-f", pv, "-f", rw})
			must(t, write(n.podVolume(podA, "pv")+"/x"))
			if err := write(n.podVolume(podB, "pv") + "/x"); !errors.Is(err, unix.EROFS) {
				t.Errorf("writing in the read-only pod: %v", err)
			}
			if m := n.list("--no-probe")[n.podVolume(podB, "pv")]; !m.ReadOnly {
				t.Errorf("the list does not say read-only: %+v", m)
			}
			// The same pod does not get the other kind by asking for it.
			n.unchanged(func() {
				n.wants(4, []string{"read-only"}, "publish", "-f", pv, "-f", pod(n, "rw", podB, false))
			})
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.must(0, "teardown", "pv", "--pod-uid", podB)

			// Read-only first: nothing is published read-write from there.
			rw = pod(n, "rw", podA, false)
			n.must(0, "setup", "-f", pv, "-f", ro)
			twice(n, []string{"setup", "-f", pv, "-f", ro})
			if err := write(n.podVolume(podB, "pv") + "/y"); !errors.Is(err, unix.EROFS) {
				t.Errorf("writing in the read-only pod: %v", err)
			}
			if name == "device" {
				n.unchanged(func() {
					n.wants(4, []string{"read-only"}, "mount-device", "-f", pv, "-f", rw)
					n.wants(4, []string{"read-only"}, "publish", "-f", pv, "-f", rw)
					n.wants(4, []string{"read-only"}, "setup", "-f", pv, "-f", rw)
				})
				n.must(0, "teardown", "-f", pv, "-f", ro)
			}
			n.must(0, "setup", "-f", pv, "-f", rw)
			must(t, write(n.podVolume(podA, "pv")+"/y"))
		})
	}
}

// Mount options of the PersistentVolume that say read-only are as good as asking
// for it.
func TestReadOnlyByMountOption(t *testing.T) {
	n := newNode(t)
	for _, file := range []string{first(n.disk("disk", "ext4", "mountOptions: [ro]")), first(n.dataDir("dir", "mountOptions: [ro]"))} {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		pod := n.file("pod.yaml", podDocument(podA, name, "{fsGroup: 1234}"))
		n.must(0, "setup", "-f", file, "-f", pod)
		twice(n, []string{"setup", "-f", file, "-f", pod})
		if err := write(n.podVolume(podA, name) + "/x"); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: writing: %v", name, err)
		}
		n.must(0, "teardown", name, "--pod-uid", podA)
	}
}

// A directory on a file system that is read-only can be published, again and
// again, and stays what it is.
func TestDirectoryOnReadOnlyFileSystem(t *testing.T) {
	n := newNode(t)
	must(t, os.MkdirAll(n.dir+"/src/vol", 0o755), os.Mkdir(n.dir+"/view", 0o755))
	testutil.Bind(t, n.dir+"/src", n.dir+"/view", true)
	file := n.pv("pv", n.dir+"/view/vol")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	twice(n, []string{"setup", "-f", file, "--pod-uid", podA})
	n.must(0, "teardown", "-f", file, "--pod-uid", podA)
	n.must(0, "detach", "-f", file)
}

func first[A, B any](a A, _ B) A { return a }

// podDocument is a pod that mounts a claim which the PersistentVolume is bound to
// by name only: its volume is the unclaimed one of the input.
func podDocument(uid, name, security string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, uid: %s}
spec:
  containers: [{name: c, image: i}]
  securityContext: %s
`, name, uid, security)
}

func TestStackedMountsArePoppedAndCounted(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	dir, global := n.podVolume(podA, "pv"), n.global("pv")
	for range 3 {
		testutil.Bind(t, global, dir, false)
	}
	testutil.Bind(t, global, global, false)
	if l := n.list("--no-probe"); l[dir].Stacked != 4 || l[global].Stacked != 2 {
		t.Errorf("stacked %d and %d", l[dir].Stacked, l[global].Stacked)
	}
	twice(n, []string{"setup", "-f", file, "--pod-uid", podA})
	o := n.must(0, "teardown", "pv", "--pod-uid", podA, "-o", "json")
	count := map[string]int{}
	for _, r := range decode[api.List[api.Result]](t, o.stdout).Items {
		for _, s := range r.Steps {
			count[s.Action+" "+s.Target]++
		}
	}
	if count["unmount "+dir] != 4 || count["unmount "+global] != 2 {
		t.Errorf("steps: %v", count)
	}
	if m := n.mounts(); m != "" {
		t.Errorf("still mounted:\n%s", m)
	}
}

func TestForeignMountOnTarget(t *testing.T) {
	for name, mode := range map[string]func(n *node) string{
		"device":    func(n *node) string { return first(n.disk("pv", "ext4")) },
		"directory": func(n *node) string { return first(n.dataDir("pv")) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			file := mode(n)
			dir := n.podVolume(podA, "pv")
			must(t, os.MkdirAll(dir, 0o750))
			testutil.Tmpfs(t, dir)
			must(t, write(dir+"/precious"))
			tree := testutil.Tree(t, dir)
			n.must(0, "mount-device", "-f", file)
			n.unchanged(func() {
				n.wants(4, []string{dir, "something else is mounted"}, "publish", "-f", file, "--pod-uid", podA)
				n.wants(4, []string{dir}, "setup", "-f", file, "--pod-uid", podA)
			})
			if after := testutil.Tree(t, dir); after != tree {
				t.Errorf("what is mounted there changed to\n%s", after)
			}
		})
	}
	t.Run("global mount", func(t *testing.T) {
		n := newNode(t)
		file, _ := n.disk("pv", "ext4")
		must(t, os.MkdirAll(n.global("pv"), 0o750))
		testutil.Tmpfs(t, n.global("pv"))
		n.unchanged(func() {
			n.wants(4, []string{n.global("pv")}, "mount-device", "-f", file)
			n.wants(4, []string{n.global("pv")}, "setup", "-f", file, "--pod-uid", podA)
		})
	})
	t.Run("raw block", func(t *testing.T) {
		n := newNode(t)
		file, _ := n.disk("pv", "")
		_, other := n.disk("other", "")
		at := n.mapDevice(podA, "pv")
		must(t, os.MkdirAll(filepath.Dir(at), 0o750), os.WriteFile(at, nil, 0o750))
		testutil.Bind(t, other, at, false)
		o := n.must(4, "publish", "-f", file, "--pod-uid", podA)
		if !strings.Contains(o.stderr, at) {
			t.Errorf("%v", o)
		}
	})
}

// What lies in a directory that nothing is mounted on is somebody's data.
func TestDataInUnmountedDirectory(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "ext4")
	dir, global := n.podVolume(podA, "pv"), n.global("pv")
	must(t, os.MkdirAll(dir+"/sub", 0o750), write(dir+"/sub/precious"), os.MkdirAll(global, 0o750), write(global+"/precious"))
	n.unchanged(func() {
		n.wants(4, []string{dir, "sub"}, "unpublish", "pv", "--pod-uid", podA)
		n.wants(4, []string{dir}, "unpublish", dir)
		n.wants(4, []string{dir}, "unpublish", "-f", file, "--pod-uid", podA)
		n.wants(4, []string{dir}, "teardown", "pv", "--pod-uid", podA)
		n.wants(4, []string{dir}, "teardown", "pv", "--pod-uid", podA, "--lazy", "--force-umount")
		n.wants(4, []string{global, "precious"}, "unmount-device", "pv")
		n.wants(4, []string{global, "precious"}, "unmount-device", global)
		n.wants(4, []string{global, "precious"}, "unmount-device", "-f", file, "--lazy")
	})
}

func TestNamesThatSayTooLittle(t *testing.T) {
	n := newNode(t)
	for _, verb := range []string{"unmount-device", "detach"} {
		n.must(0, verb, "pv")
		n.must(5, verb, "pv", "--must-exist")
	}
	for _, verb := range []string{"unpublish", "teardown"} {
		n.must(0, verb, "pv", "--pod-uid", podA)
		n.must(5, verb, "pv", "--pod-uid", podA, "--must-exist")
		n.must(2, verb, "pv")
	}

	// A CSI staging mount does not tell its name: it could be of any volume.
	staging := n.root + "/plugins/kubernetes.io/csi/some.driver/" + strings.Repeat("ab", 32) + "/globalmount"
	must(t, os.MkdirAll(staging, 0o750))
	testutil.Tmpfs(t, staging)
	for _, verb := range []string{"unmount-device", "detach"} {
		n.wants(8, []string{staging}, verb, "pv")
		n.wants(8, []string{staging}, verb, "pv", "--must-exist")
	}
	n.wants(8, []string{staging}, "teardown", "pv", "--pod-uid", podA)
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	// The plugin tells: a staging mount is not of a local volume.
	n.must(0, "detach", "pv", "--plugin", "kubernetes.io/local-volume")
	n.must(0, "unmount-device", "-f", first(n.disk("pv", "ext4")))

	// A plugin that this kvol does not have.
	nfs := n.root + "/pods/" + podA + "/volumes/kubernetes.io~nfs/share"
	must(t, os.MkdirAll(nfs, 0o750))
	n.unchanged(func() {
		for _, args := range [][]string{{"unpublish", "share", "--pod-uid", podA}, {"unpublish", nfs}, {"teardown", "share", "--pod-uid", podA}} {
			n.wants(6, []string{"kubernetes.io/nfs"}, args...)
		}
	})

	// One name of two plugins.
	must(t, os.MkdirAll(n.podVolume(podA, "share"), 0o750))
	n.unchanged(func() {
		n.wants(2, []string{"kubernetes.io/nfs", "kubernetes.io/local-volume", "--plugin"}, "unpublish", "share", "--pod-uid", podA)
		n.wants(2, []string{"kubernetes.io/nfs", "kubernetes.io/local-volume"}, "unmount-device", "share")
	})
	n.must(0, "unpublish", "share", "--pod-uid", podA, "--plugin", "kubernetes.io/local-volume", "--must-exist")
	n.must(6, "unpublish", "share", "--pod-uid", podA)
}

// options are those of one mount point's top mount and of its file system.
func options(t *testing.T, path string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(testutil.MountTable(t, path)), "\n")
	f := strings.Fields(lines[len(lines)-1])
	return strings.Split(f[len(f)-2], ",")
}

func TestMountOptions(t *testing.T) {
	want := []string{"noexec", "nosuid", "noatime"}
	n := newNode(t)
	for _, c := range []struct {
		file   string
		global bool
	}{
		{first(n.disk("disk", "ext4", "mountOptions: [noexec, nosuid, noatime, discard]")), true},
		{first(n.dataDir("dir", "mountOptions: [noexec, nosuid, noatime]")), false},
	} {
		name := strings.TrimSuffix(filepath.Base(c.file), ".yaml")
		n.must(0, "setup", "-f", c.file, "--pod-uid", podA)
		at := []string{n.podVolume(podA, name)}
		if c.global {
			at = append(at, n.global(name))
			if table := testutil.MountTable(t, n.global(name)); !strings.Contains(table, "discard") {
				t.Errorf("the file system's own option is not there:\n%s", table)
			}
		}
		for _, path := range at {
			have := options(t, path)
			for _, o := range append(want, "rw") {
				if !slices.Contains(have, o) {
					t.Errorf("%s has %v, not %s", path, have, o)
				}
			}
		}
		twice(n, []string{"setup", "-f", c.file, "--pod-uid", podA})
	}
}

// group describes the owner group and mode of a path.
func group(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %v", info.Sys().(*syscall.Stat_t).Gid, info.Mode())
}

func TestFSGroup(t *testing.T) {
	n := newNode(t)
	file, dir := n.dataDir("pv", "claimRef: {namespace: default, name: claim}")
	must(t, os.Mkdir(dir+"/sub", 0o700), os.WriteFile(dir+"/sub/suid", nil, 0o600), os.Chmod(dir+"/sub/suid", 0o755|os.ModeSetuid),
		os.Symlink("/etc/passwd", dir+"/link"))
	passwd := group(t, "/etc/passwd")
	claim := n.file("claim.yaml", `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: default}
spec: {volumeName: pv, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
`)
	pod := func(uid, policy string, gid int) string {
		return n.file("pod.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default, uid: %s}
spec:
  containers: [{name: c, image: i}]
  securityContext: {fsGroup: %d%s}
  volumes: [{name: data, persistentVolumeClaim: {claimName: claim}}]
`, uid, gid, policy))
	}
	up := func(uid, policy string, gid int) []string {
		return []string{"setup", "-f", pod(uid, policy, gid), "-f", claim, "-f", file}
	}
	check := func(want map[string]string) {
		t.Helper()
		for path, w := range want {
			if got := group(t, dir+path); got != w {
				t.Errorf("%s is %s, want %s", path, got, w)
			}
		}
	}
	const mismatch = ", fsGroupChangePolicy: OnRootMismatch"

	n.must(0, up(podA, "", 4321)...)
	check(map[string]string{"": "4321 dgrwxrwxr-x", "/sub": "4321 dgrwxrwx---", "/file": "4321 -rw-rw-r--",
		"/sub/suid": "4321 urwxrwxr-x", "/link": "4321 Lrwxrwxrwx"})
	if after := group(t, "/etc/passwd"); after != passwd {
		t.Fatalf("a link was followed: %s", after)
	}
	twice(n, up(podA, "", 4321))

	// The root fits, so OnRootMismatch leaves the rest alone and Always does not.
	must(t, os.Chown(dir+"/file", 0, 7))
	n.must(0, up(podA, mismatch, 4321)...)
	check(map[string]string{"/file": "7 -rw-rw-r--"})
	n.must(0, up(podA, "", 4321)...)
	check(map[string]string{"/file": "4321 -rw-rw-r--"})

	// A second pod with another group changes nothing and hears of it.
	n.wants(0, []string{podA}, up(podB, "", 99)...)
	check(map[string]string{"": "4321 dgrwxrwxr-x", "/file": "4321 -rw-rw-r--"})
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.must(0, "teardown", "pv", "--pod-uid", podB)
	n.must(0, up(podB, mismatch, 99)...)
	check(map[string]string{"": "99 dgrwxrwxr-x", "/file": "99 -rw-rw-r--"})
}

// A static pod's directory has 32 hex digits for a name; its mirror in the API
// server says them in an annotation.
func TestStaticPod(t *testing.T) {
	n := newNode(t)
	file, _ := n.disk("pv", "ext4")
	n.must(0, "setup", "-f", file, "--pod-uid", podStatic)
	n.must(0, "teardown", "pv", "--pod-uid", podStatic)
	mirror := n.file("pod.yaml", `apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: kube-system
  uid: `+podA+`
  annotations: {kubernetes.io/config.mirror: `+podStatic+`, kubernetes.io/config.hash: `+podStatic+`}
spec: {containers: [{name: c, image: i}]}
`)
	n.must(0, "setup", "-f", file, "-f", mirror)
	if m := n.list("--no-probe")[n.podVolume(podStatic, "pv")]; !m.Mounted {
		t.Errorf("not mounted for the static pod:\n%s", n.mounts())
	}
	n.must(0, "teardown", "-f", file, "-f", mirror)
}

// The verbs of the way up and down in an order that nobody planned.
func TestVerbsInAnyOrder(t *testing.T) {
	n := newNode(t)
	file, dev := n.disk("pv", "ext4")
	n.must(5, "publish", "-f", file, "--pod-uid", podA)
	for _, args := range [][]string{
		{"unpublish", "-f", file, "--pod-uid", podA}, {"unmount-device", "-f", file}, {"detach", "-f", file},
		{"attach", "-f", file}, {"mount-device", "-f", file}, {"attach", "-f", file}, {"attach", "-f", file, "--check"},
		{"publish", "-f", file, "--pod-uid", podA}, {"setup", "-f", file, "--pod-uid", podA}, {"mount-device", "-f", file},
		{"unpublish", n.podVolume(podA, "pv")}, {"publish", "-f", file, "--pod-uid", podB},
		{"unpublish", "pv", "--pod-uid", podA}, {"teardown", "pv", "--pod-uid", podB},
		{"unmount-device", dev}, {"detach", dev}, {"setup", "-f", file, "--pod-uid", podA},
	} {
		n.must(0, args...)
	}
	// By the device, by the directory: the volume is found in either way.
	n.wants(9, []string{podA}, "unmount-device", dev)
	n.must(0, "teardown", n.podVolume(podA, "pv"))
	if m := n.mounts(); m != "" {
		t.Errorf("still mounted:\n%s", m)
	}
}
