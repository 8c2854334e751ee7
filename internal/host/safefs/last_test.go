package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// TestLastElement puts each kind of thing at a name and tries every operation
// on it. An operation that is not listed as working must fail as the case says
// and change nothing.
func TestLastElement(t *testing.T) {
	testutil.Root(t)
	always := []string{"Parent", "Stat"}
	open := append([]string{"Open", "Chown", "Chmod"}, always...)
	dir := append([]string{"ReadDir", "OpenDir", "Mkdir", "MkdirAll"}, open...)
	mounted := append([]string{"Mkdir", "MkdirAll", "OpenMount"}, always...)
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, path, outside string) (free func())
		works   []string
		// fails has the errors of single operations, and "" that of all others.
		fails map[string]error
	}{
		{
			"nothing", func(*testing.T, string, string) func() { return nil },
			[]string{"Parent", "Mkdir", "MkdirAll", "Symlink", "CreateEmpty", "WriteFile", "OpenFile"},
			map[string]error{"": fs.ErrNotExist},
		},
		{
			"empty directory", func(t *testing.T, path, _ string) func() { mkdirs(t, path); return nil },
			append([]string{"Rmdir"}, dir...),
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"directory with data", func(t *testing.T, path, _ string) func() { plant(t, path, "data=x"); return nil },
			dir,
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted, "Rmdir": api.ErrNotEmpty},
		},
		{
			"file", func(t *testing.T, path, _ string) func() { plant(t, path, "=x"); return nil },
			append([]string{"ReadFile", "Unlink", "WriteFile", "OpenFile", "UnlinkOwn"}, open...),
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"link to a file outside", func(t *testing.T, path, outside string) func() {
				return failing(t, os.Symlink(filepath.Join(outside, "file"), path))
			},
			append([]string{"Readlink"}, always...),
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"link to a directory outside", func(t *testing.T, path, outside string) func() {
				return failing(t, os.Symlink(filepath.Join(outside, "dir"), path))
			},
			append([]string{"Readlink"}, always...),
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"link to nothing", func(t *testing.T, path, outside string) func() {
				return failing(t, os.Symlink(filepath.Join(outside, "new"), path))
			},
			append([]string{"Readlink"}, always...),
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"fifo", func(t *testing.T, path, _ string) func() { return failing(t, unix.Mkfifo(path, 0o644)) },
			open,
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"socket", func(t *testing.T, path, _ string) func() { return failing(t, unix.Mknod(path, unix.S_IFSOCK|0o644, 0)) },
			open,
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"device", func(t *testing.T, path, _ string) func() {
				// /dev/watchdog: opened, it would restart the machine.
				return failing(t, unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(10, 130))))
			},
			open,
			map[string]error{"": api.ErrRefused, "OpenMount": api.ErrNotMounted},
		},
		{
			"tmpfs", func(t *testing.T, path, _ string) func() { mkdirs(t, path); testutil.Tmpfs(t, path); return nil },
			mounted,
			map[string]error{"": api.ErrRefused, "Rmdir": api.ErrBusy},
		},
		{
			"bind of a directory", func(t *testing.T, path, outside string) func() {
				mkdirs(t, path)
				testutil.Bind(t, filepath.Join(outside, "dir"), path, false)
				return nil
			},
			mounted,
			map[string]error{"": api.ErrRefused, "Rmdir": api.ErrBusy},
		},
		{
			"bind of a file", func(t *testing.T, path, outside string) func() {
				plant(t, path, "=")
				testutil.Bind(t, filepath.Join(outside, "file"), path, false)
				return nil
			},
			append([]string{"OpenMount"}, always...),
			map[string]error{"": api.ErrRefused},
		},
		{
			"dead FUSE", func(t *testing.T, path, _ string) func() {
				mkdirs(t, path)
				return testutil.FUSE(t, path, testutil.FUSEDead).Kill
			},
			mounted,
			map[string]error{"": api.ErrRefused, "Rmdir": api.ErrBusy},
		},
		{
			"stopped FUSE", func(t *testing.T, path, _ string) func() {
				mkdirs(t, path)
				return testutil.FUSE(t, path, testutil.FUSEHung).Kill
			},
			mounted,
			map[string]error{"": api.ErrRefused, "Rmdir": api.ErrBusy},
		},
		{
			"mute FUSE", func(t *testing.T, path, _ string) func() {
				mkdirs(t, path)
				return testutil.FUSE(t, path, testutil.FUSEMute).Kill
			},
			mounted,
			map[string]error{"": api.ErrRefused, "Rmdir": api.ErrBusy},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			works := map[string]bool{}
			for _, op := range c.works {
				works[op] = true
			}
			base := testutil.TempDir(t)
			outside := filepath.Join(base, "outside")
			plant(t, outside, "dir/data=x", "file=x")
			eachWay(t, func(t *testing.T, opt Option) {
				// What fails changes nothing, so one tree serves all of it.
				failRoot := filepath.Join(testutil.TempDir(t), "root")
				plant(t, failRoot, volDir+"/")
				free := c.prepare(t, filepath.Join(failRoot, leaf), outside)
				before, was := testutil.Tree(t, failRoot), history(t, outside)
				fails := openRoots(t, failRoot, opt)
				for _, op := range operations {
					root, r := failRoot, fails
					if works[op.name] && c.name != "stopped FUSE" && c.name != "dead FUSE" && c.name != "mute FUSE" {
						root = filepath.Join(testutil.TempDir(t), "root")
						plant(t, root, volDir+"/")
						c.prepare(t, filepath.Join(root, leaf), outside)
						r = openRoots(t, root, opt)
					}
					var err error
					within(t, op.name, free, func() { err = r.do(op, leaf) })
					want := c.fails[op.name]
					if want == nil && !works[op.name] {
						want = c.fails[""]
					}
					t.Run(op.name, func(t *testing.T) { wantErr(t, err, want, filepath.Join(root, leaf)) })
				}
				if after := testutil.Tree(t, failRoot); after != before {
					t.Errorf("changed:\n%s\nwas:\n%s", after, before)
				}
				if now := history(t, outside); now != was {
					t.Errorf("outside:\n%s\nwas:\n%s", now, was)
				}
			})
		})
	}
}

