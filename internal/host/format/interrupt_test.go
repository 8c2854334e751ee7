package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/testutil"
)

// killer is a Runner that kills mkfs right before its n-th change of the device
// (from 1).
type killer struct {
	exec.Runner
	n      int
	fsync  bool // count only fsync
	killed bool
	// alone: only mkfs is killed and kvol sees it. Otherwise kvol is killed with
	// it, which here is that nothing it does afterwards is done: die ends its context.
	alone bool
	die   context.CancelFunc
}

func (k *killer) Run(ctx context.Context, c exec.Cmd) (exec.Result, error) {
	if !strings.HasPrefix(c.Name, "mkfs.") {
		return k.Runner.Run(ctx, c)
	}
	err := k.trace(c)
	if !k.alone {
		k.die()
	}
	if err == nil && k.killed {
		err = api.Errorf(api.ErrUncertain, "%s: signal: killed", c.Name)
	}
	return exec.Result{ExitCode: -1}, err
}

// trace runs a tool until it ends or is killed.
func (k *killer) trace(c exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := k.LookPath(c.Name)
	if err != nil {
		return err
	}
	cmd := osexec.Command(path, c.Args...)
	cmd.ExtraFiles = c.Files
	calls := testutil.DeviceChanges
	if k.fsync {
		calls = []uint64{unix.SYS_FSYNC}
	}
	ws, err := testutil.UntilCall(cmd, k.n, calls...)
	if err != nil || !ws.Stopped() {
		return err
	}
	k.killed = true
	pid := cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}
	for !ws.Exited() && !ws.Signaled() {
		if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
			return err
		}
	}
	return nil
}

// check says that dev has the complete file system of the last intent, and that it
// is sound.
func check(t *testing.T, ctx context.Context, e Env, dev, fstype string) {
	t.Helper()
	o, err := e.Devices.Open(ctx, dev)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	sig, err := Probe(ctx, e.Exec, o)
	if err != nil || sig.FSType != fstype {
		t.Fatalf("%v, %v", sig, err)
	}
	args := map[string][]string{"ext4": {"e2fsck", "-fn"}, "xfs": {"xfs_repair", "-n"}, "btrfs": {"btrfs", "check"}}[fstype]
	tool(t, "", args[0], append(args[1:], dev)...)
	mounted(t, dev, fstype, func(string) {})
}

// Killed before every change that mkfs makes, the same command finishes the work.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fstype string
		step   int // every which kill point; KVOL_TEST_ALL_KILL_POINTS=1 takes them all
	}{{"ext4", 21}, {"xfs", 11}, {"btrfs", 13}} {
		t.Run(c.fstype, func(t *testing.T) {
			t.Parallel()
			step := c.step
			if os.Getenv("KVOL_TEST_ALL_KILL_POINTS") != "" {
				step = 1
			}
			e, ctx := machine(t)
			dev, _ := testutil.LoopImage(t, sizeFor(c.fstype))
			verdicts := map[Verdict]int{}
			n := 1
			for ; ; n += step {
				if !killAndFinish(t, ctx, e, dev, c.fstype, n, n%2 == 0, verdicts) {
					break
				}
				tool(t, "", "blkdiscard", "-f", dev)
			}
			t.Logf("%d kill points: %v", n/step, verdicts)
			if n/step < 5 {
				t.Errorf("mkfs.%s was killed %d times only", c.fstype, n/step)
			}
		})
	}
}

// killAndFinish gives false when mkfs had ended before its n-th change.
func killAndFinish(t *testing.T, ctx context.Context, e Env, dev, fstype string, n int, alone bool, verdicts map[Verdict]int) bool {
	t.Helper()
	broken, die := context.WithCancel(ctx)
	defer die()
	k := &killer{Runner: e.Exec, n: n, alone: alone, die: die}
	first := e
	first.Exec = k
	_, err := bringUp(broken, first, dev, fstype, true)
	if err == nil {
		t.Fatalf("point %d: no error although mkfs was killed", n)
	}
	d, err := bringUp(ctx, e, dev, fstype, true)
	if err != nil {
		t.Fatalf("point %d (alone %v): %v", n, alone, err)
	}
	verdicts[d.Verdict]++
	check(t, ctx, e, dev, fstype)
	if d := mustBringUp(t, ctx, e, dev, fstype, Mount); d.Make {
		t.Errorf("point %d: not recorded", n)
	}
	return k.killed
}

// interrupt kills mkfs and kvol before the n-th change.
func interrupt(t *testing.T, ctx context.Context, e Env, dev, fstype string, n int) {
	t.Helper()
	interruptBy(t, ctx, e, dev, fstype, &killer{n: n})
}

