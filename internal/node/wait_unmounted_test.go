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
