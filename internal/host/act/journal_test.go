package act

import (
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/testutil"
)

// A clock that is set back while an operation runs does not turn its history around.
func TestJournalKeepsItsOrder(t *testing.T) {
	var dirs []*safefs.Root
	for range 2 {
		dir, err := safefs.OwnDir(testutil.TempDir(t) + "/own")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		dirs = append(dirs, dir)
	}
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	write := func(dir *safefs.Root, lines string) {
		t.Helper()
		if err := dir.WriteFile("journal-000001.jsonl", []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(minutes int, phase string) string {
		return `{"time":"` + noon.Add(time.Duration(minutes)*time.Minute).Format(time.RFC3339) + `","op":"o","phase":"` + phase + `"}` + "\n"
	}
	write(dirs[0], at(0, "begin")+at(-60, "intent")+at(-59, "outcome")+at(1, "end"))
	write(dirs[1], at(-1, "before")+at(2, "after"))
	got, bad, err := ReadJournal(dirs...)
	if err != nil || bad != 0 {
		t.Fatal(bad, err)
	}
	phases := func(all []api.Entry) (out string) {
		for _, e := range all {
			out += e.Phase + " "
		}
		return out
	}
	if want := "before begin intent outcome end after "; phases(got) != want {
		t.Errorf("%q, want %q", phases(got), want)
	}
}
