package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

// leftovers is what kvol left running: threads of its program, by whatever
// process, and their descriptors.
type leftovers struct{ processes, threads, descriptors, remembered int }

func (n *node) leftovers() leftovers {
	n.t.Helper()
	var l leftovers
	procs := map[string]bool{}
	tasks, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	must(n.t, err)
	for _, task := range tasks {
		// The thread's own link: of a process that was killed and waits for a thread
		// the leader is a zombie and has none.
		if exe, err := os.Readlink(task + "/exe"); err != nil || exe != n.kvolPath {
			continue
		}
		l.threads++
		if pid := strings.Split(task, "/")[2]; !procs[pid] {
			procs[pid] = true
			fds, _ := os.ReadDir(task + "/fd") // gone meanwhile is none
			l.descriptors += len(fds)
		}
	}
	l.processes = len(procs)
	var memo []json.RawMessage
	if b, err := os.ReadFile(n.run + "/stuck-probes.json"); err == nil {
		must(n.t, json.Unmarshal(b, &memo))
	}
	l.remembered = len(memo)
	return l
}

// sameAfter runs list-mounts once, and then so many times, and wants no more left
// than after the first.
func (n *node) sameAfter(runs int) {
	n.t.Helper()
	args := []string{"list-mounts", "-q", "--probe-timeout", "200ms", "--timeout", "10s"}
	n.must(0, args...)
	first := n.leftovers()
	for range runs {
		n.must(0, args...)
	}
	// What was killed takes a moment to be gone.
	var last leftovers
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		last = n.leftovers()
		if last.processes <= first.processes && last.threads <= first.threads && last.descriptors <= first.descriptors && last.remembered <= first.remembered {
			return
		}
	}
	n.t.Errorf("after one list-mounts: %+v, after %d more: %+v", first, runs, last)
}

func TestListMountsLeavesNothingBehind(t *testing.T) {
	t.Run("mute", func(t *testing.T) {
		n := newNode(t)
		n.broken(7, mute) // each run waits for these, so fewer runs
		n.sameAfter(20)
	})
	n := newNode(t)
	all := n.broken(20, gone, deaf)
	n.sameAfter(1)
	asked := requests(all)
	n.sameAfter(200)
	if after := requests(all); after != asked {
		t.Errorf("the file systems that hang were asked %d times in the first runs and %d times more in the next", asked, after-asked)
	}
}

func requests(all map[string]*hangFS) (sum int64) {
	for _, h := range all {
		sum += h.asked.Load()
	}
	return sum
}

// An interrupt ends a command that waits, at once.
func TestInterruptWhileItHangs(t *testing.T) {
	for name, c := range map[string]func(n *node, h *hangFS) []string{
		"setup": func(n *node, h *hangFS) []string {
			return []string{"setup", "-f", n.pv("pv", h.path+"/pv"), "--pod-uid", podA}
		},
		"dry run": func(n *node, h *hangFS) []string {
			return []string{"setup", "-f", n.pv("pv", h.path+"/pv"), "--pod-uid", podA, "--dry-run"}
		},
		"teardown": func(n *node, h *hangFS) []string {
			return []string{"teardown", "-f", n.pv("pv", h.path+"/pv"), "--pod-uid", podA}
		},
		"list-mounts": func(*node, *hangFS) []string { return []string{"list-mounts", "--probe-timeout", "30s"} },
		"inspect":     func(n *node, h *hangFS) []string { return []string{"inspect", h.path, "--probe-timeout", "30s"} },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			h := hang(t, n.podVolume(podB, "stuck"), deaf)
			if name != "list-mounts" && name != "inspect" {
				h = hang(t, n.dir+"/storage", deaf)
			}
			n.interrupt(h, append(c(n, h), "--timeout", "50s"))
		})
	}
}

func (n *node) interrupt(h *hangFS, args []string) {
	n.t.Helper()
	cmd := exec.Command(n.kvolPath, append(args, n.flags()...)...)
	cmd.Env = append(os.Environ(), "KVOL_CONFIG=", "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	must(n.t, cmd.Start())
	testutil.Poll(n.t, "kvol waits for the file system", func() bool { return h.asked.Load() > 0 })
	must(n.t, cmd.Process.Signal(syscall.SIGINT))
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit code tells
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second): // of 50 s that it could take: at once, on whatever machine
		_ = cmd.Process.Kill()
		n.t.Fatalf("kvol %v did not end at the interrupt", args)
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		n.t.Errorf("kvol %v ended with exit code %d:\n%s", args, code, output.String())
	}
}
