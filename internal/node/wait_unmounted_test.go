package node

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
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
	if got := s.state(w); !strings.HasPrefix(got, "1 mounts") {
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
	const met, covered, left = "met", "cannot be seen", "are left"
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
	for is, want := range map[api.Condition]string{api.ConditionMounted: "whether it is mounted on", api.ConditionUnmounted: "whether 1 places", api.ConditionHealthy: "is unknown: it is hidden"} {
		if got := s.state(s.waiter(is, WaitSubject{Word: "under"}, nil)); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", is, got, want)
		}
	}
}
