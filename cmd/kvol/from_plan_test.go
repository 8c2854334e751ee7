package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// A plan that does not come says nothing about what is in it.
func TestPlanInTime(t *testing.T) {
	stdin, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	a := &app{stdin: stdin}
	a.files = &files{got: map[string][]byte{}}
	if _, err := a.readPlan(ctx, "-"); api.ExitCode(err) != api.ExitUncertain || err.Error() != "-: nothing came in time" {
		t.Errorf("%v: exit code %d", err, api.ExitCode(err))
	}
}
