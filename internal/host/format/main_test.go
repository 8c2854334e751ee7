package format

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, func() { probe.Main(devices.Jobs(), Jobs()) }) }

const mib = 1 << 20

// sizeFor is the smallest round size that a file system can be made on.
func sizeFor(fstype string) int64 {
	switch fstype {
	case "xfs":
		return 320 * mib
	case "btrfs":
		return 128 * mib
	}
	return 32 * mib
}

// machine is an Env with an empty state directory.
func machine(t *testing.T) (Env, context.Context) {
	t.Helper()
	testutil.Root(t)
	testutil.Tool(t, "blkid", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
	h := probe.New("")
	t.Cleanup(h.Close)
	state, err := safefs.OwnDir(filepath.Join(testutil.TempDir(t), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return Env{Exec: exec.New(exec.Options{}), Devices: devices.New("", "", "", h), State: state}, ctx
}

// bringUp is what a command does with a device before it mounts it.
func bringUp(ctx context.Context, e Env, dev, fstype string, allow bool) (Decision, error) {
	d, err := Prepare(ctx, e, dev, fstype, allow)
	if err != nil {
		return d, err
	}
	defer d.Close()
	return d, Make(ctx, e, dev, d)
}

func mustBringUp(t *testing.T, ctx context.Context, e Env, dev, fstype string, want Verdict) Decision {
	t.Helper()
	d, err := bringUp(ctx, e, dev, fstype, true)
	if err != nil {
		t.Fatalf("%v %+v", err, err)
	}
	if d.Verdict != want {
		t.Fatalf("%s (%s), want %s", d.Verdict, d.Reason, want)
	}
	return d
}

// refused runs the command with --format and makes sure that it is refused, for
// that kind and saying that, and that not a byte of the device changed.
func refused(t *testing.T, ctx context.Context, e Env, dev, fstype string, kind error, says string) {
	t.Helper()
	before := sum(t, dev)
	d, err := bringUp(ctx, e, dev, fstype, true)
	switch {
	case err == nil:
		t.Errorf("not refused but: %s, %s", d.Verdict, d.Reason)
	case !errors.Is(err, kind):
		t.Errorf("%v, want kind %v", err, kind)
	case !strings.Contains(err.Error(), says):
		t.Errorf("%q does not say %q", err, says)
	}
	if after := sum(t, dev); after != before {
		t.Error("the device was changed")
	}
}

// sum is the SHA-256 of every block of a loop device that is not zero, with its
// place: read from the backing file, whose holes need not be.
func sum(t *testing.T, dev string) [32]byte {
	t.Helper()
	d, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_ = d.Sync() // to a backing file that was cut short it fails
	name, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "loop/backing_file"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(strings.TrimSuffix(string(name), "\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash, buf, zeros := sha256.New(), make([]byte, 4096), make([]byte, 4096)
	for off := int64(0); ; off += int64(len(buf)) {
		if off, err = unix.Seek(int(f.Fd()), off, unix.SEEK_DATA); err != nil {
			break
		}
		off -= off % int64(len(buf))
		n, err := f.ReadAt(buf, off)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			fmt.Fprintf(hash, "%d:%x\n", off, buf[:n])
		}
		if err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENXIO) && err != nil {
		t.Fatal(err)
	}
	return [32]byte(hash.Sum(nil))
}

// write changes a device.
func write(t *testing.T, dev string, off int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, off); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func zero(t *testing.T, dev string, off, n int64) {
	t.Helper()
	write(t, dev, off, make([]byte, n))
}

// tool runs a tool with a text on its standard input.
func tool(t *testing.T, stdin, name string, args ...string) {
	t.Helper()
	testutil.Tool(t, name)
	cmd := osexec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// keep mounts the device and makes a file on it, or looks whether it is there.
func keep(t *testing.T, dev, fstype string, makeIt bool) {
	t.Helper()
	mounted(t, dev, fstype, func(dir string) {
		file := filepath.Join(dir, "data")
		if makeIt {
			if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "precious" {
			t.Errorf("the data is lost: %q, %v", got, err)
		}
	})
}

// mounted calls f while the device is mounted. Other packages' tests attach loop
// devices, which makes one busy for a moment.
func mounted(t *testing.T, dev, fstype string, f func(dir string)) {
	t.Helper()
	dir := testutil.TempDir(t)
	var err error
	testutil.Poll(t, dev+" is not busy", func() bool {
		err = unix.Mount(dev, dir, fstype, 0, "")
		return !errors.Is(err, unix.EBUSY)
	})
	if err != nil {
		t.Fatalf("mount %s: %v", dev, err)
	}
	f(dir)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}

// otherBoot makes the Env believe that the machine was booted again.
func otherBoot(t *testing.T, e Env) Env {
	t.Helper()
	proc := testutil.TempDir(t)
	file := filepath.Join(proc, "sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: "another\n", filepath.Join(proc, "swaps"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := *e.Devices
	d.ProcRoot = proc
	e.Devices = &d
	return e
}
