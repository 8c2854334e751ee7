package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

var loopName = regexp.MustCompile(`loop\d+`)

// csiState is how a node looks, without what is only of this test.
func (n *node) csiState() string {
	return loopName.ReplaceAllString(strings.ReplaceAll(n.tree()+n.mounts(), n.dir, "DIR"), "LOOP")
}

// csiScene is a verb on a node with a CSI driver.
type csiScene struct {
	name    string
	control func(*testutil.CSIControl)
	more    []string   // lines of the PersistentVolume
	prepare [][]string // kvol
	verb    []string
	rungs   []string // that are kvol lines
}

// make is the node, prepared, and the words of the verb.
func (s csiScene) make(t *testing.T) (*node, []string) {
	t.Helper()
	n := newNode(t)
	n.env = append(n.env, "KVOL_NODE_NAME=node1")
	control := testutil.CSIDefaults()
	if s.control != nil {
		s.control(&control)
	}
	c := testutil.StartCSI(t, testutil.CSIOptions{Root: n.root, Driver: "csi.script.test", Control: &control})
	t.Cleanup(n.sweep)
	c.Volume("vol/1 '$x", "", 16<<20)
	pv := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec:\n  accessModes: [ReadWriteMany]\n  capacity: {storage: 16Mi}\n  csi: {driver: csi.script.test, volumeHandle: \"vol/1 '$x\"}\n  " + claim("pv") + "\n"
	for _, line := range s.more {
		pv += "  " + line + "\n"
	}
	driver := "---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: csi.script.test}\nspec: {attachRequired: " + map[bool]string{true: "true", false: "false"}[control.NeedAttach] + "}\n"
	files := map[string]string{
		"PV": n.file("p v.yaml", pv+driver), "A": n.podOf(podA, "a", "pv"), "B": n.podOf(podB, "b", "pv"),
	}
	words := func(args []string) []string {
		out := append([]string{}, args...)
		for i, w := range out {
			if file := files[w]; file != "" && out[i-1] == "-f" {
				out[i] = file
			}
		}
		return out
	}
	for _, args := range s.prepare {
		n.must(0, words(args)...)
	}
	return n, words(s.verb)
}

// The script with kvol lines leaves the node as the verb does, also beside a driver.
func TestScriptWithKvolOfCSI(t *testing.T) {
	controller := func(c *testutil.CSIControl) {
		c.ControllerCaps, c.NeedAttach = []string{"PUBLISH_UNPUBLISH_VOLUME"}, true
	}
	block := []string{"volumeMode: Block"}
	up := []string{"setup", "-f", "PV", "-f", "A"}
	beside := []string{"setup", "-f", "PV", "-f", "B"}
	down := []string{"teardown", "pv", "--pod-uid", podA}
	for _, s := range []csiScene{
		{name: "up", verb: up, rungs: []string{"mount-device", "publish"}},
		{name: "up without staging", control: func(c *testutil.CSIControl) { c.NodeCaps = nil }, verb: up, rungs: []string{"publish"}},
		{name: "up with a controller", control: controller, verb: up, rungs: []string{"setup"}},
		{name: "up in two pods with a controller", control: controller, verb: []string{"setup", "--all", "-f", "PV", "-f", "A", "-f", "B"}, rungs: []string{"setup", "setup"}},
		{name: "up as a raw block device", more: block, verb: up, rungs: []string{"mount-device", "publish"}},
		{name: "up beside another pod", prepare: [][]string{beside}, verb: up, rungs: []string{"publish"}},
		{name: "up in two pods", verb: []string{"setup", "--all", "-f", "PV", "-f", "A", "-f", "B"}, rungs: []string{"mount-device", "publish", "publish"}},
		{name: "down", prepare: [][]string{up}, verb: down, rungs: []string{"unpublish", "unmount-device"}},
		{name: "down with a controller", control: controller, prepare: [][]string{up}, verb: []string{"teardown", "-f", "PV", "-f", "A"}, rungs: []string{"unpublish", "unmount-device", "detach"}},
		{name: "down of a raw block device", more: block, prepare: [][]string{up}, verb: down, rungs: []string{"unpublish", "unmount-device"}},
		{name: "down beside another pod", prepare: [][]string{up, beside}, verb: down, rungs: []string{"unpublish"}},
		{name: "down by handle", prepare: [][]string{up, {"unpublish", "pv", "--pod-uid", podA}}, verb: []string{"unmount-device", "csi.script.test^vol/1 '$x"}, rungs: []string{"unmount-device"}},
		{name: "down in two pods", prepare: [][]string{up, beside}, verb: []string{"teardown", "--all", "--pod-uid", podA, "--pod-uid", podB}, rungs: []string{"unpublish", "unpublish", "unmount-device"}},
		{name: "down without its driver", prepare: [][]string{up}, verb: append(down[:len(down):len(down)], "--without-driver")},
	} {
		t.Run(s.name, func(t *testing.T) {
			n, verb := s.make(t)
			n.must(0, verb...)
			want := n.csiState()

			n, verb = s.make(t)
			var plan string
			n.unchanged(func() { plan = n.must(0, append(verb, "--dry-run", "-o", "shell", withKvol)...).stdout })
			goodWithKvol(s.rungs...)(t, plan)
			for range 2 {
				cmd := exec.Command("bash", n.file("plan.sh", plan))
				cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(n.kvolPath)+":"+os.Getenv("PATH"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, plan, out)
				}
				if got := n.csiState(); got != want {
					t.Errorf("the verb left\n%s\nand the script\n%s\n%s", want, got, plan)
				}
			}
		})
	}
}
