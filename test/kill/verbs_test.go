package kill

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/ops"
)

var modes = []mode{
	{name: "directory", core: true},
	{name: "directory with fsGroup", fsGroup: v1.FSGroupChangeAlways},
	{name: "directory read-only", readOnly: true, options: []string{"noatime", "nodev"}},
	{name: "directory in a second pod", second: true},
	{name: "directory stacked", stack: 2},
	{name: "directory with leftovers", leftover: true},
	{name: "ext4", fs: "ext4", core: true},
	{name: "ext4 with fsGroup", fs: "ext4", fsGroup: v1.FSGroupChangeOnRootMismatch},
	{name: "ext4 read-only", fs: "ext4", readOnly: true},
	{name: "ext4 in a second pod", fs: "ext4", second: true},
	{name: "ext4 stacked", fs: "ext4", stack: 2},
	{name: "ext4 with leftovers", fs: "ext4", leftover: true},
	{name: "xfs", fs: "xfs", options: []string{"noatime"}},
	{name: "blank for ext4", fs: "ext4", blank: true, core: true},
	{name: "blank for xfs", fs: "xfs", blank: true},
	{name: "raw block", block: true, core: true},
	{name: "raw block in a second pod", block: true, second: true},
	{name: "raw block stacked", block: true, stack: 1},
	{name: "raw block with leftovers", block: true, leftover: true},
}

// step is a verb with what comes before it.
type step struct {
	verb     ops.Verb
	before   []ops.Verb
	down     bool
	named    bool // the volume is only named, not described by a document
	lastUser bool // refused while a second pod has the volume
}

var steps = []step{
	{verb: ops.Attach},
	{verb: ops.MountDevice},
	{verb: ops.Publish, before: []ops.Verb{ops.MountDevice}},
	{verb: ops.Setup},
	{verb: ops.Unpublish, before: []ops.Verb{ops.Setup}, down: true, named: true},
	{verb: ops.UnmountDevice, before: []ops.Verb{ops.MountDevice}, down: true, lastUser: true},
	{verb: ops.Detach, down: true, named: true, lastUser: true},
	{verb: ops.Teardown, before: []ops.Verb{ops.Setup}, down: true},
	{verb: ops.Teardown, before: []ops.Verb{ops.Setup}, down: true, named: true},
}

func (s step) String() string {
	if s.named {
		return string(s.verb) + " by name"
	}
	return string(s.verb)
}

// fits says whether a mode has something for the step to show.
func (s step) fits(m mode) bool {
	switch {
	case s.lastUser && m.second, m.stack > 0 && !s.down:
		return false
	case s.down && m.blank:
		return false // it is then as any other device
	case s.verb == ops.Publish && m.leftover:
		return m.fs == "" // a device has to be mounted first
	case (s.verb == ops.UnmountDevice || s.verb == ops.Detach) && m.leftover && m.block:
		return false // refused: the pod's link could be in use
	case !m.core && !allPoints:
		return s.verb == ops.Setup || s.verb == ops.Teardown && (s.named || m.leftover || m.second)
	}
	return true
}

func (s step) call(n *node) call {
	c := n.call(s.verb)
	if s.named {
		c.PV, c.Volume = nil, volume
	}
	if s.verb == ops.MountDevice || s.verb == ops.UnmountDevice || s.verb == ops.Detach || s.verb == ops.Attach {
		c.Pod.UID = ""
	}
	return c
}

// Killed before and after every action of every verb, the same command comes to
// the same end as one that was not killed. Not in parallel: a process that is being
// started has for a moment all that is open here, and so keeps an unmount from
// another test's volume.
func TestEveryAction(t *testing.T) {
	before := points.Load()
	t.Run("modes", func(t *testing.T) {
		for _, m := range modes {
			t.Run(m.name, func(t *testing.T) {
				n := newNode(t, m)
				for _, s := range steps {
					if s.fits(m) {
						n.everyAction(s)
					}
				}
			})
		}
	})
	t.Logf("%d kill points", points.Load()-before)
}

func (n *node) everyAction(s step) {
	n.t.Helper()
	n.prepare(s.before, s.down)
	clean := s.call(n).run(n.t)
	if clean.Code != 0 {
		n.t.Fatalf("%s without a kill: %v\n%s", s, clean, n.look())
	}
	want := n.look()
	killed, at := 0, []act.Point{act.Before, act.After}
	if n.name != modes[0].name && !allPoints {
		at = at[1:] // the next action's Before is nearly the same moment
	}
	for i := 1; ; i++ {
		for _, p := range at {
			n.prepare(s.before, s.down)
			c := s.call(n)
			c.KillAt, c.KillN = p, i
			first := c.run(n.t)
			if !first.killed {
				if first.Code != 0 {
					n.t.Fatalf("%s: %v", s, first)
				}
				n.t.Logf("%s: %d kill points", s, killed)
				return
			}
			killed++
			points.Add(1)
			n.again(s, fmt.Sprintf("%s killed %s action %d", s, p, i), want)
		}
	}
}

// again runs the same command again and looks at everything.
func (n *node) again(s step, what, want string) {
	n.t.Helper()
	run := func(c call) outcome { return c.again(n.t, n.host) }
	if n.name == modes[0].name {
		run = func(c call) outcome { return c.run(n.t) }
	}
	second := run(s.call(n))
	if second.Code != 0 {
		n.t.Fatalf("%s: the same command again: %v\n%s", what, second, n.look())
	}
	n.sameEnd(what, want)
	n.inHistory(s, what)
}

func (n *node) sameEnd(what, want string) {
	n.t.Helper()
	if got := n.look(); got != want {
		n.t.Fatalf("%s: not the same end:\n%s", what, diff(want, got))
	}
	n.quiet()
}

// inHistory says that the killed run and the one after it are told as they were.
func (n *node) inHistory(s step, what string) {
	n.t.Helper()
	n.entries()
	all := n.history()
	if len(all) < 2 {
		n.t.Fatalf("%s: history has %d operations", what, len(all))
	}
	first, second := all[len(all)-2], all[len(all)-1]
	if first.Verb != string(s.verb) || first.Outcome != "interrupted" || first.Volume != volume {
		n.t.Errorf("%s: history has %s of %q as %s", what, first.Verb, first.Volume, first.Outcome)
	}
	if second.Verb != string(s.verb) || second.Outcome != string(api.OutcomeDone) && second.Outcome != string(api.OutcomeAlready) {
		n.t.Errorf("%s: history has the second %s as %s (%s)", what, second.Verb, second.Outcome, second.Error)
	}
	for _, st := range second.Steps {
		if st.Reason != string(api.OutcomeDone) {
			n.t.Errorf("%s: history has %s %s as %s", what, st.Action, st.Target, st.Reason)
		}
	}
}

// diff shows the lines that only one of two texts has.
func diff(want, got string) string {
	var b strings.Builder
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			b.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(got) {
		if !strings.Contains(want, line) {
			b.WriteString("+ " + line)
		}
	}
	if b.Len() == 0 {
		return "wanted\n" + want + "got\n" + got
	}
	return b.String()
}
