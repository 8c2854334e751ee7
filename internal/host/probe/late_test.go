package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// TestLateCallHarmsNobody: who comes when his time is over gets no answer, and the
// helper is there for the others.
func TestLateCallHarmsNobody(t *testing.T) {
	h := newHelper(t)
	pid := pidOf(t, h)
	for range 50 { // whether the deadline or the turn to write is seen first is chance
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		if _, err := h.Call(ctx, "pid", nil, nil, nil); !errors.Is(err, api.ErrTimeout) {
			t.Error(err)
		}
		cancel()
	}
	if now := pidOf(t, h); now != pid {
		t.Errorf("the helper was %d and is %d", pid, now)
	}
}
