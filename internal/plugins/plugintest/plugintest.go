// Package plugintest is the conformance suite of kvol's volume plugins. A plugin
// enters it with one example of each kind of volume that it carries:
//
//	func TestConformance(t *testing.T) {
//		plugintest.Run(t, plugintest.Case{
//			New: local.New, All: all.All,
//			Examples: []plugintest.Example{{Name: "directory", Spec: directory}},
//		})
//	}
//
// Every check is a subtest, named Check or Check/example, with real mounts on a
// scratch node of its own: a kubelet root, kvol's own directories and a place for
// storage. When one fails, the steps, the tree and the mount table are shown.
//
// It tests a plugin and the door that it acts through, not the verbs: their order,
// locks and gates are tested in internal/ops. For tests only.
package plugintest

import (
	"slices"
	"testing"

	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

// Case is a plugin's entry.
type Case struct {
	New func() plugins.VolumePlugin
	// All is the list of kvol's plugins, plugins/all.All: no other one of them may
	// support the examples.
	All      func() []plugins.VolumePlugin
	Examples []Example
	// Secret is what the examples plant wherever the plugin takes secrets, "" for
	// one that takes none. It must be in nothing that kvol writes, says or runs.
	Secret string
	// Skip names checks, as their subtests are named, that this plugin cannot pass,
	// each with the reason. They run all the same: one that passes needs no skip,
	// and that is a failure.
	Skip map[string]string
	// Only names the checks to run, all when empty: for a further kind of volume of
	// which only those can tell something new.
	Only []string
}

// Example is one kind of volume.
type Example struct {
	Name string // of its subtests
	// Spec makes storage below dir, which is outside of the kubelet's root, and
	// gives the volume there the name. A second call makes another volume.
	Spec func(t testing.TB, dir, name string) *plugins.Spec
	// Start starts, for each node, the daemon that carries the volume; root is the
	// kubelet's. Nil is a plugin that needs none.
	Start func(t testing.TB, root string)
	// Grow is the size in bytes that the volume is expanded to, 0 for one that is not.
	Grow int64
	// Enlarge makes the volume's storage larger, where its driver does not; a file
	// system is then grown to what there is.
	Enlarge func(t testing.TB, spec *plugins.Spec)
	// Format allows a file system to be made on the volume's blank device.
	Format bool
	// Block is a volume that pods get as a raw block device.
	Block bool
	// Plain is a volume that is a directory in the pod, on which nothing is mounted.
	Plain bool
	// Ephemeral is a volume that ends with its pod: what is in it keeps it from being
	// taken down.
	Ephemeral bool
	// Outside is a volume that has no place in the pod's directory: the container
	// runtime gets it from where it is.
	Outside bool
}

// check is one thing that is asked of a plugin: of itself, or of each example
// that is mounted (filesystem), mapped (block), left where it is (outside) or any.
type check struct {
	name                            string
	plugin                          func(*T, *Case)
	filesystem, block, outside, any func(*T, *Case, Example)
}

// of is what the check asks of an example, nil when nothing.
func (ch check) of(ex Example) func(*T, *Case, Example) {
	switch {
	case ch.any != nil:
		return ch.any
	case ex.Block:
		return ch.block
	case ex.Outside:
		return ch.outside
	}
	return ch.filesystem
}

// suite is every check, in the order in which they run.
func suite() (all []check) {
	for _, part := range [][]check{identityChecks, lifecycleChecks, crashChecks, safetyChecks, accessChecks, rungChecks, reclaimChecks} {
		all = append(all, part...)
	}
	return all
}

// Run enters a plugin into the suite.
func Run(t *testing.T, c Case) {
	testutil.Root(t)
	if c.checkSkips(t); t.Failed() {
		return
	}
	for _, ch := range suite() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, ch.name) {
			continue
		}
		t.Run(ch.name, func(t *testing.T) {
			if ch.plugin != nil {
				run(t, c.Skip[ch.name], func(t *T) { ch.plugin(t, &c) })
			}
			for _, ex := range c.Examples {
				if do := ch.of(ex); do != nil {
					t.Run(ex.Name, func(t *testing.T) {
						run(t, c.Skip[ch.name+"/"+ex.Name], func(t *T) { do(t, &c, ex) })
					})
				}
			}
		})
	}
}

// checkSkips refuses skips without a reason and of what does not exist.
func (c *Case) checkSkips(t *testing.T) {
	known := map[string]bool{}
	for _, ch := range suite() {
		known[ch.name] = ch.plugin != nil
		for _, ex := range c.Examples {
			known[ch.name+"/"+ex.Name] = ch.of(ex) != nil
		}
	}
	for name, reason := range c.Skip {
		if !known[name] {
			t.Errorf("skip of %q, which is no check of this plugin", name)
		}
		if reason == "" {
			t.Errorf("skip of %q without a reason", name)
		}
	}
}

// run runs one check. One that is skipped has to fail.
func run(t *testing.T, skip string, f func(*T)) {
	t.Helper()
	outer := &T{TB: t, mute: skip != ""}
	done := make(chan struct{})
	go func() { // which FailNow ends
		defer close(done)
		scope(outer, f)
	}()
	<-done
	if skip == "" {
		return
	}
	t.Logf("skipped: %s", skip)
	if !outer.Failed() {
		t.Error("the check passes, so the skip is not needed")
	}
}
