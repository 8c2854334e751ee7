package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

// panes are terminals as people sit at: tmux, which shows as a terminal does and can be read.
type panes struct {
	t      *testing.T
	socket string
	env    []string
}

// newPanes are those whose programs have env, and find this kvol.
func newPanes(t *testing.T, env ...string) panes {
	testutil.Root(t)
	testutil.Tool(t, "tmux")
	dir := testutil.TempDir(t)
	self, err := filepath.Abs(os.Args[0])
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "kvol"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := panes{t, filepath.Join(dir, "socket"), append(os.Environ(), "TMUX=", "LC_ALL=C.UTF-8", "TZ=UTC", "COLUMNS=", "NO_COLOR=",
		"PATH="+dir+":/usr/sbin:/usr/bin:/sbin:/bin")}
	s.env = append(s.env, env...)
	t.Cleanup(func() { _ = s.command("kill-server").Run() })
	return s
}

func (s panes) command(words ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", s.socket}, words...)...)
	cmd.Env = s.env
	return cmd
}

func (s panes) tmux(words ...string) string {
	s.t.Helper()
	out, err := s.command(words...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", words, err, out)
	}
	return string(out)
}

// pane is one of them, where a program runs or has run.
type pane struct {
	panes
	id string
}

// open starts a program in a terminal of its own.
func (s panes) open(columns int, program ...string) pane {
	s.t.Helper()
	words := []string{"new-session", "-d", "-P", "-F", "#{pane_id}", "-x", strconv.Itoa(columns), "-y", "400"}
	return pane{s, strings.TrimSpace(s.tmux(append(words, program...)...))}
}

// shows is what can be read there now.
func (s pane) shows(how ...string) string {
	s.t.Helper()
	return s.tmux(append([]string{"capture-pane", "-p", "-t", s.id}, how...)...)
}

// keys are pressed there.
func (s pane) keys(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys", "-t", s.id}, keys...)...)
}

// wait is until the screen is as it has to be. What hangs keeps it from that for ever.
func (s pane) wait(what string, ok func(screen string) bool) {
	s.t.Helper()
	screen := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if screen = s.shows("-J"); ok(screen) {
			return
		}
	}
	s.t.Fatalf("waited in vain until %s; the screen:\n%s", what, strings.TrimSpace(screen))
}
