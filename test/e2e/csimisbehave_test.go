package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

// A driver that misbehaves in each of the calls: kvol ends in time, says what it
// knows, and the same command ends well when the driver is itself again.
func TestCSIDriverFailsInACall(t *testing.T) {
	faults := map[string]struct {
		fault   testutil.CSIFault
		restart bool
	}{
		"hangs before":       {testutil.CSIFault{Hang: true}, true},
		"hangs after":        {testutil.CSIFault{Hang: true, After: true}, true},
		"dies before":        {testutil.CSIFault{Die: true}, true},
		"dies after":         {testutil.CSIFault{Die: true, After: true}, true},
		"unavailable before": {testutil.CSIFault{Code: "Unavailable"}, false},
		"unavailable after":  {testutil.CSIFault{Code: "Unavailable", After: true}, false},
	}
	for name, f := range faults {
		for _, method := range append(strings.Fields(upStaged), strings.Fields(downStaged)...) {
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel() // most of it is waiting
				n := newCSI(t)
				file := n.volume("pv", "vol-1")
				upwards := setUp(podA, n.unattached(), file)
				args := upwards
				if strings.Contains(method, "Un") {
					n.must(0, upwards...)
					args = []string{"teardown", "pv", "--pod-uid", podA}
				}
				n.csi.Fail(method, f.fault)
				o := n.kvol(append(args, "--timeout", "3s")...)
				if o.code != 8 || !strings.Contains(o.stderr, method) {
					t.Errorf("%v", o)
				}
				n.csi.Heal()
				if f.restart {
					n.csi.Restart()
				}
				n.must(0, args...)
				n.must(0, "teardown", "pv", "--pod-uid", podA)
				n.cleared()
			})
		}
	}
}

