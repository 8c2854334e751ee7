package probe

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// patience is the time-out of probes that must be answered.
const patience = 10 * time.Second

func mkdir(t testing.TB, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStates(t *testing.T) {
	testutil.Root(t)
	base := testutil.TempDir(t)
	dir := func(name string) string { return mkdir(t, filepath.Join(base, name)) }
	testutil.Tmpfs(t, dir("tmpfs"))
	testutil.FUSE(t, dir("alive"), testutil.FUSEAlive)
	testutil.FUSE(t, dir("dead"), testutil.FUSEDead)
	testutil.FUSE(t, dir("slow"), testutil.FUSESlow)
	mountFUSE(t, dir("denied"), 12345) // without allow_other root is nobody there
	want := map[string]api.State{
		"tmpfs": api.StateOK, "alive": api.StateOK, "slow": api.StateOK, "dead": api.StateDisconnected,
		"denied": api.StateDenied, "absent": api.StateUnknown,
	}
	var targets []Target
	for name := range want {
		targets = append(targets, Target{Path: filepath.Join(base, name), Dev: name})
	}
	answers := newHelper(t).Probe(within(t, soon), targets, patience)
	for i, a := range answers {
		name := targets[i].Dev
		if a.State != want[name] || (a.Reason == "") != (a.State == api.StateOK) {
			t.Errorf("%s: %+v, want %s", name, a, want[name])
		}
	}
}

func TestStale(t *testing.T) {
	testutil.Root(t)
	dev, _ := testutil.LoopImage(t, 512<<20)
	testutil.Mkfs(t, dev, "xfs")
	dir := testutil.TempDir(t)
	testutil.Mount(t, dev, dir, "xfs", 0, "")
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const shutdown = 0x8004587d // XFS_IOC_GOINGDOWN
	err = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, 2)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	if got := newHelper(t).Probe(within(t, soon), []Target{{Path: dir}}, patience); got[0].State != api.StateStale {
		t.Error(got)
	}
}

// The sizes are of the directory of the file system that was asked, and of no other:
// each can have a quota of its own.
func TestSpace(t *testing.T) {
	testutil.Root(t)
	base := testutil.TempDir(t)
	whole, other, part := mkdir(t, filepath.Join(base, "whole")), mkdir(t, filepath.Join(base, "other")), mkdir(t, filepath.Join(base, "part"))
	if err := unix.Mount("kvoltest", whole, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mkdir(t, filepath.Join(whole, "sub")), "data"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	testutil.Bind(t, whole, other, false)
	testutil.Bind(t, filepath.Join(whole, "sub"), part, false)
	want := Space{Capacity: 1 << 20, Used: 8 << 10, Available: 1<<20 - 8<<10}
	got := newHelper(t).Probe(within(t, soon), []Target{
		{Path: whole, MountID: 1, Dev: "x", Root: "/else"}, // another one covers it: the next is asked
		{Path: other, Dev: "x", Root: "/"}, {Path: part, Dev: "x", Root: "/sub"}, {Path: part, Dev: "y", Root: "/sub"},
	}, patience)
	for i, want := range []Space{{}, want, {}, want} {
		if got[i].Space != want || got[i].State != api.StateOK {
			t.Errorf("%d: %+v, want %+v", i, got[i], want)
		}
	}
}

// A server may answer anything.
func TestSpaceOf(t *testing.T) {
	for _, c := range []struct {
		fs   unix.Statfs_t
		want Space
	}{
		{unix.Statfs_t{}, Space{}},
		{unix.Statfs_t{Bsize: 4096, Blocks: 3, Bfree: 2, Bavail: 1}, Space{3 << 12, 1 << 12, 1 << 12}},
		{unix.Statfs_t{Bsize: 4096, Frsize: 512, Blocks: 2, Bfree: 5, Bavail: 1}, Space{1024, 0, 512}},
		{unix.Statfs_t{Bsize: -1, Frsize: -1, Blocks: 2}, Space{}},
		{unix.Statfs_t{Frsize: 2, Blocks: math.MaxUint64, Bfree: math.MaxUint64 - 1, Bavail: 1 << 62}, Space{math.MaxInt64, 2, math.MaxInt64}},
	} {
		if got := spaceOf(c.fs); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.fs, got, c.want)
		}
	}
}

