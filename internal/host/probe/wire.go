package probe

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// The helper and kvol talk over a stream socket in frames: the length of the
// body and the number of descriptors, four bytes each, then the body, JSON. The
// descriptors go with the first byte of their frame. (A packet socket would not
// carry a body beyond its buffer.)

const (
	headerSize = 8
	maxFrame   = 64 << 20
	maxFiles   = 253 // SCM_MAX_FD of the kernel
)

// request asks for a job, or, without one, to keep its descriptors open.
type request struct {
	ID   uint64
	Job  string          `json:",omitempty"`
	Args json.RawMessage `json:",omitempty"`
	// Timeout, in nanoseconds after its start, makes the helper itself say that the
	// job hangs; 0 leaves that to the caller.
	Timeout int64 `json:",omitempty"`
}

// reply answers one request. Hung comes at most once before the real answer,
// which may never come.
type reply struct {
	ID     uint64
	Result json.RawMessage `json:",omitempty"`
	Err    *remoteError    `json:",omitempty"`
	Hung   int             `json:",omitempty"` // the thread that does not come back
}

// remoteError carries what of an error has a meaning: its words, its errno, and
// kind, path, next step and details of the api.Error in it.
type remoteError struct {
	Text    string
	Errno   syscall.Errno `json:",omitempty"`
	Kind    string        `json:",omitempty"`
	Path    string        `json:",omitempty"`
	Next    string        `json:",omitempty"`
	Details []string      `json:",omitempty"`
}

// kinds are the kinds of failure that a job can give.
var kinds = []error{
	api.ErrUsage, api.ErrInput, api.ErrNotSupported, api.ErrNotMounted, api.ErrNotFound, api.ErrBusy,
	api.ErrNotEmpty, api.ErrRefused, api.ErrMissingTool, api.ErrUncertain, api.ErrTimeout, api.ErrLocked,
}

func encodeError(err error) *remoteError {
	r := &remoteError{Text: err.Error()}
	_ = errors.As(err, &r.Errno)
	var e *api.Error
	if errors.As(err, &e) {
		r.Path, r.Next, r.Details = e.Path, e.Next, e.Details
	}
	if i := slices.IndexFunc(kinds, func(k error) bool { return errors.Is(err, k) }); i >= 0 {
		r.Kind = kinds[i].Error()
	}
	return r
}

// Error gives the words of the error in the helper.
func (r *remoteError) Error() string { return r.Text }

// Unwrap gives the errno and the api.Error that was in it.
func (r *remoteError) Unwrap() []error {
	var out []error
	if i := slices.IndexFunc(kinds, func(k error) bool { return k.Error() == r.Kind }); i >= 0 || r.Next != "" || r.Path != "" {
		e := &api.Error{Path: r.Path, Next: r.Next, Details: r.Details}
		if i >= 0 {
			e.Kind = kinds[i]
		}
		out = append(out, e)
	}
	if r.Errno != 0 {
		out = append(out, r.Errno)
	}
	return out
}

// frame puts the header before a body.
func frame(body any, files int) ([]byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if len(b) > maxFrame || files > maxFiles {
		return nil, fmt.Errorf("probe: %d bytes with %d descriptors are too much for one message", len(b), files)
	}
	out := make([]byte, headerSize, headerSize+len(b))
	binary.NativeEndian.PutUint32(out, uint32(len(b)))
	binary.NativeEndian.PutUint32(out[4:], uint32(files))
	return append(out, b...), nil
}

// reader takes frames from a socket. recv is recvmsg(2) and never gives
// descriptors without MSG_CMSG_CLOEXEC. One recvmsg may give several frames, but
// the kernel ends it after the first that has descriptors, so that their order is
// the order of the frames.
type reader struct {
	recv  func(buf, oob []byte) (n, oobn, flags int, err error)
	buf   []byte
	fds   []int
	chunk []byte
	oob   []byte
}

func newReader(recv func(buf, oob []byte) (int, int, int, error)) *reader {
	return &reader{recv: recv, chunk: make([]byte, 64<<10), oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// next gives the body of the next frame, valid until the next call, and its
// descriptors; io.EOF at the end.
func (r *reader) next() ([]byte, []*os.File, error) {
	for {
		if body, files, err := r.cut(); body != nil || err != nil {
			return body, files, err
		}
		n, oobn, flags, err := r.recv(r.chunk, r.oob)
		if err != nil {
			return nil, nil, err
		}
		if err := r.take(r.oob[:oobn]); err != nil {
			return nil, nil, err
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return nil, nil, fmt.Errorf("descriptors lost: %w", unix.EMFILE)
		}
		if n == 0 {
			return nil, nil, io.EOF
		}
		r.buf = append(r.buf, r.chunk[:n]...)
	}
}

// cut takes a whole frame from what was read; a nil body where there is none yet.
func (r *reader) cut() ([]byte, []*os.File, error) {
	if len(r.buf) < headerSize {
		return nil, nil, nil
	}
	size := int(binary.NativeEndian.Uint32(r.buf))
	count := int(binary.NativeEndian.Uint32(r.buf[4:]))
	if size > maxFrame || count > maxFiles {
		return nil, nil, fmt.Errorf("probe: broken message of %d bytes and %d descriptors", size, count)
	}
	if len(r.buf) < headerSize+size {
		return nil, nil, nil
	}
	if len(r.fds) < count {
		return nil, nil, fmt.Errorf("probe: %d descriptors of %d came", len(r.fds), count)
	}
	var files []*os.File
	for _, fd := range r.fds[:count] {
		files = append(files, os.NewFile(uintptr(fd), "passed"))
	}
	body := r.buf[headerSize : headerSize+size]
	r.fds, r.buf = r.fds[count:], r.buf[headerSize+size:]
	return body, files, nil
}

func (r *reader) take(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return err
		}
		r.fds = append(r.fds, fds...)
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
