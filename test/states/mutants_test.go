package states

import (
	"os"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// mutants are kvol without one of the things that keep a node safe. Each has to be
// found within 300 states.
var mutants = []struct {
	name  string
	edits []edit
}{
	{"who lives is gone", []edit{{"internal/node/alive/sets.go", "		return api.VerdictLive, evidence\n", "		return api.VerdictOrphan, evidence\n"}}},
	{"who is not known is gone", []edit{{"internal/node/alive/sets.go", "		return api.VerdictUnknown, evidence\n", "		return api.VerdictOrphan, evidence\n"}}},
	{"a live pod is no reason", []edit{{"internal/ops/livepod.go", "	case needsSpec[op.verb], op.req.AllowActivePod:\n", "	case true:\n"}}},
	{"age is no reason", []edit{{"internal/node/orphans.go", "if o.Verdict != api.VerdictOrphan || o.Born.IsZero() ||", "if true || o.Verdict != api.VerdictOrphan || o.Born.IsZero() ||"}}},
	{"no pod is asked about staging", []edit{{"internal/node/orphans_uses.go", "	for _, u := range l.uses {\n		how := l.ties", "	for _, u := range l.uses[:0] {\n		how := l.ties"}}},
	{"files of any kind are unlinked", []edit{
		{"internal/host/safefs/meta.go", "	if fault := s.notMeta(fd, info, what); fault != \"\" {", "	if fault := s.notMeta(fd, info, what); false && fault != \"\" {"},
		{"internal/host/act/files.go", "	if e.Type != want || a.What == safefs.BindTarget && e.Size != 0 {", "	if false && e.Type != want {"},
	}},
	{"content is not counted", []edit{{"internal/host/act/contents.go", "	c, err := thing.Contents(writer)\n", "	c, err := thing.Contents(writer)\n	c = safefs.Contents{}\n"}}},
	{"the driver is not asked", []edit{{"internal/plugins/csi/unpublish.go", "	case !run.WithoutDriver:\n", "	case false:\n"}}},
	{"a dry run acts", []edit{{"internal/host/act/runner.go", "	if r.DryRun {\n		return r.record(a, s), nil\n	}\n", ""}}},
	{"success though something stays", []edit{{"internal/ops/orphans.go", "	if stays == 0 {\n", "	if stays >= 0 {\n"}}},
	{"the gate passes all", []edit{{"internal/ops/gate.go", "	if users := op.published(); len(users) > 0 {\n		return op.inUse(\"\", users)\n	}\n", "	if true {\n		return \"\", nil\n	}\n"}}},
	{"a look waits for the file system", []edit{{"internal/host/safefs/stat.go", "const statxFlags = unix.AT_STATX_DONT_SYNC |", "const statxFlags = unix.AT_STATX_FORCE_SYNC |"}}},
}

// The oracle is worth what it finds: kvol is broken, and that has to be found. That
// takes minutes, for KVOL_STATES_MUTANTS=1; else the mutants have to fit the code.
func TestMutants(t *testing.T) {
	if os.Getenv("KVOL_STATES_MUTANTS") == "" {
		for _, m := range mutants {
			overlay(t, m.edits)
		}
		return
	}
	testutil.Root(t)
	good := programs(t)
	dir := testutil.TempDir(t)
	known := map[uint64]bool{} // found without breaking anything
	for _, o := range triples(t, dir, good, 1, 300, false) {
		known[o.Seed] = o.Failure != ""
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			path := t.TempDir() + "/kvol"
			if err := build(path, overlay(t, m.edits)); err != nil {
				t.Fatal(err)
			}
			for first := uint64(1); first < 300; first += 50 {
				for _, o := range triples(t, dir, built{path, good.killable}, first, 50, false) {
					if o.Failure != "" && !known[o.Seed] {
						t.Logf("found by state %d: %.200s", o.Seed, o.Failure)
						return
					}
				}
			}
			t.Error("it was not found")
		})
	}
}