func failing(t *testing.T, err error) func() {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return nil
}

// TestStat compares what is told of each type with lstat.
func TestStat(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "d/", "f=four", "l->f")
		for name, mode := range map[string]uint32{"p": unix.S_IFIFO, "s": unix.S_IFSOCK, "c": unix.S_IFCHR, "b": unix.S_IFBLK} {
			if err := unix.Mknod(filepath.Join(dir, name), mode|0o600, int(unix.Mkdev(7, 3))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "d"), os.ModeSetgid|os.ModeSticky|0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, "f"), 3, 4); err != nil {
			t.Fatal(err)
		}
		r := openLayout(t, dir, opt)
		for name, typ := range map[string]Type{
			"d": Dir, "f": File, "l": Symlink, "p": Fifo, "s": Socket, "c": CharDevice, "b": BlockDevice,
		} {
			got, err := r.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
				t.Fatal(err)
			}
			want := Info{
				Type: typ, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, Size: st.Size, Ino: st.Ino, Dev: st.Dev,
				Rdev: st.Rdev, MountID: got.MountID, Birth: got.Birth, ModTime: got.ModTime,
			}
			if got != want || got.ModTime.Unix() != st.Mtim.Sec || got.MountID == 0 {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		entries, err := r.ReadDir(".")
		want := []Entry{{"b", BlockDevice}, {"c", CharDevice}, {"d", Dir}, {"f", File}, {"l", Symlink}, {"p", Fifo}, {"s", Socket}}
		if err != nil || len(entries) != len(want) {
			t.Fatalf("%v, %v", entries, err)
		}
		for i := range want {
			if entries[i] != want[i] {
				t.Errorf("%v, want %v", entries[i], want[i])
			}
		}
	})
}

