package plugintest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/plugins"
)

var crashChecks = []check{
	{name: "CrashInSetUp", filesystem: checkCrashInSetUp},
	{name: "CrashInTearDown", filesystem: checkCrashInTearDown},
	{name: "Cancelled", filesystem: checkCancelled},
	{name: "CancelledMidway", filesystem: checkCancelledMidway},
}

// checkCancelled wants a command to do nothing that was interrupted, or out of time,
// before it began.
func checkCancelled(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	interrupted, stop := context.WithTimeout(context.Background(), deadline)
	stop()
	late, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	never := func(what string, do func(way) outcome) {
		t.Helper()
		before := n.content()
		for _, ctx := range []context.Context{interrupted, late} {
			if out := do(way{ctx: ctx}); !errors.Is(out.err, ctx.Err()) && !errors.Is(out.err, api.ErrTimeout) {
				t.Errorf("%s: error %v, want %v", what, out.err, ctx.Err())
			}
		}
		n.same(what+" that was interrupted", n.content(), before)
	}
	never("set up", func(w way) outcome { return n.up(podA, w) })
	n.mkdirAll(n.target(podA)) // which a tear down removes
	never("tear down of a directory", func(w way) outcome { return n.down(podA, true, w) })
	n.ok("set up", n.up(podA, way{}))
	never("tear down", func(w way) outcome { return n.down(podA, true, w) })
}

// errCrash is the end of a command at a hook.
var errCrash = errors.New("crash")

// crashAt ends a command at one moment of its n-th action.
func crashAt(point act.Point, at int) way {
	return way{hook: func(p act.Point, n int, s api.Step) error {
		if p == point && n == at {
			return fmt.Errorf("%w %s step %d, %s %s", errCrash, p, n, s.Action, s.Target)
		}
		return nil
	}}
}

// withGroup is a pod whose set up has all the steps that there are.
func withGroup() plugins.PodRef { return grouped(podA, group, "") }

// checkCrashInSetUp ends a set up at every action; the same command must then get
// to where one gets that nothing ends, and a tear down must lose nothing.
func checkCrashInSetUp(t *T, c *Case, ex Example) {
	var want string
	steps := 0
	scope(t, func(t *T) {
		n := newNode(t, c, ex)
		steps = len(n.ok("set up", n.up(withGroup(), way{})).steps)
		want = n.state()
	})
	eachCrash(t, steps, func(t *T, crash way) {
		n := newNode(t, c, ex)
		out := n.crashed(n.up(withGroup(), crash))
		n.ok("set up after "+out.err.Error(), n.up(withGroup(), way{}))
		n.same("set up after "+out.err.Error(), n.state(), want)
		n.fill(filepath.Join(n.target(podA), "data"))
		n.ok("tear down", n.down(podA, true, way{}))
	})
}

// checkCrashInTearDown is the same for the way down.
func checkCrashInTearDown(t *T, c *Case, ex Example) {
	begin := func(t *T) *node {
		n := newNode(t, c, ex)
		n.ok("set up", n.up(podA, way{}))
		n.fill(filepath.Join(n.target(podA), "data"))
		return n
	}
	var want string
	steps := 0
	scope(t, func(t *T) {
		n := begin(t)
		steps = len(n.ok("tear down", n.down(podA, true, way{})).steps)
		want = n.state()
	})
	eachCrash(t, steps, func(t *T, crash way) {
		n := begin(t)
		out := n.crashed(n.down(podA, true, crash))
		n.ok("tear down after "+out.err.Error(), n.down(podA, true, way{}))
		n.same("tear down after "+out.err.Error(), n.state(), want)
		n.ok("set up anew", n.up(podA, way{}))
		n.filled(filepath.Join(n.target(podA), "data"))
	})
}

// eachCrash runs f with an end before the first action and after each: what is
// after one is what is before the next.
func eachCrash(t *T, steps int, f func(*T, way)) {
	if steps == 0 {
		t.Fatal("there is no step to end it at")
	}
	scope(t, func(t *T) { f(t, crashAt(act.Before, 1)) })
	for at := 1; at <= steps; at++ {
		scope(t, func(t *T) { f(t, crashAt(act.After, at)) })
	}
}

// crashed checks that a command ended where it had to, and is the next command.
func (n *node) crashed(o outcome) outcome {
	n.Helper()
	if !errors.Is(o.err, errCrash) {
		n.Fatalf("it was ended at a step and says %v", o.err)
	}
	n.restart()
	return o
}

// checkCancelledMidway interrupts a command between two actions, again and again
// and each time later, until it has got through.
func checkCancelledMidway(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	through := func(what string, do func(way) outcome) {
		t.Helper()
		for at := 1; at < 100; at++ {
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			ended := false
			out := do(way{ctx: ctx, hook: func(p act.Point, i int, s api.Step) error {
				if ended {
					t.Errorf("%s: %s %s was begun after the interruption", what, s.Action, s.Target)
				}
				if p == act.After && i == at {
					ended = true
					cancel()
				}
				return nil
			}})
			cancel()
			if out.err == nil {
				break
			}
			if !errors.Is(out.err, context.Canceled) {
				t.Fatalf("%s: error %v, want %v", what, out.err, context.Canceled)
			}
		}
		n.nothingToDo(what+" that got through", do(way{}))
	}
	through("set up", func(w way) outcome { return n.up(withGroup(), w) })
	n.fill(filepath.Join(n.target(podA), "data"))
	through("tear down", func(w way) outcome { return n.down(podA, true, w) })
	n.ok("set up anew", n.up(podA, way{}))
	n.filled(filepath.Join(n.target(podA), "data"))
}
