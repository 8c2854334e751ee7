package e2e

import (
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// csiMode is a way in which a driver, and a volume of it, are carried.
type csiMode struct {
	name      string
	driver    func(*testutil.CSIControl)
	namespace bool
	volume    []string
	attach    bool
	inline    bool

	// The calls of a setup and of a teardown.
	up, down string
}

const (
	upStaged   = "NodeStageVolume NodePublishVolume"
	downStaged = "NodeUnpublishVolume NodeUnstageVolume"
)

func asIs(*testutil.CSIControl) {}

var csiModes = []csiMode{
	{name: "staged", driver: asIs, up: upStaged, down: downStaged},
	{name: "staged by a driver in a container", driver: asIs, namespace: true, up: upStaged, down: downStaged},
	{name: "read-only", driver: asIs, volume: []string{"csi.readOnly: true"}, up: upStaged, down: downStaged},
	{name: "mounted at publish only", driver: noStaging, up: "NodePublishVolume", down: "NodeUnpublishVolume"},
	{name: "of the node's own file system", driver: plainStage, up: upStaged, down: downStaged},
	{
		name: "attached", driver: controller, attach: true,
		up: "ControllerPublishVolume " + upStaged, down: downStaged + " ControllerUnpublishVolume",
	},
	{name: "inline", driver: asIs, inline: true, up: "NodePublishVolume", down: "NodeUnpublishVolume"},
	{name: "raw block", driver: asIs, volume: []string{"volumeMode: Block"}, up: upStaged, down: downStaged},
	{
		name: "raw block in a container", driver: asIs, namespace: true, volume: []string{"volumeMode: Block"},
		up: upStaged, down: downStaged,
	},
	{
		name: "raw block with its node in the staging directory", driver: func(c *testutil.CSIControl) { c.StageDevice = true },
		volume: []string{"volumeMode: Block"}, up: upStaged, down: downStaged,
	},
	{
		name: "raw block at publish only", driver: noStaging, volume: []string{"volumeMode: Block"},
		up: "NodePublishVolume", down: "NodeUnpublishVolume",
	},
}

// make gives the node of a mode, and the words that name its volume and pod.
func (m csiMode) make(t *testing.T) (n *csiNode, words []string) {
	t.Helper()
	n = newCSIWith(t, testutil.CSIOptions{Namespace: m.namespace}, m.driver)
	files := []string{n.unattached("podInfoOnMount: true", "volumeLifecycleModes: [Persistent, Ephemeral]")}
	switch {
	case m.inline:
		return n, setUp("", append(files, n.inlinePod(podA))...)[1:]
	case m.attach:
		files = []string{n.driver("attachRequired: true")}
	}
	return n, setUp(podA, append(files, n.volume("pv", "vol/1", m.volume...))...)[1:]
}

// name is the volume as a verb that goes down is given it without documents.
func (m csiMode) spec() string {
	if m.inline {
		return "data"
	}
	return "pv"
}

// Up and down twice in each mode: the second time nothing is done, nothing is
// different and the driver is not asked.
func TestCSIUpAndDownTwice(t *testing.T) {
	for _, m := range csiModes {
		t.Run(m.name, func(t *testing.T) {
			n, words := m.make(t)
			before, calls := n.mounts(), 0
			do := func(verb string) []string { return append([]string{verb}, words...) }
			n.must(0, do("setup")...)
			n.called(&calls, m.up)
			twice(n.node, do("setup"))
			twice(n.node, do("publish"))
			n.called(&calls, "")
			n.must(0, do("teardown")...)
			n.called(&calls, m.down)
			twice(n.node, do("teardown"))
			twice(n.node, []string{"teardown", m.spec(), "--pod-uid", podA})
			n.called(&calls, "")
			if after := n.mounts(); after != before {
				t.Errorf("left mounted:\n%s", after)
			}
			n.cleared()

			// Once more, by name and by a driver that was started anew in between: what is
			// on disk is enough.
			n.must(0, do("setup")...)
			n.called(&calls, m.up)
			n.csi.Restart()
			n.must(0, "teardown", m.spec(), "--pod-uid", podA)
			n.called(&calls, m.down)
			n.cleared()
		})
	}
}

// Every verb after every other: each ends well or is refused and says why, and
// afterwards the volume still goes up and down.
func TestCSIVerbsInAnyOrder(t *testing.T) {
	verbs := []string{"attach", "mount-device", "publish", "unpublish", "unmount-device", "detach", "setup", "teardown"}
	for _, m := range csiModes {
		if m.name != "attached" && m.name != "mounted at publish only" && m.name != "raw block" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			n, words := m.make(t)
			for i, first := range verbs {
				for _, second := range verbs[i+1:] {
					for _, verb := range []string{first, second} {
						args := append([]string{verb}, words...)
						if strings.HasSuffix(verb, "tach") || strings.HasSuffix(verb, "device") {
							args = args[:len(args)-2] // these are of no pod
						}
						o := n.kvol(args...)
						switch o.code {
						case 0:
							continue
						case 1, 4, 5, 9: // the driver refuses, or something is to be done first
							if strings.Contains(o.stderr, "next: ") {
								continue
							}
						}
						t.Errorf("after %s: %v", first, o)
					}
				}
			}
			n.must(0, append([]string{"setup"}, words...)...)
			twice(n.node, append([]string{"setup"}, words...))
			n.must(0, append([]string{"teardown"}, words...)...)
			n.cleared()
		})
	}
}
