package safefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// eachScrub runs f with a scrub for each kernel.
func eachScrub(t *testing.T, f func(t *testing.T, scrub func(dir string) (Contents, error))) {
	t.Helper()
	eachWay(t, func(t *testing.T, opt Option) {
		f(t, func(dir string) (Contents, error) {
			r := &Root{}
			opt(r)
			s := scrubber{k: r.kernel, top: dir}
			err := s.run(int(openDir(t, dir).Fd()))
			return s.done, err
		})
	})
}

// A scrub deletes all that is in a directory, whatever it is, and nothing that it
// leads to; the directory stays as it is.
func TestScrub(t *testing.T) {
	testutil.Root(t)
	eachScrub(t, func(t *testing.T, scrub func(string) (Contents, error)) {
		dir := testutil.TempDir(t)
		testutil.Tmpfs(t, dir)
		vol, outside := dir+"/vol", dir+"/outside"
		plant(t, outside, "file=sentinel", "dir/file=sentinel")
		plant(t, vol, "a=12345", "d/e/f=1", "d/e/g/", "d/link->"+outside, "link->"+outside+"/dir", "dead->nowhere", "..data->d", "-rf=1", "a\nb=1")
		for i := range 1500 { // more than one reading of the directory
			plant(t, vol, fmt.Sprintf("many/%d=", i))
		}
		for _, err := range []error{unix.Mkfifo(vol+"/fifo", 0o600), unix.Mknod(vol+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
			os.Link(outside+"/file", vol+"/hard"), os.Chmod(vol, 0o2711), os.Chown(vol, 7, 8)} {
			wantErr(t, err, nil, "")
		}
		before := testutil.Tree(t, outside)
		done, err := scrub(vol)
		if err != nil || done.Entries < 1510 {
			t.Fatalf("%+v %v", done, err)
		}
		if tree := testutil.Tree(t, vol); strings.Count(tree, "\n") != 1 || !strings.Contains(tree, "7:8") {
			t.Errorf("left:\n%s", tree)
		}
		if after := testutil.Tree(t, outside); after != before {
			t.Errorf("changed outside:\n%s", after)
		}
		if done, err := scrub(vol); err != nil || done.Entries != 0 {
			t.Errorf("again: %+v %v", done, err)
		}
	})
}

// A directory may be deeper than descriptors, and than a path can be long.
func TestScrubDeep(t *testing.T) {
	eachScrub(t, func(t *testing.T, scrub func(string) (Contents, error)) {
		dir := testutil.TempDir(t)
		testutil.Tmpfs(t, dir)
		dir += "/vol"
		mkdirs(t, dir)
		const depth, name = 3000, "directory"
		at, err := openAbs(dir)
		for range depth {
			wantErr(t, errors.Join(err, unix.Mkdirat(at, name, 0o755)), nil, "")
			next, oerr := unix.Openat(at, name, unix.O_PATH, 0)
			unix.Close(at)
			at, err = next, oerr
		}
		unix.Close(at)
		if done, err := scrub(dir); err != nil || done.Entries != depth {
			t.Errorf("%+v %v", done, err)
		}
	})
}

// A mount inside ends a scrub, also one of the same file system, and on a file.
func TestScrubStopsAtMounts(t *testing.T) {
	testutil.Root(t)
	for name, on := range map[string]func(t *testing.T, outside, vol string){
		"tmpfs":                   func(t *testing.T, _, vol string) { testutil.Tmpfs(t, vol+"/in") },
		"bind of the file system": func(t *testing.T, outside, vol string) { testutil.Bind(t, outside, vol+"/in", false) },
		"bind of a file":          func(t *testing.T, outside, vol string) { testutil.Bind(t, outside+"/file", vol+"/f", false) },
		"bind of itself":          func(t *testing.T, _, vol string) { testutil.Bind(t, vol+"/in", vol+"/in", false) },
	} {
		t.Run(name, func(t *testing.T) {
			eachScrub(t, func(t *testing.T, scrub func(string) (Contents, error)) {
				dir := testutil.TempDir(t)
				plant(t, dir+"/outside", "file=sentinel", "dir/file=sentinel")
				plant(t, dir+"/vol", "f=1", "in/kept=1")
				before := testutil.Tree(t, dir+"/outside")
				on(t, dir+"/outside", dir+"/vol")
				if _, err := scrub(dir + "/vol"); !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), "mount point") {
					t.Errorf("%v", err)
				}
				if after := testutil.Tree(t, dir+"/outside"); after != before {
					t.Errorf("changed outside:\n%s", after)
				}
				unmountBelow(t, dir)
				if name != "bind of a file" && !strings.Contains(testutil.Tree(t, dir+"/vol"), "kept") {
					t.Error("what the mount covers is gone")
				}
			})
		})
	}
}