func interruptBy(t *testing.T, ctx context.Context, e Env, dev, fstype string, k *killer) {
	t.Helper()
	ctx, k.die = context.WithCancel(ctx)
	defer k.die()
	k.Runner = e.Exec
	e.Exec = k
	if _, err := bringUp(ctx, e, dev, fstype, true); err == nil {
		t.Fatal("not interrupted")
	}
}

const never = 1 << 30 // kvol is killed when mkfs has ended

// The longest moment of mkfs.ext4 on a slow disk: all backups are written and
// the primary superblock is not. Then what a second one leaves that is killed at
// once, with the backups of the first still there.
func TestKilledTwice(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	for fstype, k := range map[string]*killer{"ext4": {n: 3, fsync: true}, "xfs": {n: 40}} {
		t.Run(fstype, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, sizeFor(fstype))
			interruptBy(t, ctx, e, dev, fstype, k)
			if fstype == "ext4" {
				// e2fsprogs 1.47 syncs three times before the primary; be sure that it
				// still is the moment meant.
				backup := make([]byte, extSuperSize)
				f, err := os.Open(dev)
				if err == nil {
					_, err = f.ReadAt(backup, 8193*1024)
					f.Close()
				}
				if err != nil || backup[0x38] != 0x53 {
					t.Fatalf("no backup superblock yet: %v", err)
				}
			}
			interrupt(t, ctx, e, dev, fstype, 3)
			// Both runs were killed: a tool that was not says so here.
			o, err := e.Devices.Open(ctx, dev)
			if err != nil {
				t.Fatal(err)
			}
			in, stale, err := e.pending(o.Device)
			o.Close()
			if err != nil || in == nil || len(in.UUIDs) != 2 || in.Failed != "" {
				t.Fatalf("%+v, %q, %v", in, stale, err)
			}
			mustBringUp(t, ctx, e, dev, fstype, Continue)
			check(t, ctx, e, dev, fstype)
		})
	}
}

// Only the same command on the same disk in the same boot goes on.
func TestOnlyTheSameGoesOn(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	for fstype, n := range map[string]int{"ext4": 150, "xfs": 20} {
		t.Run(fstype, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, sizeFor(fstype))
			interrupt(t, ctx, e, dev, fstype, n)
			refused(t, ctx, otherBoot(t, e), dev, fstype, api.ErrRefused, "")
			refused(t, ctx, e, dev, "btrfs", api.ErrRefused, "began to make "+fstype)
			other, _ := machine(t) // another state directory
			refused(t, ctx, other, dev, fstype, api.ErrRefused, "")
			if _, err := bringUp(ctx, e, dev, fstype, false); !errors.Is(err, api.ErrRefused) {
				t.Errorf("without --format: %v", err)
			}
			// As if it had been attached anew meanwhile: the same number, but another
			// disk for all one can know.
			o, err := e.Devices.Open(ctx, dev)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			in, _, err := e.pending(o.Device)
			if err != nil || in == nil {
				t.Fatal(in, err)
			}
			in.Device.DiskSeq--
			if err := e.save(in); err != nil {
				t.Fatal(err)
			}
			o.Close()
			refused(t, ctx, e, dev, fstype, api.ErrRefused, "")
		})
	}
	t.Run("somebody else made a file system meanwhile", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, sizeFor("ext4"))
		interrupt(t, ctx, e, dev, "ext4", 20)
		testutil.Mkfs(t, dev, "ext4")
		refused(t, ctx, e, dev, "ext4", api.ErrRefused, "somebody else made this one")
	})
	t.Run("given away raw meanwhile", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, sizeFor("ext4"))
		interrupt(t, ctx, e, dev, "ext4", 150)
		if err := GiveRaw(ctx, e, dev); err != nil {
			t.Fatal(err)
		}
		refused(t, ctx, e, dev, "ext4", api.ErrRefused, "")
	})
	t.Run("a LUKS header meanwhile", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, sizeFor("ext4"))
		interrupt(t, ctx, e, dev, "ext4", 20)
		tool(t, "secret", "cryptsetup", "-q", "luksFormat", "--type", "luks1", "--pbkdf-force-iterations", "1000", dev, "-")
		refused(t, ctx, e, dev, "ext4", api.ErrRefused, "crypto_LUKS")
	})
	t.Run("another file system's mkfs.xfs meanwhile", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, sizeFor("xfs"))
		interrupt(t, ctx, e, dev, "xfs", 20)
		testutil.Mkfs(t, dev, "xfs")
		write(t, dev, xfsInProgress, []byte{1})
		refused(t, ctx, e, dev, "xfs", api.ErrRefused, "not this command's")
	})
	t.Run("while another kvol's mkfs runs", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, sizeFor("ext4"))
		interrupt(t, ctx, e, dev, "ext4", 20)
		f, err := os.OpenFile(dev, os.O_RDONLY|unix.O_EXCL, 0)
		if err != nil {
			t.Fatal(err)
		}
		idle(t, f)
		f.Close()
		refused(t, ctx, e, dev, "ext4", api.ErrBusy, "in use")
	})
}

