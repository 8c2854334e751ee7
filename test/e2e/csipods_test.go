package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// Two pods with one volume: a teardown beside another pod takes the one away and
// leaves the staging, and says who still has it.
func TestCSITwoPods(t *testing.T) {
	for name, driver := range map[string]func(*testutil.CSIControl){"staged": asIs, "not staged": noStaging, "of the node's own": plainStage} {
		t.Run(name, func(t *testing.T) {
			n := newCSI(t, driver)
			file := n.volume("pv", "vol-1")
			n.must(0, setUp(podA, n.unattached(), file)...)
			n.must(0, setUp(podB, n.unattached(), file)...)
			must(t, os.WriteFile(n.target(podA, "pv")+"/file", []byte("data\n"), 0o644))
			if got := readText(t, n.target(podB, "pv")+"/file"); got != "data\n" {
				t.Error(got)
			}
			o := n.outcomes(0, "teardown", "pv", "--pod-uid", podA)
			if o["unpublish"] != api.OutcomeDone || o["unmount-device"] != api.OutcomeSkipped {
				t.Errorf("%v", o)
			}
			absent(t, n.csiDir(podA, "pv"))
			n.isMounted(true, n.target(podB, "pv"))
			if got := readText(t, n.target(podB, "pv")+"/file"); got != "data\n" {
				t.Error(got)
			}
			n.unchanged(func() { n.wants(9, []string{podB}, "unmount-device", csiDriver+"^vol-1") })
			n.must(0, "teardown", "pv", "--pod-uid", podB)
			n.cleared()
		})
	}
}

// A volume of another handle that has the same directory name in another pod is
// another volume.
func TestCSITwoVolumesOfTwoPods(t *testing.T) {
	n := newCSI(t)
	one, two := n.volume("pv-1", "vol-1"), n.volume("pv-2", "vol-2")
	n.must(0, setUp(podA, n.unattached(), one)...)
	n.must(0, setUp(podA, n.unattached(), two)...)
	n.must(0, "teardown", "pv-1", "--pod-uid", podA)
	n.isMounted(true, n.staging("vol-2"))
	n.isMounted(true, n.target(podA, "pv-2"))
	n.must(0, "teardown", "pv-2", "--pod-uid", podA)
	n.cleared()
}

// A read-only volume is read-only in the pod, and nothing is written through it.
func TestCSIReadOnly(t *testing.T) {
	for name, driver := range map[string]func(*testutil.CSIControl){"staged": asIs, "not staged": noStaging} {
		t.Run(name, func(t *testing.T) {
			n := newCSI(t, driver)
			n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1", "csi.readOnly: true", "csi.fsType: ext4"))...)
			if err := os.WriteFile(n.target(podA, "pv")+"/file", nil, 0o644); err == nil {
				t.Error("it was written to")
			}
			if m := n.list()[n.target(podA, "pv")]; !m.ReadOnly {
				t.Errorf("%+v", m)
			}
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.cleared()
		})
	}
}

