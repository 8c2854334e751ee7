package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// slack is how long after its --timeout a command may end. An attempt that took
// longer, or had not the time to do what it can, is made again, twice at most, with
// more time: the bound is kvol's, and what else a busy machine does at that moment is
// not. A command that is late by design is late three times.
const slack = 500 * time.Millisecond

// within runs kvol with a --timeout and wants the exit code, and its end and that
// of its output in time. Only commands that can be repeated go here.
func (n *node) within(limit time.Duration, code int, args ...string) out {
	n.t.Helper()
	var o out
	for range 3 {
		o = n.kvol(append(slices.Clone(args), "--timeout", limit.String())...)
		if o.code == code && o.took <= limit+slack {
			return o
		}
		if o.code != code && o.code != api.ExitUncertain {
			break
		}
		limit *= 4
	}
	n.t.Errorf("wanted exit code %d, and no later than %v after its time-out:\n%v", code, slack, o)
	return o
}

// broken puts count file systems that do not answer at every kind of place below
// the root, in each of the ways, and gives them by path.
func (n *node) broken(count int, modes ...hangMode) map[string]*hangFS {
	n.t.Helper()
	all := map[string]*hangFS{}
	for i := range count {
		h := hang(n.t, n.brokenPlace(i), modes[i%len(modes)])
		all[h.path] = h
	}
	return all
}

func brokenPod(i int) string { return fmt.Sprintf("dead0000-0000-4000-8000-%012d", i) }

func (n *node) brokenPlace(i int) string {
	pod := n.root + "/pods/" + brokenPod(i)
	switch i % 7 {
	case 0:
		return fmt.Sprintf("%s/volumes/kubernetes.io~nfs/vol-%d", pod, i)
	case 1:
		return fmt.Sprintf("%s/volumes/kubernetes.io~csi/pvc-%d/mount", pod, i)
	case 2:
		return n.global(fmt.Sprintf("vol-%d", i))
	case 3:
		return fmt.Sprintf("%s/plugins/kubernetes.io/csi/hang.example/%064d/globalmount", n.root, i)
	case 4:
		return fmt.Sprintf("%s/volume-subpaths/vol-%d/app/0", pod, i)
	case 5:
		return n.podVolume(brokenPod(i), fmt.Sprintf("vol-%d", i))
	}
	return fmt.Sprintf("%s/elsewhere/%d", n.root, i)
}

var brokenState = map[hangMode]api.State{
	gone: api.StateDisconnected, mute: api.StateUnresponsive, deaf: api.StateUnresponsive,
}

// Every command ends in time and does its work, however many mounts beside it are
// dead, stopped or stuck.
func TestNothingHangsBesideBrokenMounts(t *testing.T) {
	for _, count := range []int{1, 10, 100} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			n := newNode(t)
			dir, _ := n.dataDir("dirpv")
			disk, _ := n.disk("diskpv", "ext4")
			raw, _ := n.disk("rawpv", "")
			all := n.broken(count, gone, mute, deaf)
			if count > 1 {
				// Real daemons: killed, stopped, and one that answers slowly.
				testutil.FUSE(t, mkdir(t, n.podVolume(podStatic, "killed")), testutil.FUSEDead)
				testutil.FUSE(t, mkdir(t, n.podVolume(podStatic, "stopped")), testutil.FUSEHung)
				testutil.FUSE(t, mkdir(t, n.podVolume(podStatic, "slow")), testutil.FUSESlow)
			}
			n.lookAround(all)
			n.upAndDown(dir)
			if count == 100 {
				n.upAndDown(disk)
				n.upAndDown(raw)
			}
		})
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	must(t, os.MkdirAll(path, 0o750))
	return path
}

// lookAround runs every command that only reads.
func (n *node) lookAround(all map[string]*hangFS) {
	n.t.Helper()
	const limit = 3 * time.Second
	got := map[string]api.Mount{}
	for _, m := range decode[api.List[api.Mount]](n.t, n.within(limit, 0, "list-mounts", "--probe-timeout", "1s", "-o", "json").stdout).Items {
		got[m.Path] = m
	}
	for path, h := range all {
		if m := got[path]; m.State != brokenState[h.mode] || !m.Mounted {
			n.t.Errorf("%s is %s and listed as %q (%s)", path, h.mode, m.State, m.StateReason)
		}
	}
	for name, want := range map[string]api.State{"killed": api.StateDisconnected, "stopped": api.StateUnresponsive, "slow": api.StateOK} {
		if m := got[n.podVolume(podStatic, name)]; len(all) > 1 && m.State != want {
			n.t.Errorf("%s is listed as %q (%s)", name, m.State, m.StateReason)
		}
	}
	for _, args := range [][]string{
		{"ls", "--no-probe"},
		{"paths", n.brokenPlace(0)},
		{"plugins"}, {"history"}, {"config", "view"}, {"version"},
		{"inspect", n.brokenPlace(0)},
		{"inspect", "vol-0"},
		{"inspect", brokenPod(0)},
	} {
		n.within(limit, 0, args...)
	}
	// Probing fits into the time that there is.
	n.within(time.Second, 0, "ls", "--probe-timeout", "1m")
}

