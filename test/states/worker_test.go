package states

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// workerMain takes the process over when it was started as a worker.
func workerMain() {
	file := os.Getenv(envJob)
	if file == "" {
		return
	}
	must(os.Unsetenv(envJob))
	var j job
	raw, err := os.ReadFile(file)
	must(err, json.Unmarshal(raw, &j))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""))
	must(unix.Mount("tmpfs", j.Dir, "tmpfs", 0, "mode=755,size=64m"))
	w := &worker{kvol: newProgram(j.Kvol, j.Killable), dir: j.Dir, disks: pool(j.Dir)}
	out := json.NewEncoder(os.Stdout)
	for _, seed := range j.Seeds {
		start := time.Now()
		s := generate(seed)
		t := told{Seed: seed, Verb: s.Call.Verb}
		v, o := w.try(s)
		t.Code, t.Took = o.code, time.Since(start)
		if len(v.faults) > 0 && j.Shrink {
			s, v, o = w.shrink(s, v, o)
		}
		if len(v.faults) > 0 {
			t.Failure = fmt.Sprintf("%s\n%s%v", strings.Join(v.faults, "\n"), s, o)
		}
		must(out.Encode(t))
	}
	for _, d := range w.disks {
		must(loopClear(d.dev))
	}
	os.Exit(0)
}

// worker tries states, one after the other.
type worker struct {
	kvol  *program
	dir   string
	disks []disk
}

// contract are the exit codes that these commands may end with. 2 is left out: there
// is no bad usage here.
var contract = []int{0, 3, 4, 5, 6, 7, 8, 9, 10, 11}

// try makes a state, runs kvol on it, and judges.
func (w *worker) try(s state) (v *verdict, o outcome) {
	v = &verdict{}
	defer func() {
		if r := recover(); r != nil {
			v.add("a fault of the test", "%v\n%s", r, debug.Stack())
		}
	}()
	s.Call = w.kvol.known(s.Call)
	if s.Before != nil {
		before := w.kvol.known(*s.Before)
		s.Before = &before
	}
	b := &builder{node: newNode(w.dir+"/node", w.disks), state: s}
	defer b.end()
	b.build()
	first := b.snapshot()
	calls := []call{s.Call}
	if s.Before != nil {
		w.kvol.run(b, *s.Before)
		calls = append(calls, *s.Before)
		b.judge(v, first, b.snapshot(), *s.Before)
	}
	before := b.snapshot()
	wait := w.kvol.beside(b, s.Call)
	o = w.kvol.run(b, s.Call)
	wait()
	after := b.settled(before)
	judgeRun(v, o, s.Call, contract)
	b.judge(v, first, after, calls...)
	b.left(v, before, after)
	if !s.Call.changes() && (s.Call.With == "" || s.Call.With == "list") {
		b.same(v, ruleDry, before, after)
	}
	b.truth(v, s.Call, o, after)
	b.cleaned(v, s.Call, o, after)
	if s.Call.With == "" {
		w.again(b, v, o, after)
	}
	b.intact(v, w.dir+"/fill")
	return v, o
}

// again runs the same command once more.
func (w *worker) again(b *builder, v *verdict, o outcome, after snapshot) {
	if b.Driver == "hangs" || b.Fault == "once" || b.Fault == "dies" || b.Call.has("--max") {
		return // the driver is another one now, or the next in turn goes
	}
	for n := 0; n < len(b.Pods)+len(b.Vols) && o.code == 3; n++ { // what stood in the way may be gone, or was in turn
		o = w.kvol.run(b, b.Call)
		next := b.settled(after)
		b.judge(v, after, next, b.Call)
		if maps.Equal(after.files, next.files) && maps.Equal(after.mounts, next.mounts) {
			break
		}
		after = next
	}
	o2 := w.kvol.run(b, b.Call)
	judgeRun(v, o2, b.Call, contract)
	if o2.code != o.code && !driverFailed(o) && !slices.Contains(b.mayEnd(o.code), o2.code) {
		v.add(ruleAgain, "it ended with %d, and then with %v", o.code, o2)
	}
	if last := b.settled(after); b.Call.Name == "handle" { // by its handle it may be found elsewhere only now
		b.judge(v, after, last, b.Call)
	} else {
		b.same(v, ruleAgain, after, last)
	}
}

