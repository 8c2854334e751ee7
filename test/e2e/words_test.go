package e2e

import (
	"os"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// A volume that is named by a path is found by it, whatever leads there: already
// must not be said of a volume that is up.
func TestNamedByPath(t *testing.T) {
	t.Run("below a root that is named through a link", func(t *testing.T) {
		n := newNode(t)
		file, _ := n.disk("pv", "ext4")
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		real := n.root
		n.root = n.dir + "/link"
		must(t, os.Symlink(real, n.root))
		n.wants(9, []string{podA}, "unmount-device", n.global("pv"))
		n.wants(9, []string{podA}, "detach", n.global("pv"))
		if got := n.outcomes(0, "unpublish", n.podVolume(podA, "pv")); got["unpublish"] != api.OutcomeDone {
			t.Errorf("unpublish: %v", got)
		}
		if got := n.outcomes(0, "unmount-device", real+"/plugins/kubernetes.io/local-volume/mounts/pv"); got["unmount-device"] != api.OutcomeDone {
			t.Errorf("unmount-device: %v", got)
		}
	})
	t.Run("through a link of its own", func(t *testing.T) {
		n := newNode(t)
		file, _ := n.disk("pv", "ext4")
		n.must(0, "mount-device", "-f", file)
		link := n.dir + "/link"
		must(t, os.Symlink(n.global("pv"), link))
		if got := n.outcomes(0, "unmount-device", link); got["unmount-device"] != api.OutcomeDone {
			t.Errorf("unmount-device: %v", got)
		}
	})
	t.Run("a directory that is a volume", func(t *testing.T) {
		n := newNode(t)
		file, dir := n.dataDir("pv")
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		n.wants(9, []string{podA}, "detach", dir)
		if got := n.outcomes(0, "unpublish", dir, "--pod-uid", podB); got["unpublish"] != api.OutcomeAlready {
			t.Errorf("unpublish of another pod: %v", got)
		}
		if got := n.outcomes(0, "unpublish", dir, "--pod-uid", podA); got["unpublish"] != api.OutcomeDone {
			t.Errorf("unpublish: %v", got)
		}
		n.must(0, "detach", dir)
	})
	t.Run("of another pod than the one that is named", func(t *testing.T) {
		n := newNode(t)
		file, _ := n.disk("pv", "ext4")
		n.must(0, "setup", "-f", file, "--pod-uid", podA)
		n.must(0, "publish", "-f", file, "--pod-uid", podB)
		n.unchanged(func() {
			n.wants(2, []string{podA, podB}, "unpublish", n.podVolume(podA, "pv"), "--pod-uid", podB)
			n.wants(2, []string{podA, podB}, "teardown", n.podVolume(podA, "pv")+"/", "--pod-uid", podB)
		})
	})
}
