package devices

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// aJail makes a directory that programs run in as their /.
func aJail(t *testing.T) string {
	t.Helper()
	dir := testutil.TempDir(t)
	for _, name := range []string{"bin", "lib", "lib64", "usr", "data"} {
		info, err := os.Lstat("/" + name)
		switch {
		case name == "data" || err == nil && info.IsDir():
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
			if name != "data" {
				testutil.Bind(t, "/"+name, filepath.Join(dir, name), true)
			}
		case err == nil:
			to, err := os.Readlink("/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// A process in a chroot is not shown the mounts outside of it, whichever process of
// its namespace is looked at first.
func TestHoldersBesideChroots(t *testing.T) {
	d, ctx := machine(t)
	one, two := aJail(t), aJail(t)
	outside := testutil.TempDir(t)
	for name, c := range map[string]struct{ first, second, at, want string }{
		"a jail and none": {"chroot " + one, "", outside, outside},
		"two jails":       {"chroot " + one, "chroot " + two, two + "/data", "/data"},
	} {
		t.Run(name, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, 16<<20)
			testutil.Mkfs(t, dev, "ext4")
			testutil.Mount(t, dev, c.at, "ext4", 0, "")
			cmd := exec.Command("sh", "-c", c.second+" sleep 1000 >&2 & echo $!; exec "+c.first+" sleep 1000 >&2")
			cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Setpgid: true}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
				_ = cmd.Wait()
			})
			second, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range []string{fmt.Sprint(cmd.Process.Pid), strings.TrimSpace(second)} {
				testutil.Poll(t, pid+" is where it belongs", func() bool {
					name, err := os.ReadFile("/proc/" + pid + "/comm")
					return err == nil && string(name) == "sleep\n"
				})
			}
			if err := unix.Unmount(c.at, 0); err != nil {
				t.Fatal(err)
			}
			if got := holdersOf(t, d, ctx, dev); len(got) != 1 || got[0].Type != "mount" || got[0].Path != c.want {
				t.Errorf("%+v", got)
			}
		})
	}
}
