package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

// deadline is what an operation has that must end well: far more than it takes.
const deadline = time.Minute

const volumeName = "pv-example"

var (
	podA = plugins.PodRef{UID: "5b5a5e0f-8d8b-4d0e-9b4b-0d6f5f3a1c01", Name: "a", Namespace: "default"}
	podB = plugins.PodRef{UID: "5b5a5e0f-8d8b-4d0e-9b4b-0d6f5f3a1c02", Name: "b", Namespace: "default"}
)

// node is a scratch node with one volume of an example on it.
type node struct {
	*T
	c      *Case
	ex     Example
	dir    string // all of it
	root   string // the kubelet's
	host   *host.Host
	plugin plugins.VolumePlugin
	spec   *plugins.Spec
	tools  *tools
	said   []string // what kvol said: warnings, errors, steps
}

// newNode makes a node and the example's storage on it.
func newNode(t *T, c *Case, ex Example) *node {
	t.Helper()
	n := &node{T: t, c: c, ex: ex, dir: testutil.TempDir(t)}
	n.root = filepath.Join(n.dir, "kubelet")
	for _, dir := range []string{n.root, n.storage()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if ex.Start != nil {
		ex.Start(t, n.root)
	}
	n.start()
	t.Cleanup(func() { n.host.Close() })
	n.spec = ex.Spec(t, n.storage(), volumeName)
	t.Cleanup(n.unmount) // before the storage goes
	t.Cleanup(func() {
		if t.Failed() {
			n.dump()
		}
	})
	return n
}

// unmount takes off what is mounted on the node, also what hangs.
func (n *node) unmount() {
	table, err := n.host.Mounts()
	if err != nil {
		n.Fatal(err)
	}
	for _, m := range slices.Backward(table.Under(n.dir)) {
		// The clean-up of the directory tells what could not be taken off.
		_ = unix.Unmount(m.MountPoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}

func (n *node) storage() string { return filepath.Join(n.dir, "storage") }

// start gives the node a kvol as it is when its command begins.
func (n *node) start() {
	n.Helper()
	h, err := host.New(host.Options{
		RootDir: n.root, StateDir: filepath.Join(n.dir, "state"), RunDir: filepath.Join(n.dir, "run"),
		Warn: func(s string) { n.said = append(n.said, s) },
	})
	if err != nil {
		n.Fatal(err)
	}
	if n.tools == nil {
		n.tools = &tools{}
	}
	n.tools.Runner = h.Exec
	h.Exec = n.tools
	n.host, n.plugin = h, n.c.New()
	if err := n.plugin.Init(h); err != nil {
		n.Fatal(err)
	}
}

// restart is the next command after one that crashed: nothing of it is left but
// what is on disk and in the kernel.
func (n *node) restart() {
	n.Helper()
	n.host.Close()
	n.start()
}

// dump shows the node of a check that failed.
func (n *node) dump() {
	n.Helper()
	n.Logf("what kvol said\n%s\ntree\n%s\nmounts\n%s", strings.Join(n.said, "\n"), testutil.Tree(n, n.dir), testutil.MountTable(n, n.dir))
}

// tools runs the node's tools and remembers their arguments.
type tools struct {
	exec.Runner
	argv []string
	lies map[string]int // tools that do nothing and say that all went well, and how often they did
}

func (x *tools) Run(ctx context.Context, c exec.Cmd) (exec.Result, error) {
	x.argv = append(x.argv, c.String())
	if _, lies := x.lies[c.Name]; lies {
		x.lies[c.Name]++
		return exec.Result{}, nil
	}
	return x.Runner.Run(ctx, c)
}

// way is how an operation is carried out.
type way struct {
	ctx    context.Context // nil for one that gives enough time
	hook   act.Hook
	dryRun bool
}

// outcome is what came of it.
type outcome struct {
	steps []api.Step
	plan  *api.Plan // of a dry run
	err   error
}

// do carries out one operation as a verb does: with locks, a journal and a runner
// of its own.
func (n *node) do(verb string, w way, f func(context.Context, *act.Runner) error) outcome {
	n.Helper()
	ctx := w.ctx
	if ctx == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), deadline)
		defer cancel()
	}
	root, err := n.host.Root()
	if err != nil {
		n.Fatal(err)
	}
	conf := act.Config{
		Root: root, Layout: n.host.Layout, Mounts: n.host.Mounts, Helper: n.host.Helper, Exec: n.host.Exec,
		Devices: n.host.Devices, DryRun: w.dryRun, Hook: w.hook, Warn: n.host.Warn,
	}
	if !w.dryRun {
		state, serr := n.host.OwnState()
		run, rerr := n.host.OwnRun()
		if err := errors.Join(serr, rerr); err != nil {
			n.Fatal(err)
		}
		locks := act.NewLocks(run, deadline)
		defer locks.Release()
		if err := locks.Take(context.Background(), act.LockVolume, n.spec.Name(), false); err != nil {
			n.Fatal(err)
		}
		conf.State, conf.Locks = state, locks.Files
		conf.Journal = act.Journal{State: state, Run: run}.Begin(api.Entry{Verb: verb, Volume: n.spec.Name()}, n.host.Warn)
	}
	r, err := act.NewRunner(conf)
	if err != nil {
		n.Fatal(err)
	}
	defer r.Close()
	err = f(ctx, r)
	out := outcome{steps: r.Steps(), err: err}
	if w.dryRun {
		out.plan = r.Plan()
	} else {
		conf.Journal.End(api.OutcomeDone, err)
	}
	n.remember(verb, out)
	return out
}

