package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// kubeletSpec is a kubelet that a test starts. The zero value is one like the node's
// own: in the same namespaces, with the node's root directory.
type kubeletSpec struct {
	name  string   // of the program; kubelet
	args  []string // nil is --root-dir of the node
	env   []string
	under []string // a program that starts it: unshare -m
	setup string   // a shell line before it is started, where it is
	as    []string // a program that starts it after that
}

// runningKubelet is one that runs.
type runningKubelet struct {
	t    *testing.T
	pid  int
	proc string
	cmd  *exec.Cmd
}

// own is where a kubelet has mounts of its own.
var own = []string{"unshare", "--mount", "--propagation", "private"}

// kubelet starts a kubelet, which ends with the test.
func (n *node) kubelet(s kubeletSpec) *runningKubelet {
	n.t.Helper()
	from, err := testutil.Program("test/cmd/fakelet")
	must(n.t, err)
	if s.name == "" {
		s.name = "kubelet"
	}
	if s.args == nil {
		s.args = []string{"--root-dir=" + n.root}
	}
	path := filepath.Join(n.dir, "bin", s.name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		must(n.t, os.MkdirAll(filepath.Dir(path), 0o755), exec.Command("cp", from, path).Run())
	}
	words := slices.Concat(s.under, []string{"sh", "-c", ": ; " + s.setup + "\nexec \"$@\"", "sh"}, s.as, []string{path}, s.args)
	k := &runningKubelet{t: n.t, cmd: exec.Command(words[0], words[1:]...)}
	k.cmd.Env, k.cmd.Stderr = append(os.Environ(), s.env...), os.Stderr
	stdin, err := k.cmd.StdinPipe()
	must(n.t, err)
	stdout, err := k.cmd.StdoutPipe()
	must(n.t, err, k.cmd.Start())
	n.t.Cleanup(func() { stdin.Close(); k.end() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		n.t.Fatalf("the kubelet says %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	k.pid = k.cmd.Process.Pid
	k.proc = fmt.Sprintf("/proc/%d", k.pid)
	return k
}

// end kills the kubelet.
func (k *runningKubelet) end() {
	if k.cmd.ProcessState == nil {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
	}
}

// sees counts the mounts below a directory that the kubelet sees.
func (k *runningKubelet) sees(dir string) int {
	k.t.Helper()
	text, err := os.ReadFile(k.proc + "/mountinfo")
	must(k.t, err)
	return strings.Count(string(text), " "+dir+"/")
}

// there runs a shell line where the kubelet is.
func (k *runningKubelet) there(line string) string {
	k.t.Helper()
	out, err := exec.Command("nsenter", "--target", fmt.Sprint(k.pid), "--mount", "sh", "-ec", line).CombinedOutput()
	if err != nil {
		k.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// plain runs kvol in a directory, with the words that are given and no other flags.
func (n *node) plain(dir, stdin string, words ...string) out {
	n.t.Helper()
	return n.started(dir, stdin, append([]string{n.kvolPath}, words...)...)
}

// started runs a command line that has kvol in it.
func (n *node) started(dir, stdin string, words ...string) out {
	n.t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = append(append(os.Environ(), "KVOL_CONFIG=", "NO_COLOR=1", "KVOL_STATE_DIR="+n.state, "KVOL_RUN_DIR="+n.run), n.env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		n.t.Fatal(err)
	}
	o := out{args: words, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	n.advised(o)
	return o
}

// mustPlain wants an exit code and texts in what is said.
func (n *node) mustPlain(code int, texts []string, words ...string) out {
	n.t.Helper()
	return n.check(n.plain(n.dir, "", words...), code, texts...)
}

func (n *node) check(o out, code int, texts ...string) out {
	n.t.Helper()
	if o.code != code {
		n.t.Fatalf("wanted exit code %d:\n%v\nmounts:\n%s", code, o, n.mounts())
	}
	for _, text := range texts {
		if !strings.Contains(o.stdout+o.stderr, text) {
			n.t.Errorf("does not say %q:\n%v", text, o)
		}
	}
	return o
}