// What was a directory when it was listed may be something else when it is entered.
func TestScrubEntersOnlyDirectories(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		r := &Root{}
		opt(r)
		dir := testutil.TempDir(t)
		plant(t, dir, "outside/f=1", "vol/file=1", "vol/bound/", "vol/tmpfs/", "vol/link->../outside", "vol/dir/f=1")
		testutil.Bind(t, dir+"/outside", dir+"/vol/bound", false)
		testutil.Tmpfs(t, dir+"/vol/tmpfs")
		for name, want := range map[string]error{"file": nil, "link": nil, "missing": nil, "bound": api.ErrRefused, "tmpfs": api.ErrRefused, "dir": nil} {
			s := begun(t, r.kernel, dir+"/vol")
			wantErr(t, s.enter(name), want, dir+"/vol/"+name)
			if entered := len(s.stack) == 2; entered != (name == "dir") {
				t.Errorf("%s was entered: %t", name, entered)
			}
			unix.Close(s.cur)
		}
	})
}

// begun is a scrub that has opened its directory and done nothing yet.
func begun(t *testing.T, k kernel, dir string) *scrubber {
	t.Helper()
	s := &scrubber{k: k, top: dir}
	top := openDir(t, dir)
	info, err := k.stat(int(top.Fd()))
	wantErr(t, err, nil, "")
	s.mnt, s.stack = info.MountID, []scrubbed{{ino: info.Ino, dev: info.Dev}}
	s.cur, err = readable(int(top.Fd()))
	wantErr(t, err, nil, "")
	return s
}

// A directory that is moved out of the volume while it is worked in stays as it is
// there, and so does what it lies beside.
func TestScrubOfWhatIsMovedAway(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		r := &Root{}
		opt(r)
		dir := testutil.TempDir(t)
		plant(t, dir, "outside/f=1", "vol/empty/", "vol/full/f=1")
		for _, name := range []string{"empty", "full"} {
			s := begun(t, r.kernel, dir+"/vol")
			wantErr(t, s.enter(name), nil, "")
			wantErr(t, os.Rename(dir+"/vol/"+name, dir+"/outside/"+name), nil, "")
			before := testutil.Tree(t, dir)
			wantErr(t, s.step(), unix.EXDEV, dir+"/vol/"+name)
			if name == "empty" { // as it would be had it been moved a moment later
				wantErr(t, s.leave(), unix.EXDEV, dir+"/vol/"+name)
			}
			if after := testutil.Tree(t, dir); after != before {
				t.Errorf("changed from\n%s\nto\n%s", before, after)
			}
			unix.Close(s.cur)
		}
	})
}

// What cannot be deleted is said, at once.
func TestScrubOfReadOnly(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	plant(t, dir, "vol/d/f=1", "ro/")
	testutil.Bind(t, dir+"/vol", dir+"/ro", true)
	_, err := Scrub(openDir(t, dir+"/ro"), dir+"/ro")
	wantErr(t, err, unix.EROFS, dir+"/ro/d/f")
}

func unmountBelow(t *testing.T, dir string) {
	t.Helper()
	for _, at := range []string{"/vol/in", "/vol/f"} {
		_ = unix.Unmount(dir+at, unix.MNT_DETACH)
	}
}

