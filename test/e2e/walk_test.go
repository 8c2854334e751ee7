package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
)

// A node on which kvol and somebody with other tools work at random, one after the
// other. After each step nobody's file is lost; a verb that ended well has done
// what it is for; a dry run told before what the verb then did.
//
// KVOL_TEST_WALK_STEPS and KVOL_TEST_WALK_SEED change the length of the walk and
// its way; the same seed takes the same one, but for where a killed verb stood.
func TestWalk(t *testing.T) {
	steps, seed := envInt("KVOL_TEST_WALK_STEPS", 150), envInt("KVOL_TEST_WALK_SEED", time.Now().UnixNano())
	w := newWalk(t, uint64(seed))
	defer func() {
		if t.Failed() {
			t.Logf("KVOL_TEST_WALK_SEED=%d KVOL_TEST_WALK_STEPS=%d; the last steps:\n%s", seed, steps, strings.Join(w.said[max(0, len(w.said)-25):], "\n"))
		}
	}()
	for range steps {
		if w.rnd.IntN(5) < 3 {
			w.verb()
		} else {
			w.interfere()
		}
		w.kept()
		if w.rnd.IntN(4) == 0 {
			w.listed()
		}
		if t.Failed() {
			return
		}
	}
	w.end()
}

func envInt(name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// walkVolume is one of the volumes of a walk; the content of each is known.
type walkVolume struct {
	name, file string
	dir        string // of a directory
	dev        string // of a device
	raw        bool
}

type walk struct {
	*node
	rnd      *rand.Rand
	vols     []walkVolume
	stranger string            // a directory of somebody else's
	files    map[string]string // files of people beside kvol's volumes: path and content
	held     *os.File
	said     []string
}

func newWalk(t *testing.T, seed uint64) *walk {
	n := newNode(t)
	w := &walk{node: n, rnd: rand.New(rand.NewPCG(seed, 0)), files: map[string]string{}}
	file, dir := n.dataDir("dir")
	w.vols = append(w.vols, walkVolume{name: "dir", file: file, dir: dir})
	file, dev := n.disk("disk", "ext4")
	at := n.dir + "/at"
	must(t, os.Mkdir(at, 0o755), unix.Mount(dev, at, "ext4", 0, ""), os.WriteFile(at+"/file", []byte("data\n"), 0o644), unix.Unmount(at, 0))
	w.vols = append(w.vols, walkVolume{name: "disk", file: file, dev: dev})
	file, dev = n.disk("raw", "")
	must(t, os.WriteFile(dev, []byte("data\n"), 0o600))
	w.vols = append(w.vols, walkVolume{name: "raw", file: file, dev: dev, raw: true})
	w.stranger = n.dir + "/stranger"
	must(t, os.Mkdir(w.stranger, 0o755))
	w.add(w.stranger+"/file", "a stranger's\n")
	t.Cleanup(w.release)
	return w
}

func (w *walk) note(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf("%3d ", len(w.said))+fmt.Sprintf(format, args...))
}

// add makes a file that kvol must never take away. Through a link it would be one
// that has another name too.
func (w *walk) add(path, content string) {
	if at, err := os.Lstat(filepath.Dir(path)); err != nil || !at.IsDir() {
		return
	}
	if os.WriteFile(path, []byte(content), 0o600) == nil {
		w.files[path] = content
	}
}

