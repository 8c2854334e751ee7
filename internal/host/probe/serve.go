package probe

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
)

const socket = 3

// server is the helper's own side.
type server struct {
	jobs Jobs
	most int // threads

	mu      sync.Mutex
	work    *sync.Cond // there are tasks, or fewer threads are wanted
	queue   []*task
	queued  atomic.Int64 // its length
	running map[*task]bool
	threads int
	idle    int
	kick    chan struct{} // wakes the watch: tasks have come

	outMu sync.Mutex
	out   []message
	more  *sync.Cond // flush is set
	flush bool       // send what there is
}

// task is one request on its way.
type task struct {
	request
	files []*os.File
	began time.Time
	tid   int
	hung  bool // said to hang
}

type message struct {
	reply
	files []*os.File
}

// serve is the helper. It ends with its socket, by exit_group(2), whatever its
// threads wait for.
func serve(jobs Jobs) {
	most, err := strconv.Atoi(os.Args[1])
	if _, serr := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || serr != nil {
		fmt.Fprintln(os.Stderr, "this is the probe helper of kvol: kvol starts it")
		syscall.Exit(2)
	}
	closeInherited()
	debug.SetMaxThreads(most + 1000)
	s := &server{jobs: jobs, most: most, running: map[*task]bool{}, kick: make(chan struct{}, 1)}
	s.work, s.more = sync.NewCond(&s.mu), sync.NewCond(&s.outMu)
	go s.watch()
	go s.send()
	r := newReader(recvmsg)
	for {
		body, files, err := r.next()
		var reqs []request
		if err == nil {
			reqs, err = parseRequests(body)
		}
		if err != nil {
			syscall.Exit(0)
		}
		s.accept(reqs, files)
	}
}

// closeInherited closes what kvol itself was given by its caller: everything
// that came through exec has no close-on-exec flag, all that Go opens has it.
func closeInherited() {
	unix.CloseOnExec(socket)
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range dir {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= socket {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// recvmsg blocks a thread, so that the end of the socket is seen whatever the
// runtime's poller does.
func recvmsg(buf, oob []byte) (int, int, int, error) {
	for {
		n, oobn, flags, _, err := unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			return n, oobn, flags, err
		}
	}
}

func (s *server) accept(reqs []request, files []*os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range reqs {
		t := &task{request: r}
		if i == 0 {
			t.files = files
		}
		s.queue = append(s.queue, t)
	}
	s.queued.Store(int64(len(s.queue)))
	s.grow(min(len(reqs), s.base()-(s.threads-s.idle)))
	s.work.Broadcast()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// base is how many threads work while none hangs.
func (s *server) base() int { return max(2, runtime.GOMAXPROCS(0)) }

// grow makes so many threads more, if the limit lets it.
func (s *server) grow(n int) {
	for range min(n-s.idle, s.most-s.threads) {
		s.threads++
		go s.thread()
	}
}

// thread works the queue off. A thread that was said to hang ends when it comes
// back, and so does one too many: its goroutine ends locked to it, which ends it.
func (s *server) thread() {
	runtime.LockOSThread()
	tid := unix.Gettid()
	if tid == os.Getpid() {
		// The first thread cannot end, and would be taken for one that hangs still. It
		// stays with this goroutine.
		go s.thread()
		select {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.threads-- }()
	for {
		for len(s.queue) == 0 {
			if s.threads-len(s.running) > s.base() {
				return
			}
			s.idle++
			s.work.Wait()
			s.idle--
		}
		t := s.queue[0]
		s.queue = s.queue[1:]
		if s.queued.Add(-1) == 0 {
			s.sendNow() // this one may hang
		}
		t.tid, t.began = tid, time.Now()
		s.running[t] = true
		s.mu.Unlock()
		s.do(t)
		s.mu.Lock()
		delete(s.running, t)
		if t.hung {
			return
		}
	}
}

func (s *server) do(t *task) {
	result, files, err := s.run(t)
	closeAll(t.files)
	s.answer(t.ID, result, files, err)
}

func (s *server) run(t *task) (result any, files []*os.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("job %s: panic: %v", t.Job, p)
		}
	}()
	job := s.jobs[t.Job]
	if job == nil {
		return nil, nil, api.Errorf(nil, "the probe helper has no job %q", t.Job)
	}
	return job(t.Args, t.files)
}

func (s *server) answer(id uint64, result any, files []*os.File, err error) {
	rep := reply{ID: id}
	if err == nil && result != nil {
		rep.Result, err = exact.Marshal(result)
	}
	if err != nil {
		closeAll(files)
		rep, files = reply{ID: id, Err: encodeError(err)}, nil
	}
	s.post(rep, files)
}

// few is how many answers wait for more: a message for each would cost more than
// the probe itself.
const few = 100

// post gives an answer to send. While tasks are queued it may wait there for the
// next look of watch.
func (s *server) post(rep reply, files []*os.File) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	s.out = append(s.out, message{rep, files})
	if len(s.out) >= few || s.queued.Load() == 0 {
		s.flush = true
		s.more.Signal()
	}
}

// sendNow sends the answers that wait for more.
func (s *server) sendNow() {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	s.flush = true
	s.more.Signal()
}

// send writes the answers; one with descriptors has a frame of its own.
func (s *server) send() {
	for {
		s.outMu.Lock()
		for !s.flush {
			s.more.Wait()
		}
		out := s.out
		s.out, s.flush = nil, false
		s.outMu.Unlock()
		var plain []reply
		for _, m := range out {
			if len(m.files) == 0 {
				plain = append(plain, m.reply)
				continue
			}
			sendFrame([]reply{m.reply}, m.files)
		}
		if len(plain) > 0 {
			sendFrame(plain, nil)
		}
	}
}

// sendFrame sends answers, and closes the descriptors that go with them.
func sendFrame(reps []reply, files []*os.File) {
	b, err := frame(reps, len(files))
	if err != nil && len(reps) > 1 {
		for _, rep := range reps {
			sendFrame([]reply{rep}, nil)
		}
		return
	}
	if err != nil {
		closeAll(files)
		files = nil
		b, _ = frame([]reply{{ID: reps[0].ID, Err: encodeError(err)}}, 0) // small
	}
	sendmsg(b, files)
}

// sendmsg writes all of b. Descriptors go with its first byte, and are closed here
// before the rest lets kvol go on: a claim (O_EXCL) that kvol gives up would live on
// for as long as this process takes to be given a CPU.
func sendmsg(b []byte, files []*os.File) {
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		sendAll(b[:1], unix.UnixRights(fds...))
		closeAll(files)
		b = b[1:]
	}
	sendAll(b, nil)
}

