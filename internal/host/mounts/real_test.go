package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvol/kvol/internal/testutil"
	"golang.org/x/sys/unix"
)

const self = "/proc/self/mountinfo"

func read(t *testing.T) *Table {
	t.Helper()
	table, err := Read(self)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Bad) > 0 || table.Changed {
		t.Fatalf("changed %v, bad lines: %v", table.Changed, table.Bad)
	}
	return table
}

// base is a tmpfs for mounts of every kind: taking it off takes all with it.
func base(t *testing.T) string {
	t.Helper()
	dir := testutil.TempDir(t)
	testutil.Tmpfs(t, dir)
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	must(t, os.MkdirAll(dir, 0o755))
	return dir
}

func tmpfs(t *testing.T, source string, elem ...string) string {
	t.Helper()
	dir := mkdir(t, elem...)
	must(t, unix.Mount(source, dir, "tmpfs", 0, "size=64k"))
	return dir
}

func bind(t *testing.T, src, dst string) {
	t.Helper()
	must(t, unix.Mount(src, dst, "", unix.MS_BIND, ""))
}

// overlay mounts an overlay of n layers with long names.
func overlay(t *testing.T, dir string, n int) string {
	t.Helper()
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	for i := range n {
		layer := mkdir(t, dir, "layers", fmt.Sprintf("%0200d", i))
		if err := unix.FsconfigSetString(fd, "lowerdir+", layer); err != nil {
			testutil.Skip(t, "this kernel's overlay takes no lowerdir+: %v", err)
		}
	}
	must(t, unix.FsconfigCreate(fd))
	mnt, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(mnt)
	dst := mkdir(t, dir, "overlay")
	must(t, unix.MoveMount(mnt, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH))
	return dst
}

var oddNames = []string{
	"blank and  two", "tab\there", "new\nline", `back\slash`, `\040`, `\134040`, "hash#tag", `"quoted"`, "comma,=", "ends with blank ",
	"//deleted", "\xff\xfe not UTF-8", "\x01\x1b[31m", "-", "- tmpfs", "ünïcode", strings.Repeat("n", 250),
}

