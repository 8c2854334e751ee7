// Package mutants tests the conformance suite of volume plugins: each of the checks
// that keep a node safe is taken out, one at a time and in an overlay of the
// sources, and then the suite has to fail where it says that it looks. What is
// not broken passes; the same tests run on it in their own packages.
package mutants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
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
type edit struct{ File, Old, New string }

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
			if !all && i%11 != 0 {
				return
			}
			failed, out := m.test(t, overlay)
			if !slices.Contains(failed, m.fails) {
				t.Errorf("%s is taken out and %s does not fail, but only %q:\n%s", m.name, m.fails, failed, out)
			}
		})
	}
}

// overlay is the sources without the check.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	var edits []testutil.Edit
	for _, e := range m.edits {
		edits = append(edits, testutil.Edit(e))
	}
	return testutil.Overlay(t, root, edits)
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
