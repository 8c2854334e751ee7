// Package e2e tries kvol as operators use it: the built binary, real mounts, real
// disks, in a private mount namespace.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, stateMain) }

// Pod UIDs that tests use, of an API server's pods and of a static pod.
const (
	podA      = "0a1b2c3d-0000-4000-8000-00000000000a"
	podB      = "0a1b2c3d-0000-4000-8000-00000000000b"
	podStatic = "1072a062805fbab9885e59f2499da950"
)

// node is a scratch node: a kubelet root and kvol's own directories.
type node struct {
	t                *testing.T
	dir              string // everything of the test
	root, state, run string
	kvolPath         string
	env              []string // beside the test's own
}

func newNode(t *testing.T) *node {
	t.Helper()
	testutil.Root(t)
	path, err := testutil.Program("cmd/kvol")
	if err != nil {
		t.Fatal(err)
	}
	dir := testutil.TempDir(t)
	n := &node{t: t, dir: dir, root: dir + "/kubelet", state: dir + "/state", run: dir + "/run", kvolPath: path}
	for _, d := range []string{n.root, n.root + "/pods", n.root + "/plugins"} {
		if err := os.Mkdir(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// out is how one run of kvol ended.
type out struct {
	args   []string
	code   int
	stdout string
	stderr string
	took   time.Duration
}

func (o out) String() string {
	return fmt.Sprintf("kvol %v\nexit code %d after %v\n%s%s", o.args, o.code, o.took, o.stdout, o.stderr)
}

// flags name the scratch node.
func (n *node) flags() []string {
	return []string{"--root-dir", n.root, "--state-dir", n.state, "--run-dir", n.run}
}

// kvol runs the binary on the scratch node. It waits for the end of its output
// too, as an SSH session does, and fails the test after a minute.
func (n *node) kvol(args ...string) out {
	n.t.Helper()
	return n.kvolStdin("", args...)
}

func (n *node) kvolStdin(stdin string, args ...string) out {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.kvolPath, append(args, n.flags()...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &stdout, &stderr, bytes.NewReader([]byte(stdin))
	cmd.Env = append(append(os.Environ(), "KVOL_CONFIG=", "NO_COLOR=1"), n.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Minute
	start := time.Now()
	err := cmd.Run()
	o := out{args: args, stdout: stdout.String(), stderr: stderr.String(), took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		n.t.Fatalf("kvol did not end within a minute: %v", o)
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		n.t.Fatalf("kvol %v: %v", args, err)
	}
	n.told(o)
	return o
}

// must runs kvol and wants an exit code.
func (n *node) must(code int, args ...string) out {
	n.t.Helper()
	o := n.kvol(args...)
	if o.code != code {
		n.t.Fatalf("wanted exit code %d:\n%v\ntree:\n%s\nmounts:\n%s", code, o, n.tree(), n.mounts())
	}
	return o
}

// outcomes runs a verb with -o json and gives the outcome of each of its rungs.
func (n *node) outcomes(code int, args ...string) map[string]api.Outcome {
	n.t.Helper()
	all := map[string]api.Outcome{}
	for _, r := range decode[api.List[api.Result]](n.t, n.must(code, append(args, "-o", "json")...).stdout).Items {
		all[r.Op] = r.Outcome
	}
	return all
}

// list is list-mounts by path.
func (n *node) list(args ...string) map[string]api.Mount {
	n.t.Helper()
	all := map[string]api.Mount{}
	for _, m := range decode[api.List[api.Mount]](n.t, n.must(0, append([]string{"list-mounts", "-o", "json"}, args...)...).stdout).Items {
		all[m.Path] = m
	}
	return all
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
	return v
}

func (n *node) tree() string   { return testutil.Tree(n.t, n.root) }
func (n *node) mounts() string { return testutil.MountTable(n.t, n.root) }

// pv writes a local PersistentVolume to a file and gives its path. more are
// further lines below spec, or of metadata where they begin so.
func (n *node) pv(name, path string, more ...string) string {
	n.t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata:
  name: %s
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]
`, name)
	local := "  local:\n    path: " + path + "\n"
	for _, line := range more {
		if len(line) > 7 && line[:7] == "fsType:" {
			local += "    " + line + "\n"
			continue
		}
		text += "  " + line + "\n"
	}
	return n.file(name+".yaml", text+local)
}

func (n *node) file(name, text string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// The places of a local volume.
func (n *node) podVolume(pod, pv string) string {
	return n.root + "/pods/" + pod + "/volumes/kubernetes.io~local-volume/" + pv
}

func (n *node) global(pv string) string {
	return n.root + "/plugins/kubernetes.io/local-volume/mounts/" + pv
}

func (n *node) podDevice(pod, pv string) string {
	return n.root + "/pods/" + pod + "/volumeDevices/kubernetes.io~local-volume/" + pv
}

func (n *node) mapDevice(pod, pv string) string {
	return n.root + "/plugins/kubernetes.io~local-volume/volumeDevices/" + pv + "/" + pod
}
