package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.Main(m, func() { Main(testJobs) }, kvolMain)
}

// soon is far more than anything here takes, and far less than a test may hang.
const soon = 20 * time.Second

var testJobs = Jobs{
	"echo": func(args []byte, files []*os.File) (any, []*os.File, error) {
		var out []*os.File
		for _, f := range files {
			fd, err := unix.Dup(int(f.Fd()))
			if err != nil {
				return nil, nil, err
			}
			out = append(out, os.NewFile(uintptr(fd), "dup"))
		}
		var what any
		err := exact.Unmarshal(args, &what)
		return what, out, err
	},
	// late gives a descriptor when its argument, a file, is there.
	"late": func(args []byte, _ []*os.File) (any, []*os.File, error) {
		var path string
		_ = exact.Unmarshal(args, &path)
		for {
			if f, err := os.Open(path); err == nil {
				return nil, []*os.File{f}, nil
			}
			time.Sleep(time.Millisecond)
		}
	},
	"errno": func([]byte, []*os.File) (any, []*os.File, error) {
		return nil, nil, fmt.Errorf("open it: %w", &os.PathError{Op: "open", Path: "/dev/x", Err: unix.EBUSY})
	},
	"refuse": func([]byte, []*os.File) (any, []*os.File, error) {
		e := api.Errorf(api.ErrRefused, "there is data").At("/dev/x").WithNext("look at %s", "/dev/x")
		e.Details = []string{"first byte at 4096"}
		return nil, nil, fmt.Errorf("blank: %w", e)
	},
	"panic": func([]byte, []*os.File) (any, []*os.File, error) { panic("on purpose") },
	"pid":   func([]byte, []*os.File) (any, []*os.File, error) { return os.Getpid(), nil, nil },
	"stat": func(args []byte, _ []*os.File) (any, []*os.File, error) {
		var path string
		_ = exact.Unmarshal(args, &path)
		return nil, nil, unix.Stat(path, new(unix.Stat_t))
	},
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func newHelper(t testing.TB) *Helper {
	t.Helper()
	h := New("")
	t.Cleanup(h.Close)
	return h
}

// pidOf asks the helper for its pid.
func pidOf(t testing.TB, h *Helper) int {
	t.Helper()
	var pid int
	if _, err := h.Call(within(t, soon), "pid", nil, nil, &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestCallCarriesDataAndDescriptors(t *testing.T) {
	h := newHelper(t)
	if _, err := h.Call(context.Background(), "pid", nil, nil, nil); err == nil {
		t.Error("a call without a deadline was done")
	}
	for _, size := range []int{0, 1, 64 << 10, 3 << 20} {
		for _, count := range []int{0, 1, 200} {
			in := strings.Repeat("ä\xff", size/3)
			files := make([]*os.File, count)
			for i := range files {
				files[i] = os.Stderr
			}
			var out string
			got, err := h.Call(within(t, soon), "echo", in, files, &out)
			if err != nil || in != out || len(got) != count {
				t.Fatalf("%d bytes, %d files: %v, %d bytes and %d files back", size, count, err, len(out), len(got))
			}
			for _, f := range got {
				if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Fatalf("a descriptor that a tool would inherit: %v", err)
				}
			}
			closeAll(got)
		}
	}
	if _, err := h.Call(within(t, soon), "echo", "", make([]*os.File, maxFiles+1), nil); err == nil {
		t.Error("too many descriptors were taken")
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	h := newHelper(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			path := filepath.Join(t.TempDir(), fmt.Sprint(i))
			f, err := os.Create(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = f.Close() }()
			var out int
			files, err := h.Call(within(t, soon), "echo", i, []*os.File{f}, &out)
			if err != nil || out != i || len(files) != 1 {
				t.Errorf("%d: %d, %d files, %v", i, out, len(files), err)
				return
			}
			if got, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", files[0].Fd())); got != path {
				t.Errorf("%s came back as %s", path, got)
			}
			closeAll(files)
		})
	}
	wg.Wait()
}