// mayEnd are other codes that the same command may end with the next time.
func (b *builder) mayEnd(code int) (next []int) {
	switch code {
	case 3:
		next = append(next, 4) // every pod that is left is one that is gone
	case 6:
		next = append(next, 0) // what cannot be detached is not known any more
	}
	if b.Call.Name == "handle" || b.Call.Name == "device" {
		next = append(next, 0, 8, 9) // what told that it is this one, and in which pods, was taken
	}
	if b.Call.has("--must-exist") {
		next = append(next, 5)
	}
	return next
}

// same wants nothing to be different.
func (b *builder) same(v *verdict, rule string, before, after snapshot) {
	d := &verdict{}
	b.judgeFiles(d, before, after, func(string) bool { return false }, false)
	b.judgeMounts(d, before, after, func(string) bool { return false })
	for _, f := range d.faults {
		v.add(rule, "%s", f)
	}
}

// settled is a snapshot when what ends by itself has ended.
func (b *builder) settled(before snapshot) snapshot {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		s := b.snapshot()
		d := &verdict{}
		if b.left(d, before, s); len(d.faults) == 0 || time.Now().After(end) || b.hung() {
			return s
		}
	}
}

func (b *builder) hung() bool {
	return b.Driver == "hangs" || slices.ContainsFunc(b.Elements, func(e element) bool { return e.How == "hung" })
}

// left wants no process and no loop device that was not there. A look at what hangs
// may hang until that ends.
func (b *builder) left(v *verdict, before, after snapshot) {
	for pid, name := range after.procs {
		if before.procs[pid] == "" && !b.hung() {
			v.add(ruleLeft, "process %d %s", pid, name)
		}
	}
	for dev, backing := range after.loops {
		if before.loops[dev] == "" {
			v.add(ruleLeft, "loop device %s over %q", dev, backing)
		}
	}
}

// intact takes the disks off the node and looks at what is on them.
func (b *builder) intact(v *verdict, at string) {
	for _, m := range b.mounts() {
		if strings.HasPrefix(m.after, "- ext4") || strings.Contains(m.after, " ext4 ") {
			_ = unix.Unmount(m.point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
	for i, d := range b.disks {
		if !slices.ContainsFunc(b.Vols, func(v volume) bool { return v.Disk == i }) {
			continue
		}
		if lost := d.lost(at); lost != "" {
			v.add(ruleLost, "%s", lost)
		}
	}
}

// shrink leaves out what it fails without.
func (w *worker) shrink(s state, v *verdict, o outcome) (state, *verdict, outcome) {
	rule := func(v *verdict) string {
		if len(v.faults) == 0 {
			return ""
		}
		name, _, _ := strings.Cut(v.faults[0], ":")
		return name
	}
	want := rule(v)
	smaller := func(t state) bool {
		if v2, o2 := w.try(t); rule(v2) == want {
			s, v, o = t, v2, o2
			return true
		}
		return false
	}
	if s.Before != nil {
		t := s
		t.Before = nil
		smaller(t)
	}
	for i := 0; i < len(s.Elements); {
		t := s
		t.Elements = slices.Delete(slices.Clone(s.Elements), i, i+1)
		if !smaller(t) {
			i++
		}
	}
	for i := 0; i < len(s.Call.Flags); {
		t := s
		t.Call.Flags = slices.Delete(slices.Clone(s.Call.Flags), i, i+1)
		if strings.HasPrefix(s.Call.Flags[i], "-") && (i+1 == len(s.Call.Flags) || strings.HasPrefix(s.Call.Flags[i+1], "-")) && smaller(t) {
			continue
		}
		i++
	}
	return s, v, o
}
