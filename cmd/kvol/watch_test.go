package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// stream is a kvol that runs by itself, and what it writes.
type stream struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr strings.Builder
}

// start runs kvol as a process of its own; at the end of the test it is killed.
func start(t *testing.T, words ...string) *stream {
	t.Helper()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	s := &stream{t: t, cmd: exec.Command(self)}
	s.cmd.Args = append([]string{"kvol"}, words...)
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	s.lines = bufio.NewScanner(out)
	return s
}

// line is the next line, which comes or the test ends with its time.
func (s *stream) line() string {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("no more lines (%v): %s", s.lines.Err(), &s.stderr)
	}
	return s.lines.Text()
}

// end tells a process to end and gives its exit code.
func (s *stream) end(sig os.Signal) int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// TestWatchStream: who reads gets each object once it is there.
func TestWatchStream(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	volume := dir + "/kubelet/pods/0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2/volumes/kubernetes.io~nfs/data"
	if err := os.MkdirAll(volume, 0o750); err != nil {
		t.Fatal(err)
	}
	words := []string{"ls", "--watch", "--root-dir", dir + "/kubelet", "--state-dir", dir + "/state", "--run-dir", dir + "/run", "--interval", "1h"}
	objects, table := start(t, append(words, "-o", "json")...), start(t, append(words, "--columns", "event,state,volume")...)
	next := func(is api.EventType, state api.State) {
		t.Helper()
		var e api.MountEvent
		if err := json.Unmarshal([]byte(objects.line()), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind != "MountEvent" || e.APIVersion != api.Version || e.Type != is || e.Object.State != state || e.Object.Path != volume || time.Since(e.Time) > time.Hour {
			t.Errorf("%+v", e)
		}
		if got, want := strings.Join(strings.Fields(table.line()), " "), fmt.Sprintf("%s %s data", is, state); got != want {
			t.Errorf("the table says %q, want %q", got, want)
		}
	}
	table.line() // the headings
	next(api.EventAdded, api.StateUnmounted)
	if err := unix.Mount("t", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	next(api.EventModified, api.StateOK)
	if err := unix.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	next(api.EventModified, api.StateUnmounted)
	if code := table.end(unix.SIGINT); code != api.ExitInterrupted || table.stderr.Len() > 0 {
		t.Errorf("SIGINT: exit code %d: %s", code, &table.stderr)
	}
	if code := objects.end(unix.SIGTERM); code != api.ExitInterrupted || !strings.Contains(objects.stderr.String(), `"reason":"Interrupted"`) {
		t.Errorf("SIGTERM: exit code %d: %s", code, &objects.stderr)
	}
}

// TestWatchInEveryFormat: what a watch begins with is what the list has, in each format
// and by each filter. Of a tree there is none: it needs all of it.
func TestWatchInEveryFormat(t *testing.T) {
	n := newListNode(t)
	c := n.cases()[0]
	refused := kvol(t, "list-mounts", "--watch", "-o", "tree")
	if refused.code != api.ExitUsage {
		t.Errorf("a tree: %v", refused)
	}
	var document string
	inLine := map[string]func(string) string{"json": eventPath, "jsonl": eventPath, "name": asIs, "table": asIs, "wide": asIs,
		"jsonpath=": asIs, "jsonpath-file=": asIs, "go-template=": asIs, "go-template-file=": asIs,
		"custom-columns=": asIs, "custom-columns-file=": asIs,
		"jsonpath-as-json=": func(line string) string {
			_, path, _ := strings.Cut(line, `"path": `)
			return strings.Trim(path, `",`)
		},
		"yaml": func(line string) string {
			if document += line + "\n"; !strings.HasPrefix(line, "type: ") {
				return ""
			}
			raw, err := yaml.YAMLToJSON([]byte(document))
			if document = ""; err != nil {
				t.Error(err)
			}
			return eventPath(string(raw))
		},
	}
	for _, filter := range [][]string{nil, c.filters[0]} {
		words := append([]string{"list-mounts"}, filter...)
		want := c.keys(decoded[api.List[item]](t, kvol(t, append(words, "-o", "json")...).stdout).Items)
		for name, f := range listFormats {
			read := inLine[name]
			if name == "tree" {
				continue
			}
			f.words = slices.Clone(f.words)
			for i, word := range f.words {
				word = strings.NewReplacer("range .items}}{{", "", "{{end}}", "", "{range .items[*]}{@}", "{.object.path}", "{end}", "", "{.items[*]}", "{@}").Replace(word)
				f.words[i] = strings.ReplaceAll(word, ".KEY", ".object.KEY")
			}
			s := start(t, append(append(words, "--watch", "--interval", "1h"), f.args(t, name, c)...)...)
			got := []string{}
			for len(got) < len(want) {
				if path := read(s.line()); path != "" && path != "HEAD" && path != c.head {
					got = append(got, path)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v (-list +watch in %s): %s", filter, name, diff)
			}
			s.end(unix.SIGTERM)
		}
	}
}

func asIs(line string) string { return line }

// eventPath is the path of an event that is a line.
func eventPath(line string) string {
	var e api.MountEvent
	_ = json.Unmarshal([]byte(line), &e)
	return e.Object.Path
}

// TestWatchIsWatched: a look that does not end is ended, though the command has no end.
func TestWatchIsWatched(t *testing.T) {
	a := newApp(nil, nil, nil, nil)
	a.watch(endless)
	a.arm(0)
	<-a.overdue
}