func TestErrorsCross(t *testing.T) {
	h := newHelper(t)
	_, err := h.Call(within(t, soon), "errno", nil, nil, nil)
	if !errors.Is(err, unix.EBUSY) || err.Error() != "open it: open /dev/x: device or resource busy" {
		t.Errorf("%v", err)
	}
	_, err = h.Call(within(t, soon), "refuse", nil, nil, nil)
	doc := api.NewErrorDoc(err)
	if !errors.Is(err, api.ErrRefused) || doc.Path != "/dev/x" || doc.Next != "look at /dev/x" || len(doc.Details) != 1 ||
		doc.Message != "blank: /dev/x: there is data" {
		t.Errorf("%v: %+v", err, doc)
	}
	if _, err = h.Call(within(t, soon), "panic", nil, nil, nil); err == nil || !strings.Contains(err.Error(), "on purpose") {
		t.Errorf("%v", err)
	}
	if _, err = h.Call(within(t, soon), "no such", nil, nil, nil); err == nil || !strings.Contains(err.Error(), `has no job "no such"`) {
		t.Errorf("%v", err)
	}
}

func TestOpen(t *testing.T) {
	h := newHelper(t)
	dir := t.TempDir()
	if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "target"), []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	f, info, err := h.Open(within(t, soon), filepath.Join(dir, "link"), unix.O_PATH)
	if err != nil || info.Size != 5 || info.Mode != 0o640 {
		t.Fatalf("%+v %v", info, err)
	}
	_ = f.Close()
	_, _, err = h.Open(within(t, soon), filepath.Join(dir, "absent"), unix.O_PATH)
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, api.ErrNotFound) || !strings.HasPrefix(err.Error(), "open "+dir+"/absent: ") {
		t.Error(err)
	}
}

func TestHelperSharesNothing(t *testing.T) {
	// One that kvol would have got from its caller.
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	h := newHelper(t)
	pid := pidOf(t, h)
	proc := fmt.Sprintf("/proc/%d/", pid)
	if cwd, _ := os.Readlink(proc + "cwd"); cwd != "/" {
		t.Errorf("its directory is %s", cwd)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("its session is %d, %v", sid, err)
	}
	list, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		to, _ := os.Readlink(proc + "fd/" + e.Name())
		switch n, _ := strconv.Atoi(e.Name()); {
		case n < 3 && to == os.DevNull, n == 3 && strings.HasPrefix(to, "socket:"), n > 3 && strings.HasPrefix(to, "anon_inode:[event"):
		case strings.HasPrefix(to, "/sys/fs/cgroup/"): // the runtime's own, for GOMAXPROCS
		default:
			t.Errorf("its descriptor %s is %s", e.Name(), to)
		}
	}
}

func TestHelperKilledInTheMiddle(t *testing.T) {
	h := newHelper(t)
	pid := pidOf(t, h)
	done := make(chan error)
	go func() {
		_, err := h.Call(within(t, soon), "late", filepath.Join(t.TempDir(), "never"), nil, nil)
		done <- err
	}()
	testutil.Poll(t, "the job runs", func() bool { return h.busy() == 1 })
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := <-done
	if !errors.Is(err, ErrDied) || !errors.Is(err, api.ErrUncertain) || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("%v", err)
	}
	if next := pidOf(t, h); next == pid {
		t.Error("the same helper again")
	}
}

