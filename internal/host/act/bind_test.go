package act

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, func() { probe.Main(Jobs()) }) }

// Both ways of binding keep what the mount that is bound from does not allow.
func TestBindKeepsGuards(t *testing.T) {
	testutil.Root(t)
	for name, bind := range map[string]func(src, target *os.File, attrs uint64) error{"new": bindAt, "old": bindOld} {
		t.Run(name, func(t *testing.T) {
			dir := testutil.TempDir(t)
			from, to := dir+"/from", dir+"/to"
			if err := os.Mkdir(to, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(from, 0o755); err != nil {
				t.Fatal(err)
			}
			testutil.Mount(t, "guarded", from, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
			table, err := mounts.Read("/proc/self/mountinfo")
			if err != nil {
				t.Fatal(err)
			}
			r := &Runner{table: table}
			src, target := openPath(t, from), openPath(t, to)
			a := Bind{Source: from, Target: to, ReadOnly: true}
			if err := bind(src, target, a.attrs()|r.guards(from)); err != nil {
				t.Fatal(err)
			}
			if table, err = mounts.Read("/proc/self/mountinfo"); err != nil {
				t.Fatal(err)
			}
			top, _ := table.Top(to)
			for _, want := range []string{"ro", "nosuid", "nodev", "noexec"} {
				if !slices.Contains(top.Options, want) {
					t.Errorf("%s is not there: %v", want, top.Options)
				}
			}
		})
	}
}

func openPath(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}