func TestClassify(t *testing.T) {
	for errno, want := range map[unix.Errno]api.State{
		unix.ESTALE: api.StateStale, unix.EIO: api.StateStale, unix.ENOTCONN: api.StateDisconnected,
		unix.EHOSTDOWN: api.StateDisconnected, unix.ECONNABORTED: api.StateDisconnected, unix.EACCES: api.StateDenied,
		unix.EPERM: api.StateDenied, unix.ENOENT: api.StateUnknown, unix.EMFILE: api.StateUnknown,
	} {
		if got := classify(fmt.Errorf("statfs: %w", errno)); got != want {
			t.Errorf("%v: %s, want %s", errno, got, want)
		}
	}
}

func TestProbeIsOfTheRightMount(t *testing.T) {
	testutil.Root(t)
	base := testutil.TempDir(t)
	a, b := mkdir(t, filepath.Join(base, "a")), mkdir(t, filepath.Join(base, "b"))
	testutil.Tmpfs(t, a)
	testutil.Bind(t, a, b, false)
	id := func(path string) int {
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st); err != nil {
			t.Fatal(err)
		}
		return int(st.Mnt_id)
	}
	first, second := id(a), id(b)
	testutil.Tmpfs(t, a) // covers it
	h := newHelper(t)
	got := h.Probe(within(t, soon), []Target{{a, first, "x", "/"}, {b, second, "x", "/"}}, patience)
	if got[0].State != api.StateOK || got[1].State != api.StateOK {
		t.Errorf("one of the two can be reached: %v", got)
	}
	if got := h.Probe(within(t, soon), []Target{{a, first, "x", "/"}}, patience); got[0].State != api.StateUnknown || !strings.Contains(got[0].Reason, "covers") {
		t.Errorf("a mount that is covered: %v", got)
	}
}

func TestHungAndHealthyTogether(t *testing.T) {
	testutil.Root(t)
	for _, n := range []int{1, 10, 100} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			targets, dead := swallowed(t, n)
			for i := range 20 {
				targets = append(targets, Target{Path: "/", Dev: fmt.Sprint("ok:", i)})
			}
			h := newHelper(t)
			for i, a := range h.Probe(within(t, soon), targets, 500*time.Millisecond) {
				if want := i >= n; (a.State == api.StateOK) != want || !want && a.State != api.StateUnresponsive {
					t.Errorf("%s: %v", targets[i].Dev, a)
				}
			}
			pid := pidOf(t, h)
			dead()
			testutil.Poll(t, "the threads that hung have ended", func() bool { return h.busy() == 0 && threads(pid) < 20 })
			testutil.Poll(t, "it is asked again", func() bool {
				return h.Probe(within(t, soon), targets[:1], patience)[0].State == api.StateDisconnected
			})
		})
	}
}

func TestStoppedDaemonThatGoesOn(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	fs := testutil.FUSE(t, dir, testutil.FUSEHung)
	h := newHelper(t)
	target := []Target{{Path: dir, Dev: "x"}}
	if got := h.Probe(within(t, soon), target, 50*time.Millisecond); got[0].State != api.StateUnresponsive {
		t.Fatal(got)
	}
	if got := h.Probe(within(t, soon), target, patience); got[0].State != api.StateUnresponsive || !strings.Contains(got[0].Reason, "not asked again") {
		t.Fatal(got)
	}
	fs.Continue()
	testutil.Poll(t, "it is healthy", func() bool { return h.Probe(within(t, soon), target, patience)[0].State == api.StateOK })
}

func TestThreadsHaveALimit(t *testing.T) {
	targets, _ := swallowed(t, 10)
	h := newHelper(t)
	h.maxThreads = 4
	count := map[api.State]int{}
	for _, a := range h.Probe(within(t, soon), targets, 100*time.Millisecond) {
		count[a.State]++
	}
	if count[api.StateUnresponsive] != 4 || count[api.StateUnknown] != 6 {
		t.Error(count)
	}
}

