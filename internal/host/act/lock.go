package act

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
)

// LockClass orders locks: one of a later class is taken while earlier ones are
// held, never the other way round, so that no two kvols wait for each other.
type LockClass int

// The classes of locks, in the order in which they are taken.
const (
	LockRoot   LockClass = iota // of a kubelet root; shared by the verbs
	LockVolume                  // of a volume, by its spec name
	LockDevice                  // of a device, by its number
)

func (c LockClass) String() string { return [...]string{"root", "volume", "device"}[c] }

// Locks are the locks of one operation. They are flocks on files that stay: a
// process that dies lets go, and what it left running (mkfs, an unmount that
// hangs) holds them on through the descriptors that it inherited.
type Locks struct {
	dir     *safefs.Root
	wait    time.Duration
	last    LockClass
	lastKey string
	files   []*os.File
}

// NewLocks takes locks in a directory below the run directory and waits for
// each at most so long.
func NewLocks(run *safefs.Root, wait time.Duration) *Locks {
	return &Locks{dir: run, wait: wait}
}

// Take takes one lock. The error is ErrLocked, with the holder's pid and command,
// when it cannot be had in time.
func (l *Locks) Take(ctx context.Context, class LockClass, key string, shared bool) error {
	if class < l.last || class == l.last && len(l.files) > 0 && key < l.lastKey {
		return fmt.Errorf("lock %s %q asked for after %s %q: against the order", class, key, l.last, l.lastKey)
	}
	sum := sha256.Sum256([]byte(key))
	name := fmt.Sprintf("%s-%s.lock", class, hex.EncodeToString(sum[:12]))
	f, err := l.dir.OpenFile(name, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		return api.Errorf(api.ErrRefused, "no lock can be taken, so nothing is changed: %w", err).
			WithNext("name a directory that can be written: --run-dir DIR")
	}
	if err := l.flock(ctx, f, shared, fmt.Sprintf("%s %s", class, strings.ReplaceAll(key, "\x00", ": "))); err != nil {
		f.Close()
		return err
	}
	l.files, l.last, l.lastKey = append(l.files, f), class, key
	if !shared {
		sign(f)
	}
	return nil
}

// flock polls, since a blocking flock cannot be given up at a deadline.
func (l *Locks) flock(ctx context.Context, f *os.File, shared bool, what string) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	give := time.NewTimer(l.wait)
	defer give.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
		select {
		case <-again.C:
		case <-give.C:
			return locked(f, what)
		case <-ctx.Done():
			return errors.Join(locked(f, what), ctx.Err())
		}
	}
}

func locked(f *os.File, what string) error {
	holder := "another process"
	buf := make([]byte, 4096)
	if n, _ := f.ReadAt(buf, 0); n > 0 {
		holder = strings.TrimSpace(string(buf[:n]))
	}
	// Who signed may be gone, and what it left running holds the lock.
	now := holders(f)
	signed := slices.ContainsFunc(now, func(h string) bool { return strings.HasPrefix(holder, h[:strings.Index(h, ":")+1]) })
	if len(now) > 0 && !signed {
		holder = strings.Join(now, ", ")
	}
	return api.Errorf(api.ErrLocked, "%s holds the lock of %s", holder, what).
		WithNext("wait for it to end, or give more time with --lock-timeout; the lock goes with the process (and with the tools that it left running)")
}

// holders are the processes that hold the lock of a file, as "pid 12: command".
// The kernel shows a flock beside each descriptor that holds it, whoever took it
// (proc_pid_fdinfo(5)). Without the right to look there are none.
func holders(f *os.File) []string {
	path, err := os.Readlink(fdPath(f))
	if err != nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	var out []string
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != path {
			continue
		}
		dir, fd := filepath.Split(link)
		dir = strings.TrimSuffix(dir, "fd/")
		if info, err := os.ReadFile(dir + "fdinfo/" + fd); err != nil || !strings.Contains(string(info), "FLOCK") {
			continue
		}
		out = append(out, "pid "+filepath.Base(dir)+": "+command(dir))
	}
	return slices.Compact(out)
}

// command is the command line of the process with that directory in /proc.
func command(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	return strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", " ")
}

// sign writes who holds the lock, for those who wait.
func sign(f *os.File) {
	text := "pid " + strconv.Itoa(os.Getpid()) + ": " + command("/proc/self") + "\n"
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(text), 0) // only for people; the lock is the flock
	}
}

// Files are the descriptors that hold the locks.
func (l *Locks) Files() []*os.File { return l.files }

// Release lets go of all of them, last taken first.
func (l *Locks) Release() {
	for i := len(l.files) - 1; i >= 0; i-- {
		l.files[i].Close()
	}
	l.files, l.last, l.lastKey = nil, 0, ""
}
