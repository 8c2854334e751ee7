package safefs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// arena is a tree under attack: what an attacker changes is inside, what lies
// outside has the same names and must stay as it is, down to the times of change.
type arena struct {
	inside, outside string
	spare           string // on the same file system, outside the root: a place to move things to
}

// outsideTree has what the operations below would need if they got there.
var outsideTree = []string{
	"pods/u1/volumes/kubernetes.io~csi/v1/vol_data.json=sentinel",
	"pods/u1/volumes/kubernetes.io~csi/v1/empty/",
	"pods/u1/volumes/kubernetes.io~csi/v1/sentinel=sentinel",
	"pods/u1/volumes/kubernetes.io~csi/v1/dir/sentinel=sentinel",
	"pods/u1/volumes/kubernetes.io~csi/v1/sub/",
	"pods/u1/volumes/kubernetes.io~csi/v1/new=",
	"pods/u1/volumes/kubernetes.io~csi/v1/newlink->sentinel",
	"file=sentinel",
}

func newArena(t *testing.T) arena {
	t.Helper()
	dir := testutil.TempDir(t)
	testutil.Tmpfs(t, dir) // one file system for all, and a quick fsync
	a := arena{filepath.Join(dir, "root"), filepath.Join(dir, "outside"), filepath.Join(dir, "spare")}
	plant(t, a.inside, volDir+"/")
	plant(t, a.outside, outsideTree...)
	plant(t, a.spare, "x/")
	return a
}

// attack changes the tree and undoes it; it is called in a loop. It works by
// descriptor itself, so that it changes nothing outside either; what an operation or
// another attack leaves in its way makes it fail, and then it has to go on.
type attack struct {
	name string
	step func(p place) func() // prepares, and gives one round
}

// place is a name that is attacked, in the directory that has it at first.
type place struct {
	arena
	dir  int
	name string
	out  string // the same name outside
}

func (a arena) place(t *testing.T, rel string) place {
	t.Helper()
	dir, err := openAbs(filepath.Dir(filepath.Join(a.inside, rel)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(dir) })
	return place{a, dir, filepath.Base(rel), filepath.Join(a.outside, rel)}
}

// exchange lets the name and another one of the directory change places.
func (p place) exchange(other string) error {
	return unix.Renameat2(p.dir, p.name, p.dir, other, unix.RENAME_EXCHANGE)
}

