package kill

import (
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
)

// Two kvols at once on one volume: one waits for the other, or gives up with 10.
func TestPairs(t *testing.T) {
	for _, m := range []mode{{name: "directory"}, {name: "ext4", fs: "ext4"}, {name: "blank", fs: "ext4", blank: true}, {name: "raw block", block: true}} {
		t.Run(m.name, func(t *testing.T) {
			n := newNode(t, m)
			n.prepare(nil, false)
			n.do(n.call(ops.Setup))
			up := n.look()
			n.do(n.call(ops.Teardown))
			down := n.look()
			for i, p := range [][2]ops.Verb{
				{ops.Setup, ops.Setup}, {ops.Teardown, ops.Teardown}, {ops.Setup, ops.Teardown},
			} {
				for _, wait := range []time.Duration{0, time.Millisecond} {
					n.prepare(nil, false)
					if i > 0 {
						n.do(n.call(ops.Setup))
					}
					n.pair(p, wait, up, down)
				}
			}
		})
	}
}

func (n *node) pair(verbs [2]ops.Verb, wait time.Duration, up, down string) {
	n.t.Helper()
	ends := make(chan outcome, len(verbs))
	for _, v := range verbs {
		c := n.call(v)
		c.LockTimeout = wait
		go func() { ends <- c.run(n.t) }()
	}
	ok := 0
	for range verbs {
		switch o := <-ends; {
		case o.Code == 0:
			ok++
		case o.Code != api.ExitLocked || wait == 0:
			n.t.Errorf("%v: %v", verbs, o)
		}
	}
	if ok == 0 {
		n.t.Errorf("%v: none came through", verbs)
	}
	got := n.look()
	if got != up && got != down || verbs[0] == verbs[1] && (got == up) != (verbs[0] == ops.Setup) {
		n.t.Errorf("%v: wrong end:\n%s", verbs, got)
	}
	n.quiet()
	n.history()
}
