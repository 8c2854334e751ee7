package exec

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// input is what the tool reads, nil for nothing.
func (c Cmd) input() io.Reader {
	in := c.Stdin
	if c.Secret != nil {
		in = append(bytes.Clone(in), c.Secret.Reveal()...)
	}
	if len(in) == 0 {
		return nil
	}
	return bytes.NewReader(in)
}

// environment is that of kvol with the C locale and the directories of the
// tools. What is addressed to kvol itself, or to the one process that a service
// manager started, is left out.
func environment(env, dirs []string) []string {
	out := []string{"PATH=" + strings.Join(dirs, ":"), "LC_ALL=C"}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH", name == "LANG", name == "LANGUAGE", strings.HasPrefix(name, "LC_"),
			strings.HasPrefix(name, "KVOL_"), strings.HasPrefix(name, "LISTEN_"), name == "NOTIFY_SOCKET":
		default:
			out = append(out, kv)
		}
	}
	return out
}

// output takes one stream of a tool.
type output interface {
	forChild() io.Writer
	// bytes gives the first bytes of the stream and whether there were more. It
	// may be called while the tool still writes.
	bytes() (head []byte, truncated bool)
	close()
}

// buffer is fed from a pipe; what is beyond its limit is read and dropped, so
// that the tool goes on.
type buffer struct {
	mu    sync.Mutex
	limit int
	buf   []byte
	cut   bool
}

func newBuffer(limit int) (output, error) { return &buffer{limit: limit}, nil }

func (b *buffer) forChild() io.Writer { return b }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.limit-len(b.buf))
	b.buf = append(b.buf, p[:n]...)
	b.cut = b.cut || n < len(p)
	return len(p), nil
}

func (b *buffer) bytes() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf), b.cut
}

func (b *buffer) close() {}

// memfd is a file in memory. A tool that outlives kvol would be killed by
// SIGPIPE with its next word on a pipe. (Not for every tool: a script that
// writes to /dev/stderr truncates a file.)
type memfd struct {
	f     *os.File
	limit int
}

func newMemfd(limit int) (output, error) {
	fd, err := unix.MemfdCreate("kvol-output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return &memfd{os.NewFile(uintptr(fd), "kvol-output"), limit}, nil
}

func (m *memfd) forChild() io.Writer { return m.f }

func (m *memfd) bytes() ([]byte, bool) {
	buf := make([]byte, m.limit+1)
	n, _ := m.f.ReadAt(buf, 0)
	return buf[:min(n, m.limit)], n > m.limit
}

func (m *memfd) close() { _ = m.f.Close() }