// oddMounts mounts all that a table may hold below dir.
func oddMounts(t *testing.T, dir string) {
	t.Helper()
	for _, name := range oddNames {
		tmpfs(t, "source of "+name, dir, "odd", name)
	}
	tmpfs(t, "", dir, "empty source")
	tmpfs(t, "-", dir, "dash source")
	overlay(t, dir, 480)

	// Binds: of a directory, a file, a deleted one of each, what is no path.
	src := mkdir(t, dir, "src", "d one")
	bind(t, src, mkdir(t, dir, "bind"))
	must(t, unix.Mount("", filepath.Join(dir, "bind"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, ""))
	for _, name := range []string{"file", "gone file", "file to"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	bind(t, filepath.Join(dir, "gone file"), filepath.Join(dir, "file to"))
	must(t, os.Remove(filepath.Join(dir, "gone file")))
	bind(t, mkdir(t, dir, "gone dir"), mkdir(t, dir, "dir to"))
	must(t, os.Remove(filepath.Join(dir, "gone dir")))
	bind(t, "/proc/self/ns/net", filepath.Join(dir, "file"))

	// Stacks: made in order, bound on itself, put beneath, moved to the top.
	for i := range 4 {
		tmpfs(t, fmt.Sprint("stack", i), dir, "stack")
	}
	bind(t, filepath.Join(dir, "stack"), filepath.Join(dir, "stack"))
	moved := tmpfs(t, "made first, moved last", dir, "moved")
	tmpfs(t, "older than what is below it", dir, "moved", "inner")
	tmpfs(t, "below", dir, "moved to")
	must(t, unix.Mount(moved, filepath.Join(dir, "moved to"), "", unix.MS_MOVE, ""))
	beneath(t, dir)

	// Hidden under mounts on a directory above, made later.
	tmpfs(t, "hidden", dir, "above", "a", "b")
	tmpfs(t, "hidden deeper", dir, "above", "a", "b", "c")
	tmpfs(t, "hides", dir, "above", "a")
	tmpfs(t, "seen", dir, "above", "a", "b")
	tmpfs(t, "not hidden", dir, "above", "ab")

	// Propagation.
	shared := tmpfs(t, "shared", dir, "shared")
	must(t, unix.Mount("", shared, "", unix.MS_SHARED, ""))
	slave := mkdir(t, dir, "slave")
	bind(t, shared, slave)
	must(t, unix.Mount("", slave, "", unix.MS_SLAVE, ""))
	must(t, unix.Mount("", slave, "", unix.MS_SHARED, ""))
	tmpfs(t, "propagated", shared, "inner")
	must(t, unix.Mount("", tmpfs(t, "unbindable", dir, "unbindable"), "", unix.MS_UNBINDABLE, ""))

	ro := tmpfs(t, "superblock read-only", dir, "ro")
	must(t, unix.Mount("", ro, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	testutil.FUSE(t, mkdir(t, dir, "dead fuse"), testutil.FUSEDead)
}

// beneath puts a mount below another one (Linux 6.5).
func beneath(t *testing.T, dir string) {
	t.Helper()
	const moveMountBeneath = 0x200
	dst := tmpfs(t, "on top", dir, "beneath")
	fd, err := unix.OpenTree(unix.AT_FDCWD, tmpfs(t, "slid in below", dir, "beneath from"), unix.OPEN_TREE_CLOEXEC|unix.OPEN_TREE_CLONE)
	must(t, err)
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, dst, unix.MOVE_MOUNT_F_EMPTY_PATH|moveMountBeneath); err != nil {
		t.Logf("no mount put beneath another one: %v", err)
	}
}

// mountAt asks the kernel which mount a lookup of path finds.
func mountAt(path string) (int, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	return int(st.Mnt_id), err
}

// TestOddMountsAsTheKernelSays compares the table with listmount and statmount.
func TestOddMountsAsTheKernelSays(t *testing.T) {
	testutil.Root(t)
	oddMounts(t, base(t))
	want := kernelMounts(t)
	var got []Mount
	long := 0
	for _, m := range read(t).Mounts {
		long = max(long, len(strings.Join(m.SuperOptions, ",")))
		m.Optional, m.Options = nil, m.Options[:1]
		got = append(got, m)
	}
	slices.SortFunc(got, byID)
	if len(got) != len(want) {
		t.Fatalf("%d mounts, the kernel says %d", len(got), len(want))
	}
	for i := range want {
		// mountinfo also tells what the superblock has beside the file system's own
		// options; nothing may be lost or changed.
		g, w := got[i], want[i]
		own := w.SuperOptions[1:]
		if !slices.Equal(g.SuperOptions[len(g.SuperOptions)-len(own):], own) {
			t.Errorf("%q: options %q, the kernel says %q", g.MountPoint, g.SuperOptions, own)
		}
		g.SuperOptions, w.SuperOptions = g.SuperOptions[:1], w.SuperOptions[:1]
		if diff := cmp.Diff(w, g); diff != "" {
			t.Errorf("mount %d, kernel (-) and table (+):\n%s", w.ID, diff)
		}
	}
	if long < 90_000 {
		t.Errorf("the longest line has %d bytes of options; this was to try one of 100 KB", long)
	}
}

// TestOddMountsFound asks a lookup of each mount point what is seen there.
func TestOddMountsFound(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	oddMounts(t, dir)
	seen, hidden := compareLookups(t, read(t))
	// Of what was made above at least this: stack 4, moved 1, beneath 1, above 3.
	if seen < 30 || hidden < 9 {
		t.Errorf("%d seen and %d hidden: fewer than were made", seen, hidden)
	}
}

func compareLookups(t *testing.T, table *Table) (seen, hidden int) {
	t.Helper()
	for _, m := range table.Mounts {
		at := table.At(m.MountPoint)
		if !slices.ContainsFunc(at, func(o Mount) bool { return o.ID == m.ID }) {
			t.Errorf("%q: mount %d is not among %v", m.MountPoint, m.ID, ids(at))
		}
		id, err := mountAt(m.MountPoint)
		if err != nil {
			id = 0 // its directory is hidden
		}
		if got := table.Visible(m); got != (id == m.ID) {
			t.Errorf("%q: mount %d visible %v, a lookup finds %d", m.MountPoint, m.ID, got, id)
		}
		top, ok := table.Top(m.MountPoint)
		found := slices.ContainsFunc(at, func(o Mount) bool { return o.ID == id })
		if ok != found || ok && top.ID != id {
			t.Errorf("%q: top %d, %v; a lookup finds %d", m.MountPoint, top.ID, ok, id)
		}
		if table.Visible(m) {
			seen++
		} else {
			hidden++
		}
	}
	return seen, hidden
}

func ids(mounts []Mount) []int {
	var out []int
	for _, m := range mounts {
		out = append(out, m.ID)
	}
	return out
}

func sources(mounts []Mount) []string {
	var out []string
	for _, m := range mounts {
		out = append(out, m.Source)
	}
	return out
}

// TestAtPopsInOrder unmounts a stack from the top: At told the order.
func TestAtPopsInOrder(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	first := tmpfs(t, "moved on top, the oldest", dir, "first")
	p := tmpfs(t, "a", dir, "p")
	tmpfs(t, "b", dir, "p")
	must(t, unix.Mount(first, p, "", unix.MS_MOVE, ""))
	at := read(t).At(p)
	if want := []string{"a", "b", "moved on top, the oldest"}; !slices.Equal(sources(at), want) {
		t.Fatalf("%q, want %q", sources(at), want)
	}
	for _, m := range slices.Backward(at) {
		if id, err := mountAt(p); err != nil || id != m.ID {
			t.Errorf("a lookup finds %d, %v, want %d (%s)", id, err, m.ID, m.Source)
		}
		must(t, unix.Unmount(p, unix.UMOUNT_NOFOLLOW))
	}
	if left := read(t).At(p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestAtHidden: what lies under a mount on a directory above comes first, however
// deep it is.
func TestAtHidden(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	tmpfs(t, "deep", dir, "a", "b")
	p := tmpfs(t, "hidden", dir, "a", "b", "c")
	tmpfs(t, "hidden on top", dir, "a", "b", "c")
	tmpfs(t, "hides", dir, "a")
	if top, ok := read(t).Top(p); ok {
		t.Errorf("top %v, where nothing is seen", top)
	}
	tmpfs(t, "seen", dir, "a", "b", "c")
	table := read(t)
	if got, want := sources(table.At(p)), []string{"hidden", "hidden on top", "seen"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if top, ok := table.Top(p); !ok || top.Source != "seen" {
		t.Errorf("top %v, %v", top, ok)
	}
}

// TestOverRoot: a mount over "/" is found by nobody whose root directory is below.
func TestOverRoot(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	must(t, unix.Mount("over", "/", "tmpfs", 0, ""))
	// A lookup does not cross onto it but from above: /.. does.
	t.Cleanup(func() { must(t, unix.Unmount("/..", unix.MNT_DETACH)) })
	table := read(t)
	if at := table.At("/"); len(at) < 2 || !slices.Contains(sources(at), "over") {
		t.Fatalf("at /: %q", sources(at))
	}
	if top, ok := table.Top("/"); !ok || top.Source == "over" {
		t.Errorf("top of / is %v, %v", top, ok)
	}
	if _, ok := table.Top(dir); !ok {
		t.Errorf("what is below / is hidden by it")
	}
	compareLookups(t, table)
}

// TestChroot reads the table of a process with another root directory.
func TestChroot(t *testing.T) {
	testutil.Root(t)
	dir := base(t)
	sub := mkdir(t, dir, "jail")
	tmpfs(t, "outside", dir, "outside")
	tmpfs(t, "inside", sub, "in")
	done := make(chan *Table, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its root directory
		defer close(done)
		fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil || unix.Unshare(unix.CLONE_FS) != nil || unix.Fchdir(fd) != nil || unix.Chroot(sub) != nil {
			return
		}
		defer unix.Close(fd)
		if table, err := Read("thread-self/mountinfo"); err == nil {
			done <- table
		}
	}()
	table := <-done
	if table == nil {
		t.Fatal("no table")
	}
	if len(table.Mounts) != 1 {
		t.Fatalf("%d mounts below the root directory: %+v", len(table.Mounts), table.Mounts)
	}
	if top, ok := table.Top("/in"); !ok || top.Source != "inside" {
		t.Errorf("top of /in: %v, %v", top, ok)
	}
}
