// Package mutants tests the conformance suite of volume plugins: each of the checks
// that keep a node safe is taken out, one at a time and in an overlay of the
// sources, and then the suite has to fail where it says that it looks. What is
// not broken passes; the same tests run on it in their own packages.
package mutants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// mutant is kvol without one check.
type mutant struct {
	name  string
	edits []edit
	fails string // the test that must fail
	in    string // its package, from the module's root; local's when empty
}

// edit replaces text that is in the file exactly once.
type edit struct{ file, old, new string }

const root = "../.."

func TestMutants(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Skip(t, "the suite mounts: needs root")
	}
	all := os.Getenv("KVOL_TEST_ALL_MUTANTS") != ""
	for i, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			if m.in == "" {
				m.in = "internal/plugins/local"
			}
			overlay := m.overlay(t) // which fits the code, also of those that are not run
			if !all && i%7 != 0 {
				return
			}
			failed, out := m.test(t, overlay)
			if !slices.Contains(failed, m.fails) {
				t.Errorf("%s is taken out and %s does not fail, but only %q:\n%s", m.name, m.fails, failed, out)
			}
		})
	}
}

// overlay writes the edited files and the list of them for go's -overlay.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, e := range m.edits {
		path, err := filepath.Abs(filepath.Join(root, e.file))
		if err != nil {
			t.Fatal(err)
		}
		text, edited := texts[path]
		if !edited {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("%s has this %d times, and not once: the check moved, so correct the mutant\n%s", e.file, n, e.old)
		}
		texts[path] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// test runs the test that must fail and gives those that did, and all that was
// said.
func (m mutant) test(t *testing.T, overlay string) (failed []string, said string) {
	t.Helper()
	var run []string
	for part := range strings.SplitSeq(m.fails, "/") {
		run = append(run, "^"+part+"$")
	}
	// Without debugging information it links in half the time.
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-vet=off", "-ldflags=-s -w", "-count=1",
		"-overlay", overlay, "-run", strings.Join(run, "/"), "./"+m.in)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, "everything passes"
	}
	var text strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			text.Write(append(lines.Bytes(), '\n'))
			continue
		}
		text.WriteString(event.Output)
		if event.Action == "fail" && event.Test != "" {
			failed = append(failed, event.Test)
		}
	}
	return failed, text.String()
}
