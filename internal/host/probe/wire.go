package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
)

// The helper and kvol talk over a stream socket in frames: the length of the
// body and the number of descriptors, four bytes each, then the body. The
// descriptors go with the first byte of their frame. (A packet socket would not
// carry a body beyond its buffer.) Arguments, results and errors are in the form of
// package exact.

const (
	headerSize = 8
	maxFrame   = 64 << 20
	maxFiles   = 253 // SCM_MAX_FD of the kernel
)

// request asks for a job. The body of a frame to the helper is a list of them; its
// descriptors belong to the first.
type request struct {
	ID   uint64
	Job  string
	Args []byte
	// Timeout, after its start, makes the helper itself say that the job hangs; 0
	// leaves that to the caller.
	Timeout time.Duration
}

func (r request) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.ID)
	b = binary.AppendUvarint(b, uint64(r.Timeout))
	return appendBytes(appendBytes(b, r.Job), r.Args)
}

func parseRequests(body []byte) ([]request, error) {
	var out []request
	c := cursor{rest: body}
	for len(c.rest) > 0 {
		out = append(out, request{ID: c.number(), Timeout: time.Duration(c.number()), Job: string(c.bytes()), Args: c.bytes()})
	}
	return out, c.err
}

// reply answers one request. The body of a frame from the helper is a list of
// them; its descriptors belong to the first. Hung comes at most once before the
// real answer, which may never come.
type reply struct {
	ID     uint64
	Hung   int // the thread that does not come back
	Result []byte
	Err    *remoteError
}

func (r reply) append(b []byte) []byte {
	b = binary.AppendUvarint(b, r.ID)
	b = binary.AppendUvarint(b, uint64(r.Hung))
	b = appendBytes(b, r.Result)
	var failure []byte
	if r.Err != nil {
		failure, _ = exact.Marshal(r.Err) // numbers and strings
	}
	return appendBytes(b, failure)
}

func parseReplies(body []byte) ([]reply, error) {
	var out []reply
	c := cursor{rest: body}
	for len(c.rest) > 0 {
		r := reply{ID: c.number(), Hung: int(c.number()), Result: c.bytes()}
		if failure := c.bytes(); len(failure) > 0 {
			r.Err = new(remoteError)
			c.err = errors.Join(c.err, exact.Unmarshal(failure, r.Err))
		}
		out = append(out, r)
	}
	return out, c.err
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// cursor takes a body apart; at the first fault it is at its end, with an error.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) number() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.rest, c.err = nil, errBroken
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) bytes() []byte {
	n := c.number()
	if n > uint64(len(c.rest)) {
		c.rest, c.err = nil, errBroken
		return nil
	}
	v := c.rest[:n:n]
	c.rest = c.rest[n:]
	return v
}

var errBroken = errors.New("probe: broken message")

// remoteError carries what of an error has a meaning: its words, its errno, and
// kind, path, next step and details of the api.Error in it.
type remoteError struct {
	Text    string
	Errno   uint64   `cbor:",omitempty"`
	Kind    string   `cbor:",omitempty"`
	Path    string   `cbor:",omitempty"`
	Next    string   `cbor:",omitempty"`
	Details []string `cbor:",omitempty"`
}

// kinds are the kinds of failure that a job can give.
var kinds = []error{
	api.ErrUsage, api.ErrInput, api.ErrNotSupported, api.ErrNotMounted, api.ErrNotFound, api.ErrBusy,
	api.ErrNotEmpty, api.ErrRefused, api.ErrMissingTool, api.ErrUncertain, api.ErrTimeout, api.ErrLocked,
}

func encodeError(err error) *remoteError {
	r := &remoteError{Text: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		r.Errno = uint64(errno)
	}
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
		out = append(out, syscall.Errno(r.Errno))
	}
	return out
}

// frame puts a list of requests or replies behind its header.
func frame[T interface{ append([]byte) []byte }](list []T, files int) ([]byte, error) {
	out := make([]byte, headerSize, headerSize+64*len(list))
	for _, e := range list {
		out = e.append(out)
	}
	size := len(out) - headerSize
	if size > maxFrame || files > maxFiles {
		return nil, fmt.Errorf("probe: %d bytes with %d descriptors are too much for one message", size, files)
	}
	binary.NativeEndian.PutUint32(out, uint32(size))
	binary.NativeEndian.PutUint32(out[4:], uint32(files))
	return out, nil
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

// next gives the body of the next frame and its descriptors; io.EOF at the end.
// A body stays valid: what comes later is put behind it, or elsewhere.
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
		return nil, nil, errBroken
	}
	if len(r.buf) < headerSize+size {
		return nil, nil, nil
	}
	if len(r.fds) < count {
		return nil, nil, errBroken
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