// upAndDown takes a volume that is well up and down in one command each and step
// by step, each planned first.
func (n *node) upAndDown(file string) {
	n.t.Helper()
	const limit = 20 * time.Second
	pod := []string{"--pod-uid", podA}
	for _, step := range [][]string{
		{"paths"}, {"attach", "--check"},
		{"attach"}, {"mount-device"}, append([]string{"publish"}, pod...),
		append([]string{"unpublish"}, pod...), {"unmount-device"}, {"detach"},
		append([]string{"setup"}, pod...), append([]string{"teardown"}, pod...),
	} {
		args := append(slices.Clone(step), "-f", file)
		if step[0] != "paths" && len(step) != 2 {
			n.within(limit, 0, append(slices.Clone(args), "--dry-run")...)
		}
		n.within(limit, 0, args...)
	}
	name := strings.TrimSuffix(filepath.Base(file), ".yaml")
	if m := testutil.MountTable(n.t, n.podVolume(podA, name)) + testutil.MountTable(n.t, n.global(name)); m != "" {
		n.t.Errorf("%s is still mounted after its teardown:\n%s", name, m)
	}
}

// A volume whose source lies on a file system that does not answer: what needs the
// source ends at its time-out as uncertain, and the rest works.
func TestSourceThatHangs(t *testing.T) {
	for _, mode := range []hangMode{mute, deaf, gone} {
		t.Run(string(mode), func(t *testing.T) {
			n := newNode(t)
			h := hang(t, n.dir+"/storage", mode)
			file := n.pv("pv", h.path+"/export/pv")
			wait, limit := 8, 500*time.Millisecond
			if mode == gone {
				wait, limit = 1, 10*time.Second // its storage answers: that it is not there
			}
			pod := []string{"-f", file, "--pod-uid", podA}
			n.unchanged(func() {
				for _, c := range []struct {
					code int
					args []string
				}{
					{wait, []string{"paths", "-f", file}},
					{wait, []string{"attach", "-f", file, "--check"}},
					{0, []string{"attach", "-f", file}},
					{wait, []string{"mount-device", "-f", file}},
					{wait, append([]string{"mount-device", "--dry-run"}, "-f", file)},
					{wait, append([]string{"publish"}, pod...)},
					{wait, append([]string{"setup"}, pod...)},
					{wait, append([]string{"setup", "--dry-run"}, pod...)},
					{0, append([]string{"unpublish"}, pod...)},
					{0, []string{"unmount-device", "-f", file}},
					{wait, []string{"detach", "-f", file}},
					{wait, append([]string{"teardown"}, pod...)},
					{wait, append([]string{"teardown", "--dry-run"}, pod...)},
					{wait, []string{"inspect", h.path + "/export/pv"}},
					{wait, []string{"detach", h.path + "/export/pv"}},
					{0, []string{"teardown", "pv", "--pod-uid", podA}},
					{0, []string{"list-mounts"}},
				} {
					n.within(limit, c.code, c.args...)
				}
			})
			for _, op := range decode[api.List[api.Operation]](t, n.must(0, "history", "-o", "json").stdout).Items {
				if op.Outcome == "interrupted" {
					t.Errorf("%s has no end in the history", op.Verb)
				}
			}
		})
	}
}

// A volume whose own mounts are dead, stopped or stuck is taken down all the same.
func TestVolumeThatHangsIsTakenDown(t *testing.T) {
	for _, mode := range []testutil.FUSEMode{testutil.FUSEDead, testutil.FUSEHung, testutil.FUSESlow} {
		for _, verb := range []string{"unpublish", "teardown"} {
			t.Run(string(mode)+" "+verb, func(t *testing.T) {
				n := newNode(t)
				m := testutil.FUSE(t, mkdir(t, n.dir+"/storage"), testutil.FUSEAlive)
				file := n.pv("pv", m.Path)
				n.must(0, "publish", "-f", file, "--pod-uid", podA)
				n.must(0, "publish", "-f", file, "--pod-uid", podB)
				switch mode {
				case testutil.FUSEDead:
					m.Kill()
				case testutil.FUSEHung:
					m.Stop()
				}
				const limit = 10 * time.Second
				n.within(limit, 0, verb, "pv", "--pod-uid", podA, "--dry-run", "-o", "shell")
				n.within(limit, 0, verb, "pv", "--pod-uid", podA)
				if list := n.list("--pod-uid", podA); len(list) > 0 {
					t.Errorf("left: %v", list)
				}
				n.within(limit, 0, verb, "-f", file, "--pod-uid", podB)
				if got := n.mounts(); got != "" {
					t.Errorf("left:\n%s", got)
				}
				if _, err := os.Lstat(n.podVolume(podA, "pv")); !os.IsNotExist(err) {
					t.Errorf("the mount point is left: %v", err)
				}
			})
		}
	}
}

