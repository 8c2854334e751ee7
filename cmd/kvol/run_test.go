package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// runWith runs a command whose work is f.
func runWith(f func(ctx context.Context) error, words ...string) (code int, stderr string) {
	var out, errs bytes.Buffer
	a := newApp(words, strings.NewReader(""), &out, &errs)
	a.intercept = func(ctx context.Context, _ runner) error { return f(ctx) }
	return a.main(), errs.String()
}

func TestStuckCommandEnds(t *testing.T) {
	code, stderr := runWith(func(context.Context) error { select {} }, "ls", "--timeout", "1ms", "-o", "json")
	if code != api.ExitUncertain {
		t.Errorf("exit code %d", code)
	}
	var doc api.ErrorDoc
	if err := json.Unmarshal([]byte(stderr), &doc); err != nil || doc.Reason != "Timeout" || doc.Code != code {
		t.Errorf("%v: %s", err, stderr)
	}
}

func TestTimeoutIsTheContexts(t *testing.T) {
	code, _ := runWith(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "ls", "--timeout", "1ms")
	if code != api.ExitUncertain {
		t.Errorf("exit code %d", code)
	}
}

func interrupt(t *testing.T) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Error(err)
	}
}

func TestInterruptCancels(t *testing.T) {
	code, stderr := runWith(func(ctx context.Context) error {
		interrupt(t)
		<-ctx.Done()
		return api.Errorf(api.ErrUncertain, "half way: %w", ctx.Err())
	}, "ls")
	if code != api.ExitInterrupted || !strings.Contains(stderr, "half way") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestSecondInterruptEnds(t *testing.T) {
	code, _ := runWith(func(ctx context.Context) error {
		interrupt(t)
		<-ctx.Done()
		interrupt(t)
		select {}
	}, "ls")
	if code != api.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

// A result that nobody takes, or that never ends, is no reason to stay: not after a
// signal, and of a watch not after its time.
func TestUnreadResult(t *testing.T) {
	for line, want := range map[string]int{"ls": api.ExitInterrupted, "ls --watch --timeout 1ms": api.ExitUncertain} {
		var errs bytes.Buffer
		a := newApp(strings.Fields(line), nil, &errs, &errs)
		a.intercept = func(context.Context, runner) error {
			return a.result(func(io.Writer) error {
				if want == api.ExitInterrupted {
					interrupt(t)
				}
				select {}
			})
		}
		if code := a.main(); code != want {
			t.Errorf("%s: exit code %d: %s", line, code, &errs)
		}
	}
}

func TestPanicIsAFailure(t *testing.T) {
	code, stderr := runWith(func(context.Context) error { panic("oh") }, "ls")
	if code != api.ExitFailed || !strings.Contains(stderr, "a defect in kvol: oh") || !strings.Contains(stderr, "run_test.go") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestErrorForms(t *testing.T) {
	fail := func(context.Context) error {
		return &api.Error{Op: "unmount-device", Volume: "data", Path: "/x\ny", Kind: api.ErrBusy,
			Err: errors.New("two pods use it"), Details: []string{"pod a", "pod b\x1b[2J"}, Next: "kvol unpublish data"}
	}
	code, stderr := runWith(fail, "ls")
	want := `kvol: unmount-device data "/x\ny": two pods use it
  pod a
  pod b\x1b[2J
next: kvol unpublish data
`
	if code != api.ExitBusy || stderr != want {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
	code, stderr = runWith(fail, "ls", "-o", "json")
	var doc api.ErrorDoc
	if err := json.Unmarshal([]byte(stderr), &doc); err != nil || strings.Count(stderr, "\n") != 1 {
		t.Fatalf("%v: %s", err, stderr)
	}
	if code != api.ExitBusy || doc.Code != code || doc.Reason != "Busy" || doc.Path != "/x\ny" || len(doc.Details) != 2 {
		t.Errorf("%+v", doc)
	}
}

// Bad words are told as JSON too, wherever -o json stands.
func TestUsageAsJSON(t *testing.T) {
	for _, line := range []string{"ls --bogus -o json", "ls -ojson --bogus", "ls --output=json --bogus", "bogus -o=json"} {
		_, _, code, stderr := parse(t, line)
		var doc api.ErrorDoc
		if err := json.Unmarshal([]byte(stderr), &doc); err != nil || code != api.ExitUsage || doc.Reason != "Usage" {
			t.Errorf("%s: %d %v: %s", line, code, err, stderr)
		}
	}
}

func TestFullDiskIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, words := range [][]string{{"version"}, {"--help"}, {"config", "view", "-o", "json"}} {
		var errs bytes.Buffer
		if code := Run(words, strings.NewReader(""), full, &errs); code != api.ExitFailed || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%v: exit code %d: %s", words, code, errs.String())
		}
	}
}
