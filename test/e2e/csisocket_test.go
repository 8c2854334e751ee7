package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// other starts a second driver beside the first.
func (n *csiNode) other(o testutil.CSIOptions, change ...func(*testutil.CSIControl)) *testutil.CSI {
	n.t.Helper()
	control := testutil.CSIDefaults()
	for _, f := range change {
		f(&control)
	}
	o.Root, o.Control = n.root, &control
	c := testutil.StartCSI(n.t, o)
	n.t.Cleanup(n.sweep)
	return c
}

// The endpoint in the registration's answer decides, not the usual path, where
// somebody else listens.
func TestCSIEndpointIsWhatTheRegistrationSays(t *testing.T) {
	n := newCSIWith(t, testutil.CSIOptions{Socket: ""})
	n.csi.Stop()
	usual := n.other(testutil.CSIOptions{Driver: csiDriver, NoRegistration: true})
	n.csi = n.other(testutil.CSIOptions{Driver: csiDriver, Socket: n.dir + "/elsewhere/csi.sock"})
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	if got := usual.Methods(); got != "" {
		t.Errorf("the driver at the usual path was called: %s", got)
	}
	n.cleared()
}

// Without a registration the usual path is taken.
func TestCSIEndpointFallsBackToTheUsualPath(t *testing.T) {
	n := newCSIWith(t, testutil.CSIOptions{NoRegistration: true})
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// --csi-endpoint overrides both.
func TestCSIEndpointFlag(t *testing.T) {
	n := newCSI(t)
	first := n.csi
	n.csi = n.other(testutil.CSIOptions{Driver: csiDriver, NoRegistration: true, Socket: n.dir + "/elsewhere/csi.sock"})
	flag := []string{"--csi-endpoint", n.csi.Endpoint()}
	n.must(0, append(setUp(podA, n.unattached(), n.volume("pv", "vol-1")), flag...)...)
	n.must(0, append([]string{"teardown", "pv", "--pod-uid", podA}, flag...)...)
	if got := first.Methods(); got != "" {
		t.Errorf("the registered driver was called: %s", got)
	}
	n.cleared()
	for words, flag := range map[string]string{
		"no such socket": n.dir + "/nobody.sock", "not a socket": n.file("plain", ""), "absolute": "relative/csi.sock",
	} {
		n.unchanged(func() {
			o := n.kvol(append(setUp(podA, n.unattached(), n.dir+"/pv.yaml"), "--csi-endpoint", flag)...)
			if o.code != 7 && o.code != 2 || !strings.Contains(o.stderr, words) || !strings.Contains(o.stderr, flag) {
				t.Errorf("%s: %v", words, o)
			}
		})
	}
}

// What answers there must be the driver that the volume names.
func TestCSIEndpointOfAnotherDriver(t *testing.T) {
	n := newCSI(t)
	c := n.other(testutil.CSIOptions{Driver: "other.kvol.test"})
	n.unchanged(func() {
		o := n.kvol(append(setUp(podA, n.unattached(), n.volume("pv", "vol-1")), "--csi-endpoint", c.Endpoint())...)
		if o.code == 0 || !strings.Contains(o.stderr, "other.kvol.test") {
			t.Errorf("%v", o)
		}
	})
	if got := c.Methods(); got != "" {
		t.Errorf("a driver that was not meant was called: %s", got)
	}
}

// Registrations that are not of this driver, or not of CSI 1.x, do not count; one
// that hangs, lies or is dead does not stand in the way of another driver's.
func TestCSIRegistrationsOfOthers(t *testing.T) {
	for name, spoil := range map[string]func(n *csiNode){
		"a device plugin of the same name": func(n *csiNode) {
			n.csi.Set(func(c *testutil.CSIControl) { c.Type, c.Endpoint = "DevicePlugin", n.dir+"/nowhere.sock" })
		},
		"hung": func(n *csiNode) { n.other(testutil.CSIOptions{Driver: "hung.kvol.test"}).Freeze() },
		"dead": func(n *csiNode) { n.other(testutil.CSIOptions{Driver: "dead.kvol.test"}).Kill() },
		"garbage": func(n *csiNode) {
			n.other(testutil.CSIOptions{Driver: "a.kvol.test"}, func(c *testutil.CSIControl) { c.Garbage = true })
		},
		"a file, a directory, a link and a fifo": func(n *csiNode) {
			dir := n.root + "/plugins_registry/"
			must(n.t, os.WriteFile(dir+"a-reg.sock", nil, 0o644), os.Mkdir(dir+"b-reg.sock", 0o755),
				os.Symlink("/dev/null", dir+"c-reg.sock"))
			n.sh("mkfifo " + dir + "d-reg.sock")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newCSI(t)
			spoil(n)
			n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.cleared()
		})
	}
}

