package e2e

import (
	"os"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// Up and down twice in each mode: the second time nothing is done, and nothing is
// different.
func TestUpAndDownTwice(t *testing.T) {
	modes := map[string]func(n *node) (file string, setup []string){
		"directory": func(n *node) (string, []string) {
			dir := n.dir + "/data"
			if err := os.Mkdir(dir, 0o755); err != nil {
				n.t.Fatal(err)
			}
			return n.pv("pv", dir), nil
		},
		"device": func(n *node) (string, []string) {
			dev, _ := testutil.LoopImage(n.t, 64<<20)
			return n.pv("pv", dev), []string{"--format"}
		},
		"raw block": func(n *node) (string, []string) {
			dev, _ := testutil.LoopImage(n.t, 16<<20)
			return n.pv("pv", dev, "volumeMode: Block"), nil
		},
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			file, extra := mode(n)
			up := append([]string{"setup", "-f", file, "--pod-uid", podA}, extra...)
			n.must(0, up...)
			twice(n, up)
			twice(n, []string{"publish", "-f", file, "--pod-uid", podA})
			n.must(0, "teardown", "-f", file, "--pod-uid", podA)
			twice(n, []string{"teardown", "-f", file, "--pod-uid", podA})
			twice(n, []string{"teardown", "pv", "--pod-uid", podA})
			if m := n.mounts(); m != "" {
				t.Errorf("still mounted after teardown:\n%s", m)
			}
		})
	}
}

func twice(n *node, args []string) {
	n.t.Helper()
	tree, mounts := n.tree(), n.mounts()
	for rung, o := range n.outcomes(0, args...) {
		if o != api.OutcomeAlready && o != api.OutcomeSkipped {
			n.t.Errorf("%v: %s is %s the second time", args, rung, o)
		}
	}
	if after := n.mounts(); after != mounts {
		n.t.Errorf("%v changed the mount table from\n%s\nto\n%s", args, mounts, after)
	}
	if after := n.tree(); after != tree {
		n.t.Errorf("%v changed the tree from\n%s\nto\n%s", args, tree, after)
	}
}
