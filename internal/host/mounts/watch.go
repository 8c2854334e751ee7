package mounts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Watch tells when a mount table changes, by poll(2): who has a mountinfo open is told
// of each change of its namespace once (proc_pid_mounts(5)).
//
// Since Linux 6.15 fanotify(7) reports each attach and detach by the mount's unique
// id, without a path. Asked then (statmount(2)), none of 2,000 mounts that were taken
// off again at once was there any more (measured, Linux 6.18): it tells nothing more
// than to read the table, so it is not used.
type Watch struct{ fd int }

// NewWatch begins to watch the table at path. What changes from here on is told, so the
// table is to be read afterwards. A recorded table never changes.
func NewWatch(path string) (*Watch, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, failed(path, fmt.Errorf("open: %w", err))
	}
	return &Watch{fd}, nil
}

// Close ends the watch.
func (w *Watch) Close() { unix.Close(w.fd) }

// Wait waits for a change since the last time that it told of one, for at most limit: 0
// only asks. The error is that of a context that ended.
func (w *Watch) Wait(ctx context.Context, limit time.Duration) (changed bool, err error) {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return false, fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(stop)
	told := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(told)
		_, _ = unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a number that is not 0
	})
	defer func() {
		if !unregister() {
			<-told // it uses the descriptor
		}
	}()
	for end := time.Now().Add(limit); ; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		left := max(time.Until(end), 0)
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLPRI}, {Fd: int32(stop), Events: unix.POLLIN}}
		ms := min((left+time.Millisecond-1)/time.Millisecond, 1<<30)
		if _, err := unix.Poll(fds, int(ms)); err != nil && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("poll: %w", err)
		}
		if changed = fds[0].Revents&unix.POLLPRI != 0; changed || left == 0 {
			return changed, nil
		}
	}
}
