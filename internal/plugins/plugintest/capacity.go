package plugintest

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/plugins"
)

// checkNodeExpand wants a volume to grow where it is mounted, and to keep what is in
// it.
func checkNodeExpand(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, ok := as[plugins.NodeExpandableVolumePlugin](n)
	if !ok || ex.Grow == 0 && ex.Enlarge == nil {
		return
	}
	n.ok("set up", n.up(podA, way{}))
	n.put(n.target(podA) + "/data")
	before := n.size(podA)
	path := n.global()
	if path == "" || n.mounts(path) == 0 {
		path = n.target(podA)
	}
	options := plugins.NodeExpandOptions{Spec: n.spec, DeviceMountPath: path, NewSize: ex.Grow}
	did := false
	expand := func(ctx context.Context, run *act.Runner) (err error) {
		did, err = p.NodeExpand(ctx, run, options)
		return err
	}
	if ex.Enlarge != nil {
		n.nothingToDo("expand of what fills its storage", n.do("expand", way{}, expand))
		ex.Enlarge(n, n.spec)
	}
	plan := n.ok("dry run", n.do("expand", way{dryRun: true}, expand))
	if after := n.size(podA); after != before {
		t.Errorf("a dry run made %d bytes of %d", after, before)
	}
	done := n.ok("expand", n.do("expand", way{}, expand))
	if list(plan.steps) != list(done.steps) {
		t.Errorf("planned as %s and done as %s", list(plan.steps), list(done.steps))
	}
	if after := n.size(podA); !did || after <= before {
		t.Errorf("expanded (%t) from %d bytes to %d, and there are %d", did, before, ex.Grow, after)
	}
	again := n.ok("expand again", n.do("expand", way{}, expand))
	if ex.Enlarge != nil && len(again.steps) > 0 {
		t.Errorf("expand again did %s", list(again.steps))
	}
	n.kept(n.target(podA) + "/data")
}

// size is how many bytes the volume's file system has.
func (n *node) size(pod plugins.PodRef) int64 {
	n.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(n.target(pod), &st); err != nil {
		n.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

// checkLimits wants the key that a volume counts against to be one that the plugin
// gives a limit for.
func checkLimits(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, ok := as[plugins.VolumePluginWithAttachLimits](n)
	if !ok {
		return
	}
	withTime(func(ctx context.Context) {
		limits, err := p.GetVolumeLimits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for key, limit := range limits {
			if key == "" || limit < 0 {
				t.Errorf("%q is limited to %d", key, limit)
			}
		}
		key := p.VolumeLimitKey(n.spec)
		if _, has := limits[key]; key != "" && !has {
			t.Errorf("the volume counts against %q, and the limits are %v", key, limits)
		}
	})
}
