// Package probe has the one helper process that does whatever may hang: every
// system call that touches a volume.
//
// A thread that waits for a dead NFS server or FUSE daemon waits in the kernel
// and cannot be ended, not even by SIGKILL. A process with such a thread cannot be
// reaped, and what it has open stays open: a goroutine with a time-out gives kvol
// its answer in time and then an SSH session that never ends. So such calls are
// made by a child that shares nothing with the terminal: a session of its own, the
// standard streams on /dev/null, / as its directory, no inherited descriptor but
// the socket to kvol. It ends when that socket does, that is when kvol ends, in
// whatever way. What it still waits for then is left behind and remembered in the
// run directory, so that no second thread is lost to the same file system.
//
// Do not use it for what cannot hang: the mount table, O_PATH and
// AT_STATX_DONT_SYNC (package safefs), /proc and /sys.
package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Job is a piece of work that the helper does. args is what was given to [Helper.Call],
// which exact.Unmarshal reads; files are the descriptors given with it, closed when the
// job ends. The result goes back in the same way; the files returned are passed on and
// closed.
//
// A job runs on a thread of its own, beside others: it changes nothing that the
// process has as a whole (directory, umask, signals) and starts no program.
type Job func(args []byte, files []*os.File) (result any, out []*os.File, err error)

// Jobs are jobs by name. The names "open" and "health" are this package's.
type Jobs map[string]Job

// Main has to be the first call of main and of every TestMain: it takes the
// process over when it was started as the helper, and returns otherwise. jobs are
// those of the other packages; a name twice panics.
//
// In kvol itself it marks the descriptors that kvol was given, but for the
// standard streams, close-on-exec: a tool that outlives kvol must not hold the
// caller's pipes and locks.
func Main(jobs ...Jobs) {
	all := Jobs{"open": openJob, "health": healthJob}
	for _, table := range jobs {
		for name, job := range table {
			if all[name] != nil {
				panic("probe: two jobs of the name " + name)
			}
			all[name] = job
		}
	}
	if IsHelper() {
		serve(all) // never returns
	}
	// Best effort: kernels before 5.11 do not have the flag.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
}

// IsHelper says whether this process was started as the helper.
func IsHelper() bool { return len(os.Args) == 2 && os.Args[0] == argv0 }

// ErrDied is what a call gives whose helper ended before it answered: whether
// the job was done is not known, so the error is also api.ErrUncertain. The next
// call starts a new helper.
var ErrDied = errors.New("the probe helper died")

// Helper stands for the helper process, which the first use starts. Its methods
// may be used from several goroutines. There is one in kvol.
type Helper struct {
	runDir     string
	maxThreads int

	mu     sync.Mutex
	child  *child
	closed bool
	memory []stuck // what this Helper itself has left behind
}

// New makes a Helper; it starts nothing. runDir is where abandoned probes are
// remembered; with "" they are while the process lives.
func New(runDir string) *Helper {
	return &Helper{runDir: runDir, maxThreads: 2000}
}

// RememberIn is for whoever first has to find out, with the helper, whether the run
// directory itself answers: it is read and written without the helper.
func (h *Helper) RememberIn(runDir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runDir = runDir
}

// Start starts the helper if it does not run. It need not be called; to call it
// early, in a goroutine, hides the time that a start takes (some ms).
func (h *Helper) Start() error {
	_, err := h.running()
	return err
}

// PID is the helper's process, 0 while there is none.
func (h *Helper) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child == nil {
		return 0
	}
	return h.child.pid
}

// Call has a job done in the helper. args and out are anything that package exact can
// carry; out is a pointer, or nil. The descriptors in files stay the caller's; the
// helper's copies live as long as the job does, so that a lock given with a job is held
// until it is over, however long that is. The files returned are the caller's to close.
//
// Errors: that of the job, with its errno for errors.Is, its kind and its next
// step; at the deadline api.ErrTimeout (the job may still run: whoever asked for
// a change makes that api.ErrUncertain); [ErrDied]. A context without a deadline is
// refused.
func (h *Helper) Call(ctx context.Context, job string, args any, files []*os.File, out any) ([]*os.File, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, fmt.Errorf("probe: %s without a deadline", job)
	}
	raw, err := exact.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("probe: arguments of %s: %w", job, err)
	}
	c, err := h.running()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	reqs := []request{{Job: job, Args: raw}}
	answers, err := c.send(ctx, reqs, files)
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answers:
		return a.files, a.decode(out)
	case <-ctx.Done():
		c.abandon(reqs[0].ID, answers)
		return nil, api.Errorf(ended(ctx), "%s: no answer after %s", job, time.Since(began).Round(time.Millisecond))
	}
}

// Open opens a path outside the kubelet's root, following links, in the helper,
// and gives the descriptor and what it is (of the cached attributes). flags are
// those of open(2); O_CLOEXEC is added. A path that is not there gives
// api.ErrNotFound. Unless the flags have O_PATH, use the file
// in jobs only: reading it, and even closing it, may hang.
func (h *Helper) Open(ctx context.Context, path string, flags int) (*os.File, safefs.Info, error) {
	files, err := h.Call(ctx, "open", openArgs{path, flags}, nil, nil)
	if err != nil {
		e := &api.Error{Op: "open", Path: path, Err: err}
		if errors.Is(err, unix.ENOENT) {
			e.Kind = api.ErrNotFound
		}
		return nil, safefs.Info{}, e
	}
	if len(files) != 1 {
		return nil, safefs.Info{}, fmt.Errorf("probe: open %s gave %d descriptors", path, len(files))
	}
	info, err := safefs.StatFD(files[0])
	if err != nil {
		_ = files[0].Close()
		return nil, safefs.Info{}, err
	}
	return files[0], info, nil
}

type openArgs struct {
	Path  string
	Flags int
}

func openJob(args []byte, _ []*os.File) (any, []*os.File, error) {
	var a openArgs
	if err := exact.Unmarshal(args, &a); err != nil {
		return nil, nil, err
	}
	fd, err := unix.Open(a.Path, a.Flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err // Open names the path
	}
	return nil, []*os.File{os.NewFile(uintptr(fd), a.Path)}, nil
}

// Close ends the helper. One that still has jobs is killed; what does not die of
// that is left behind. It does not wait for any of this but a moment.
func (h *Helper) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.child != nil {
		h.child.close()
		h.child = nil
	}
}

// running gives the helper process, started if need be.
func (h *Helper) running() (*child, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errors.New("probe: used after Close")
	}
	if h.child != nil && h.child.dead() == nil {
		return h.child, nil
	}
	c, err := startChild(h.maxThreads)
	if err != nil {
		return nil, fmt.Errorf("cannot start the probe helper: %w", err)
	}
	h.child = c
	return c, nil
}
