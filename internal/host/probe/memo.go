package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memoName is the file of the run directory that lists the abandoned probes.
const memoName = "stuck-probes.json"

// stuck is a thread of a helper that hangs in a file system. It pins the
// superblock, so that its device number cannot pass to another meanwhile.
type stuck struct {
	PIDNS string    `json:"pidNamespace"` // link text of /proc/self/ns/pid: the ids below count in it
	PID   int       `json:"pid"`
	TID   int       `json:"tid"`
	Start string    `json:"start"` // of the thread, field 22 of proc_pid_stat(5)
	Dev   string    `json:"device"`
	Path  string    `json:"path"`
	Since time.Time `json:"since"`
}

func newStuck(pid, tid int, g *group) stuck {
	s := stuck{PIDNS: pidNS(), PID: pid, TID: tid, Dev: g.dev, Path: g.path, Since: time.Now()}
	_, s.Start = s.stat()
	return s
}

func pidNS() string {
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return ns
}

// stat gives the state and the start time of the thread, "" if it is gone.
func (s stuck) stat() (state, start string) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", s.PID, s.TID))
	if err != nil {
		return "", ""
	}
	// The name, in brackets, may hold blanks and brackets.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const afterName = 3 // the first of these is field 3
	if len(fields) <= 22-afterName {
		return "", ""
	}
	return fields[0], fields[22-afterName]
}

// alive says whether the thread still hangs. A thread that comes back ends.
func (s stuck) alive() bool {
	state, start := s.stat()
	return state != "" && state != "Z" && state != "X" && start == s.Start
}

// stuckNow lists the probes that hang, of this Helper and of others.
func (h *Helper) stuckNow() []stuck {
	h.mu.Lock()
	h.memory = slices.DeleteFunc(h.memory, func(s stuck) bool { return !s.alive() })
	known, runDir := slices.Clone(h.memory), h.runDir
	h.mu.Unlock()
	if runDir == "" {
		return known
	}
	b, err := os.ReadFile(filepath.Join(runDir, memoName))
	if err != nil {
		return known
	}
	ns := pidNS()
	for _, s := range decodeMemo(b) {
		if s.PIDNS == ns && s.alive() {
			known = append(known, s)
		}
	}
	return known
}

// decodeMemo reads the file; one that is torn or foreign says nothing.
func decodeMemo(b []byte) []stuck {
	var list []stuck
	if json.Unmarshal(b, &list) != nil {
		return nil
	}
	return list
}

// Stuck gives the process of an abandoned probe that still hangs in the file system of
// that device number, and keeps it busy; 0 when there is none.
func (h *Helper) Stuck(dev string) (pid int) {
	for _, s := range h.stuckNow() {
		if s.Dev == dev {
			return s.PID
		}
	}
	return 0
}

// remember keeps what hangs, for this process and, best effort, in the run
// directory. What has come back since is dropped there.
func (h *Helper) remember(left []stuck) {
	if len(left) == 0 {
		return
	}
	h.mu.Lock()
	h.memory = append(h.memory, left...)
	runDir := h.runDir
	h.mu.Unlock()
	if runDir == "" || os.MkdirAll(runDir, 0o700) != nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(runDir, memoName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if !lock(f) {
		return
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return
	}
	ns := pidNS()
	list := slices.DeleteFunc(decodeMemo(b), func(s stuck) bool { return s.PIDNS == ns && !s.alive() })
	if b, err = json.Marshal(append(list, left...)); err != nil {
		return
	}
	// In place: a reader that sees half of it probes once too often.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(b, 0)
	}
}

// lock waits a moment for the file, not longer: another kvol may be stopped with it.
func lock(f *os.File) bool {
	for range 20 {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
