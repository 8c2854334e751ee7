package devices

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// holdersOf looks until no process but those of these tests has dev open: losetup,
// of another package's tests, opens every loop device for a moment.
func holdersOf(t *testing.T, d *Devices, ctx context.Context, dev string) (got []Holder) {
	t.Helper()
	o := open(t, d, ctx, dev)
	defer o.Close()
	testutil.Poll(t, "only we use "+dev, func() bool {
		var err error
		if got, err = d.Holders(ctx, o.Device); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(got, func(h Holder) bool { return h.Type == "fd" && h.Command != "sleep" })
	})
	return got
}

func TestHolders(t *testing.T) {
	d, ctx := machine(t)
	ns, _ := os.Readlink("/proc/self/ns/mnt")
	// idle runs until the test ends, in a mount namespace of its own or with a file.
	idle := func(t *testing.T, flags uintptr, files ...*os.File) *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		cmd.ExtraFiles = files
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: flags}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	t.Run("nobody", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 1<<20)
		if got := holdersOf(t, d, ctx, dev); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
	for _, fstype := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, 320<<20)
			testutil.Mkfs(t, dev, fstype)
			dir := testutil.TempDir(t)
			if err := unix.Mount(dev, dir, fstype, 0, ""); err != nil {
				t.Fatal(err)
			}
			got := holdersOf(t, d, ctx, dev)
			if len(got) != 1 || got[0].Type != "mount" || got[0].Path != dir || got[0].MountNS != ns || !strings.Contains(got[0].Detail, fstype) {
				t.Errorf("mounted: %+v", got)
			}
			// Only another mount namespace has it now.
			other := idle(t, unix.CLONE_NEWNS)
			if err := unix.Unmount(dir, 0); err != nil {
				t.Fatal(err)
			}
			got = holdersOf(t, d, ctx, dev)
			if len(got) != 1 || got[0].PID != other.Process.Pid || got[0].Command != "sleep" || got[0].MountNS == ns {
				t.Errorf("in another namespace: %+v", got)
			}
			o := open(t, d, ctx, dev)
			if _, err := o.Exclusive(ctx, 0); !errors.Is(err, api.ErrBusy) {
				t.Errorf("claimed while another namespace has it mounted: %v", err)
			}
		})
	}
	t.Run("detached lazily and in use", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 16<<20)
		testutil.Mkfs(t, dev, "ext4")
		dir := testutil.TempDir(t)
		testutil.Mount(t, dev, dir, "ext4", 0, "")
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		got := holdersOf(t, d, ctx, dev)
		if len(got) != 1 || got[0].Type != "unknown" || got[0].Path != "/sys/fs/ext4/"+filepath.Base(dev) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("raw block: bind of the node and loop over it", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 1<<20)
		bind := filepath.Join(testutil.TempDir(t), "uid")
		if err := os.WriteFile(bind, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		testutil.Bind(t, dev, bind, false)
		lock := testutil.Loop(t, bind)
		got := holdersOf(t, d, ctx, dev)
		if len(got) != 2 || got[0].Type != "mount" || got[0].Path != bind || got[1].Type != "loop" || got[1].Path != lock {
			t.Errorf("%+v", got)
		}
	})
	t.Run("open in a process", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 1<<20)
		f, err := os.Open(dev)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		named, err := os.OpenFile(dev, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer named.Close()
		cmd := idle(t, 0, f, named)
		got := holdersOf(t, d, ctx, dev)
		want := []Holder{{Type: "fd", PID: cmd.Process.Pid, Command: "sleep", Path: dev, Detail: "descriptor 3"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("swap", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 1<<20)
		o := open(t, d, ctx, dev)
		fake := New("", "", testutil.TempDir(t), d.Helper)
		err := os.WriteFile(filepath.Join(fake.ProcRoot, "swaps"), []byte("Filename Type Size Used Priority\n"+dev+" partition 1020 0 -2\n/swapfile file 1 0 -3\n"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		got, err := fake.Holders(ctx, o.Device)
		if err != nil || !slices.Equal(got, []Holder{{Type: "swap", Path: dev}}) {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("on a partition", func(t *testing.T) {
		dev, part := testutil.Partitioned(t, 32<<20)
		testutil.Mkfs(t, part, "ext4")
		dir := testutil.TempDir(t)
		testutil.Mount(t, part, dir, "ext4", 0, "")
		for _, name := range []string{dev, part} {
			if got := holdersOf(t, d, ctx, name); len(got) != 1 || got[0].Path != dir {
				t.Errorf("%s: %+v", name, got)
			}
		}
	})
}