// What does not answer and lies where the volume itself belongs.
func TestBrokenMountInTheWay(t *testing.T) {
	for _, mode := range []hangMode{gone, mute, deaf} {
		t.Run(string(mode), func(t *testing.T) {
			n := newNode(t)
			dir, _ := n.dataDir("dirpv")
			disk, _ := n.disk("diskpv", "ext4")
			hang(t, n.podVolume(podA, "dirpv"), mode)
			hang(t, n.global("diskpv"), mode)
			hang(t, n.root+"/pods/"+podB+"/volume-subpaths/dirpv/app/0", mode)
			n.must(0, "publish", "-f", dir, "--pod-uid", podB)
			const limit = 5 * time.Second
			n.unchanged(func() {
				for _, c := range []struct {
					code int
					args []string
				}{
					{4, []string{"publish", "-f", dir, "--pod-uid", podA}},
					{4, []string{"setup", "-f", dir, "--pod-uid", podA, "--dry-run"}},
					{4, []string{"setup", "-f", dir, "--pod-uid", podA}},
					{4, []string{"mount-device", "-f", disk}},
					{4, []string{"setup", "-f", disk, "--pod-uid", podA}},
					{9, []string{"detach", "diskpv"}},
					{9, []string{"unpublish", "dirpv", "--pod-uid", podB}},
					{0, []string{"inspect", "dirpv", "--probe-timeout", "100ms"}},
					{0, []string{"inspect", n.global("diskpv"), "--probe-timeout", "100ms"}},
				} {
					n.within(limit, c.code, c.args...)
				}
			})
			var lazy []string
			if mode == deaf {
				// The probes of inspect wait in there for ever, and keep it busy.
				for _, args := range [][]string{{"unpublish", "dirpv", "--pod-uid", podA}, {"unmount-device", "diskpv"}} {
					n.wants(9, []string{"kvol's own look", "--lazy"}, args...)
				}
				lazy = []string{"--lazy"}
			}
			n.within(limit, 0, append([]string{"unpublish", "dirpv", "--pod-uid", podA}, lazy...)...)
			n.within(limit, 0, append([]string{"unmount-device", "diskpv"}, lazy...)...)
			n.within(limit, 0, "detach", "-f", disk)
			n.within(limit, 0, "setup", "-f", disk, "--pod-uid", podA)
			n.within(limit, 0, "teardown", "diskpv", "--pod-uid", podA)
		})
	}
}

// A pod's link to its device may lead into what hangs; all of them together take
// no longer than one.
func TestDeviceLinksThatHang(t *testing.T) {
	n := newNode(t)
	h := hang(t, n.dir+"/storage", deaf)
	for i := range 30 {
		link := n.podDevice(brokenPod(i), "raw")
		must(t, os.MkdirAll(filepath.Dir(link), 0o750), os.Symlink(fmt.Sprintf("%s/disk-%d", h.path, i), link))
	}
	o := n.within(5*time.Second, 0, "list-mounts", "--probe-timeout", "300ms", "-o", "json")
	items := decode[api.List[api.Mount]](t, o.stdout).Items
	if len(items) != 30 {
		t.Errorf("%d listed", len(items))
	}
	for _, m := range items {
		if m.State != api.StateUnresponsive {
			t.Errorf("%s is %q (%s)", m.Path, m.State, m.StateReason)
		}
	}
	n.sameAfter(10)
}

// kvol's own directories, and the kubelet's, on a file system that does not answer:
// what needs them says so, what does not works.
func TestOwnDirectoriesThatHang(t *testing.T) {
	for _, mode := range []hangMode{mute, deaf} {
		for flag, codes := range map[string]struct{ list, history, setup, plan int }{
			"--root-dir":  {8, 8, 8, 8},
			"--state-dir": {0, 8, 0, 0},
			"--run-dir":   {0, 8, 4, 0},
		} {
			for _, below := range []string{"", "/a/b"} {
				t.Run(fmt.Sprint(mode, " ", flag, below), func(t *testing.T) {
					n := newNode(t)
					file, _ := n.dataDir("pv")
					h := hang(t, n.dir+"/storage", mode)
					switch flag {
					case "--root-dir":
						n.root = h.path + below
					case "--state-dir":
						n.state = h.path + below
					case "--run-dir":
						n.run = h.path + below
					}
					for _, c := range []struct {
						code int
						args []string
					}{
						{codes.list, []string{"list-mounts"}},
						{codes.history, []string{"history"}},
						{codes.setup, []string{"setup", "-f", file, "--pod-uid", podA}},
						{codes.plan, []string{"teardown", "pv", "--pod-uid", podA, "--dry-run"}},
					} {
						o := n.within(2*time.Second, c.code, append(c.args, "--probe-timeout", "200ms")...)
						if c.code != 0 && !strings.Contains(o.stderr, h.path) {
							t.Errorf("does not name %s:\n%v", h.path, o)
						}
					}
				})
			}
		}
	}
}
