package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

func TestMain(m *testing.M) { testutil.Main(m, leaveRunning) }

// leaveRunning makes the test binary a kvol that ends while its tool goes on.
func leaveRunning() {
	script := os.Getenv("KVOL_TEST_SCRIPT")
	if script == "" {
		return
	}
	c := shell(script)
	c.NoKill = true
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := New(Options{}).Run(ctx, c)
	fmt.Println(err)
	os.Exit(0)
}

// soon is far more than anything here takes, and far less than a test may hang.
const soon = 20 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func shell(script string) Cmd { return Cmd{Name: "sh", Args: []string{"-c", script}} }

// run runs a script that must come to its end.
func run(t *testing.T, c Cmd) Result {
	t.Helper()
	res, err := New(Options{}).Run(within(t, soon), c)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRunGivesWhatTheToolSays(t *testing.T) {
	for _, noKill := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoKill=%v", noKill), func(t *testing.T) {
			c := shell("cat; echo out; echo err >&2; exit 3")
			c.Stdin, c.NoKill = []byte("in\n"), noKill
			res := run(t, c)
			if string(res.Stdout) != "in\nout\n" || string(res.Stderr) != "err\n" || res.ExitCode != 3 || res.Truncated {
				t.Fatalf("%q %q %d %v", res.Stdout, res.Stderr, res.ExitCode, res.Truncated)
			}
			var e *ExitError
			if err := res.Check(c); !errors.As(err, &e) || e.ExitCode != 3 || !strings.HasSuffix(err.Error(), "exit status 3: err") {
				t.Fatal(err)
			}
		})
	}
	if err := run(t, Cmd{Name: "true"}).Check(Cmd{}); err != nil {
		t.Fatal(err)
	}
}

func TestEnvironmentOfATool(t *testing.T) {
	t.Setenv("LC_MESSAGES", "de_DE.UTF-8")
	t.Setenv("LANG", "de_DE.UTF-8")
	t.Setenv("KVOL_TOKEN", "t0k3n")
	t.Setenv("CEPH_ARGS", "--id x")
	t.Setenv("PATH", "/opt/tools:relative:")
	out := string(run(t, shell("env; echo cwd=$(pwd)")).Stdout)
	for _, want := range []string{"LC_ALL=C\n", "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/tools\n", "CEPH_ARGS=--id x\n", "cwd=/\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, never := range []string{"de_DE", "t0k3n"} {
		if strings.Contains(out, never) {
			t.Errorf("%q in\n%s", never, out)
		}
	}
}

func TestFilesAndInherited(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const count = "set -- /proc/$$/fd/*; echo $#"
	c := shell("echo hello >&3; " + count)
	plain := run(t, shell(count)).Stdout
	c.Files, c.Inherit = []*os.File{f}, []*os.File{f}
	res := run(t, c)
	before, _ := strconv.Atoi(strings.TrimSpace(string(plain)))
	after, _ := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if after != before+2 {
		t.Errorf("%d descriptors without and %d with two files", before, after)
	}
	if b, _ := os.ReadFile(f.Name()); string(b) != "hello\n" {
		t.Errorf("descriptor 3 got %q", b)
	}
}

func TestRefusals(t *testing.T) {
	r := New(Options{})
	if _, err := r.Run(context.Background(), Cmd{Name: "true"}); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("without a deadline: %v", err)
	}
	key := NewSecret([]byte("hunter2\n"))
	_, err := r.Run(within(t, soon), Cmd{Name: "echo", Args: []string{"--key=hunter2"}, Secret: &key})
	if !errors.Is(err, api.ErrRefused) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret among the arguments: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	cancel()
	if _, err := r.Run(ctx, Cmd{Name: "true"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the start: %v", err)
	}
}

