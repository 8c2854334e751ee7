package mounts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
	"golang.org/x/sys/unix"
)

func open(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestConsistentReadsAgain changes the namespace during the first readings.
func TestConsistentReadsAgain(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	for _, tt := range []struct {
		changes, reads int
		changed        bool
	}{{0, 1, false}, {1, 2, false}, {tries - 1, tries, false}, {tries, tries, true}, {1000, tries, true}} {
		fd, reads := open(t), 0
		table, err := consistent(fd, func() (*Table, error) {
			if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
				return nil, err
			}
			table, err := Parse(descriptor(fd))
			if reads++; reads <= tt.changes {
				tmpfs(t, "new", dir, strconv.Itoa(tt.changes), strconv.Itoa(reads))
			}
			return table, err
		})
		must(t, err)
		if reads != tt.reads || table.Changed != tt.changed {
			t.Errorf("%d changes: %d readings, changed %v; want %d, %v", tt.changes, reads, table.Changed, tt.reads, tt.changed)
		}
		want := min(tt.changes, tries)
		if tt.changed {
			want-- // it came after the last reading
		}
		if got := len(table.Under(filepath.Join(dir, strconv.Itoa(tt.changes)))); got != want {
			t.Errorf("%d changes: %d mounts in the table, want %d", tt.changes, got, want)
		}
	}
}

// TestEveryChangeIsTold: what changes a table without a mount coming or going.
func TestEveryChangeIsTold(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	m := tmpfs(t, "m", dir, "m")
	to := mkdir(t, dir, "to")
	fd := open(t)
	for _, tt := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"nothing", func() error { return nil }, false},
		{"a file is made", func() error { return os.WriteFile(filepath.Join(m, "f"), nil, 0o600) }, false},
		{"a move", func() error { return unix.Mount(m, to, "", unix.MS_MOVE, "") }, true},
		{"read-only", func() error { return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "") }, true},
		{"unmount", func() error { return unix.Unmount(to, 0) }, true},
		{"asked again", func() error { return nil }, false},
	} {
		must(t, tt.do())
		if got, err := changed(fd); err != nil || got != tt.want {
			t.Errorf("%s: changed %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

// TestReadWhileMounting reads while others mount, move and unmount without a
// pause: what was there all the time is in each table, and one that claims to be
// consistent shows the one mount that is always in exactly one of two places once.
func TestReadWhileMounting(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	const lasting, readings = 300, 150
	for i := range lasting {
		tmpfs(t, "lasting", dir, "lasting", strconv.Itoa(i))
	}
	places := []string{mkdir(t, dir, "here"), mkdir(t, dir, "there")}
	tmpfs(t, "moving", places[0])

	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(do func(n int) error) {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	passing := mkdir(t, dir, "passing")
	loop(func(n int) error {
		if err := unix.Mount(fmt.Sprint("passing ", n), passing, "tmpfs", 0, ""); err != nil {
			return err
		}
		return unix.Unmount(passing, unix.MNT_DETACH)
	})
	loop(func(n int) error { return unix.Mount(places[n%2], places[(n+1)%2], "", unix.MS_MOVE, "") })

	unsteady := 0
	for range readings {
		table, err := Read(self)
		if err != nil {
			t.Fatal(err)
		}
		if len(table.Bad) > 0 {
			t.Error(table.Bad)
		}
		for i := range lasting {
			if p := filepath.Join(dir, "lasting", strconv.Itoa(i)); len(table.At(p)) != 1 {
				t.Fatalf("%d mounts at %s", len(table.At(p)), p)
			}
		}
		if n := len(table.At(places[0])) + len(table.At(places[1])); n != 1 && !table.Changed {
			t.Errorf("the mount that moves is there %d times", n)
		}
		if table.Changed {
			unsteady++
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d of %d tables changed while they were read, ten times in a row", unsteady, readings)
}

func TestReadErrors(t *testing.T) {
	for _, path := range []string{"/proc/self/no such file", "/proc/1073741823/mountinfo"} {
		_, err := Read(path)
		if !errors.Is(err, api.ErrNotFound) || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !errors.Is(err, unix.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
}

// TestReadOfEndedProcess: a process that ended and was not waited for.
func TestReadOfEndedProcess(t *testing.T) {
	p, err := os.StartProcess("/proc/self/exe", []string{"x", "-test.list=NONE"}, &os.ProcAttr{})
	must(t, err)
	defer p.Wait()
	testutil.Poll(t, "the process has ended", func() bool {
		_, err = Read(fmt.Sprintf("/proc/%d/mountinfo", p.Pid))
		return err != nil
	})
	if !errors.Is(err, api.ErrNotFound) {
		t.Error(err)
	}
}