// TestMountIDs: the ids are those of the mount table, and a mount's root is
// known as one, also of a file and of a stacked mount.
func TestMountIDs(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	plant(t, dir, "root/pods/p/d/", "root/pods/p/f=", "root/pods/p/dead/", "other/sub/x=1")
	at := func(name string) string { return filepath.Join(dir, "root/pods/p", name) }
	testutil.Tmpfs(t, at("d"))
	testutil.Bind(t, filepath.Join(dir, "other"), at("d"), true)
	testutil.Bind(t, filepath.Join(dir, "other/sub/x"), at("f"), false)
	testutil.FUSE(t, at("dead"), testutil.FUSEDead)
	eachWay(t, func(t *testing.T, opt Option) {
		r := openLayout(t, filepath.Join(dir, "root"), opt)
		outer, err := r.Stat("pods/p")
		if err != nil || outer.MountRoot {
			t.Fatalf("%+v, %v", outer, err)
		}
		for name, typ := range map[string]Type{"d": Dir, "f": File, "dead": Dir} {
			want := tableID(t, at(name))
			info, err := r.Stat("pods/p/" + name)
			if err != nil || info.MountID != want || !info.MountRoot || info.Type != typ {
				t.Errorf("Stat of %s: %+v, %v, want mount %d", name, info, err, want)
			}
			f, info, err := r.OpenMount("pods/p/" + name)
			if err != nil || info.MountID != want || !info.MountRoot {
				t.Fatalf("OpenMount of %s: %+v, %v, want mount %d", name, info, err, want)
			}
			if got, err := StatFD(f); err != nil || got != info {
				t.Errorf("StatFD of %s: %+v, %v, want %+v", name, got, err, info)
			}
			f.Close()
			if _, err := r.Open("pods/p/" + name); !errors.Is(err, ErrIsMount) || !errors.Is(err, api.ErrRefused) {
				t.Errorf("Open of %s: %v", name, err)
			}
			err = r.Rmdir("pods/p/" + name)
			if typ == Dir && (!errors.Is(err, ErrIsMount) || !errors.Is(err, unix.EBUSY)) {
				t.Errorf("Rmdir of %s: %v", name, err)
			}
		}
		// The upper mount of the stack is what is seen.
		if info, _ := r.Stat("pods/p/d"); info.Ino != inode(t, filepath.Join(dir, "other")) {
			t.Errorf("Stat sees %+v", info)
		}
	})
}

// TestShutDownXFS: a file system that was shut down gives not even attributes;
// it is still seen as a mount.
func TestShutDownXFS(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	plant(t, dir, "root/pods/p/d/")
	at := filepath.Join(dir, "root/pods/p/d")
	dev, _ := testutil.LoopImage(t, 320<<20)
	testutil.Mkfs(t, dev, "xfs")
	testutil.Mount(t, dev, at, "xfs", 0, "")
	id := tableID(t, at)
	f, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	const goingDown, noFlush = 0x8004587d, 2 // XFS_IOC_GOINGDOWN of <xfs/xfs_fs.h>
	err = unix.IoctlSetPointerInt(int(f.Fd()), goingDown, noFlush)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Lstat(at, &unix.Stat_t{}); !errors.Is(err, unix.EIO) {
		t.Logf("this kernel tells attributes: %v", err)
	}
	eachWay(t, func(t *testing.T, opt Option) {
		r := openLayout(t, filepath.Join(dir, "root"), opt)
		info, err := r.Stat("pods/p/d")
		if err != nil || info.MountID != id || !info.MountRoot {
			t.Errorf("%+v, %v", info, err)
		}
		f, info, err := r.OpenMount("pods/p/d")
		if err != nil || info.MountID != id {
			t.Fatalf("%+v, %v", info, err)
		}
		f.Close()
		if made, err := r.Mkdir("pods/p/d", 0o750); made || err != nil {
			t.Errorf("Mkdir: %v, %v", made, err)
		}
		wantErr(t, r.Rmdir("pods/p/d"), api.ErrBusy, r.Path()+"/pods/p/d")
	})
}
