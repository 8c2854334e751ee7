package plugintest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/testutil"
)

var safetyChecks = []check{
	{name: "HoldsData", filesystem: checkHoldsData},
	{name: "SomethingElse", filesystem: checkSomethingElse},
	{name: "LyingTool", filesystem: checkLyingTool},
	{name: "Door", plugin: checkDoor},
	{name: "Secrets", filesystem: checkSecrets},
}

// checkHoldsData wants a directory in which there is data, and nothing mounted, to
// be neither mounted over nor removed, and no plan to say that it would be.
func checkHoldsData(t *T, c *Case, ex Example) {
	eachPlace(t, c, ex, func(n *node, dir string) {
		data := filepath.Join(dir, "data")
		n.mkdirAll(dir)
		n.put(data)
		for _, w := range []way{{dryRun: true}, {}} {
			n.refused("tear down of data", n.down(podA, true, w), api.ErrNotEmpty)
			n.kept(data)
			if up := n.up(podA, w); ex.Plain {
				n.ok("set up on data", up) // it goes on with a run that was cut short
			} else {
				n.refused("set up on data", up, api.ErrNotEmpty)
			}
			n.kept(data)
		}
		if err := os.Remove(data); err != nil {
			n.Fatal(err)
		}
		n.ok("set up once the data is elsewhere", n.up(podA, way{}))
	})
}

// eachPlace gives a node for each of the example's mount points: the one in the pod
// and, where it has it, the global one.
func eachPlace(t *T, c *Case, ex Example, f func(n *node, dir string)) {
	for _, where := range []func(*node) string{
		func(n *node) string { return n.target(podA) },
		(*node).global,
	} {
		scope(t, func(t *T) {
			n := newNode(t, c, ex)
			if dir := where(n); dir != "" {
				f(n, dir)
			}
		})
	}
}

// checkSomethingElse wants a set up to be refused where something else is mounted:
// on the target, and on the global mount that a pod would get.
func checkSomethingElse(t *T, c *Case, ex Example) {
	eachPlace(t, c, ex, func(n *node, dir string) {
		n.mkdirAll(dir)
		testutil.Tmpfs(n, dir)
		n.put(filepath.Join(dir, "data"))
		for _, w := range []way{{dryRun: true}, {}} {
			n.refused("set up where something else is mounted", n.up(podA, w), api.ErrRefused)
			if dir == n.global() {
				out := n.do("mount-device", w, func(ctx context.Context, run *act.Runner) error { return n.stage(ctx, run, podA) })
				n.refused("mount device where something else is mounted", out, api.ErrRefused)
			}
			n.refused("publish alone", n.publish(podA, w), api.ErrRefused, api.ErrNotMounted)
		}
		if got := n.mounts(dir); got != 1 {
			n.Errorf("%d mounts at %s, there was one", got, dir)
		}
		n.kept(filepath.Join(dir, "data"))
	})
}

// checkLyingTool wants a mount that silently did not happen not to be called one.
func checkLyingTool(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.tools.lies = map[string]int{"mount": 0}
	out := n.up(podA, way{})
	if n.tools.lies["mount"] == 0 {
		return // it needs no tool to mount
	}
	n.refused("set up with a mount(8) that does nothing", out, api.ErrUncertain)
	if got := n.mounts(n.target(podA)); got > 0 {
		t.Errorf("something is mounted at %s", n.target(podA))
	}
	n.tools.lies = nil
	n.ok("set up with a true one", n.up(podA, way{}))
}

// checkDoor wants the door itself, whatever plugin asks, to take off nothing that
// the layout does not make, and to remove nothing that holds something.
func checkDoor(t *T, c *Case) {
	n := newNode(t, c, c.Examples[0])
	pod := filepath.Join(n.root, "pods", podA.UID, "volumes", "kubernetes.io~test")
	for _, path := range []string{
		filepath.Join(n.root, "stray"),
		filepath.Join(n.root, "plugins"), // can be a mount of its own, and is no volume
		filepath.Join(pod, "volume", "inner"),
		n.storage(),
	} {
		n.mkdirAll(path)
		testutil.Tmpfs(n, path)
		n.put(filepath.Join(path, "data"))
		out := n.onNode("unpublish", func(ctx context.Context, run *act.Runner) error {
			_, err := run.UnmountAll(ctx, path, "a test")
			return err
		})
		n.refused("unmount of "+path, out, api.ErrRefused)
		n.kept(filepath.Join(path, "data"))
	}
	for _, path := range []string{n.root, pod} {
		out := n.onNode("unpublish", func(ctx context.Context, run *act.Runner) error {
			_, err := run.Do(ctx, act.Rmdir{Path: path})
			return err
		})
		n.refused("rmdir of "+path, out, api.ErrNotEmpty, api.ErrRefused, api.ErrBusy)
	}
}

// checkSecrets wants the planted secret in nothing that kvol says, writes or gives
// to a tool as an argument, however the operation ends.
func checkSecrets(t *T, c *Case, ex Example) {
	if c.Secret == "" {
		return
	}
	n := newNode(t, c, ex)
	n.said = append(n.said, n.spec.String())
	for _, w := range []way{{dryRun: true}, crashAt(act.After, 2), {}} {
		n.up(podA, w)
	}
	n.tools.lies = map[string]int{"mount": 0}
	n.up(podB, way{})
	n.tools.lies = nil
	for _, w := range []way{{dryRun: true}, crashAt(act.Before, 1), {}} {
		n.down(podA, true, w)
	}
	for what, text := range map[string]string{
		"what kvol said": strings.Join(n.said, "\n"), "the arguments of tools": strings.Join(n.tools.argv, "\n"),
	} {
		if strings.Contains(text, c.Secret) {
			t.Errorf("the secret is in %s:\n%s", what, text)
		}
	}
	err := filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, n.storage()+"/") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), c.Secret) {
			t.Errorf("the secret is in %s", path)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