// mount binds the outside on the name, which it does not follow.
func (p place) mount() {
	tree, err := unix.OpenTree(unix.AT_FDCWD, p.out, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	must(err)
	_ = unix.MoveMount(tree, "", p.dir, p.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
	must(unix.Close(tree))
}

func (p place) unmount() {
	_ = unix.Unmount(fdPath(p.dir)+"/"+p.name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

var (
	swapForLink = attack{"exchange with a link", func(p place) func() {
		must(unix.Symlinkat(p.out, p.dir, p.name+".link"))
		return func() { _ = p.exchange(p.name + ".link") }
	}}
	replaceByLink = attack{"replace by a link", func(p place) func() {
		return func() {
			if unix.Renameat(p.dir, p.name, p.dir, p.name+".away") == nil {
				_ = unix.Symlinkat(p.out, p.dir, p.name)
				_ = unix.Unlinkat(p.dir, p.name, 0)
				p.putBack(p.dir, p.name+".away")
			}
		}
	}}
	moveAway = attack{"move out of the root", func(p place) func() {
		spare, err := openAbs(p.spare)
		must(err)
		return func() {
			if unix.Renameat(p.dir, p.name, spare, "moved") == nil {
				p.putBack(spare, "moved")
			}
		}
	}}
	mountOver = attack{"mount over", func(p place) func() {
		return func() {
			p.mount()
			p.unmount()
		}
	}}
	// replaceLeaf is for what the operations make and remove: it puts links and
	// mounts in place of what is there, and where nothing is.
	replaceLeaf = attack{"replace the thing itself", func(p place) func() {
		must(unix.Symlinkat(p.out, p.dir, p.name+".link"))
		return func() {
			_ = p.exchange(p.name + ".link")
			_ = p.exchange(p.name + ".link")
			p.mount()
			p.unmount()
			if unix.Symlinkat(p.out, p.dir, p.name) == nil {
				_ = unix.Unlinkat(p.dir, p.name, 0)
			}
		}
	}}
)

// putBack gives a directory its place again, where MkdirAll may have made a new
// one meanwhile.
func (p place) putBack(dir int, name string) {
	if unix.Renameat(dir, name, p.dir, p.name) == nil {
		return
	}
	must(unix.Renameat2(dir, name, p.dir, p.name, unix.RENAME_EXCHANGE))
	for os.RemoveAll(fdPath(dir)+"/"+name) != nil {
		// The operations have it open, and still make things in it.
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// victim is a piece of work that is done while the attack runs. It gives the
// errors that it met, and says what it has seen that it must not see.
func victim(r *Root, seen func(what string)) []error {
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	_, err := r.Mkdir(volDir+"/sub", 0o750)
	try(err)
	_, err = r.MkdirAll(volDir+"/sub/a/b", 0o750)
	try(err)
	try(r.WriteFile(leaf, []byte("mine"), 0o600))
	if data, err := r.ReadFile(leaf, 100); bytes.Contains(data, []byte("sentinel")) {
		seen("ReadFile gives an outside file")
	} else {
		try(err)
	}
	entries, err := r.ReadDir(volDir)
	try(err)
	if slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == "sentinel" }) {
		seen("ReadDir lists an outside directory")
	}
	try(r.Chmod(leaf, 0o640))
	try(r.Chown(volDir+"/sub", 0, 7))
	try(r.Chmod(volDir, 0o755))
	try(r.CreateEmpty(volDir+"/new", 0o640))
	try(r.Symlink("target", volDir+"/newlink"))
	target, err := r.Readlink(volDir + "/newlink")
	if try(err); target == "sentinel" {
		seen("Readlink reads an outside link")
	}
	try(r.Unlink(leaf, VolData))
	try(r.Rmdir(volDir + "/empty"))
	try(r.Rmdir(volDir + "/sub/a/b"))
	try(r.Rmdir(volDir + "/sub/a"))
	try(r.Rmdir(volDir + "/sub"))
	// The package removes nothing of this, so that the next round can make it again.
	if f, base, err := r.Parent(volDir + "/new"); err == nil {
		_ = unix.Unlinkat(int(f.Fd()), base, 0)
		_ = unix.Unlinkat(int(f.Fd()), "newlink", 0)
		f.Close()
	}
	return errs
}

// TestRacingAttackers runs every operation while others exchange, replace, move
// away and mount over what is in its path: nothing outside is changed, not even for a
// moment, or read.
func TestRacingAttackers(t *testing.T) {
	testutil.Root(t)
	const uid, plugin = "pods/u1", "pods/u1/volumes/kubernetes.io~csi"
	for _, targets := range []map[string]attack{
		{volDir: swapForLink},
		{uid: swapForLink},
		{volDir: replaceByLink},
		{plugin: replaceByLink},
		{volDir: mountOver},
		{uid: mountOver},
		{volDir: moveAway},
		{uid: moveAway},
		{leaf: replaceLeaf, volDir + "/sub": replaceLeaf},
		{volDir + "/new": replaceLeaf, volDir + "/newlink": replaceLeaf},
		{volDir: swapForLink, plugin: mountOver, leaf: replaceLeaf},
	} {
		names := []string{}
		for rel, at := range targets {
			names = append(names, at.name+" "+filepath.Base(rel))
		}
		slices.Sort(names)
		t.Run(strings.Join(names, ", "), func(t *testing.T) {
			for _, w := range ways[:2] {
				t.Run(w.name, func(t *testing.T) { race(t, targets, using(w.k)) })
			}
		})
	}
}

func race(t *testing.T, targets map[string]attack, opt Option) {
	a := newArena(t)
	r := openLayout(t, a.inside, opt)
	before := history(t, a.outside)
	var stop atomic.Bool
	var rounds atomic.Int64
	var wg sync.WaitGroup
	var steps []func()
	for rel, at := range targets {
		steps = append(steps, at.step(a.place(t, rel)))
	}
	for _, round := range steps {
		wg.Go(func() {
			for !stop.Load() {
				round()
				rounds.Add(1)
			}
		})
	}
	var worked, refused int
	// At least so many rounds, and until the attack was met and missed.
	for i := 0; i < 60 || i < 5000 && (worked == 0 || refused == 0 || rounds.Load() < 60); i++ {
		for _, err := range victim(r, func(what string) { t.Error(what) }) {
			switch {
			case err == nil:
				worked++
			case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, fs.ErrExist):
				// What an earlier step of the round could not do.
			case errors.Is(err, api.ErrRefused), errors.Is(err, api.ErrBusy), errors.Is(err, api.ErrNotFound):
				refused++
			default:
				t.Errorf("unexpected: %v", err)
			}
		}
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d worked, %d refused, %d rounds of attack", worked, refused, rounds.Load())
	if worked == 0 || refused == 0 {
		t.Errorf("the attack was not met and missed: %d worked, %d refused", worked, refused)
	}
	if after := history(t, a.outside); after != before {
		t.Errorf("outside is\n%s\nwas\n%s", after, before)
	}
	// What was made in a directory that was moved away is in that directory only.
	if left, err := os.ReadDir(a.spare); err != nil || len(left) > 2 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestMovedAway: what was moved out of the root during a walk is refused at its
// end, as by openat2.
func TestMovedAway(t *testing.T) {
	dir := testutil.TempDir(t)
	plant(t, dir, "root/pods/u/")
	r := openLayout(t, filepath.Join(dir, "root"), WithoutOpenat2())
	f, err := r.Open("pods/u")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := r.anchor("pods")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.kernel.stillBeneath(a, int(f.Fd())); err != nil {
		t.Error(err)
	}
	for _, to := range []string{"away", "root/podsaway"} {
		if err := os.Rename(fdName(t, f), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
		if err := r.kernel.stillBeneath(a, int(f.Fd())); !errors.Is(err, unix.EXDEV) {
			t.Errorf("in %s: %v", to, err)
		}
	}
}

func fdName(t *testing.T, f *os.File) string {
	t.Helper()
	name, err := os.Readlink(fdPath(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestRacingUmask makes directories at once from many threads while the process
// makes files of its own: each gets its mode.
func TestRacingUmask(t *testing.T) {
	old := syscall.Umask(0o027)
	t.Cleanup(func() { syscall.Umask(old) })
	dir := testutil.TempDir(t)
	r := openOwn(t, filepath.Join(dir, "own"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				name := string(rune('a'+i)) + string(rune('A'+j))
				if _, err := r.Mkdir(name, 0o777); err != nil {
					t.Error(err)
				}
				if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
					t.Error(err)
				}
				own, err := os.Lstat(filepath.Join(r.Path(), name))
				plain, perr := os.Lstat(filepath.Join(dir, name))
				if err != nil || perr != nil || own.Mode().Perm() != 0o777 || plain.Mode().Perm() != 0o750 {
					t.Errorf("%v %v, %v %v", own, err, plain, perr)
				}
			}
		})
	}
	wg.Wait()
}
