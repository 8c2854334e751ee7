package format

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// What is not blank is never formatted, and stays as it is to the byte.
func TestNotBlank(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	mkfs := func(fstype string, args ...string) func(*testing.T, string) {
		return func(t *testing.T, dev string) { testutil.Mkfs(t, dev, fstype, args...) }
	}
	then := func(fs ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dev string) {
			for _, f := range fs {
				f(t, dev)
			}
		}
	}
	wipe := func(off, n int64) func(*testing.T, string) {
		return func(t *testing.T, dev string) { zero(t, dev, off, n) }
	}
	bytes := func(off int64, data string) func(*testing.T, string) {
		return func(t *testing.T, dev string) { write(t, dev, off, []byte(data)) }
	}
	const size = 16 * mib
	for _, c := range []struct {
		name    string
		size    int64
		prepare func(t *testing.T, dev string)
		says    string
	}{
		{"ext2", size, mkfs("ext2"), "ext2 (UUID"},
		{"ext4", size, mkfs("ext4"), "ext4 (UUID"},
		{"xfs", 320 * mib, mkfs("xfs"), "xfs (UUID"},
		{"btrfs", 128 * mib, mkfs("btrfs"), "btrfs (UUID"},
		{"swap", size, func(t *testing.T, dev string) { tool(t, "", "mkswap", dev) }, "swap (UUID"},
		{"LUKS1", size, func(t *testing.T, dev string) {
			tool(t, "secret", "cryptsetup", "-q", "luksFormat", "--type", "luks1", "--pbkdf-force-iterations", "1000", dev, "-")
		}, "crypto_LUKS (UUID"},
		{"LUKS2", size, func(t *testing.T, dev string) {
			tool(t, "secret", "cryptsetup", "-q", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", dev, "-")
		}, "crypto_LUKS (UUID"},
		{"LVM", size, pvcreate, "LVM2_member (UUID"},
		{"GPT", size, func(t *testing.T, dev string) { tool(t, "label: gpt\n", "sfdisk", "-q", dev) }, "gpt partition table"},
		{"MBR", size, func(t *testing.T, dev string) { tool(t, "label: dos\n", "sfdisk", "-q", dev) }, "dos partition table"},
		{"MBR and a partition", size, func(t *testing.T, dev string) { tool(t, "label: dos\n2048,,L\n", "sfdisk", "-q", dev) }, "dos partition table"},
		{"two signatures", 128 * mib, func(t *testing.T, dev string) {
			testutil.Mkfs(t, dev, "ext4")
			super := make([]byte, 1024)
			f, err := os.Open(dev)
			if err == nil {
				_, err = f.ReadAt(super, 1024)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			testutil.Mkfs(t, dev, "btrfs")
			write(t, dev, 1024, super)
		}, "several signatures"},
		{"ext4 with a damaged primary superblock", size, then(mkfs("ext4"), wipe(1024, 1024)), "data at byte"},
		{"ext4 with a damaged magic", size, then(mkfs("ext4"), wipe(1024+0x38, 2)), "data at byte 1025"},
		{"ext4 in a GPT partition whose GPT is wiped", size, func(t *testing.T, dev string) {
			tool(t, "label: gpt\n2048,,L\n", "sfdisk", "-q", dev)
			tool(t, "", "mkfs.ext4", "-q", "-F", "-E", "offset=1048576", dev, "14M")
			zero(t, dev, 0, mib)
			zero(t, dev, size-mib, mib)
		}, "an ext superblock"},
		{"ext4 whose first MiB is wiped", size, then(mkfs("ext4"), wipe(0, mib)), "data at byte"},
		{"xfs whose first MiB is wiped", 320 * mib, then(mkfs("xfs"), wipe(0, mib)), "which looks like an xfs superblock"},
		{"btrfs whose first MiB is wiped", 128 * mib, then(mkfs("btrfs"), wipe(0, mib)), "data at byte"},
		{"xfs whose mkfs was killed", 320 * mib, then(mkfs("xfs"), bytes(xfsInProgress, "\x01")), "the beginnings of xfs"},
		{"one byte at the start", size, bytes(0, "x"), "data at byte 0 (78"},
		{"one byte in the middle", size, bytes(size/2+4095, "x"), "data at byte 8392703 (78"},
		{"one byte at the end", size, bytes(size-1, "\x01"), "data at byte 16777215 (01)"},
		{"one byte at the end of an odd size", size + 512, bytes(size+511, "\x01"), "data at byte 16777727 (01)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, c.size)
			c.prepare(t, dev)
			// Asked for with a type that it is not, whatever it is.
			asked := "ext4"
			if c.name == "ext4" || c.name == "ext2" {
				asked = "xfs"
			}
			refused(t, ctx, e, dev, asked, api.ErrRefused, c.says)
		})
	}
}

// pvcreate writes an LVM label. The tool does so only with device mapper in the
// kernel; the label that it writes is this.
func pvcreate(t *testing.T, dev string) {
	label := make([]byte, 512)
	copy(label, "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00LVM2 001")
	copy(label[32:], "kYcQ4jbX8yOaTBeDNzpPh0Rk2sVmWl1x")
	crc := uint32(0xf597a6cf) // INITIAL_CRC of lib/misc/crc.c
	for _, b := range label[20:] {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ crc&1*0xedb88320
		}
	}
	label[16], label[17], label[18], label[19] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
	write(t, dev, 512, label)
}