// sendAll writes all of b; without a peer there is nothing left to do.
func sendAll(b, oob []byte) {
	for len(b) > 0 {
		n, err := unix.SendmsgN(socket, b, oob, nil, unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			syscall.Exit(0)
		}
		b, oob = b[n:], nil
	}
}

// watch adds threads as threads hang, and says which hang.
func (s *server) watch() {
	const tick = time.Millisecond
	next := time.Hour
	for {
		select {
		case <-s.kick:
		case <-time.After(next):
		}
		next = s.look(tick)
	}
}

// look is one look at the tasks; it gives the time until the next.
func (s *server) look(tick time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendNow()
	now, next := time.Now(), time.Hour
	slow, hung := 0, 0
	for t := range s.running {
		age := now.Sub(t.began)
		if age >= tick {
			slow++
		}
		if left := t.Timeout - age; t.Timeout > 0 && !t.hung {
			if left <= 0 {
				t.hung = true
				s.post(reply{ID: t.ID, Hung: t.tid}, nil)
			} else {
				next = min(next, left)
			}
		}
		if t.hung {
			hung++
		}
	}
	if len(s.queue) == 0 {
		return next
	}
	switch quick := s.threads - slow; {
	case s.threads == hung && hung >= s.most:
		s.refuse()
		return next
	case quick == 0:
		s.grow(min(len(s.queue), max(s.base(), 3*s.threads)))
	case quick < s.base():
		s.grow(min(len(s.queue), s.base()-quick))
	}
	return tick
}

// refuse answers what no thread is left for.
func (s *server) refuse() {
	for _, t := range s.queue {
		closeAll(t.files)
		s.answer(t.ID, nil, nil, fmt.Errorf("not tried: %d threads of the probe helper hang already: %w", s.threads, unix.EAGAIN))
	}
	s.queue = nil
	s.queued.Store(0)
	s.sendNow()
}
