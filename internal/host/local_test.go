package host

import (
	"os"
	"testing"

	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, Main) }

func TestLocal(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	for _, d := range []string{"/tmpfs", "/hung"} {
		if err := os.Mkdir(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Tmpfs(t, dir+"/tmpfs")
	testutil.FUSE(t, dir+"/hung", testutil.FUSEHung)
	for name, target := range map[string]string{
		"link": "tmpfs", "abs": dir + "/tmpfs/x", "far": "link/../tmpfs", "out": dir + "/hung", "loop": "loop", "gone": "nowhere/x",
	} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	table, err := mounts.Read("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"": true, "/tmpfs": true, "/tmpfs/a/b": true, "/link": true, "/link/x": true, "/abs/y": true, "/nothing/here": true, "/gone": true,
		"/hung": false, "/hung/x": false, "/tmpfs/../tmpfs": false, "/far": false, "/out": false, "/out/x": false, "/loop": false,
	} {
		if got := local(table, dir+path); got != want {
			t.Errorf("local(%q) = %v", path, got)
		}
	}
}
