// Package exectest replays recorded runs of tools. It is for tests only.
package exectest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
)

// Entry is one recorded run, used once.
type Entry struct {
	Cmd      string // exec.Cmd.String of it: "iscsiadm -m session"
	Stdin    string // with the secret at its end; compared where it is not empty
	Stdout   string
	Stderr   string
	ExitCode int
	Err      error        // what Run gives; nil as a rule
	Do       func() error // what the tool does to the world; its error is that of Run
}

// Script is an exec.Runner made of entries. A run that none matches and an entry
// that no run used both fail the test.
type Script struct {
	t       testing.TB
	mu      sync.Mutex
	entries []Entry
	used    []bool
	missing []string
}

// New makes a Script; at the test's end it looks for unused entries. Entries
// match in any order, equal ones in theirs.
func New(t testing.TB, entries ...Entry) *Script {
	t.Helper()
	s := &Script{t: t, entries: entries, used: make([]bool, len(entries))}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, e := range s.entries {
			if !s.used[i] {
				t.Errorf("exectest: never run: %s", e.Cmd)
			}
		}
	})
	return s
}

// Load reads a transcript:
//
//	$ iscsiadm -m session       a run; further lines are its standard output,
//	2> iscsiadm: No sessions    but for those of its standard error,
//	? 21                        and its exit code.
//
// Lines that begin with "#" before the first run are comments.
func Load(t testing.TB, file string) []Entry {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []Entry
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		if cmd, ok := strings.CutPrefix(line, "$ "); ok {
			out = append(out, Entry{Cmd: cmd})
			continue
		}
		if len(out) == 0 {
			if line != "" && line[0] != '#' {
				t.Fatalf("%s:%d: output before the first command", file, n)
			}
			continue
		}
		e := &out[len(out)-1]
		if text, ok := strings.CutPrefix(line, "2> "); ok {
			e.Stderr += text + "\n"
		} else if code, ok := strings.CutPrefix(line, "? "); ok {
			if e.ExitCode, err = strconv.Atoi(code); err != nil {
				t.Fatalf("%s:%d: %v", file, n, err)
			}
		} else {
			e.Stdout += line + "\n"
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Missing makes tools absent: Run and LookPath give api.ErrMissingTool.
func (s *Script) Missing(names ...string) *Script {
	s.missing = append(s.missing, names...)
	return s
}

// LookPath implements exec.Runner: what is not missing is in /usr/sbin.
func (s *Script) LookPath(name string) (string, error) {
	if slices.Contains(s.missing, name) {
		return "", api.Errorf(api.ErrMissingTool, "%s is not installed on this node", name)
	}
	if strings.HasPrefix(name, "/") {
		return name, nil
	}
	return "/usr/sbin/" + name, nil
}

// Run implements exec.Runner.
func (s *Script) Run(ctx context.Context, c exec.Cmd) (exec.Result, error) {
	s.t.Helper()
	none := exec.Result{ExitCode: -1}
	if _, ok := ctx.Deadline(); !ok {
		s.t.Errorf("exectest: run without a deadline: %s", c)
	}
	if _, err := s.LookPath(c.Name); err != nil {
		return none, err
	}
	e, err := s.take(c)
	if err != nil {
		s.t.Error(err)
		return none, err
	}
	if e.Do != nil {
		if err := e.Do(); err != nil {
			return none, err
		}
	}
	if e.Err != nil {
		return none, e.Err
	}
	return exec.Result{Stdout: []byte(e.Stdout), Stderr: []byte(e.Stderr), ExitCode: e.ExitCode}, nil
}

func (s *Script) take(c exec.Cmd) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stdin := string(c.Stdin)
	if c.Secret != nil {
		stdin += string(c.Secret.Reveal())
	}
	for i, e := range s.entries {
		if !s.used[i] && e.Cmd == c.String() && (e.Stdin == "" || e.Stdin == stdin) {
			s.used[i] = true
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("exectest: no entry for: %s", c)
}
