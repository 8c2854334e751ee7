package kill

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/ops"
)

// Killed at every second action of a clean-up, the same command ends it: nothing is left of
// the pod, and the volume's data is there.
func TestOrphansEveryAction(t *testing.T) {
	before := points.Load()
	for _, m := range []mode{{name: "ext4", fs: "ext4"}, {name: "raw block", block: true}} {
		t.Run(m.name, func(t *testing.T) {
			n := newNode(t, m)
			n.orphan()
			if clean := n.gc().run(t); clean.Code != 0 {
				t.Fatalf("without a kill: %v\n%s", clean, n.look())
			}
			want := n.look()
			step := 2 // the moment after one action is nearly that before the next
			if allPoints {
				step = 1
			}
			for i := 1; ; i += step {
				at := []act.Point{act.Before, act.After}[i/step%2]
				n.orphan()
				c := n.gc()
				c.KillAt, c.KillN = at, i
				if first := c.run(t); !first.killed {
					if first.Code != 0 {
						t.Fatal(first)
					}
					break
				}
				points.Add(1)
				what := fmt.Sprintf("killed %s action %d", at, i)
				if second := n.gc().again(t, n.host); second.Code != 0 {
					t.Fatalf("%s: the same command again: %v\n%s", what, second, n.look())
				}
				n.sameEnd(what, want)
			}
		})
	}
	t.Logf("%d kill points", points.Load()-before)
}

func (n *node) gc() call {
	n.must(os.WriteFile(n.dir+"/pods.txt", []byte(podB+"\n"), 0o600))
	return call{Root: n.root, State: n.state, Run: n.runDir, Verb: ops.GCOrphans, Volume: n.dir + "/pods.txt"}
}

// orphan leaves a pod with a volume and what a kubelet has beside it.
func (n *node) orphan() {
	n.t.Helper()
	n.prepare([]ops.Verb{ops.Setup}, false)
	pod := n.root + "/pods/" + podA
	for _, file := range []string{
		"etc-hosts", "containers/c/1", "plugins/kubernetes.io~empty-dir/e/ready", "volumes/kubernetes.io~configmap/cm/..2026_11_21_10_00_00.1/a",
		"volumes/kubernetes.io~csi/cut/vol_data.json", "volume-subpaths/cm/c/0",
	} {
		n.must(os.MkdirAll(filepath.Dir(pod+"/"+file), 0o750))
		n.must(os.WriteFile(pod+"/"+file, nil, 0o600))
	}
	cm, memory := pod+"/volumes/kubernetes.io~configmap/cm", pod+"/volumes/kubernetes.io~empty-dir/e"
	n.must(os.Symlink("..2026_11_21_10_00_00.1", cm+"/..data"))
	n.must(os.Symlink("..data/a", cm+"/a"))
	n.must(unix.Mount(cm+"/..2026_11_21_10_00_00.1/a", pod+"/volume-subpaths/cm/c/0", "", unix.MS_BIND, ""))
	n.must(os.MkdirAll(memory, 0o777))
	n.must(unix.Mount("tmpfs", memory, "tmpfs", 0, "size=1m"))
}