// Whoever works in the volume meanwhile can make a scrub fail, and never makes it
// delete what is not in it.
func TestScrubRaced(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		r := &Root{}
		opt(r)
		for name, attack := range map[string]func(vol, outside string, i int){
			// A directory and a link to one outside change places.
			"exchange": func(vol, _ string, _ int) {
				_ = unix.Renameat2(unix.AT_FDCWD, vol+"/d", unix.AT_FDCWD, vol+"/link", unix.RENAME_EXCHANGE)
			},
			// A mount of the same file system comes and goes.
			"mount": func(vol, outside string, i int) {
				if i%2 == 0 {
					_ = unix.Mount(outside, vol+"/d", "", unix.MS_BIND, "")
				} else {
					_ = unix.Unmount(vol+"/d", unix.MNT_DETACH)
				}
			},
			// A directory is moved out of the volume, and one of outside is put there.
			"move": func(vol, outside string, i int) {
				from, to := vol+"/d/e", vol+"-moved"
				if i%2 != 0 {
					from, to = to, from
				}
				_ = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
			},
		} {
			t.Run(name, func(t *testing.T) {
				dir := testutil.TempDir(t)
				testutil.Tmpfs(t, dir) // one file system for all, as a bind of the node's own is
				vol, outside := dir+"/vol", dir+"/outside"
				sentinels := []string{"e/sentinel", "f/sentinel", "g/sentinel", "sentinel"}
				plant(t, outside, "e/sentinel=", "f/sentinel=", "g/sentinel=", "sentinel=")
				mkdirs(t, vol)
				var stop atomic.Bool
				done := make(chan struct{})
				go func() {
					defer close(done)
					for i := 0; !stop.Load(); i++ {
						attack(vol, outside, i)
					}
					_ = unix.Unmount(vol+"/d", unix.MNT_DETACH)
				}()
				for range 60 {
					refill(vol, outside)
					s := scrubber{k: r.kernel, top: vol}
					_ = s.run(int(openDir(t, vol).Fd())) // it may fail
				}
				stop.Store(true)
				<-done
				for _, name := range sentinels { // refill itself writes through links and mounts
					if _, err := os.Stat(outside + "/" + name); err != nil {
						t.Errorf("outside: %v", err)
					}
				}
				s := scrubber{k: r.kernel, top: vol}
				if err := s.run(int(openDir(t, vol).Fd())); err != nil {
					t.Errorf("once nobody disturbs: %v", err)
				}
			})
		}
	})
}

// refill makes the volume's content anew, as far as the attack lets it.
func refill(vol, outside string) {
	for _, d := range []string{"/d/e/f", "/d/g"} {
		_ = os.MkdirAll(vol+d, 0o755)
		for i := range 10 {
			_ = os.WriteFile(fmt.Sprintf("%s%s/%d", vol, d, i), []byte("x"), 0o600)
		}
	}
	_ = os.Symlink(outside, vol+"/link")
}

func TestRemoveScrubbed(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	plant(t, dir, "full/f=1", "empty/", "file=1", "other/", "another=1")
	parent := openDir(t, dir)
	thing := func(name string) *os.File {
		t.Helper()
		fd, err := openPath(int(parent.Fd()), name)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), filepath.Join(dir, name))
		t.Cleanup(func() { f.Close() })
		return f
	}
	wantErr(t, RemoveScrubbed(parent, "empty", thing("other")), api.ErrRefused, dir+"/empty")
	wantErr(t, RemoveScrubbed(parent, "file", thing("another")), api.ErrRefused, dir+"/file")
	wantErr(t, RemoveScrubbed(parent, "full", thing("full")), api.ErrNotEmpty, dir+"/full")
	wantErr(t, os.Symlink("file", dir+"/link"), nil, "")
	wantErr(t, RemoveScrubbed(parent, "link", thing("link")), api.ErrRefused, dir+"/link")
	testutil.Tmpfs(t, dir+"/other")
	wantErr(t, RemoveScrubbed(parent, "other", thing("other")), api.ErrBusy, dir+"/other")
	wantErr(t, RemoveScrubbed(parent, "empty", thing("empty")), nil, "")
	wantErr(t, RemoveScrubbed(parent, "file", thing("file")), nil, "")
	if tree := testutil.Tree(t, dir); strings.Contains(tree, "/empty") || strings.Contains(tree, "./file\"") {
		t.Error(tree)
	}
}
