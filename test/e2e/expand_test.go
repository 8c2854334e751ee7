package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// enlarge makes a disk larger, as its storage would.
func enlarge(t *testing.T, dev, img string, size int64) {
	t.Helper()
	must(t, os.Truncate(img, size), exec.Command("losetup", "-c", dev).Run())
}

// A file system grows to its device once that is larger, keeps what is in it, and is
// left alone then; pods that have it see the new size.
func TestExpand(t *testing.T) {
	for _, fs := range []string{"xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			n := newNode(t)
			dev, img := testutil.LoopImage(t, 320<<20)
			testutil.Mkfs(t, dev, fs)
			file := n.pv("pv", dev)
			n.must(5, "expand", "-f", file)
			n.must(5, "expand", "pv")
			n.must(0, "setup", "-f", file, "--pod-uid", podA)
			must(t, os.WriteFile(n.podVolume(podA, "pv")+"/f", []byte("data"), 0o600))
			twice(n, []string{"expand", "pv"})
			enlarge(t, dev, img, 400<<20)
			n.must(4, "expand", "pv", "--size", "1Gi")
			before := n.tree() + n.mounts()
			n.must(0, "expand", "pv", "--dry-run")
			if after := n.tree() + n.mounts(); after != before {
				t.Errorf("a dry run changed the node to\n%s", after)
			}
			r := decode[api.List[api.Result]](t, n.must(0, "expand", "pv", "--size", "400Mi", "-o", "json").stdout).Items[0]
			var st unix.Statfs_t
			must(t, unix.Statfs(n.podVolume(podA, "pv"), &st))
			if r.Outcome != api.OutcomeDone || r.OldSize >= r.NewSize || r.NewSize != int64(st.Blocks)*st.Bsize {
				t.Errorf("%+v, and the pod has %d", r, int64(st.Blocks)*st.Bsize)
			}
			for _, args := range [][]string{{"expand", "pv"}, {"expand", "-f", file}, {"expand", n.global("pv")}, {"expand", dev}, {"expand", "pv", "--pod-uid", podA}} {
				twice(n, args)
			}
			if raw, err := os.ReadFile(n.podVolume(podA, "pv") + "/f"); err != nil || string(raw) != "data" {
				t.Errorf("%q %v", raw, err)
			}
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.must(5, "expand", "pv")
		})
	}
}

// The script of the plan grows it too.
func TestExpandScript(t *testing.T) {
	n := newNode(t)
	dev, img := testutil.LoopImage(t, 320<<20)
	testutil.Mkfs(t, dev, "xfs")
	n.must(0, "setup", "-f", n.pv("pv", dev), "--pod-uid", podA)
	enlarge(t, dev, img, 400<<20)
	plan := n.must(0, "expand", "pv", "--dry-run", "-o", "shell").stdout
	goodScript(t, plan)
	for range 2 {
		if out, err := exec.Command("bash", "-c", plan).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, plan)
		}
	}
	twice(n, []string{"expand", "pv"})
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	if err := exec.Command("bash", "-c", plan).Run(); err == nil {
		t.Error("the script grows what is not mounted any more")
	}
}

// What resize2fs says is told as it is: where the kernel does not let it, the volume
// has not grown.
func TestExpandTellsTheToolsFailure(t *testing.T) {
	n := newNode(t)
	dev, img := testutil.LoopImage(t, 32<<20)
	testutil.Mkfs(t, dev, "ext4")
	n.must(0, "setup", "-f", n.pv("pv", dev), "--pod-uid", podA)
	twice(n, []string{"expand", "pv"})
	enlarge(t, dev, img, 64<<20)
	switch o := n.kvol("expand", "pv"); {
	case o.code == 0:
		twice(n, []string{"expand", "pv"}) // it may
	case o.code != 1 || !strings.Contains(o.stderr, "resize2fs") || !strings.Contains(o.stderr, "was not grown"):
		t.Errorf("%v", o)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}

// What cannot grow says why.
func TestExpandRefused(t *testing.T) {
	n := newNode(t)
	dev, img := testutil.LoopImage(t, 320<<20)
	testutil.Mkfs(t, dev, "xfs")
	file := n.pv("pv", dev, "mountOptions: [ro]")
	n.must(0, "setup", "-f", file, "--pod-uid", podA)
	enlarge(t, dev, img, 400<<20)
	n.must(4, "expand", "-f", file)
	raw, _ := testutil.LoopImage(t, 16<<20)
	block := n.pv("raw", raw, "volumeMode: Block")
	n.must(0, "setup", "-f", block, "--pod-uid", podA)
	twice(n, []string{"expand", "-f", block})
	n.must(2, "expand", "pv", "--size", "much")
	n.must(0, "teardown", "raw", "--pod-uid", podA)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
}