// A context that ends before the time-out: what hangs is known and remembered.
func TestProbeEndsWithItsContext(t *testing.T) {
	targets, _ := swallowed(t, 1)
	h := newHelper(t)
	if err := h.Start(); err != nil { // which takes as long as it takes
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // a quarter is for the answer's way back
	defer cancel()
	if got := h.Probe(ctx, targets, time.Hour); got[0].State != api.StateUnresponsive {
		t.Error(got)
	}
	if h.Stuck(targets[0].Dev) == 0 {
		t.Error("the probe that hangs is forgotten")
	}
}

func TestProbeIsInterrupted(t *testing.T) {
	targets, _ := swallowed(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if got := newHelper(t).Probe(ctx, targets, time.Hour); got[0].State != api.StateUnknown {
		t.Error(got)
	}
}

// TestNothingIsLeft: what 200 probes leave is what one leaves.
func TestNothingIsLeft(t *testing.T) {
	many := 200
	if testing.Short() {
		many = 20
	}
	targets, _ := swallowed(t, 2)
	stopped := testutil.TempDir(t)
	testutil.FUSE(t, stopped, testutil.FUSEHung)
	targets = append(targets, Target{Path: "/", Dev: "ok"}, Target{Path: stopped, Dev: "stopped"})
	self := os.Getpid()
	t.Run("one helper", func(t *testing.T) {
		h := newHelper(t)
		once := func() { h.Probe(within(t, soon), targets, 20*time.Millisecond) }
		once()
		pid := pidOf(t, h)
		ours, theirs, busy := descriptors(t, "self"), descriptors(t, strconv.Itoa(pid)), waiting(pid)
		for range many {
			once()
		}
		if got := pidOf(t, h); got != pid {
			t.Errorf("helper %d became %d", pid, got)
		}
		if n := descriptors(t, "self"); n > ours {
			t.Errorf("%d descriptors, %d after the first", n, ours)
		}
		if n := descriptors(t, strconv.Itoa(pid)); n > theirs {
			t.Errorf("helper: %d descriptors, %d after the first", n, theirs)
		}
		if n := waiting(pid); n > busy || busy != 3 {
			t.Errorf("helper: %d threads hang, %d after the first", n, busy)
		}
	})
	t.Run("a helper each", func(t *testing.T) {
		runDir := filepath.Join(t.TempDir(), "run")
		left := map[int]bool{}
		once := func() {
			h := New(runDir)
			for i, a := range h.Probe(within(t, soon), targets, 10*time.Millisecond) {
				if a.State == api.StateOK && targets[i].Dev != "ok" {
					t.Fatalf("%s: %v", targets[i].Path, a)
				}
			}
			left[h.child.pid] = true
			h.Close()
		}
		once()
		count := func() (n int) {
			for pid := range left {
				if threads(pid) > 0 {
					n++
				}
			}
			return n
		}
		descs := descriptors(t, "self")
		for range many {
			once()
		}
		testutil.Poll(t, "one process is left, the first", func() bool { return count() == 1 })
		testutil.Poll(t, "no descriptor is left", func() bool { return descriptors(t, "self") <= descs })
		// Each abandoned helper costs the thread that waits for it, nothing else does.
		if n := threads(self); n > 60 {
			t.Errorf("%d threads", n)
		}
	})
}

func TestMemo(t *testing.T) {
	targets, dead := swallowed(t, 1)
	runDir := filepath.Join(t.TempDir(), "run")
	file := filepath.Join(runDir, memoName)
	probe := func() (Answer, int) {
		h := New(runDir)
		defer h.Close()
		return h.Probe(within(t, soon), targets, 50*time.Millisecond)[0], pidOf(t, h)
	}
	_, pid := probe()
	again := func() bool {
		a, _ := probe()
		return a.State == api.StateUnresponsive && strings.Contains(a.Reason, fmt.Sprintf("pid %d,", pid))
	}
	if !again() {
		t.Error("another kvol does not know of it")
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"torn": string(good[:len(good)/2]), "empty": "", "foreign": `{"a":1}`,
		"another pid namespace": strings.Replace(string(good), "pid:[", "pid:[9", 1),
		"a pid that was reused": strings.Replace(string(good), `"start":"`, `"start":"9`, 1),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if again() {
			t.Errorf("%s was believed", name)
		}
	}
	if !strings.Contains(string(mustRead(t, file)), targets[0].Path) {
		t.Error("a broken memo was not replaced")
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	dead()
	testutil.Poll(t, "it is asked again", func() bool { a, _ := probe(); return a.State == api.StateDisconnected })
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