// Stacked mounts on the target and on the staging path are all taken off.
func TestCSIStacked(t *testing.T) {
	n, _ := carried(t)
	testutil.Bind(t, n.staging("vol-1"), n.target(podA, "pv"), false)
	if m := n.list()[n.target(podA, "pv")]; m.Stacked != 2 {
		t.Errorf("%+v", m)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// A pod that works in its volume keeps it: the driver says so, kvol names who, and
// nothing is changed.
func TestCSIBusy(t *testing.T) {
	n, _ := carried(t)
	u := n.user(false, "cd "+n.target(podA, "pv"))
	n.unchanged(func() {
		n.wants(9, []string{n.target(podA, "pv"), "process " + strconv.Itoa(u.pid)}, "teardown", "pv", "--pod-uid", podA)
	})
	u.end()
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// A file system in memory over the volume is lost with what is in it when it is taken
// off, so it is not.
func TestCSIForeignMountOnTheTarget(t *testing.T) {
	n, file := carried(t)
	testutil.Tmpfs(t, n.target(podA, "pv"))
	must(t, os.WriteFile(n.target(podA, "pv")+"/foreign", []byte("data\n"), 0o644))
	n.unchanged(func() {
		for _, args := range [][]string{{"teardown", "pv", "--pod-uid", podA}, {"unpublish", "-f", file, "--pod-uid", podA}} {
			n.wants(4, []string{n.target(podA, "pv"), "tmpfs"}, args...)
		}
	})
	must(t, unix.Unmount(n.target(podA, "pv"), 0))
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// A mount of somebody inside the volume keeps it too.
func TestCSIForeignMountInside(t *testing.T) {
	n, _ := carried(t)
	inside := n.target(podA, "pv") + "/inside"
	must(t, os.Mkdir(inside, 0o755))
	testutil.Tmpfs(t, inside)
	n.unchanged(func() {
		n.wants(9, []string{inside}, "teardown", "pv", "--pod-uid", podA)
	})
	must(t, unix.Unmount(inside, 0))
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// Somebody else's mount where the volume is to go up is no published volume.
func TestCSIForeignMountBeforeSetup(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	must(t, os.MkdirAll(n.target(podA, "pv"), 0o750))
	testutil.Tmpfs(t, n.target(podA, "pv"))
	o := n.kvol(setUp(podA, n.unattached(), file)...)
	if o.code == 0 || !strings.Contains(o.stderr, n.target(podA, "pv")) {
		t.Errorf("%v", o)
	}
	n.isMounted(true, n.target(podA, "pv"))
	must(t, unix.Unmount(n.target(podA, "pv"), 0))
	n.must(0, setUp(podA, n.unattached(), file)...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// detach is refused while the volume is staged or mounted anywhere, in this and in
// other mount namespaces, and the controller is not asked.
func TestCSIDetachGate(t *testing.T) {
	n := newCSI(t, controller)
	driver := n.driver("attachRequired: true")
	file := n.volume("pv", "vol-1")
	n.must(0, setUp(podA, driver, file)...)
	refused := func(words ...string) {
		t.Helper()
		n.unchanged(func() {
			for _, way := range [][]string{{"pv"}, {"-f", file, "-f", driver}, {csiDriver + "^vol-1"}} {
				n.wants(9, words, append([]string{"detach"}, way...)...)
			}
		})
		if got := n.csi.CallsTo("ControllerUnpublishVolume"); len(got) > 0 {
			t.Fatal("the controller was asked to detach")
		}
	}
	refused(podA)
	n.must(0, "unpublish", "pv", "--pod-uid", podA)
	refused(n.staging("vol-1"))
	u := n.user(true, "mountpoint -q "+n.staging("vol-1"))
	n.csi.Fail("NodeUnstageVolume", testutil.CSIFault{})
	if o := n.kvol("unmount-device", csiDriver+"^vol-1"); o.code != 0 && o.code != 9 {
		t.Errorf("%v", o)
	}
	u.end()
	n.must(0, "unmount-device", csiDriver+"^vol-1")
	n.must(0, "detach", "-f", file, "-f", driver)
	if got := n.csi.CallsTo("ControllerUnpublishVolume"); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	n.cleared()
}

// A pod's subpath bind keeps the volume from being unpublished.
func TestCSISubPathInUse(t *testing.T) {
	n, _ := carried(t)
	must(t, os.Mkdir(n.target(podA, "pv")+"/sub", 0o755))
	sub := n.root + "/pods/" + podA + "/volume-subpaths/pv/c/0"
	must(t, os.MkdirAll(sub, 0o750))
	testutil.Bind(t, n.target(podA, "pv")+"/sub", sub, false)
	n.unchanged(func() { n.wants(9, []string{sub}, "teardown", "pv", "--pod-uid", podA) })
	n.isMounted(true, n.staging("vol-1"))
	must(t, unix.Unmount(sub, 0))
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// What a driver in a container mounts is seen here, and the reverse: its mounts are
// of one peer group with the node's.
func TestCSIDriverInItsOwnNamespace(t *testing.T) {
	n := newCSIWith(t, testutil.CSIOptions{Namespace: true})
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.isMounted(true, n.target(podA, "pv"))
	inside := n.sh("nsenter -t " + strconv.Itoa(n.csi.PID) + " -m cat /proc/self/mountinfo")
	for _, path := range []string{n.target(podA, "pv"), n.staging("vol-1")} {
		if !strings.Contains(inside, " "+path+" ") {
			t.Errorf("the driver does not see %s:\n%s", path, inside)
		}
	}
	n.csi.Kill()
	n.must(0, "teardown", "pv", "--pod-uid", podA, "--without-driver")
	absent(t, n.csiDir(podA, "pv"), n.staged("vol-1"))
}

// expand asks the driver to grow the file system, and tells the new size.
func TestCSIExpand(t *testing.T) {
	n := newCSI(t)
	n.csi.Volume("vol-1", "xfs", 320<<20)
	file := n.pvOf("pv", "vol-1", "csi.fsType: xfs")
	n.must(0, setUp(podA, n.unattached(), file)...)
	var before, after unix.Statfs_t
	must(t, unix.Statfs(n.target(podA, "pv"), &before))
	n.must(0, "expand", "-f", file, "-f", n.unattached(), "--pod-uid", podA, "--size", "400Mi")
	must(t, unix.Statfs(n.target(podA, "pv"), &after))
	if after.Blocks <= before.Blocks {
		t.Errorf("%d blocks, before %d", after.Blocks, before.Blocks)
	}
	if c := n.csi.CallsTo("NodeExpandVolume")[0]; c.StagingPath != n.staging("vol-1") || c.Bytes != 400<<20 {
		t.Errorf("%+v", c)
	}
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}
