package host

import (
	"os"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// The table that New has read serves once, and only while nothing is mounted.
func TestRecentMounts(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	h, err := New(Options{RootDir: dir + "/kubelet", RunDir: dir + "/run", StateDir: dir + "/state"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	early := h.recent.table
	if got, err := h.RecentMounts(); got != early || err != nil {
		t.Errorf("nothing was mounted and the table is read again (%v)", err)
	}
	if got, err := h.RecentMounts(); got == early || err != nil {
		t.Errorf("the table of the beginning is given twice (%v)", err)
	}
	if _, err := h.recent.read(h.mountinfo()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/mnt", 0o755); err != nil {
		t.Fatal(err)
	}
	testutil.Tmpfs(t, dir+"/mnt")
	if got, err := h.RecentMounts(); err != nil || len(got.At(dir+"/mnt")) != 1 {
		t.Errorf("what was mounted since is not in the table (%v)", err)
	}
}