// A slow driver is waited for as long as there is time.
func TestCSIDriverIsSlow(t *testing.T) {
	n := newCSI(t)
	for _, method := range append(strings.Fields(upStaged), strings.Fields(downStaged)...) {
		n.csi.Fail(method, testutil.CSIFault{Delay: 300 * time.Millisecond, After: true})
	}
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// A call that went on after kvol gave up: what it did in the meantime is taken as
// done, and not done again.
func TestCSIDriverFinishesLater(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	n.csi.Fail("NodePublishVolume", testutil.CSIFault{WaitFor: n.dir + "/go"})
	n.must(8, append(setUp(podA, n.unattached(), file), "--timeout", "2s")...)
	n.file("go", "")
	testutil.Poll(t, "the driver has published", func() bool {
		return strings.Contains(testutil.MountTable(t, n.target(podA, "pv")), "ext4")
	})
	n.must(0, setUp(podA, n.unattached(), file)...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// NotFound is what the driver knows: where nothing is mounted the volume is down;
// where it still is, that is told.
func TestCSIUnpublishIsNotFound(t *testing.T) {
	for _, method := range strings.Fields(downStaged) {
		t.Run(method+" and still mounted", func(t *testing.T) {
			n, _ := carried(t)
			n.csi.Fail(method, testutil.CSIFault{Code: "NotFound", Message: "never heard of it"})
			o := n.kvol("teardown", "pv", "--pod-uid", podA)
			if o.code == 0 || !strings.Contains(o.stderr, "mounted") {
				t.Errorf("%v", o)
			}
			n.isMounted(true, n.staging("vol-1"))
			there(t, n.stagedData("vol-1"))
		})
		t.Run(method+" the second time", func(t *testing.T) {
			n, _ := carried(t)
			n.csi.Fail(method, testutil.CSIFault{After: true, Code: "Unavailable", Until: 2})
			n.must(8, "teardown", "pv", "--pod-uid", podA)
			n.csi.Fail(method, testutil.CSIFault{Code: "NotFound"})
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.cleared()
		})
	}
}

// What a driver leaves of its target is removed where it is empty, and else stays.
func TestCSIDriverLeavesTheTarget(t *testing.T) {
	for _, what := range []string{"dir", "file"} {
		t.Run(what, func(t *testing.T) {
			n, _ := carried(t)
			n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Leave: what})
			o := n.kvol("teardown", "pv", "--pod-uid", podA)
			if what == "dir" {
				if o.code != 0 {
					t.Errorf("%v", o)
				}
				n.cleared()
			} else if o.code != 0 && !strings.Contains(o.stderr, n.target(podA, "pv")) {
				t.Errorf("%v", o)
			}
		})
	}
	t.Run("a block target", func(t *testing.T) {
		n := newCSI(t)
		n.must(0, setUp(podA, n.unattached(), n.volume("raw", "vol-1", "volumeMode: Block"))...)
		n.csi.Fail("NodeUnpublishVolume", testutil.CSIFault{Leave: "file"})
		n.must(0, "teardown", "raw", "--pod-uid", podA)
		n.cleared()
	})
}

// Success for nothing, upwards: success is what the mount table shows.
func TestCSIPublishDoesNothing(t *testing.T) {
	for _, more := range [][]string{nil, {"volumeMode: Block"}} {
		n := newCSI(t)
		file := n.volume("pv", "vol-1", more...)
		n.csi.Fail("NodePublishVolume", testutil.CSIFault{Nothing: true})
		o := n.kvol(setUp(podA, n.unattached(), file)...)
		if o.code == 0 || !strings.Contains(o.stderr, "NodePublishVolume") {
			t.Errorf("%v", o)
		}
		n.csi.Heal()
		n.must(0, setUp(podA, n.unattached(), file)...)
		n.must(0, "teardown", "pv", "--pod-uid", podA)
		n.cleared()
	}
}

// The node half without the driver, on the operator's word; the driver's half is
// taken up again when it is back.
func TestCSIWithoutDriver(t *testing.T) {
	for _, m := range csiModes {
		if m.namespace || m.attach {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			n, words := m.make(t)
			n.must(0, append([]string{"setup"}, words...)...)
			n.csi.Kill()
			n.must(7, "teardown", m.spec(), "--pod-uid", podA)
			n.must(0, "teardown", m.spec(), "--pod-uid", podA, "--without-driver")
			if got := n.mounts(); got != "" {
				t.Errorf("still mounted:\n%s", got)
			}
			absent(t, n.csiDir(podA, "pv"), n.staged("vol/1"), n.blocks()+"/pv")
			n.wants(0, []string{"--without-driver"}, "history", "-o", "json")
		})
	}
}

// Answers of the driver that cannot be: an unknown capability, an empty name.
func TestCSIOddAnswers(t *testing.T) {
	n := newCSI(t, func(c *testutil.CSIControl) { c.NodeCaps = append(c.NodeCaps, "UNKNOWN", "GET_STORAGE_HEALTH") })
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.csi.Fail("GetPluginInfo", testutil.CSIFault{Nothing: true})
	n.csi.Fail("NodeGetInfo", testutil.CSIFault{Nothing: true})
	if o := n.kvol(setUp(podA, n.unattached(), n.dir+"/pv.yaml")...); strings.Contains(o.stderr, "panic") {
		t.Errorf("%v", o)
	}
	n.must(0, "limits")
	n.csi.Fail("NodeGetCapabilities", testutil.CSIFault{Code: "Unimplemented"})
	if o := n.kvol("teardown", "pv", "--pod-uid", podA); strings.Contains(o.stderr, "panic") {
		t.Errorf("%v", o)
	}
}

// A message of the driver is shown on one line and without what a terminal obeys.
func TestCSIMessagesAreTame(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	n.csi.Fail("NodeStageVolume", testutil.CSIFault{Code: "Internal", Message: "one\ntwo\x1b[31m" + strings.Repeat("long ", 20000)})
	o := n.kvol(setUp(podA, n.unattached(), file)...)
	if o.code != 1 || strings.Contains(o.stderr, "\x1b") || len(o.stderr) > 20000 {
		t.Errorf("code %d, %d bytes: %.300q", o.code, len(o.stderr), o.stderr)
	}
}
