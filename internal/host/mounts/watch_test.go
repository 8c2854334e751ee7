package mounts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

func watch(t *testing.T, path string) *Watch {
	t.Helper()
	w, err := NewWatch(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// A change is told once, also one from before the waiting began, and also to who reads
// the table meanwhile.
func TestWatchTellsEachChange(t *testing.T) {
	testutil.Root(t)
	w := watch(t, self)
	dir := testutil.TempDir(t)
	for range 2 {
		testutil.Tmpfs(t, dir)
		if _, err := Read(self); err != nil {
			t.Fatal(err)
		}
		if changed, err := w.Wait(t.Context(), 0); !changed || err != nil {
			t.Fatalf("after a mount: %v %v", changed, err)
		}
		for _, limit := range []time.Duration{0, time.Millisecond} {
			if changed, err := w.Wait(t.Context(), limit); changed || err != nil {
				t.Fatalf("after that: %v %v", changed, err)
			}
		}
	}
}

// Who waits is woken.
func TestWatchWakes(t *testing.T) {
	testutil.Root(t)
	w := watch(t, self)
	dir := testutil.TempDir(t)
	done := make(chan bool)
	go func() {
		changed, err := w.Wait(t.Context(), time.Minute)
		done <- changed && err == nil
	}()
	testutil.Tmpfs(t, dir)
	if !<-done {
		t.Error("not told")
	}
}

func TestWatchEnds(t *testing.T) {
	w := watch(t, self)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := w.Wait(ctx, time.Hour)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := w.Wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("again: %v", err)
	}
}

// A recorded table does not change: who watches it looks at it from time to time.
func TestWatchOfARecording(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(path, []byte("1 1 0:1 / / rw - tmpfs t rw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := watch(t, path)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := w.Wait(t.Context(), time.Millisecond); changed || err != nil {
		t.Error(changed, err)
	}
	if _, err := NewWatch(path + "x"); !errors.Is(err, api.ErrNotFound) {
		t.Error(err)
	}
}