// kvol is killed, mkfs goes on and ends, and somebody writes data: nothing is lost.
func TestKilledAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, fstype := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			e, ctx := machine(t)
			dev, _ := testutil.LoopImage(t, sizeFor(fstype))
			interrupt(t, ctx, e, dev, fstype, never)
			keep(t, dev, fstype, true)
			d := mustBringUp(t, ctx, e, dev, fstype, Adopt)
			if !d.Make {
				t.Error("the outcome would not be recorded before the mount")
			}
			keep(t, dev, fstype, false)
			mustBringUp(t, ctx, e, dev, fstype, Mount)
			// And once it is recorded, nothing makes it the command's own again.
			zero(t, dev, 0, mib)
			refused(t, ctx, e, dev, fstype, api.ErrRefused, "not blank")
		})
		for name, damage := range map[string][2]int64{"superblock": {0, 2048}, "MiB": {0, mib}} {
			t.Run(fstype+" whose first "+name+" was lost before anybody saw it", func(t *testing.T) {
				e, ctx := machine(t)
				dev, _ := testutil.LoopImage(t, sizeFor(fstype))
				interrupt(t, ctx, e, dev, fstype, never)
				keep(t, dev, fstype, true)
				n := damage[1]
				if fstype == "btrfs" {
					n = mib // its first superblock is at 64 KiB
				}
				zero(t, dev, damage[0], n)
				refused(t, ctx, e, dev, fstype, api.ErrRefused, "may hold data")
			})
		}
	}
}

// Between the proof and mkfs the name comes to lead to another disk: that one is
// not touched.
func TestSwappedBeforeMkfs(t *testing.T) {
	t.Parallel()
	for _, fstype := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fstype, func(t *testing.T) {
			e, ctx := machine(t)
			blank, _ := testutil.LoopImage(t, sizeFor(fstype))
			full, _ := testutil.LoopImage(t, sizeFor(fstype))
			testutil.Mkfs(t, full, fstype)
			before := sum(t, full)
			node := filepath.Join(testutil.TempDir(t), "disk")
			mknod(t, node, blank)
			d, err := Prepare(ctx, e, node, fstype, true)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := os.Remove(node); err != nil {
				t.Fatal(err)
			}
			mknod(t, node, full)
			err = Make(ctx, e, node, d)
			if sum(t, full) != before {
				t.Fatal("the other disk was formatted")
			}
			if fstype == "btrfs" {
				// It looks the name of the descriptor up to see whether it is mounted.
				if err == nil {
					t.Error("mkfs.btrfs has changed: expect it to work")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			check(t, ctx, e, blank, fstype)
		})
	}
}

func mknod(t *testing.T, path, like string) {
	t.Helper()
	var st unix.Stat_t
	err := unix.Stat(like, &st)
	if err == nil {
		err = unix.Mknod(path, unix.S_IFBLK|0o600, int(st.Rdev))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The claim lasts until mkfs; when it was lost meanwhile nothing is made.
func TestClaim(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	dev, _ := testutil.LoopImage(t, sizeFor("ext4"))
	d, err := Prepare(ctx, e, dev, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(dev, os.O_RDONLY|unix.O_EXCL, 0); !errors.Is(err, unix.EBUSY) {
		f.Close()
		t.Errorf("not claimed: %v", err)
	}
	before := sum(t, dev)
	d.Close()
	if err := Make(ctx, e, dev, d); err == nil || sum(t, dev) != before {
		t.Errorf("made without a claim: %v", err)
	}
	d.Close()
	mustBringUp(t, ctx, e, dev, "", Format)
}

// An mkfs that says no leaves an intent with which the same command works later.
func TestMkfsFails(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	dev, img := testutil.LoopImage(t, 16*mib)
	if _, err := bringUp(ctx, e, dev, "xfs", true); err == nil || !strings.Contains(err.Error(), "mkfs.xfs") {
		t.Fatalf("xfs on 16 MiB: %v", err)
	}
	if err := os.Truncate(img, sizeFor("xfs")); err != nil {
		t.Fatal(err)
	}
	tool(t, "", "losetup", "-c", dev)
	// It has another size now, so the intent is void; but it is blank.
	mustBringUp(t, ctx, e, dev, "xfs", Format)
}

func ExampleSignature_String() {
	fmt.Println(Signature{FSType: "xfs", UUID: "1-2", Label: "a b"})
	// Output: xfs (UUID 1-2, label "a b")
}
