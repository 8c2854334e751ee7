package testutil

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { Main(m) }

// under runs f as a subtest, so that its cleanups have run when under returns.
func under(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if !t.Run("", f) {
		t.FailNow()
	}
}

// What runs beside the tests neither sees their mounts nor is seen by them.
func TestNamespaces(t *testing.T) {
	Root(t)
	Tmpfs(t, TempDir(t))
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, " shared:") || strings.Contains(line, " master:") {
			t.Errorf("it propagates: %s", line)
		}
	}
	// The first process, this one, and none of those that the tests were started from.
	if first, err := os.Readlink("/proc/1/exe"); err != nil || os.Getppid() != 1 {
		t.Errorf("process 1 is %s (%v), and the parent %d", first, err, os.Getppid())
	}
}

func TestTempDirLeavesNothing(t *testing.T) {
	Root(t)
	keep := filepath.Join(TempDir(t), "keep")
	if err := os.WriteFile(keep, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var dir, dev string
	under(t, func(t *testing.T) {
		dir = TempDir(t)
		dst := filepath.Join(dir, "a b\n\\c")
		if err := os.Mkdir(dst, 0o755); err != nil {
			t.Fatal(err)
		}
		// Mounts and a loop device that only the directory's own cleanup can know.
		for range 3 {
			if err := unix.Mount(filepath.Dir(keep), dst, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
		}
		img := filepath.Join(dir, "img")
		if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 1<<20)); err != nil {
			t.Fatal(err)
		}
		var err error
		if dev, err = AttachLoop(img); err != nil {
			t.Fatal(err)
		}
	})
	if left := mountsBelow(dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("what was bound there is gone: %v", err)
	}
	if b, err := os.ReadFile("/sys/block/" + filepath.Base(dev) + "/loop/backing_file"); err == nil &&
		strings.HasPrefix(string(b), dir) {
		t.Errorf("%s is still attached", dev)
	}
}

func TestLoopMkfsMount(t *testing.T) {
	Root(t)
	dir := TempDir(t)
	dev, _ := LoopImage(t, 16<<20)
	Mkfs(t, dev, "ext4", "-L", "kvol")
	Mount(t, dev, dir, "ext4", unix.MS_RDONLY, "")
	want := `"." "/" ext4 "` + dev + `" ro,relatime ro` + "\n"
	if got := MountTable(t, dir); got != want {
		t.Errorf("mount table\n%s want\n%s", got, want)
	}
}

func TestTree(t *testing.T) {
	Root(t)
	dir := TempDir(t)
	sub := filepath.Join(dir, "sub")
	err := errors.Join(
		os.Mkdir(sub, 0o750),
		os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600),
		os.Symlink("nowhere", filepath.Join(dir, "l")),
		unix.Mknod(filepath.Join(dir, "b"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 5))),
		os.Mkdir(filepath.Join(dir, "m"), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	// A dead mount must do no harm.
	FUSE(t, filepath.Join(dir, "m"), FUSEDead)
	want := `"." drwx------ 0:0
"./b" Drw------- 0:0 7:5
"./f" -rw------- 0:0 1 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881
"./l" Lrwxrwxrwx 0:0 -> "nowhere"
"./m" mount
"./sub" drwxr-x--- 0:0
`
	if got := Tree(t, dir); got != want {
		t.Errorf("tree\n%s want\n%s", got, want)
	}
}

// look runs stat -f on a mount in a process of its own. It gives what came of it,
// or "waits" when the kernel waits for the daemon; then the process is killed.
func look(t *testing.T, path string, until string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("stat", "-f", "-c", "%T", path)
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var got string
	Poll(t, "a look at "+path+" "+until, func() bool {
		select {
		case err := <-done:
			got = "answers"
			if strings.Contains(out.String(), "not connected") {
				got = "is dead"
			} else if err != nil {
				got = err.Error() + ": " + out.String()
			}
			return true
		default:
		}
		// proc_pid_wchan(5): where in the kernel it sleeps.
		where, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", cmd.Process.Pid))
		if until == "waits" && string(where) == "request_wait_answer" {
			got = "waits"
			_ = cmd.Process.Kill()
			<-done
		}
		return got != ""
	})
	return got
}

func TestFUSE(t *testing.T) {
	for mode, want := range map[FUSEMode]string{
		FUSEAlive: "answers", FUSESlow: "answers", FUSEDead: "is dead", FUSEHung: "waits", FUSEMute: "waits",
	} {
		t.Run(string(mode), func(t *testing.T) {
			Root(t)
			dir := TempDir(t)
			var pid int
			under(t, func(t *testing.T) {
				pid = FUSE(t, dir, mode).PID
				if got := look(t, dir, want); got != want {
					t.Errorf("a look at it %s, want %s", got, want)
				}
			})
			if left := mountsBelow(dir); len(left) > 0 {
				t.Errorf("still mounted: %v", left)
			}
			if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("daemon %d is still there: %v", pid, err)
			}
		})
	}
}

func TestFUSEStopAndContinue(t *testing.T) {
	Root(t)
	m := FUSE(t, TempDir(t), FUSEHung)
	m.Continue()
	if b, err := os.ReadFile(filepath.Join(m.Path, "hello")); err != nil || string(b) != "alive\n" {
		t.Errorf("read %q, %v", b, err)
	}
	m.Stop()
	if got := look(t, m.Path, "waits"); got != "waits" {
		t.Errorf("stopped again, a look at it %s", got)
	}
}