func (w *walk) release() {
	if w.held != nil {
		w.held.Close()
		w.held = nil
	}
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// verb runs a verb at random: planned first, or killed at some moment.
func (w *walk) verb() {
	v, pod := pick(w.rnd, w.vols...), pick(w.rnd, podA, podB)
	verb := pick(w.rnd, "setup", "setup", "publish", "mount-device", "unpublish", "unmount-device", "detach", "teardown", "teardown")
	args := []string{verb}
	args = append(args, w.named(v, pod, slices.Contains([]string{"unpublish", "unmount-device", "detach", "teardown"}, verb))...)
	if verb != "mount-device" && verb != "unmount-device" && verb != "detach" {
		args = append(args, "--pod-uid", pod)
	}
	switch w.rnd.IntN(6) {
	case 0:
		w.kill(args)
	case 1, 2:
		w.planned(v, pod, args)
	default:
		w.run(v, pod, args)
	}
}

// named is one of the ways to name a volume; what takes it down takes all.
func (w *walk) named(v walkVolume, pod string, down bool) []string {
	switch n := w.rnd.IntN(8); {
	case !down || n < 3:
		return []string{"-f", v.file}
	case n == 3 && v.dev != "":
		return []string{v.dev}
	case n == 4 && v.raw:
		return []string{w.podDevice(pod, v.name)}
	case n == 4:
		return []string{w.podVolume(pod, v.name)}
	case n == 5 && !v.raw:
		return []string{w.global(v.name)}
	}
	return []string{v.name}
}

// run runs a verb and wants of its exit code that it is true.
func (w *walk) run(v walkVolume, pod string, args []string) ([]api.Step, int) {
	w.t.Helper()
	o := w.kvol(append(args, "-o", "json")...)
	w.note("%v: %d", args, o.code)
	var steps []api.Step
	skipped := false
	for _, r := range decode[api.List[api.Result]](w.t, o.stdout).Items {
		steps = append(steps, r.Steps...)
		skipped = skipped || r.Op == "unmount-device" && r.Outcome == api.OutcomeSkipped
	}
	switch {
	case !slices.Contains([]int{0, 4, 5, 9}, o.code):
		w.t.Errorf("an exit code that nothing here should cause: %v", o)
	case o.code != 0:
	case args[0] == "setup" || args[0] == "publish":
		w.isUp(v, pod)
	case args[0] == "mount-device" && v.dev != "" && !v.raw:
		w.shows(w.global(v.name), "data\n")
	case args[1] == v.dev: // by its device only what is mounted of it is found
	case args[0] == "teardown" || args[0] == "unpublish":
		w.isDown(v, pod)
	}
	if o.code == 0 && !v.raw && args[1] != v.dev && (args[0] == "unmount-device" || args[0] == "teardown" && !skipped) {
		w.gone(w.global(v.name))
	}
	if w.t.Failed() {
		w.t.Logf("%v\n%s\n%s", o, w.tree(), w.mounts())
	}
	w.recorded(args[0], o.code)
	return steps, o.code
}

// planned wants the plan of a verb to change nothing, and to be what the verb does.
func (w *walk) planned(v walkVolume, pod string, args []string) {
	w.t.Helper()
	var o out
	w.unchanged(func() { o = w.kvol(append(args, "--dry-run", "-o", "json")...) })
	w.note("%v --dry-run: %d", args, o.code)
	did, code := w.run(v, pod, args)
	if w.held != nil && code == 9 {
		return // who has a file open is seen by the kernel only, when it is unmounted
	}
	if code != o.code {
		w.t.Errorf("the verb ended with %d, its plan with: %v", code, o)
	}
	if code != 0 || o.code != 0 {
		return
	}
	text := func(steps []api.Step) (all string) {
		for _, s := range steps {
			all += s.Action + " " + s.Target + "\n"
		}
		return all
	}
	if plan := text(decode[api.List[api.Step]](w.t, o.stdout).Items); plan != text(did) {
		w.t.Errorf("%v: the plan was\n%sand this was done:\n%s", args, plan, text(did))
	}
}

// kill runs a verb and kills it, at no moment in particular.
func (w *walk) kill(args []string) {
	cmd := exec.Command(w.kvolPath, append(args, w.flags()...)...)
	must(w.t, cmd.Start())
	after := time.Duration(w.rnd.IntN(40)) * time.Millisecond
	time.Sleep(after)
	_ = cmd.Process.Signal(syscall.SIGKILL)
	err := cmd.Wait()
	w.note("%v killed after %v: %v", args, after, err)
}

// recorded wants the history to have the verb as it ended.
func (w *walk) recorded(verb string, code int) {
	w.t.Helper()
	all := decode[api.List[api.Operation]](w.t, w.must(0, "history", "-o", "json").stdout).Items
	if len(all) == 0 {
		return
	}
	newest := slices.MaxFunc(all, func(a, b api.Operation) int { return a.Time.Compare(b.Time) })
	if newest.Verb != verb {
		return // one that found nothing to begin with is not in it
	}
	good := newest.Outcome == string(api.OutcomeDone) || newest.Outcome == string(api.OutcomeAlready)
	if good != (code == 0) {
		w.t.Errorf("%s ended with %d and is in the history as %s: %s", verb, code, newest.Outcome, newest.Error)
	}
}

func (w *walk) table() *mounts.Table {
	w.t.Helper()
	table, err := mounts.Read("/proc/self/mountinfo")
	must(w.t, err)
	return table
}

func (w *walk) shows(dir, want string) {
	w.t.Helper()
	if got, err := os.ReadFile(dir + "/file"); err != nil || string(got) != want {
		w.t.Errorf("%s has %q (%v)", dir, got, err)
	}
}

func (w *walk) gone(path string) {
	w.t.Helper()
	if left := w.table().At(path); len(left) > 0 {
		w.t.Errorf("%s is a mount point: %v", path, left)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		w.t.Errorf("%s is there: %v", path, err)
	}
}

// isUp wants the volume in the pod, to be read and written.
func (w *walk) isUp(v walkVolume, pod string) {
	w.t.Helper()
	if !v.raw {
		at := w.podVolume(pod, v.name)
		w.shows(at, "data\n")
		must(w.t, os.WriteFile(at+"/written", []byte("x"), 0o600))
		return
	}
	link, at := w.podDevice(pod, v.name), w.mapDevice(pod, v.name)
	if to, err := os.Readlink(link); err != nil || to != v.dev {
		w.t.Errorf("%s leads to %q (%v)", link, to, err)
	}
	var is, wanted unix.Stat_t
	must(w.t, unix.Lstat(at, &is), unix.Stat(v.dev, &wanted))
	if is.Rdev != wanted.Rdev {
		w.t.Errorf("%s is device %d and not %d", at, is.Rdev, wanted.Rdev)
	}
	if loopsBelow(w.root)[at] == "" {
		w.t.Errorf("no loop device is over %s", at)
	}
}

func (w *walk) isDown(v walkVolume, pod string) {
	w.t.Helper()
	if !v.raw {
		w.gone(w.podVolume(pod, v.name))
		return
	}
	w.gone(w.podDevice(pod, v.name))
	w.gone(w.mapDevice(pod, v.name))
	for backing, dev := range loopsBelow(w.root) {
		if strings.HasPrefix(backing, w.mapDevice(pod, v.name)) {
			w.t.Errorf("%s is over %s", dev, backing)
		}
	}
}

// kept wants each file that can be seen to be as it was made, and each that cannot
// be to be hidden by a mount.
func (w *walk) kept() {
	w.t.Helper()
	for path, want := range w.files {
		got, err := os.ReadFile(path)
		if string(got) == want && err == nil {
			continue
		}
		if len(w.table().At(filepath.Dir(path))) == 0 || strings.HasPrefix(path, w.stranger) {
			w.t.Errorf("%s is lost: %q %v", path, got, err)
		}
	}
	w.shows(w.vols[0].dir, "data\n")
	f, err := os.Open(w.vols[2].dev)
	must(w.t, err)
	defer f.Close()
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "data\n" {
		w.t.Errorf("the raw device has %q (%v)", b, err)
	}
}

// listed wants list-mounts to have every mount below the root, and as many on each
// path as there are.
func (w *walk) listed() {
	w.t.Helper()
	items, table := w.list(), w.table()
	for _, m := range table.Under(w.root) {
		at := len(table.At(m.MountPoint))
		if got, ok := items[m.MountPoint]; !ok || got.Stacked != at || !got.Mounted {
			w.t.Errorf("%d mounts on %s are listed as %+v", at, m.MountPoint, got)
		}
	}
	for path, m := range items {
		if m.Mounted != (len(table.At(path)) > 0) {
			w.t.Errorf("%s is listed as %+v", path, m)
		}
	}
}
