package devices

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, func() { probe.Main(Jobs()) }) }

// machine gives the Devices of this machine and a context with time enough.
func machine(t *testing.T) (*Devices, context.Context) {
	t.Helper()
	testutil.Root(t)
	h := probe.New("")
	t.Cleanup(h.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return New("", "", "", h), ctx
}

func open(t *testing.T, d *Devices, ctx context.Context, path string) *Handle {
	t.Helper()
	o, err := d.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// sysfs writes attributes below a root, a name that ends in / is a directory.
func sysfs(t *testing.T, root string, attrs map[string]string) {
	t.Helper()
	for name, value := range attrs {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case strings.HasPrefix(value, "->"):
			err = os.Symlink(value[2:], path)
		default:
			err = os.WriteFile(path, []byte(value+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The devices that this machine does not have: a SCSI disk with partitions, one
// of them under device mapper, a kernel without disk sequence numbers.
func TestSysfs(t *testing.T) {
	root := t.TempDir()
	sysfs(t, root, map[string]string{
		"devices/sda/dev": "8:0", "devices/sda/size": "2048", "devices/sda/ro": "0", "devices/sda/device/wwid": "naa.6001",
		"devices/sda/sda10/partition": "10", "devices/sda/sda10/start": "90", "devices/sda/sda10/dev": "8:10", "devices/sda/sda10/size": "8",
		"devices/sda/sda2/partition": "2", "devices/sda/sda2/start": "64", "devices/sda/sda2/dev": "8:2", "devices/sda/sda2/size": "16",
		"devices/sda/sda2/ro": "1", "devices/sda/sda2/holders/dm-0": "->../../../dm-0", "devices/sda/queue/": "",
		"devices/dm-0/dev": "254:0", "devices/dm-0/size": "16", "devices/dm-0/dm/uuid": "CRYPT-1", "devices/dm-0/slaves/sda2": "->../../sda/sda2",
		"devices/loop0/dev": "7:0", "devices/loop0/size": "0",
		"devices/loop7/dev": "7:7", "devices/loop7/size": "4", "devices/loop7/diskseq": "12", "devices/loop7/ro": "1",
		"devices/loop7/loop/backing_file": "/a b/x (deleted)",
		"block/sda":                       "->../devices/sda", "block/dm-0": "->../devices/dm-0", "block/loop0": "->../devices/loop0", "block/loop7": "->../devices/loop7",
		"dev/block/8:2": "->../../devices/sda/sda2",
	})
	d := New(root, "/dev", "", nil)
	got, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		{Name: "dm-0", Path: "/dev/dm-0", Major: 254, Type: DM, Size: 8192, ID: "CRYPT-1", Parents: []string{"sda2"}},
		{Name: "loop7", Path: "/dev/loop7", Major: 7, Minor: 7, Type: Loop, Size: 2048, DiskSeq: 12, ReadOnly: true, Backing: "/a b/x"},
		{Name: "sda", Path: "/dev/sda", Major: 8, Type: Disk, Size: 1 << 20, ID: "naa.6001", Partitions: []string{"sda2", "sda10"}},
		{Name: "sda2", Path: "/dev/sda2", Major: 8, Minor: 2, Type: Part, Size: 8192, ID: "naa.6001 part 2 at 64", ReadOnly: true, Parents: []string{"sda"}, Holders: []string{"dm-0"}},
		{Name: "sda10", Path: "/dev/sda10", Major: 8, Minor: 10, Type: Part, Size: 4096, ID: "naa.6001 part 10 at 90", Parents: []string{"sda"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if one, err := d.ByNumber(8, 2); err != nil || one.Name != "sda2" {
		t.Errorf("8:2 is %v, %v", one, err)
	}
	if _, err := d.ByNumber(8, 3); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("8:3: %v", err)
	}
	loops, err := d.Loops()
	if diff := cmp.Diff([]LoopDevice{{
		Name: "loop7", Path: "/dev/loop7", Minor: 7, Backing: "/a b/x", Deleted: true, DiskSeq: 12,
	}}, loops); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestSame(t *testing.T) {
	a := Device{Major: 8, Size: 1, DiskSeq: 3}
	for name, c := range map[string]struct {
		b    Device
		want bool
	}{
		"itself":                          {a, true},
		"another sequence number":         {Device{Major: 8, Size: 1, DiskSeq: 4}, false},
		"another size":                    {Device{Major: 8, Size: 2, DiskSeq: 3}, false},
		"the sequence number was unknown": {Device{Major: 8, Size: 1}, false},
	} {
		if a.Same(c.b) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
	if none := (Device{Major: 8, Size: 1}); none.Same(none) {
		t.Error("without a sequence number and an ID two disks cannot be known to be one")
	}
	if id := (Device{Major: 8, Size: 1, ID: "x"}); !id.Same(id) {
		t.Error("the ID alone is enough")
	}
}

func TestOpenWhatIsNoDevice(t *testing.T) {
	d, ctx := machine(t)
	dir := testutil.TempDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		dir: api.ErrInput, file: api.ErrInput, "/dev/null": api.ErrInput, filepath.Join(dir, "none"): api.ErrNotFound,
	} {
		if _, err := d.Open(ctx, path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestLoop(t *testing.T) {
	d, ctx := machine(t)
	img := filepath.Join(testutil.TempDir(t), "a b (deleted)")
	if err := os.WriteFile(img, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ro := range []bool{false, true} {
		backing, err := os.OpenFile(img, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer backing.Close()
		l, err := d.AttachLoop(ctx, backing, ro, img)
		if err != nil {
			t.Fatal(err)
		}
		dev := open(t, d, ctx, l.Path)
		if dev.Type != Loop || dev.Size != 1<<20 || dev.ReadOnly != ro {
			t.Errorf("%+v", dev.Device)
		}
		dev.Close()
		stale := l
		stale.DiskSeq--
		if err := d.DetachLoop(ctx, stale); err != nil {
			t.Errorf("one that is another's by now is none of ours: %v", err)
		}
		if _, ok := d.loop(l.Name); !ok {
			t.Fatal("another attachment of the same number was detached")
		}
		if err := d.DetachLoop(ctx, l); err != nil {
			t.Fatal(err)
		}
		if _, ok := d.loop(l.Name); ok {
			t.Error("still there")
		}
		if err := d.DetachLoop(ctx, l); err != nil {
			t.Errorf("detached already: %v", err)
		}
	}
}

func TestLoopForFindsByPath(t *testing.T) {
	d, _ := machine(t)
	dev, img := testutil.LoopImage(t, 1<<20)
	if err := os.Rename(img, img+"2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(img + "2"); err != nil {
		t.Fatal(err)
	}
	l, ok, err := d.LoopFor(img + "2")
	if err != nil || !ok || l.Path != dev || !l.Deleted {
		t.Errorf("%+v, %v, %v", l, ok, err)
	}
	if _, ok, _ := d.LoopFor(img); ok {
		t.Error("found under its old name")
	}
}

// Detaching is lazy: while somebody has the loop device open it stays.
func TestDetachBusyLoop(t *testing.T) {
	d, ctx := machine(t)
	dev, _ := testutil.LoopImage(t, 1<<20)
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	l, ok := d.loop(filepath.Base(dev))
	if !ok {
		t.Fatal("no loop")
	}
	if err := d.DetachLoop(ctx, l); !errors.Is(err, api.ErrBusy) {
		t.Errorf("%v, want busy", err)
	}
	f.Close()
	testutil.Poll(t, "it goes with its last user", func() bool { _, ok := d.loop(l.Name); return !ok })
}

// Two processes that ask for a free loop device at once get the same number; one
// of them has to ask again.
func TestAttachRace(t *testing.T) {
	d, ctx := machine(t)
	dir := testutil.TempDir(t)
	const n = 6
	got := make(chan string, n)
	for i := range n {
		go func() {
			defer func() { got <- "" }()
			img, err := os.OpenFile(filepath.Join(dir, string(rune('a'+i))), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer img.Close()
			err = img.Truncate(1 << 20)
			if err == nil {
				var l LoopDevice
				if l, err = d.AttachLoop(ctx, img, false, img.Name()); err == nil {
					if l.Backing != img.Name() {
						t.Errorf("%s is over %s and not %s", l.Path, l.Backing, img.Name())
					}
					err = d.DetachLoop(ctx, l)
				}
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	for range n {
		<-got
	}
}

// A handle stays with its disk whatever happens to the name.
func TestHandleKeepsItsDisk(t *testing.T) {
	d, ctx := machine(t)
	one, _ := testutil.LoopImage(t, 1<<20)
	two, _ := testutil.LoopImage(t, 2<<20)
	dir := testutil.TempDir(t)
	link := filepath.Join(dir, "disk")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	o := open(t, d, ctx, link)
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(two, link); err != nil {
		t.Fatal(err)
	}
	claim, err := o.Exclusive(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	if dev, err := d.ByFile(claim); err != nil || dev.Path != one {
		t.Errorf("claimed %s, %v", dev.Path, err)
	}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	o.DiskSeq++
	if err := o.Check(); !errors.Is(err, api.ErrRefused) {
		t.Errorf("another disk: %v", err)
	}
}

func TestExclusive(t *testing.T) {
	d, ctx := machine(t)
	dev, _ := testutil.LoopImage(t, 16<<20)
	o := open(t, d, ctx, dev)
	claim, err := o.Exclusive(ctx, unix.O_DIRECT)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Exclusive(ctx, 0); !errors.Is(err, api.ErrBusy) {
		t.Errorf("claimed twice: %v", err)
	}
	claim.Close()
	testutil.Mkfs(t, dev, "ext4")
	dir := testutil.TempDir(t)
	testutil.Mount(t, dev, dir, "ext4", 0, "")
	if _, err := o.Exclusive(ctx, 0); !errors.Is(err, api.ErrBusy) {
		t.Errorf("claimed while mounted: %v", err)
	}
}
