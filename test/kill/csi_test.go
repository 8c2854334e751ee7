package kill

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

const csiHandle = "vol-1"

// csiNode is a scratch node with a CSI driver that attaches, stages and publishes
// its one volume.
type csiNode struct {
	t                   *testing.T
	root, state, runDir string
	csi                 *testutil.CSI
	block               bool
	host                *host.Host
}

func newCSI(t *testing.T, block bool, caps ...string) *csiNode {
	t.Helper()
	testutil.Root(t)
	dir := testutil.TempDir(t)
	// In memory, as newNode has it.
	testutil.Mount(t, "tmpfs", dir, "tmpfs", 0, "size=64m,mode=755")
	n := &csiNode{t: t, root: dir + "/kubelet", state: dir + "/state", runDir: dir + "/run", block: block}
	for _, d := range []string{n.root, n.root + "/pods", n.root + "/plugins", n.state, n.runDir} {
		if err := os.Mkdir(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	n.csi = testutil.StartCSI(t, testutil.CSIOptions{Root: n.root, Driver: "csi.kvol.test", Control: &testutil.CSIControl{
		NodeID: strings.ToLower(name), NodeCaps: caps, ControllerCaps: []string{"PUBLISH_UNPUBLISH_VOLUME"}, NeedAttach: true,
	}})
	n.csi.Volume(csiHandle, "", 16*mib)
	if n.host, err = n.call(csiSteps[0]).host(func(s string) { t.Log("while preparing:", s) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.host.Close)
	return n
}

func (n *csiNode) call(s step) call {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: n.csi.Driver, VolumeHandle: csiHandle}
	if n.block {
		mode := v1.PersistentVolumeBlock
		pv.Spec.VolumeMode = &mode
	}
	c := call{Root: n.root, State: n.state, Run: n.runDir, Verb: s.verb, PV: pv, Pod: plugins.PodRef{UID: podA}}
	if s.named {
		c.PV, c.Volume = nil, volume
	}
	return c
}

// do carries a verb out to prepare for another.
func (n *csiNode) do(v ops.Verb) {
	n.t.Helper()
	if a := n.call(step{verb: v}).carryOut(n.host); a.Code != 0 {
		n.t.Fatalf("prepare by %s: %v\n%s", v, a, n.look())
	}
}

var loopNumber = regexp.MustCompile(`loop[0-9]+`)

// look is all that must be the same: the tree, the mounts, the loop devices, and
// whether the volume is attached.
func (n *csiNode) look() string {
	n.t.Helper()
	var b strings.Builder
	b.WriteString(testutil.Tree(n.t, n.root) + testutil.MountTable(n.t, n.root))
	var loops []string
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		backing, err := os.ReadFile(f)
		if err == nil && (strings.HasPrefix(string(backing), n.root+"/") || strings.HasPrefix(string(backing), n.csi.Dir+"/")) {
			loops = append(loops, "loop device over "+string(backing))
		}
	}
	slices.Sort(loops)
	b.WriteString(strings.Join(loops, ""))
	var v testutil.CSIVolume
	places, _ := filepath.Glob(n.csi.Dir + "/volumes/*/volume.json")
	for _, p := range places {
		if err := testutil.ReadJSON(p, &v); err != nil {
			n.t.Fatal(err)
		}
		fmt.Fprintf(&b, "attached to %q\n", v.Node)
	}
	return loopNumber.ReplaceAllString(b.String(), "loopN")
}

// everyAction is what node.everyAction is, at some of the points around an action.
func (n *csiNode) everyAction(s step, at ...act.Point) {
	n.t.Helper()
	prepare := func() {
		n.t.Helper()
		n.do(ops.Teardown)
		for _, v := range s.before {
			n.do(v)
		}
	}
	prepare()
	if clean := n.call(s).run(n.t); clean.Code != 0 {
		n.t.Fatalf("%s without a kill: %v\n%s", s, clean, n.look())
	}
	want := n.look()
	for i := 1; ; i++ {
		for _, p := range at {
			prepare()
			c := n.call(s)
			c.KillAt, c.KillN = p, i
			first := c.run(n.t)
			if !first.killed {
				if first.Code != 0 {
					n.t.Fatalf("%s: %v", s, first)
				}
				n.t.Logf("%s: %d actions", s, i-1)
				return
			}
			points.Add(1)
			n.again(s, fmt.Sprintf("%s killed %s action %d", s, p, i), want)
		}
	}
}

// again runs the same command again: it comes to the same end.
func (n *csiNode) again(s step, what, want string) {
	n.t.Helper()
	if second := n.call(s).again(n.t, n.host); second.Code != 0 {
		n.t.Fatalf("%s: the same command again: %v\n%s", what, second, n.look())
	}
	if got := n.look(); got != want {
		n.t.Fatalf("%s: not the same end:\n%s", what, diff(want, got))
	}
}

var csiSteps = []step{
	{verb: ops.Setup},
	{verb: ops.Teardown, before: []ops.Verb{ops.Setup}},
	{verb: ops.Teardown, before: []ops.Verb{ops.Setup}, named: true},
}

// Killed around every action on a CSI volume, the calls of its driver among them,
// the same command finishes.
func TestEveryActionOfCSI(t *testing.T) {
	for name, m := range map[string]struct {
		block bool
		caps  []string
	}{
		"staged":    {caps: []string{"STAGE_UNSTAGE_VOLUME"}},
		"published": {},
		"raw block": {block: true, caps: []string{"STAGE_UNSTAGE_VOLUME"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newCSI(t, m.block, m.caps...)
			at := []act.Point{act.After} // the next action's Before is nearly the same moment
			if allPoints {
				at = append(at, act.Before)
			}
			for _, s := range csiSteps {
				if s.named && !m.block && len(m.caps) == 0 && !allPoints {
					continue
				}
				n.everyAction(s, at...)
			}
		})
	}
}

// Killed while the driver works on a call, which then ends as it ends.
func TestKilledDuringACall(t *testing.T) {
	for _, method := range []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"} {
		t.Run(method, func(t *testing.T) {
			n := newCSI(t, false, "STAGE_UNSTAGE_VOLUME")
			s := csiSteps[0]
			if strings.Contains(method, "Un") {
				s = csiSteps[1]
				n.do(ops.Setup)
			}
			gate := n.csi.Dir + "/gate"
			n.csi.Fail(method, testutil.CSIFault{WaitFor: gate})
			cmd, _ := n.call(s).command(t)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			n.csi.Reached(method, 1)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if a := n.call(s).run(t); a.Code != 0 {
				t.Fatalf("the same command again: %v\n%s", a, n.look())
			}
			n.do(ops.Teardown)
			if left := n.look(); strings.Contains(left, "loopN") || !strings.Contains(left, `attached to ""`) {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}
