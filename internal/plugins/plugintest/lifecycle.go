package plugintest

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/testutil"
)

var lifecycleChecks = []check{
	{name: "SetUpTwice", filesystem: checkSetUpTwice},
	{name: "TearDownTwice", filesystem: checkTearDownTwice},
	{name: "Stacked", filesystem: checkStacked},
	{name: "DeadMount", filesystem: checkDeadMount},
	{name: "DryRun", filesystem: checkDryRun},
}

// mounts is how many mounts a volume that is set up has in the pod.
func (ex Example) mounts() int {
	if ex.Plain {
		return 0
	}
	return 1
}

// checkSetUpTwice wants one mount from two set ups, and nothing done by the second.
func checkSetUpTwice(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.ok("set up", n.up(podA, way{}))
	if got := n.mounts(n.target(podA)); got != ex.mounts() {
		t.Errorf("set up, and %d mounts at %s", got, n.target(podA))
	}
	before := n.state()
	n.nothingToDo("set up again", n.up(podA, way{}))
	n.restart()
	n.nothingToDo("set up by another command", n.up(podA, way{}))
	n.same("set up twice", n.state(), before)
}

// checkTearDownTwice wants tear down to end with nothing left of the volume but
// its data, and to be content where there is nothing.
func checkTearDownTwice(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	target := n.target(podA)
	n.nothingToDo("tear down of what was never set up", n.down(podA, true, way{}))
	n.ok("set up", n.up(podA, way{}))
	n.fill(filepath.Join(target, "data"))
	n.ok("tear down", n.down(podA, true, way{}))
	if exists(target) || strings.Contains(testutil.MountTable(n, n.root), "\"") {
		t.Errorf("after tear down there is still %s (%t), or something is mounted", target, exists(target))
	}
	if loops := n.loops(); slices.ContainsFunc(loops, func(l string) bool { return strings.Contains(l, n.root) }) {
		t.Errorf("loop devices are left: %v", loops)
	}
	n.nothingToDo("tear down again", n.down(podA, true, way{}))
	n.restart()
	n.nothingToDo("tear down by another command", n.down(podA, true, way{}))
	n.ok("set up anew", n.up(podA, way{}))
	n.filled(filepath.Join(target, "data"))
}

// checkStacked wants every mount that lies on the target to be popped, each in a
// step of its own.
func checkStacked(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	target := n.target(podA)
	n.ok("set up", n.up(podA, way{}))
	n.fill(filepath.Join(target, "data"))
	for range 3 {
		testutil.Bind(n, target, target, false)
	}
	out := n.ok("tear down", n.down(podA, true, way{}))
	popped := 0
	for _, s := range out.steps {
		// A daemon that is called takes off the last one by itself.
		if (s.Action == "unmount" || s.Action == "call") && s.Target == target {
			popped++
		}
	}
	if popped != 3+ex.mounts() || exists(target) {
		t.Errorf("%d mounts were popped (%s); the target is there: %t", popped, list(out.steps), exists(target))
	}
	n.ok("set up anew", n.up(podA, way{}))
	n.filled(filepath.Join(target, "data"))
}

// checkDeadMount wants a mount that does not answer to be taken down in time.
func checkDeadMount(t *T, c *Case, ex Example) {
	for _, mode := range []testutil.FUSEMode{testutil.FUSEDead, testutil.FUSEHung, testutil.FUSEMute} {
		scope(t, func(t *T) {
			n := newNode(t, c, ex)
			target := n.target(podA)
			n.mkdirAll(target)
			testutil.FUSE(n, target, mode)
			n.ok("tear down of a mount that is "+string(mode), n.down(podA, true, way{}))
			if exists(target) {
				t.Errorf("a mount that is %s is still there", mode)
			}
		})
	}
}

// checkDryRun wants a plan to change nothing and to be what is then done.
func checkDryRun(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	pod := withGroup()
	n.planned("set up", func(w way) outcome { return n.up(pod, w) })
	n.planned("set up again", func(w way) outcome { return n.up(pod, w) })
	n.fill(filepath.Join(n.target(pod), "data"))
	n.planned("tear down", func(w way) outcome { return n.down(pod, true, w) })
	n.planned("tear down again", func(w way) outcome { return n.down(pod, true, w) })
	n.ok("set up anew", n.up(podA, way{}))
	n.filled(filepath.Join(n.target(pod), "data"))
}

// planned does something first as a dry run and then in earnest.
func (n *node) planned(what string, do func(way) outcome) {
	n.Helper()
	before := n.everything()
	plan := n.ok("dry run of "+what, do(way{dryRun: true}))
	n.same("the dry run of "+what+" changed the node", n.everything(), before)
	done := n.ok(what, do(way{}))
	if list(plan.steps) != list(done.steps) {
		n.Errorf("%s was planned as\n%s\nand done as\n%s", what, list(plan.steps), list(done.steps))
	}
}
