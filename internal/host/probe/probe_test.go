package probe

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, func() { Main() }) }

func TestSmoke(t *testing.T) {
	testutil.Root(t)
	dir := t.TempDir()
	testutil.FUSE(t, dir, testutil.FUSEHung)
	h := New(filepath.Join(t.TempDir(), "run"))
	defer h.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got := h.Probe(ctx, []Target{{Path: "/", Dev: "a"}, {Path: dir, Dev: "b"}}, 200*time.Millisecond)
	if got[0].State != api.StateOK || got[1].State != api.StateUnresponsive {
		t.Fatal(got)
	}
	t.Log(got)
	t.Log(h.Probe(ctx, []Target{{Path: "/", Dev: "a"}, {Path: dir, Dev: "b"}}, 200*time.Millisecond))
	f, info, err := h.Open(ctx, "/proc/self", 0x200000)
	t.Log(f, info, err)
	_, _, err = h.Open(ctx, "/nope", 0x200000)
	t.Log(err)
}
