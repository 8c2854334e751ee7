package docs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

// programs is a directory of kvol as it is released and the kubelet of the scenes,
// which is told by the name of its file.
var programs = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "kvol-docs")
	if err != nil {
		return "", err
	}
	testutil.AtExit(func() { os.RemoveAll(dir) })
	for name, source := range map[string]string{"kvol": "cmd/kvol", "kubelet": "test/cmd/fakelet"} {
		path, failed := testutil.Program(source)
		var program []byte
		if failed == nil {
			program, failed = os.ReadFile(path)
		}
		if failed == nil {
			failed = os.WriteFile(filepath.Join(dir, name), program, 0o755)
		}
		err = errors.Join(err, failed)
	}
	return dir, err
})

// scene is a node on which examples run.
type scene struct {
	t   *testing.T
	dir string // where they run, with the files that they read
	bin string // of kvol
	env []string
}

// newScene is an empty node.
func newScene(t *testing.T) *scene {
	t.Helper()
	testutil.Root(t)
	if !ready() {
		testutil.Skip(t, "needs mount, PID and UTS namespaces of its own")
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range own {
		testutil.Tmpfs(t, dir)
	}
	s := &scene{t: t, dir: testutil.TempDir(t), bin: bin}
	for _, dir := range []string{"pods", "plugins", "plugins_registry"} {
		s.mkdir(root + "/" + dir)
	}
	replay := s.repository("test/docs/testdata/replay")
	path := bin + ":" + replay + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
	// On a machine that is busy with other tests what is well may be slow to say so.
	s.env = append(os.Environ(), "KVOL_PROBE_TIMEOUT=3s",
		"PATH="+path, "HOME="+s.dir, "LC_ALL=C.UTF-8", "KVOL_CONFIG=", "KVOL_DOCS_SCENE="+s.dir)
	return s
}

// run runs a command as an operator's shell does, and gives what it prints.
func (s *scene) run(command string) (out string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return string(text), exit.ExitCode()
	}
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, text)
	}
	return string(text), 0
}

// must runs what a scene is made with.
func (s *scene) must(command string) string {
	s.t.Helper()
	out, code := s.run(command)
	if code != 0 {
		s.t.Fatalf("%s\nended with %d:\n%s", command, code, out)
	}
	return out
}

// try runs an example and compares.
func (s *scene) try(page string, e example) {
	s.t.Helper()
	got, code := s.run(e.command)
	if code != e.code {
		s.t.Errorf("%s:%d: %s\nended with %d, not %d:\n%s", page, e.line, e.command, code, e.code, got)
	} else if e.want != nil && !matches(e.want, got) {
		s.t.Errorf("%s:%d: %s\nprinted\n%s", page, e.line, e.command, got)
	}
}

// repository is the path of a file of this repository.
func (s *scene) repository(name string) string {
	s.t.Helper()
	path, err := filepath.Abs(filepath.Join(top, name))
	must(s.t, err)
	return path
}

func (s *scene) mkdir(path string) {
	s.t.Helper()
	if err := os.MkdirAll(path, 0o750); err != nil {
		s.t.Fatal(err)
	}
}

// write makes a file with the directories above it; a relative one is in the
// directory where the examples run.
func (s *scene) write(path, text string) {
	s.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.dir, path)
	}
	s.mkdir(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}