// A driver of CSI 0.x only is no driver to kvol, nor to a kubelet since 1.17.
func TestCSIVersions(t *testing.T) {
	n := newCSI(t, func(c *testutil.CSIControl) { c.Versions = []string{"0.3.0"} })
	n.unchanged(func() {
		o := n.kvol(setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
		if o.code != 6 && o.code != 7 || !strings.Contains(o.stderr, "0.3.0") {
			t.Errorf("%v", o)
		}
	})
	n.csi.Set(func(c *testutil.CSIControl) { c.Versions = []string{"0.3.0", "1.5.0"} })
	n.must(0, setUp(podA, n.unattached(), n.dir+"/pv.yaml")...)
}

// A driver that is gone: up and down are told so, with the socket, and nothing is
// changed; when it is back the same command ends well.
func TestCSIDriverGone(t *testing.T) {
	for name, end := range map[string]func(*testutil.CSI){"killed": (*testutil.CSI).Kill, "stopped": (*testutil.CSI).Stop} {
		t.Run(name, func(t *testing.T) {
			n := newCSI(t)
			file := n.volume("pv", "vol-1")
			n.must(0, setUp(podA, n.unattached(), file)...)
			end(n.csi)
			n.unchanged(func() {
				n.wants(7, []string{csiDriver}, setUp(podB, n.unattached(), file)...)
				n.wants(7, []string{csiDriver, "--without-driver"}, "teardown", "pv", "--pod-uid", podA)
				n.wants(7, []string{csiDriver}, "unpublish", "pv", "--pod-uid", podA)
			})
			n.csi.Restart()
			n.must(0, "teardown", "pv", "--pod-uid", podA)
			n.cleared()
		})
	}
}

// A driver that takes connections and answers nothing, or what is no gRPC: told in
// time, and nothing changed.
func TestCSIDriverDoesNotAnswer(t *testing.T) {
	t.Parallel() // most of it is waiting
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	n.must(0, setUp(podA, n.unattached(), file)...)
	n.csi.Set(func(c *testutil.CSIControl) { c.Garbage = true })
	n.unchanged(func() {
		for _, args := range [][]string{setUp(podB, n.unattached(), file), {"unpublish", "pv", "--pod-uid", podA}} {
			if o := n.kvol(append(args, "--timeout", "3s")...); o.code == 0 || !strings.Contains(o.stderr, "csi.sock") {
				t.Errorf("garbage: %v", o)
			}
		}
	})
	n.csi.Set(func(c *testutil.CSIControl) { c.Garbage = false })
	n.csi.Freeze()
	n.unchanged(func() {
		for _, args := range [][]string{setUp(podB, n.unattached(), file), {"unpublish", "pv", "--pod-uid", podA}} {
			if o := n.kvol(append(args, "--timeout", "2s")...); o.code != 8 || !strings.Contains(o.stderr, csiDriver) {
				t.Errorf("frozen: %v", o)
			}
		}
	})
	n.csi.Thaw()
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// Sockets of long names: a name of 107 bytes is the most that connect(2) takes.
func TestCSILongSocketPath(t *testing.T) {
	n := newCSI(t)
	n.csi.Stop()
	long := filepath.Join(n.root, "plugins", strings.Repeat("long/", 40), "csi.sock")
	n.csi = n.other(testutil.CSIOptions{Driver: csiDriver, Socket: long})
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.must(0, "teardown", "pv", "--pod-uid", podA)
	n.cleared()
}

// Where another program's socket or nothing is answered as the endpoint, nobody is
// asked to do anything.
func TestCSIRegistrationLies(t *testing.T) {
	for name, endpoint := range map[string]string{
		"nothing there": "/nonexistent/csi.sock", "relative": "csi.sock", "not a socket": "/etc/passwd",
		"a web address": "http://127.0.0.1:80", "empty": " ",
	} {
		t.Run(name, func(t *testing.T) {
			n := newCSI(t, func(c *testutil.CSIControl) { c.Endpoint = endpoint })
			n.unchanged(func() {
				o := n.kvol(setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
				if o.code == 0 || o.code == 1 || !strings.Contains(o.stderr, strings.TrimSpace(endpoint)) {
					t.Errorf("%v", o)
				}
			})
		})
	}
}

// kvol limits counts what NodeGetInfo allows.
func TestCSILimits(t *testing.T) {
	n := newCSI(t, func(c *testutil.CSIControl) { c.MaxVolumes = 7 })
	n.must(0, setUp(podA, n.unattached(), n.volume("pv", "vol-1"))...)
	n.wants(0, []string{csiDriver, "7", fmt.Sprint(1)}, "limits")
	n.wants(0, []string{`"limit":7,"limitState":"limited"`}, "limits", "-o", "json")
	n.csi.Set(func(c *testutil.CSIControl) { c.MaxVolumes = 0 })
	n.wants(0, []string{`"limit":0,"limitState":"unlimited"`}, "limits", "-o", "json")
	n.csi.Stop()
	n.wants(0, []string{`"limit":0,"limitState":"unknown"`, "nobody told the limit"}, "limits", "-o", "json")
}