// busy is the number of jobs that the helper has.
func (h *Helper) busy() int {
	h.mu.Lock()
	c := h.child
	h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

func TestHelperStopped(t *testing.T) {
	h := newHelper(t)
	pid := pidOf(t, h)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Call(within(t, 100*time.Millisecond), "pid", nil, nil, nil); !errors.Is(err, api.ErrTimeout) {
		t.Errorf("%v", err)
	}
	// More than the socket holds.
	if _, err := h.Call(within(t, 500*time.Millisecond), "echo", strings.Repeat("x", 1<<20), nil, nil); !errors.Is(err, api.ErrTimeout) {
		t.Errorf("%v", err)
	}
	testutil.Poll(t, "the helper is gone", func() bool { return threads(pid) == 0 })
	pid = pidOf(t, h)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	got := h.Probe(within(t, soon), []Target{{Path: "/"}}, 100*time.Millisecond)
	if got[0].State != api.StateUnknown || !strings.Contains(got[0].Reason, "does not answer") {
		t.Errorf("%v", got)
	}
	h.Close()
	testutil.Poll(t, "the helper is gone", func() bool { return threads(pid) == 0 })
}

func TestLateDescriptorsAreClosed(t *testing.T) {
	h := newHelper(t)
	pidOf(t, h)
	before := descriptors(t, "self")
	path := filepath.Join(t.TempDir(), "file")
	for range 20 {
		if _, err := h.Call(within(t, 2*time.Millisecond), "late", path, nil, nil); !errors.Is(err, api.ErrTimeout) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(within(t, soon))
	cancel()
	if _, err := h.Call(ctx, "late", path, nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testutil.Poll(t, "all jobs have ended", func() bool { return h.busy() == 0 })
	testutil.Poll(t, "no descriptor is left", func() bool { return descriptors(t, "self") <= before })
}

// kvolMain makes the test binary a kvol whose probe of some paths hangs: it says
// the helper's pid and its answers, and ends if it may.
func kvolMain() {
	spec := strings.Fields(os.Getenv("KVOL_TEST_PROBE"))
	if len(spec) < 2 {
		return
	}
	h := New("")
	if err := h.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(h.child.pid)
	timeout, _ := time.ParseDuration(spec[0])
	var targets []Target
	for _, p := range spec[1:] {
		targets = append(targets, Target{Path: p})
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, a := range h.Probe(ctx, targets, timeout) {
		fmt.Println(a.State)
	}
	h.Close()
	os.Exit(0)
}

func kvol(t *testing.T, timeout time.Duration, targets []Target) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	env := "KVOL_TEST_PROBE=" + timeout.String()
	for _, g := range targets {
		env += " " + g.Path
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env)
	// A pipe: Wait returns only when nobody has it open any more, as ssh does.
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func TestKvolEndsWithHungProbes(t *testing.T) {
	targets, dead := swallowed(t, 5)
	cmd, out := kvol(t, 100*time.Millisecond, targets)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(out.String())
	if len(words) != 6 || slices.ContainsFunc(words[1:], func(s string) bool { return s != "unresponsive" }) {
		t.Fatal(words)
	}
	pid, _ := strconv.Atoi(words[0])
	if threads(pid) == 0 {
		t.Error("the helper is gone: the file systems did not hold it, so this proves nothing")
	}
	dead()
	testutil.Poll(t, "the helper is gone", func() bool { return threads(pid) == 0 })
}

func TestKvolKilledInTheMiddle(t *testing.T) {
	for name, mount := range map[string]func(*testing.T) ([]Target, func()){
		"killable": func(t *testing.T) ([]Target, func()) {
			dir := testutil.TempDir(t)
			testutil.FUSE(t, dir, testutil.FUSEHung)
			return []Target{{Path: dir}}, func() {}
		},
		"in the kernel": func(t *testing.T) ([]Target, func()) { return swallowed(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			targets, dead := mount(t)
			cmd, _ := kvol(t, time.Hour, targets)
			var pid int
			testutil.Poll(t, "the helper waits in the file systems", func() bool {
				pid = childOf(cmd.Process.Pid)
				return pid != 0 && waiting(pid) == len(targets)
			})
			_ = cmd.Process.Kill()
			if err := cmd.Wait(); err == nil {
				t.Fatal("it was not killed")
			}
			testutil.Poll(t, "only what hangs in the kernel is left", func() bool { return threads(pid) <= waiting(pid)+1 })
			dead()
			testutil.Poll(t, "the helper is gone", func() bool { return threads(pid) == 0 })
		})
	}
}

// childOf gives a child of a process by the name of the helper, 0 for none.
func childOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range tasks {
		more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, e.Name()))
		b = append(append(b, ' '), more...)
	}
	for _, word := range strings.Fields(string(b)) {
		line, _ := os.ReadFile("/proc/" + word + "/cmdline")
		if bytes.HasPrefix(line, []byte(argv0)) {
			child, _ := strconv.Atoi(word)
			return child
		}
	}
	return 0
}

// waiting counts the threads that wait in FUSE.
func waiting(pid int) (n int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/wchan", pid, e.Name()))
		if strings.Contains(string(b), "request_wait") || strings.Contains(string(b), "fuse") {
			n++
		}
	}
	return n
}

// threads counts the threads of a process; 0 where it is gone or only to be reaped.
func threads(pid int) (n int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range tasks {
		tid, _ := strconv.Atoi(e.Name())
		s := stuck{PID: pid, TID: tid}
		if state, _ := s.stat(); state != "" && state != "Z" && state != "X" {
			n++
		}
	}
	return n
}

func descriptors(t testing.TB, pid string) int {
	t.Helper()
	list, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