func TestMissingTool(t *testing.T) {
	r := New(Options{Path: []string{t.TempDir()}})
	_, err := r.Run(within(t, soon), Cmd{Name: "iscsiadm"})
	var e *api.Error
	if !errors.Is(err, api.ErrMissingTool) || !errors.As(err, &e) || !strings.Contains(e.Next, "apt install open-iscsi") {
		t.Errorf("%v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "plain"), dir, "/nowhere/tool"} {
		if _, err := r.LookPath(name); !errors.Is(err, api.ErrMissingTool) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "../tool", "dir/tool"} {
		if _, err := r.LookPath(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestSecretIsNowhere(t *testing.T) {
	const planted = "s3cr3t-planted"
	key := NewSecret([]byte(planted + "\n"))
	var log bytes.Buffer
	r := New(Options{Grace: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	c := shell(`read k; echo "got $k"; echo "bad $k" >&2; tr '\0' ' ' </proc/$$/cmdline >&2; tr '\0' '\n' </proc/$$/environ >&2; exit 1`)
	c.Secret = &key
	res, err := r.Run(within(t, soon), c)
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Stdout) != "got ***\n" {
		t.Errorf("the tool did not get the secret, or it was not replaced: %q", res.Stdout)
	}
	c.Args[1] += "; :"
	hang := shell(`read k; echo "hang $k" >&2; exec sleep 1000`)
	hang.Secret = &key
	_, hungErr := r.Run(within(t, 300*time.Millisecond), hang)
	if !errors.Is(hungErr, api.ErrTimeout) || !strings.Contains(hungErr.Error(), "hang ***") {
		t.Errorf("%v", hungErr)
	}
	doc, _ := json.Marshal(api.NewErrorDoc(hungErr))
	holder := struct{ S Secret }{key}
	inner := struct {
		s Secret
		p *Secret
	}{key, &key}
	asJSON, _ := json.Marshal(map[string]any{"a": holder, "b": &key, "c": map[string]Secret{"k": key}})
	shown := []string{
		string(res.Stderr), res.Check(c).Error(), hungErr.Error(), string(doc), log.String(), string(asJSON),
		fmt.Sprintf("%v %+v %#v", res, c, hang),
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%T"} {
		shown = append(shown, fmt.Sprintf(verb+verb+verb+verb, key, &key, holder, inner))
	}
	for _, s := range shown {
		for _, form := range []string{planted, fmt.Sprintf("%x", planted), fmt.Sprintf("%X", planted), "115 51 99 114"} {
			if strings.Contains(s, form) {
				t.Errorf("the secret is in %q", s)
			}
		}
	}
	if !key.Equal(NewSecret(key.Reveal())) || key.Equal(Secret{}) || (Secret{}).Reveal() != nil {
		t.Error("Equal or Reveal is wrong")
	}
}

func TestDeadlineKillsTheWholeGroup(t *testing.T) {
	for name, script := range map[string]string{
		"plain":           `sleep 1000 & echo $!; wait`,
		"ignores SIGTERM": `trap "" TERM; sleep 1000 & echo $!; while :; do wait; sleep 1; done`,
		"only the child":  `(trap "" TERM; while :; do sleep 1000; done) & echo $!; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{Grace: 100 * time.Millisecond})
			res, err := r.Run(within(t, 300*time.Millisecond), shell(script))
			if !errors.Is(err, api.ErrTimeout) || res.ExitCode == 0 || api.ExitCode(err) != api.ExitUncertain {
				t.Fatalf("%v, exit code %d", err, res.ExitCode)
			}
			child, cerr := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
			if cerr != nil {
				t.Fatalf("no partial output: %q", res.Stdout)
			}
			testutil.Poll(t, "the grandchild is gone", func() bool { return state(child) == "" || state(child) == "Z" })
		})
	}
}

func TestCancelIsAnInterruption(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t, soon))
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := New(Options{}).Run(ctx, shell("sleep 1000"))
	if !errors.Is(err, context.Canceled) || errors.Is(err, api.ErrTimeout) || api.ExitCode(err) != api.ExitInterrupted {
		t.Fatal(err)
	}
}

func TestGrandchildWithThePipes(t *testing.T) {
	res := run(t, shell("sleep 1000 & echo $!"))
	daemon, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%q, exit code %d", res.Stdout, res.ExitCode)
	}
	if state(daemon) == "" {
		t.Error("what the tool left running was killed")
	}
	_ = unix.Kill(daemon, unix.SIGKILL)
}

func TestKilledFromOutside(t *testing.T) {
	_, err := New(Options{}).Run(within(t, soon), shell("kill -KILL $$"))
	if !errors.Is(err, api.ErrUncertain) || !strings.Contains(err.Error(), "signal 9") {
		t.Fatal(err)
	}
}

func TestOutputWithoutEnd(t *testing.T) {
	c := shell("head -c 3000000 /dev/zero; echo end >&2")
	c.MaxOutput = 1000
	for _, c.NoKill = range []bool{false, true} {
		if res := run(t, c); len(res.Stdout) != 1000 || !res.Truncated || string(res.Stderr) != "end\n" {
			t.Errorf("%d bytes, truncated %v, %q", len(res.Stdout), res.Truncated, res.Stderr)
		}
	}
}

func TestInputThatIsNotRead(t *testing.T) {
	if res := run(t, Cmd{Name: "true", Stdin: make([]byte, 1<<20)}); res.ExitCode != 0 {
		t.Fatal(res.ExitCode)
	}
}

func TestNoKillGoesOn(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	c := shell("echo $$; while [ ! -e go ]; do sleep 0.01; done; echo words; echo words >&2; exec touch done")
	c.Args[1] = "cd " + dir + "; " + c.Args[1]
	c.NoKill, c.Inherit = true, []*os.File{lock}
	res, err := New(Options{}).Run(within(t, 300*time.Millisecond), c)
	pid := strings.TrimSpace(string(res.Stdout))
	if !errors.Is(err, api.ErrUncertain) || pid == "" || !strings.Contains(err.Error(), "pid "+pid+";") {
		t.Fatalf("%v, output %q", err, res.Stdout)
	}
	_ = lock.Close()
	again, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the lock is free while the tool runs: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testutil.Poll(t, "the tool has come to its end", func() bool {
		_, err := os.Stat(filepath.Join(dir, "done"))
		return err == nil && unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	})
}

func TestNoKillOutlivesKvol(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KVOL_TEST_SCRIPT", "cd "+dir+"; while [ ! -e go ]; do sleep 0.01; done; echo words; echo words >&2; exec touch done")
	// The environment of a tool has no KVOL_ in it: env puts it back.
	c := Cmd{Name: "env", Args: []string{"KVOL_TEST_SCRIPT=" + os.Getenv("KVOL_TEST_SCRIPT"), "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"}}
	if res := run(t, c); !strings.Contains(string(res.Stdout), "still running") {
		t.Fatalf("%s%s", res.Stdout, res.Stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testutil.Poll(t, "the tool has come to its end after kvol", func() bool {
		_, err := os.Stat(filepath.Join(dir, "done"))
		return err == nil
	})
}

func TestToolThatCannotBeKilled(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	fs := testutil.FUSEWithDelay(t, dir, testutil.FUSESlow, time.Hour)
	r := New(Options{Grace: 50 * time.Millisecond})
	_, err := r.Run(within(t, 200*time.Millisecond), Cmd{Name: "stat", Args: []string{filepath.Join(dir, "hello")}})
	if !errors.Is(err, api.ErrTimeout) || !strings.Contains(err.Error(), "cannot be killed: pid ") {
		t.Fatal(err)
	}
	var pid int
	_, rest, _ := strings.Cut(err.Error(), "pid ")
	if _, err := fmt.Sscan(rest, &pid); err != nil || state(pid) != "D" {
		t.Errorf("process %d is in state %q", pid, state(pid))
	}
	fs.Kill()
	testutil.Poll(t, "the left process is gone and reaped", func() bool { return state(pid) == "" })
}

func TestNothingIsLeft(t *testing.T) {
	r := New(Options{})
	one := func() {
		if _, err := r.Run(within(t, soon), Cmd{Name: "true", Stdin: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(within(t, soon), Cmd{Name: "true", NoKill: true}); err != nil {
			t.Fatal(err)
		}
	}
	one()
	before := descriptors(t)
	for range 30 {
		one()
	}
	testutil.Poll(t, "no descriptor is left", func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// state is the one letter of proc_pid_stat(5), "" for a process that is gone.
func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}

func BenchmarkRunTrue(b *testing.B) {
	r := New(Options{})
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for b.Loop() {
		if _, err := r.Run(ctx, Cmd{Name: "true"}); err != nil {
			b.Fatal(err)
		}
	}
}
