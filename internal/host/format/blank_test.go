package format

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// On a disk that is too large to be read whole, a file system whose beginning and
// end are gone is found by its backup superblocks alone, without the samples.
func TestBackupPlacesOfLargeDisk(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	const size = 24<<30 + 512
	for name, mkfs := range map[string][]string{
		"ext4":                {"mkfs.ext4", "-q", "-F"},
		"ext4 1k":             {"mkfs.ext4", "-q", "-F", "-b", "1024"},
		"ext4 2k":             {"mkfs.ext4", "-q", "-F", "-b", "2048"},
		"ext4 bigalloc":       {"mkfs.ext4", "-q", "-F", "-O", "bigalloc", "-C", "65536"},
		"ext4 sparse_super2":  {"mkfs.ext4", "-q", "-F", "-O", "sparse_super2"},
		"ext4 in a partition": {"mkfs.ext4", "-q", "-F", "-E", "offset=1048576"},
		"xfs":                 {"mkfs.xfs", "-q", "-f"},
		"xfs of 1k":           {"mkfs.xfs", "-q", "-f", "-b", "size=1024"},
		"xfs striped":         {"mkfs.xfs", "-q", "-f", "-d", "su=64k,sw=4"},
		"btrfs":               {"mkfs.btrfs", "-q", "-f"},
	} {
		t.Run(name, func(t *testing.T) {
			dev, _ := testutil.LoopImage(t, size)
			args := append(mkfs[1:], dev)
			if name == "ext4 in a partition" {
				args = append(args, "23G")
			}
			tool(t, "", mkfs[0], args...)
			zero(t, dev, 0, edge)
			zero(t, dev, size-edge, edge)
			f, err := os.Open(dev)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			found := 0
			s := scanner{dev: f, size: size, buf: make([]byte, block), zero: make([]byte, block)}
			for _, off := range places(size) {
				d, err := s.span(off, min(off+block, size))
				if err != nil {
					t.Fatal(err)
				}
				if d != nil && (strings.Contains(d.What, "superblock") || strings.HasPrefix(name, "btrfs")) {
					found++
				}
			}
			want := 3 // xfs: 4 groups, or with a stripe 16
			if name == "btrfs" || name == "ext4 sparse_super2" || name == "ext4 bigalloc" {
				want = 1
			}
			if found < want {
				t.Errorf("%d backup superblocks found, want at least %d", found, want)
			}
		})
	}
	t.Run("the whole command", func(t *testing.T) {
		dev, _ := testutil.LoopImage(t, size)
		testutil.Mkfs(t, dev, "ext4")
		zero(t, dev, 0, edge)
		refused(t, ctx, e, dev, "ext4", api.ErrRefused, "data at byte ") // of a backup, or what a sample met before it
		tool(t, "", "blkdiscard", "-f", dev)
		d, err := Prepare(ctx, e, dev, "ext4", true)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if d.Verdict != Format || !strings.Contains(d.Reason, "4096 samples (seed ") {
			t.Errorf("%s: %s", d.Verdict, d.Reason)
		}
	})
}

// A sample lies in each of the equal parts, and the same seed gives the same ones.
func TestSamples(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{wholeUpTo + 512, 9<<30 + 4096*3, 1 << 44} {
		got := sampled(size, 7)
		stratum := size / samples
		for i, off := range got {
			if off%block != 0 || off < int64(i)*stratum-block || off >= int64(i+1)*stratum || off+block > size {
				t.Fatalf("size %d: sample %d is at %d", size, i, off)
			}
		}
		if !slices.Equal(got, sampled(size, 7)) || slices.Equal(got, sampled(size, 8)) {
			t.Errorf("size %d: the samples do not follow the seed", size)
		}
	}
}

func TestPlacesAreOnTheDevice(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{512, 4096, wholeUpTo + 512, 1 << 44, 1<<50 + 512} {
		all := places(size)
		if len(all) > 10000 {
			t.Errorf("size %d: %d places", size, len(all))
		}
		for _, off := range all {
			if off < 0 || off%block != 0 || off+block > size {
				t.Errorf("size %d: a place at %d", size, off)
			}
		}
	}
}

func TestParseExport(t *testing.T) {
	t.Parallel()
	got := parseExport("DEVNAME=/proc/self/fd/3\nLABEL=a\\ b\\\\\\'c\nUUID=1-2\nTYPE=ext4\nUSAGE=filesystem\nPTTYPE=dos\nodd\n")
	want := Signature{FSType: "ext4", PTType: "dos", UUID: "1-2", Label: `a b\'c`, Usage: "filesystem"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseExport(f *testing.F) {
	f.Add("TYPE=ext4\nUUID=\\")
	f.Add("=\n\n\\\n")
	f.Fuzz(func(t *testing.T, out string) {
		s := parseExport(out)
		if s.String() == "" {
			t.Error("nothing to say")
		}
	})
}

// The label as blkid really prints it.
func TestProbe(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	dev, _ := testutil.LoopImage(t, 16*mib)
	const label, id = `a "b' \$x`, "11111111-2222-3333-4444-555555555555"
	testutil.Mkfs(t, dev, "ext4", "-L", label, "-U", id)
	o, err := e.Devices.Open(ctx, dev)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got, err := Probe(ctx, e.Exec, o)
	if diff := cmp.Diff(Signature{FSType: "ext4", UUID: id, Label: label, Usage: "filesystem"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestFsck(t *testing.T) {
	t.Parallel()
	e, ctx := machine(t)
	testutil.Tool(t, "debugfs", "fsck.ext4")
	dev, _ := testutil.LoopImage(t, 16*mib)
	testutil.Mkfs(t, dev, "ext4")
	fsck := func(want error, warns bool) {
		t.Helper()
		warning, err := Fsck(ctx, e, dev, "ext4")
		if !errors.Is(err, want) || (warning != "") != warns {
			t.Errorf("%q, %v", warning, err)
		}
	}
	fsck(nil, false)
	tool(t, "ssv free_inodes_count 1\ndirty\n", "debugfs", "-w", "-f", "-", dev)
	fsck(nil, false) // corrected
	dir := testutil.TempDir(t)
	t.Run("mounted", func(t *testing.T) {
		testutil.Mount(t, dev, dir, "ext4", 0, "")
		fsck(nil, true)
	})
	tool(t, "clri <2>\ndirty\n", "debugfs", "-w", "-f", "-", dev)
	fsck(api.ErrRefused, false)
	if warning, err := Fsck(ctx, e, dev, "none"); err != nil || !strings.Contains(warning, "fsck.none") {
		t.Errorf("%q, %v", warning, err)
	}
	if _, err := Fsck(ctx, e, "/none", "xfs"); err != nil {
		t.Errorf("xfs is not checked: %v", err)
	}
}
