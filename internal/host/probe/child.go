package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
)

// argv0 is the name under which a process is the helper, its socket being
// descriptor 3. ps shows it.
const argv0 = "kvol-probe-helper"

// child is one helper process as kvol sees it.
type child struct {
	pid   int
	proc  *os.Process
	conn  *net.UnixConn
	write chan struct{} // holds one token: whoever has it may write
	gone  chan struct{} // closed when the process was reaped; state is set before
	state *os.ProcessState

	failed  sync.Once
	mu      sync.Mutex
	err     error // why it is of no use any more
	lastID  uint64
	pending map[uint64]chan answer // nil where nobody waits any more
}

// answer is a reply with its descriptors, or the reason why there is none.
type answer struct {
	reply
	files []*os.File
	err   error
}

// decode gives the error of the answer, or its result to out.
func (a answer) decode(out any) error {
	switch {
	case a.err != nil:
		return a.err
	case a.Err != nil:
		return a.Err
	case out == nil:
		return nil
	}
	if err := exact.Unmarshal(a.Result, out); err != nil {
		closeAll(a.files)
		return fmt.Errorf("probe: the helper's answer: %w", err)
	}
	return nil
}

func startChild(maxThreads int) (*child, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "helper"), os.NewFile(uintptr(pair[1]), "kvol")
	defer func() { _ = ours.Close(); _ = theirs.Close() }()
	conn, err := net.FileConn(ours) // a duplicate
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // it lives until its socket is closed
	cmd.Args = []string{argv0, strconv.Itoa(maxThreads)}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	// No Pdeathsig: it fires when the starting thread ends, not the process. The
	// end of the socket tells the helper.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c := &child{
		pid: cmd.Process.Pid, proc: cmd.Process, conn: conn.(*net.UnixConn), write: make(chan struct{}, 1),
		gone: make(chan struct{}), pending: map[uint64]chan answer{},
	}
	c.write <- struct{}{}
	go func() {
		_ = cmd.Wait() // a thread that hangs keeps the process from being reaped
		c.state = cmd.ProcessState
		close(c.gone)
	}()
	go c.read()
	return c, nil
}

// dead gives the reason why the child is of no use any more.
func (c *child) dead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// send sends requests, files belonging to the first, in one frame. The answers
// come on the channel, which has room for all of them, in any order.
func (c *child) send(ctx context.Context, reqs []request, files []*os.File) (<-chan answer, error) {
	answers := make(chan answer, 2*len(reqs)) // Hung and the real one
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	for i := range reqs {
		c.lastID++
		reqs[i].ID = c.lastID
		c.pending[reqs[i].ID] = answers
	}
	c.mu.Unlock()
	if err := c.post(ctx, reqs, files); err != nil {
		c.mu.Lock()
		for _, r := range reqs {
			delete(c.pending, r.ID)
		}
		c.mu.Unlock()
		return nil, err
	}
	return answers, nil
}

// post writes one frame. It gives up at the deadline, which a helper that was
// stopped would make it need.
func (c *child) post(ctx context.Context, reqs []request, files []*os.File) error {
	body, err := frame(reqs, len(files))
	if err != nil {
		return err
	}
	select {
	case <-c.write:
	case <-ctx.Done():
		return api.Errorf(ended(ctx), "the probe helper (pid %d) takes no requests", c.pid)
	}
	defer func() { c.write <- struct{}{} }()
	deadline, _ := ctx.Deadline()
	_ = c.conn.SetWriteDeadline(deadline)
	n := 0
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		n, _, err = c.conn.WriteMsgUnix(body, unix.UnixRights(fds...), nil)
	}
	if err == nil && n < len(body) {
		var more int
		more, err = c.conn.Write(body[n:])
		n += more
	}
	switch {
	case err == nil:
		return nil
	case n == 0 && errors.Is(err, os.ErrDeadlineExceeded):
		// It was too late already, and nothing has gone: others go on with this helper.
		return api.Errorf(ended(ctx), "the probe helper (pid %d) takes no requests", c.pid)
	}
	// Half a frame may have gone: nothing can follow it.
	c.fail()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return api.Errorf(api.ErrTimeout, "the probe helper (pid %d) took no requests and was killed", c.pid)
	}
	return c.dead()
}

// ended is the kind of error that the end of a context is.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	return api.ErrTimeout
}

// read hands the answers out until the helper ends.
func (c *child) read() {
	r := newReader(func(buf, oob []byte) (int, int, int, error) {
		n, oobn, flags, _, err := c.conn.ReadMsgUnix(buf, oob)
		return n, oobn, flags, err
	})
	for {
		body, files, err := r.next()
		var reps []reply
		if err == nil {
			reps, err = parseReplies(body)
		}
		if err != nil {
			closeAll(files)
			c.fail()
			return
		}
		for i, rep := range reps {
			a := answer{reply: rep}
			if i == 0 {
				a.files = files
			}
			c.deliver(a)
		}
	}
}

func (c *child) deliver(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.pending[a.ID]
	if a.Hung == 0 {
		delete(c.pending, a.ID)
	}
	if ch != nil {
		ch <- a // has room
		return
	}
	go closeAll(a.files) // which can hang where they are not O_PATH
}

// abandon is for a caller that waits no longer: what comes later is closed. The
// job still counts as running.
func (c *child) abandon(id uint64, answers <-chan answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.pending[id]; ok {
		c.pending[id] = nil
		return
	}
	a := <-answers
	go closeAll(a.files)
}

// fail ends the child and tells all that wait.
func (c *child) fail() { c.failed.Do(c.bury) }

func (c *child) bury() {
	_ = c.proc.Kill()
	how := "it is still there"
	select {
	case <-c.gone:
		how = c.state.String()
	case <-time.After(100 * time.Millisecond):
	}
	err := &api.Error{Kind: api.ErrUncertain, Err: fmt.Errorf("%w (pid %d: %s)", ErrDied, c.pid, how),
		Next: "run the same command again"}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for id, ch := range c.pending {
		if ch != nil {
			ch <- answer{reply: reply{ID: id}, err: err}
		}
	}
	clear(c.pending)
	_ = c.conn.Close()
}

// close ends the helper: by the end of its socket, and by SIGKILL if it has jobs.
func (c *child) close() {
	c.mu.Lock()
	busy := len(c.pending) > 0
	c.mu.Unlock()
	wait := 50 * time.Millisecond // it ends at once, on a machine that has the time
	if busy {
		_ = c.proc.Kill()
		wait = 10 * time.Millisecond // if it can be killed
	}
	_ = c.conn.CloseWrite()
	select {
	case <-c.gone:
	case <-time.After(wait):
	}
	_ = c.conn.Close()
}
