// Package states makes nodes at random, each pod, mount, file and fault of them by
// a seed, and runs the real kvol on them: whatever it is asked for, nobody's file
// is lost, nothing of a live pod is touched, and it ends in time and tells the
// truth.
//
//	KVOL_STATES  how many nodes (300)
//	KVOL_SEED    the seed of the first (1); each following has the next
//	KVOL_STATES_VERBS  only these commands, as "gc-orphans detach"
//
// One that fails prints the line that makes it again, and what is left of its node
// when everything is taken out that it fails without.
package states

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, workerMain) }

// job is what a worker process is started with.
type job struct {
	Kvol, Killable string // the program, and the one that can be killed at an action
	Dir            string
	Seeds          []uint64
	Shrink         bool
}

// told is what a worker says of one triple.
type told struct {
	Seed    uint64
	Verb    string
	Code    int
	Took    time.Duration
	Failure string // empty: it held
}

func TestStates(t *testing.T) {
	testutil.Root(t)
	n, first := number("KVOL_STATES", 300), number("KVOL_SEED", 1)
	dir := testutil.TempDir(t)
	all := triples(t, dir, programs(t), first, n, true)
	summary(t, all)
	failed := slices.DeleteFunc(all, func(o told) bool { return o.Failure == "" })
	for i, o := range failed {
		if i == 20 {
			t.Errorf("and %d more", len(failed)-i)
			break
		}
		t.Errorf("%s\nKVOL_SEED=%d KVOL_STATES=1 go test ./test/states -run TestStates", o.Failure, o.Seed)
	}
}

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// summary says what was tried.
func summary(t *testing.T, all []told) {
	var took time.Duration
	codes := map[string]map[int]int{}
	for _, o := range all {
		took += o.Took
		if codes[o.Verb] == nil {
			codes[o.Verb] = map[int]int{}
		}
		codes[o.Verb][o.Code]++
	}
	for _, verb := range slices.Sorted(maps.Keys(codes)) {
		t.Logf("%-15s exit codes %v", verb, codes[verb])
	}
	t.Logf("%d triples, %v each in its worker", len(all), (took / time.Duration(max(1, len(all)))).Round(time.Millisecond))
}

// built are the programs of a run.
type built struct{ kvol, killable string }

// programs builds kvol as it is released, and one that dies at an action that is
// named in its environment: its sources are laid over, nothing else is different.
func programs(t *testing.T) built {
	t.Helper()
	kvol, err := testutil.Program("cmd/kvol")
	if err != nil {
		t.Fatal(err)
	}
	b := built{kvol, t.TempDir() + "/kvol-killable"}
	if err := build(b.killable, overlay(t, killable)); err != nil {
		t.Fatal(err)
	}
	return b
}

func build(out, overlay string) error {
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, "-overlay", overlay, "./cmd/kvol")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, text)
	}
	return nil
}

const root = "../.."

// edit replaces text that is in a file exactly once.
type edit struct{ File, Old, New string }

// killable makes kvol die around an action: KVOL_STATES_KILL is "before 3".
var killable = []edit{{
	"internal/host/act/runner.go", "	if r.Hook == nil {\n		return nil\n	}\n",
	"	if os.Getenv(\"KVOL_STATES_KILL\") == fmt.Sprint(p, \" \", s.N) {\n		p, _ := os.FindProcess(os.Getpid())\n		_ = p.Kill()\n		select {}\n	}\n" +
		"	if r.Hook == nil {\n		return nil\n	}\n",
}}

// overlay writes the edited files and the list of them for go's -overlay.
func overlay(t *testing.T, edits []edit) string {
	t.Helper()
	var all []testutil.Edit
	for _, e := range edits {
		all = append(all, testutil.Edit(e))
	}
	return testutil.Overlay(t, root, all)
}

// triples tries n seeds, in a worker for each processor.
func triples(t *testing.T, dir string, b built, first, n uint64, shrink bool) []told {
	t.Helper()
	workers := min(n, uint64(runtime.NumCPU()))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []told
	for w := range workers {
		j := job{Kvol: b.kvol, Killable: b.killable, Dir: fmt.Sprintf("%s/w%d", dir, w), Shrink: shrink}
		for i := w; i < n; i += workers {
			j.Seeds = append(j.Seeds, first+i)
		}
		wg.Go(func() {
			err := j.run(func(o told) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, o)
			})
			if err != nil {
				t.Errorf("a worker: %v", err)
			}
		})
	}
	wg.Wait()
	if uint64(len(all)) != n && !t.Failed() {
		t.Errorf("%d triples of %d were tried", len(all), n)
	}
	slices.SortFunc(all, func(a, b told) int { return cmp.Compare(a.Seed, b.Seed) })
	return all
}

// envJob makes the test binary a worker.
const envJob = "KVOL_STATES_JOB"

// run starts the worker as process 1 of process and mount namespaces of its own: all
// that it starts ends with it.
func (j job) run(tell func(told)) error {
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return err
	}
	file := j.Dir + "/job.json"
	raw, err := json.Marshal(j)
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envJob+"="+file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the kernel sends the signal when this thread ends
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o told
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("it said %q: %w", lines.Text(), err)
		}
		tell(o)
	}
	return cmd.Wait()
}
