package node

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// TestWaitElsewhere: a device that is unmounted here, and not in another mount namespace.
func TestWaitElsewhere(t *testing.T) {
	s := newScratch(t)
	dev := s.ext4(globals + "disk")
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	s.must(err, cmd.Start())
	end := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(end)
	_, err = bufio.NewReader(out).ReadString('\n')
	s.must(err)
	w := s.waiter(api.ConditionUnmounted, WaitSubject{Word: dev}, nil)
	if got := s.state(w); !strings.HasPrefix(got, "1 mount") {
		t.Error(got)
	}
	s.must(unix.Unmount(s.at(globals+"disk"), 0))
	if got := s.state(w); !strings.HasSuffix(got, "still has it mounted on "+s.at(globals+"disk")) {
		t.Error(got)
	}
	end()
	if got := s.state(w); got != "met" {
		t.Error(got)
	}
}

// TestWaitCovered: what lies under a mount where none belongs, or in it, is not seen, and
// not taken for unmounted.
func TestWaitCovered(t *testing.T) {
	const met, covered, left = "met", "cannot be seen", " left"
	s := newScratch(t)
	s.mkdir(volumesB + "kubernetes.io~configmap/cm")
	s.tmpfs("plugins/csi.example.com") // a driver's own
	look := func(over string, want map[WaitSubject]string) {
		t.Helper()
		for of, want := range want {
			if got := s.state(s.waiter(api.ConditionUnmounted, of, nil)); !strings.HasSuffix(got, want) {
				t.Errorf("%s below %s: %q, want %q", of.Word, over, got, want)
			}
			if got := s.state(s.waiter(api.ConditionMounted, of, nil)); strings.HasSuffix(got, covered) {
				t.Error(got)
			}
		}
	}
	volume, inA, inB := WaitSubject{Word: "raw", Plugin: nfs}, WaitSubject{Word: "raw", PodUID: podA}, WaitSubject{Word: "raw", PodUID: podB}
	pod := WaitSubject{Word: podA}
	look("nothing", map[WaitSubject]string{volume: met, inA: met, inB: met, pod: met})
	for _, over := range []string{"pods/" + podA + "/volumeDevices", "pods/" + podA} {
		s.tmpfs(over)
		s.symlink(s.dir, devicesA+local+"raw")
		look(over, map[WaitSubject]string{volume: covered, inA: covered, inB: met, pod: left})
		s.must(unix.Unmount(s.at(over), 0))
	}
	s.tmpfs("pods")
	look("pods", map[WaitSubject]string{volume: covered, inA: covered, inB: covered, pod: covered, {Word: s.at("pods/" + podA)}: met})
}

// TestWaitHidden: what is hidden under another mount is neither mounted nor not.
func TestWaitHidden(t *testing.T) {
	s := newScratch(t)
	s.tmpfs("pods/hidden/volumes/kubernetes.io~nfs/under")
	s.tmpfs("pods/hidden")
	for is, want := range map[api.Condition]string{api.ConditionMounted: "whether it is mounted on", api.ConditionUnmounted: "whether 1 place", api.ConditionHealthy: "is unknown: it is hidden"} {
		if got := s.state(s.waiter(is, WaitSubject{Word: "under"}, nil)); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", is, got, want)
		}
	}
}

// TestWaitUnheard: what nothing is called is unmounted, and it is said why; a pod that has
// that name is not.
func TestWaitUnheard(t *testing.T) {
	s := newScratch(t)
	path := s.tmpfs(volumesA + local + "data")
	for of, want := range map[WaitSubject]int{{Word: "web"}: 1, {Word: "web", PodUID: podA}: 1, {Word: "web", Plugin: nfs}: 1, {Word: driver + "^web"}: 0, {Word: podB}: 0} {
		l, met, err := s.waiter(api.ConditionUnmounted, of, nil).Look(t.Context())
		if err != nil || !met || len(l.Warnings) != want || want > 0 && l.Warnings[0] != `nothing on this node is called "web"` {
			t.Errorf("%+v: %+v %t %v", of, l, met, err)
		}
	}
	// What was seen once is known.
	w := s.waiter(api.ConditionUnmounted, WaitSubject{Word: "data"}, nil)
	_ = s.state(w)
	s.must(unix.Unmount(path, 0), os.Remove(path))
	if l, met, err := w.Look(t.Context()); err != nil || !met || len(l.Warnings) > 0 {
		t.Errorf("%+v %t %v", l, met, err)
	}
	testutil.Tmpfs(t, "/var/log")
	s.must(os.MkdirAll(podLogs+"/shop_web_"+podA, 0o755), os.Mkdir(podLogs+"/shop_gone_"+podB, 0o755))
	s.tmpfs(volumesA + local + "other")
	_, _, err := s.waiter(api.ConditionUnmounted, WaitSubject{Word: "web"}, nil).Look(t.Context())
	if err == nil || api.ExitCode(err) != api.ExitUsage || !strings.HasSuffix(api.NewErrorDoc(err).Next, podA) {
		t.Error(err)
	}
	if got := s.state(s.waiter(api.ConditionUnmounted, WaitSubject{Word: "gone"}, nil)); got != "met" {
		t.Error(got)
	}
}

// TestWaitThroughLink: a link below the root is not followed, nor is what it leads to
// taken for unmounted.
func TestWaitThroughLink(t *testing.T) {
	s := newScratch(t)
	mounted := s.tmpfs("elsewhere/data")
	s.symlink(mounted, "to-data")
	s.symlink(s.at("elsewhere"), "to-dir")
	s.symlink(s.dir+"/nowhere", "to-nothing")
	for path, leads := range map[string]string{"to-data": mounted, "to-dir": s.at("elsewhere"), "to-dir/data": mounted} {
		_, _, err := s.waiter(api.ConditionUnmounted, WaitSubject{Word: s.link + "/" + path}, nil).Look(t.Context())
		if want := "kvol wait " + leads + " --for=unmounted"; err == nil || api.ExitCode(err) != api.ExitUsage || !strings.HasSuffix(api.NewErrorDoc(err).Next, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	s.symlink("/dev/null", devicesA+local+"raw")
	for _, path := range []string{"to-nothing", "to-dir/none", "pods", devicesA + local + "raw"} {
		if got := s.state(s.waiter(api.ConditionUnmounted, WaitSubject{Word: s.at(path)}, nil)); got != "met" {
			t.Errorf("%s: %s", path, got)
		}
	}
}
