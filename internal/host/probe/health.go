package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Target is a mount to be probed.
type Target struct {
	Path    string // its mount point
	MountID int    // as mountinfo shows it; 0 is any path at all, whose links are followed
	Dev     string // major:minor of its file system; "" is one of its own
	Root    string // the directory of the file system that is mounted
}

// Answer is the health of a target: ok, stale, disconnected, unresponsive,
// denied or unknown. Reason says why it is not ok.
type Answer struct {
	State  api.State
	Reason string
	// Answered is false where nothing came back: the file system hangs, or the probe
	// did not come to its end.
	Answered bool
	// Space is zero where it is not known: a file system is asked at one of its mounts,
	// and with a quota another directory of it has another size.
	Space Space
}

// Space is how large a file system is and how full, in bytes, as df(1) has it.
type Space struct{ Capacity, Used, Available int64 }

// Probe asks every file system among the targets once, all at the same time, and
// gives an answer for each target in the order of the targets. It ends when all
// have answered or had their timeout, a few ms after that at the latest, or with
// the context. A file system in which a probe, of this or of another kvol, still
// hangs is not asked again. A context that ends sooner shortens the time-out, so
// that what hangs is still found out and remembered.
//
// It does not tell a superblock that turned read-only: the mount table does.
func (h *Helper) Probe(ctx context.Context, targets []Target, timeout time.Duration) []Answer {
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(end)*3/4, time.Millisecond))
	}
	groups := groupByDev(targets)
	known := h.stuckNow()
	reqs := make([]request, 0, len(groups))
	asked := make([]*group, 0, len(groups))
	for _, g := range groups {
		if i := slices.IndexFunc(known, func(s stuck) bool { return s.Dev == g.dev && g.dev != "" }); i >= 0 {
			g.answer = Answer{State: api.StateUnresponsive, Reason: fmt.Sprintf("an earlier probe still hangs in it (pid %d, since %s); not asked again",
				known[i].PID, known[i].Since.Format(time.RFC3339))}
			continue
		}
		reqs = append(reqs, request{Job: "health", Args: g.args, Timeout: timeout})
		asked = append(asked, g)
	}
	h.ask(ctx, reqs, asked, timeout)
	out := make([]Answer, len(targets))
	for _, g := range groups {
		for _, i := range g.targets {
			out[i] = g.answer
			if targets[i].Root != targets[g.targets[g.by]].Root {
				out[i].Space = Space{}
			}
		}
	}
	return out
}

// group is the targets of one superblock.
type group struct {
	dev     string
	targets []int
	path    string // of the first
	args    []byte // for the job: mount id and path of each
	answer  Answer
	by      int // which of the targets it was asked at
}

func groupByDev(targets []Target) []*group {
	var groups []*group
	byDev := map[string]*group{}
	for i, t := range targets {
		g := byDev[t.Dev]
		if g == nil || t.Dev == "" {
			g = &group{dev: t.Dev, path: t.Path, answer: Answer{State: api.StateUnknown, Reason: "not probed"}}
			byDev[t.Dev] = g
			groups = append(groups, g)
		}
		g.targets = append(g.targets, i)
		g.args = appendBytes(binary.AppendUvarint(g.args, uint64(t.MountID)), t.Path)
	}
	return groups
}

// ask sends the requests, one for each group, and fills the answers in.
func (h *Helper) ask(ctx context.Context, reqs []request, groups []*group, timeout time.Duration) {
	if len(reqs) == 0 {
		return
	}
	// The helper itself says what hangs. If it is silent for longer than a
	// time-out, it hangs itself (stopped, or starved).
	silence := timeout + time.Second
	sendCtx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	c, err := h.running()
	var answers <-chan answer
	if err == nil {
		answers, err = c.send(sendCtx, reqs, nil)
	}
	if err != nil {
		for _, g := range groups {
			g.answer.Reason = err.Error()
		}
		return
	}
	var left []stuck
	waiting := make(map[uint64]*group, len(groups))
	for i, g := range groups {
		waiting[reqs[i].ID] = g
	}
	give := func(reason string) {
		for _, g := range waiting {
			g.answer.Reason = reason
		}
		clear(waiting)
	}
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			g := waiting[a.ID]
			if g == nil {
				continue // it hung, and came back
			}
			delete(waiting, a.ID)
			quiet.Reset(silence)
			if a.Hung != 0 {
				g.answer = Answer{State: api.StateUnresponsive, Reason: fmt.Sprintf("no answer within %s", timeout.Round(time.Millisecond))}
				left = append(left, newStuck(c.pid, a.Hung, g))
				continue
			}
			g.answer, g.by = a.health(len(g.targets))
		case <-quiet.C:
			give(fmt.Sprintf("the probe helper (pid %d) does not answer", c.pid))
		case <-ctx.Done():
			give("not probed to its end: " + context.Cause(ctx).Error())
		}
	}
	h.remember(left)
}

