package exectest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
)

// recorder is a testing.TB that takes failures down.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Cleanup(f func())  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) { r.failures = append(r.failures, "failed") }
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, format)
}

func TestScript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "transcript")
	text := "# recorded\n$ iscsiadm -m session\n2> iscsiadm: No active sessions.\n? 21\n$ blkid -p /dev/x\n/dev/x: TYPE=\"ext4\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rec := &recorder{TB: t}
	s := New(rec, append(Load(t, file), Entry{Cmd: "never run"})...).Missing("rbd")
	res, err := s.Run(ctx, exec.Cmd{Name: "blkid", Args: []string{"-p", "/dev/x"}})
	if err != nil || string(res.Stdout) != "/dev/x: TYPE=\"ext4\"\n" || res.ExitCode != 0 {
		t.Errorf("%+v %v", res, err)
	}
	session := exec.Cmd{Name: "iscsiadm", Args: []string{"-m", "session"}}
	if res, err := s.Run(ctx, session); err != nil || res.ExitCode != 21 || string(res.Stderr) != "iscsiadm: No active sessions.\n" {
		t.Errorf("%+v %v", res, err)
	}
	if _, err := s.Run(ctx, exec.Cmd{Name: "rbd"}); !errors.Is(err, api.ErrMissingTool) || len(rec.failures) != 0 {
		t.Errorf("%v %v", err, rec.failures)
	}
	if _, err := s.Run(ctx, session); err == nil || len(rec.failures) != 1 {
		t.Errorf("a run that is not in the script: %v %v", err, rec.failures)
	}
	for _, f := range rec.cleanups {
		f()
	}
	if len(rec.failures) != 2 || !strings.Contains(rec.failures[1], "never run") {
		t.Errorf("an unused entry: %v", rec.failures)
	}
}