// A file system that is the one asked for is mounted as it is.
func TestMountAsItIs(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	for _, c := range []struct{ fstype, asked string }{
		{"ext4", "ext4"}, {"ext4", ""}, {"ext3", "ext4"}, {"xfs", "xfs"}, {"btrfs", ""},
	} {
		t.Run(c.fstype+" asked "+c.asked, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, sizeFor(c.fstype))
			testutil.Mkfs(t, dev, c.fstype)
			before := sum(t, dev)
			d := mustBringUp(t, ctx, e, dev, c.asked, Mount)
			if d.Make || d.Signature.FSType != c.fstype || c.asked != "" && d.FSType != c.asked {
				t.Errorf("%+v", d)
			}
			if sum(t, dev) != before {
				t.Error("changed")
			}
		})
	}
	t.Run("ext4 asked ext3", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 32*mib)
		testutil.Mkfs(t, dev, "ext4")
		refused(t, ctx, e, dev, "ext3", api.ErrRefused, "asked for is ext3")
	})
}

func TestBlankAndNotAllowed(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	dev, img := testutil.LoopImage(t, 32*mib)
	before := sum(t, dev)
	_, err := bringUp(ctx, e, dev, "ext4", false)
	e2, ok := errors.AsType[*api.Error](err)
	if !ok || !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), "all 33554432 bytes were read") || !strings.Contains(e2.Next, "--format") {
		t.Errorf("%v", err)
	}
	noState := e
	noState.State = nil
	refused(t, ctx, noState, dev, "", api.ErrRefused, "state directory")
	refused(t, ctx, e, dev, "vfat", api.ErrNotSupported, "vfat")
	t.Run("read-only device", func(t *testing.T) {
		tool(t, "", "blockdev", "--setro", dev)
		refused(t, ctx, e, dev, "", api.ErrRefused, "read-only")
		tool(t, "", "blockdev", "--setrw", dev)
	})
	if sum(t, dev) != before {
		t.Error("changed")
	}
	t.Run("nothing in it", func(t *testing.T) {
		if err := os.Truncate(img, 0); err != nil {
			t.Fatal(err)
		}
		tool(t, "", "losetup", "-c", dev)
		refused(t, ctx, e, dev, "", api.ErrRefused, "size of 0")
	})
}

// A place that cannot be read is no blank place.
func TestReadError(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	dev, img := testutil.LoopImage(t, 32*mib)
	if err := os.Truncate(img, 24*mib); err != nil { // the loop device keeps its size
		t.Fatal(err)
	}
	refused(t, ctx, e, dev, "ext4", api.ErrRefused, "cannot read bytes")
	_, err := bringUp(ctx, e, dev, "ext4", true)
	if !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
}

// idle runs until the test ends and keeps files open.
func idle(t *testing.T, files ...*os.File) {
	t.Helper()
	cmd := osexec.Command("sleep", "600")
	cmd.ExtraFiles = files
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

// A blank device that somebody uses is not formatted.
func TestInUse(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	for name, flags := range map[string]int{"exclusively": unix.O_EXCL, "plainly": 0} {
		t.Run("open "+name, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, 16*mib)
			f, err := os.OpenFile(dev, os.O_RDONLY|flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			idle(t, f)
			f.Close()
			refused(t, ctx, e, dev, "", api.ErrBusy, "sleep")
		})
	}
	t.Run("by this process itself, exclusively", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 16*mib)
		f, err := os.OpenFile(dev, os.O_RDONLY|unix.O_EXCL, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		refused(t, ctx, e, dev, "", api.ErrBusy, "in use")
	})
	t.Run("mounted, its superblock wiped", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 16*mib)
		testutil.Mkfs(t, dev, "ext4")
		dir := testutil.TempDir(t)
		testutil.Mount(t, dev, dir, "ext4", unix.MS_RDONLY, "")
		zero(t, dev, 0, 16*mib)
		refused(t, ctx, e, dev, "", api.ErrBusy, dir)
	})
	t.Run("raw block volume", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, 16*mib)
		bind := filepath.Join(testutil.TempDir(t), "uid")
		if err := os.WriteFile(bind, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		testutil.Bind(t, dev, bind, false)
		lock := testutil.Loop(t, bind)
		refused(t, ctx, e, dev, "", api.ErrBusy, "in use")
		_, err := bringUp(ctx, e, dev, "", true)
		if e2, _ := errors.AsType[*api.Error](err); e2 == nil || !slices.ContainsFunc(e2.Details, func(s string) bool { return strings.Contains(s, lock) }) {
			t.Errorf("the loop device is not named: %+v", e2)
		}
	})
	t.Run("partitions that the kernel still has", func(t *testing.T) {
		testutil.Tool(t, "partx", "sfdisk", "losetup")
		dev, part := testutil.Partitioned(t, 32*mib)
		zero(t, dev, 0, mib)
		zero(t, dev, 31*mib, mib)
		refused(t, ctx, e, dev, "", api.ErrRefused, "partitions")
		d := mustBringUp(t, ctx, e, part, "", Format)
		if d.Device.Parents[0] != filepath.Base(dev) {
			t.Errorf("%+v", d.Device)
		}
		keep(t, part, "ext4", true)
		mustBringUp(t, ctx, e, part, "", Mount)
	})
}