// health reads the answer to a health job for a number of targets, and which of them
// gave it.
func (a answer) health(targets int) (Answer, int) {
	var ok healthy
	err := a.decode(&ok)
	switch {
	case err == nil && (ok.By < 0 || ok.By >= targets):
		return Answer{State: api.StateUnknown, Reason: errBroken.Error()}, 0
	case err == nil:
		return Answer{State: api.StateOK, Answered: true, Space: ok.Space}, ok.By
	case errors.Is(err, ErrDied):
		return Answer{State: api.StateUnknown, Reason: err.Error()}, 0
	}
	return Answer{State: classify(err), Reason: err.Error(), Answered: true}, 0
}

// classify says what an error of statfs or statx tells of the file system.
func classify(err error) api.State {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return api.StateUnknown
	}
	switch errno {
	case unix.ESTALE, unix.EIO, unix.EREMOTEIO, unix.EUCLEAN, unix.EBADMSG, unix.ENODEV, unix.ENXIO:
		// EUCLEAN and EBADMSG are EFSCORRUPTED and EFSBADCRC of ext4 and XFS.
		return api.StateStale
	case unix.ENOTCONN, unix.ECONNABORTED, unix.ECONNREFUSED, unix.ECONNRESET, unix.ESHUTDOWN, unix.EHOSTDOWN,
		unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH, unix.ENETRESET, unix.ETIMEDOUT, unix.ENOLINK, unix.EPIPE:
		// ETIMEDOUT is the answer of a soft NFS mount.
		return api.StateDisconnected
	case unix.EACCES, unix.EPERM, unix.ENOKEY, unix.EKEYEXPIRED, unix.EKEYREVOKED, unix.EKEYREJECTED:
		// A healthy FUSE mount without allow_other answers EACCES to root.
		return api.StateDenied
	default:
		return api.StateUnknown
	}
}

// errCovered is for a mount that its path does not lead to.
var errCovered = errors.New("another mount covers it, or it is gone")

// healthy is what a health job gives where it found no fault.
type healthy struct {
	By    int // which of the targets was asked
	Space Space
}

// healthJob asks one file system, at the first of its mounts that can be reached
// by path.
func healthJob(args []byte, _ []*os.File) (any, []*os.File, error) {
	err := errCovered
	var ok healthy
	for c := (cursor{rest: args}); len(c.rest) > 0; ok.By++ {
		id, path := c.number(), string(c.bytes())
		if ok.Space, err = health(path, id); !errors.Is(err, errCovered) {
			break
		}
	}
	return ok, nil, err
}

// health asks the server of a file system twice: statfs, and statx without the
// cache. Statfs alone is not enough: FUSE answers it with zeros to a user that it
// denies everything. Nothing is opened for reading, which could start an
// automount.
func health(path string, mountID uint64) (Space, error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if mountID != 0 {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return Space{}, os.NewSyscallError("open", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Statx_t
	if mountID != 0 {
		err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
		if err == nil && st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id != mountID {
			return Space{}, errCovered
		}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil && !errors.Is(err, unix.ENOSYS) {
		return Space{}, os.NewSyscallError("statfs", err)
	}
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
	return spaceOf(fs), os.NewSyscallError("statx", err)
}

// spaceOf reads the answer of statfs, which a server may have made up.
func spaceOf(fs unix.Statfs_t) Space {
	unit := uint64(max(fs.Frsize, 0))
	if unit == 0 {
		unit = uint64(max(fs.Bsize, 0))
	}
	of := func(blocks uint64) int64 {
		high, low := bits.Mul64(blocks, unit)
		if high != 0 || low > math.MaxInt64 {
			return math.MaxInt64
		}
		return int64(low)
	}
	return Space{Capacity: of(fs.Blocks), Used: of(fs.Blocks - min(fs.Bfree, fs.Blocks)), Available: of(fs.Bavail)}
}