// remember keeps what a command would have printed.
func (n *node) remember(verb string, o outcome) {
	steps, err := json.Marshal(o.steps)
	if err != nil {
		n.Fatal(err)
	}
	n.said = append(n.said, fmt.Sprintf("%s: %s", verb, steps))
	if o.plan != nil {
		n.said = append(n.said, o.plan.Facts...)
	}
	if o.err != nil {
		doc, err := json.Marshal(api.NewErrorDoc(o.err))
		if err != nil {
			n.Fatal(err)
		}
		n.said = append(n.said, fmt.Sprintf("%s: %+v\n%s", verb, o.err, doc))
	}
}

// ok fails the check when an operation did not end well.
func (n *node) ok(what string, o outcome) outcome {
	n.Helper()
	if o.err != nil {
		n.Fatalf("%s: %v", what, o.err)
	}
	return o
}

// nothingToDo fails the check when an operation that was done before did anything.
func (n *node) nothingToDo(what string, o outcome) {
	n.Helper()
	if n.ok(what, o); len(o.steps) > 0 {
		n.Errorf("%s did %s", what, list(o.steps))
	}
}

// refused fails the check when an operation did not end with one of the kinds.
func (n *node) refused(what string, o outcome, kinds ...error) {
	n.Helper()
	if !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(o.err, k) }) {
		n.Errorf("%s: error %v, want one of %v", what, o.err, kinds)
	}
}

// list writes steps as "mkdir PATH, bind PATH".
func list(steps []api.Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.Action+" "+s.Target)
	}
	return strings.Join(out, ", ")
}

var loopDevice = regexp.MustCompile(`/dev/loop\d+`)

// state is what is below the kubelet's root, as it would be on any other scratch
// node.
func (n *node) state() string {
	n.Helper()
	text := testutil.Tree(n, n.root) + testutil.MountTable(n, n.root)
	text = strings.ReplaceAll(text, filepath.Base(n.dir), "NODE")
	return loopDevice.ReplaceAllString(text, "LOOP")
}

// content is what is on the node but for kvol's own files.
func (n *node) content() string {
	n.Helper()
	return testutil.Tree(n, n.root) + testutil.Tree(n, n.storage()) + testutil.MountTable(n, n.dir) + strings.Join(n.loops(), "\n")
}

// everything is what is on the node, kvol's own files included.
func (n *node) everything() string {
	n.Helper()
	return testutil.Tree(n, n.dir) + testutil.MountTable(n, n.dir) + strings.Join(n.loops(), "\n")
}

// loops are the files on the node that a loop device is over.
func (n *node) loops() (out []string) {
	all, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), n.dir+"/") {
			out = append(out, f+" "+string(b))
		}
	}
	return out
}

// same fails the check when two states differ.
func (n *node) same(what, got, want string) {
	n.Helper()
	if got != want {
		n.Errorf("%s: is\n%s\nand was to be\n%s", what, got, want)
	}
}

// exists says whether there is anything at a path, without a look into a mount.
func exists(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, 0, &st) == nil
}

// put writes a file into a volume.
func (n *node) put(path string) {
	n.Helper()
	if err := os.WriteFile(path, []byte(precious), 0o640); err != nil {
		n.Fatal(err)
	}
}

// fill writes a file into a volume that is taken down next; one that ends with its pod
// must be empty then.
func (n *node) fill(path string) {
	n.Helper()
	if !n.ex.Ephemeral {
		n.put(path)
	}
}

// filled fails the check when what fill wrote is not there any more.
func (n *node) filled(path string) {
	n.Helper()
	if !n.ex.Ephemeral {
		n.kept(path)
	}
}

const precious = "nobody may lose this\n"

// kept fails the check when what put wrote is not there any more.
func (n *node) kept(path string) {
	n.Helper()
	b, err := os.ReadFile(path)
	if err != nil || string(b) != precious {
		n.Errorf("data is lost: %q, %v", b, err)
	}
}

// mounts is how many mounts lie on a path.
func (n *node) mounts(path string) int {
	n.Helper()
	table, err := n.host.Mounts()
	if err != nil {
		n.Fatal(err)
	}
	return len(table.At(path))
}

// mkdirAll makes a directory as another program would have.
func (n *node) mkdirAll(path string) {
	n.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		n.Fatal(err)
	}
}
