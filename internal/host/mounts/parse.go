package mounts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	maxLine   = 16 << 20 // bytes; longer lines are bad, so that memory is bounded
	quoteLine = 120      // bytes of a bad line that are shown
	maxShared = 128      // bytes; longer fields are hardly ever the same twice
)

// Parse reads a table in the form of /proc/PID/mountinfo. A line that cannot be
// read is skipped and reported in Bad. The error is that of r; there is no table
// then, since half of one looks whole.
func Parse(r io.Reader) (*Table, error) {
	t := &Table{}
	p := &parser{}
	in := lines{r: bufio.NewReaderSize(r, 64<<10)}
	for n := 1; ; n++ {
		line, err := in.next()
		if errors.Is(err, io.EOF) && len(line) == 0 {
			t.Mounts = slices.Concat(p.mounts...)
			return t, nil
		}
		var m Mount
		switch {
		case err == nil:
			m, err = p.mount(line)
		case errors.Is(err, errTooLong):
		case errors.Is(err, io.EOF):
			// The kernel ends every line, so this one is cut. What is left of it may
			// still tell that something is mounted there.
			if m, err = p.mount(line); err == nil {
				p.add(m)
			}
			err = errCut
		default:
			return nil, err
		}
		if err != nil {
			t.Bad = append(t.Bad, BadLine{Line: n, Reason: err.Error(), Text: quote(line)})
			continue
		}
		p.add(m)
	}
}

// What is wrong with a line.
var (
	errTooLong   = fmt.Errorf("it is longer than %d MiB", maxLine>>20)
	errCut       = errors.New("it is cut short: no newline at its end")
	errID        = errors.New("no mount id at its start")
	errParent    = errors.New("no parent id in its second field")
	errDevice    = errors.New("no major:minor in its third field")
	errPath      = errors.New("no absolute mount point in its fifth field")
	errOptions   = errors.New("no mount options in its sixth field")
	errSeparator = errors.New("no separator (-) after the mount options")
	errFS        = errors.New("no type, source and options of a file system after the separator")
)

// lines cuts a stream into lines without a limit but maxLine. (bufio.Scanner
// gives up for good at its limit, with every line that follows.)
type lines struct {
	r    *bufio.Reader
	long []byte // a line that did not fit into the buffer of r
}

// next gives a line without its newline, good until the next call: with
// errTooLong the start of a line that is skipped, with io.EOF the rest of a
// stream that does not end in a newline.
func (l *lines) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimSuffix(line, []byte("\n")), err
	}
	l.long = l.long[:0]
	tooLong := false
	for {
		if tooLong = tooLong || len(l.long)+len(line) > maxLine; !tooLong {
			l.long = append(l.long, line...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		line, err = l.r.ReadSlice('\n')
	}
	if tooLong && (err == nil || errors.Is(err, io.EOF)) {
		err = errTooLong
	}
	return bytes.TrimSuffix(l.long, []byte("\n")), err
}

// parser keeps the memory of a table small: one copy of what many mounts have in
// common, few large pieces instead of many small ones. It doubles the speed.
type parser struct {
	words cache[string]
	lists cache[[]string]
	// Pieces of a fixed size: what grows is copied again and again.
	text   strings.Builder
	tags   []string
	mounts [][]Mount
}

const (
	textPiece   = 32 << 10 // bytes
	tagsPiece   = 512
	mountsPiece = 256
)

func (p *parser) add(m Mount) {
	last := len(p.mounts) - 1
	if last < 0 || len(p.mounts[last]) == mountsPiece {
		p.mounts = append(p.mounts, make([]Mount, 0, mountsPiece))
		last++
	}
	p.mounts[last] = append(p.mounts[last], m)
}

// cache remembers the last field, as printed, that fell into each of its slots.
// (A map would grow with every field that is there once only.)
type cache[T any] [256]struct {
	raw   string
	value T
}

var seed = maphash.MakeSeed()

func (c *cache[T]) get(p *parser, b []byte, read func(raw string) T) T {
	if len(b) > maxShared {
		return read(string(b))
	}
	slot := &c[maphash.Bytes(seed, b)%uint64(len(c))]
	if slot.raw != string(b) || len(b) == 0 {
		slot.raw = p.keep(b)
		slot.value = read(slot.raw)
	}
	return slot.value
}

// keep makes a string of b.
func (p *parser) keep(b []byte) string {
	if len(b) > textPiece/8 {
		return string(b)
	}
	if p.text.Cap()-p.text.Len() < len(b) {
		p.text = strings.Builder{}
		p.text.Grow(textPiece)
	}
	start := p.text.Len()
	p.text.Write(b)
	return p.text.String()[start:]
}

// mount reads one line: "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue".
func (p *parser) mount(line []byte) (m Mount, err error) {
	f := fields{line}
	var ok bool
	if m.ID, ok = number(f.next()); !ok {
		return m, errID
	}
	if m.Parent, ok = number(f.next()); !ok {
		return m, errParent
	}
	if m.Major, m.Minor, ok = device(f.next()); !ok {
		return m, errDevice
	}
	// No name holds two slashes in a row, so this mark is always the kernel's.
	m.Root, m.Deleted = strings.CutSuffix(p.word(f.next()), "//deleted")
	if m.MountPoint = unescape(p.keep(f.next())); !strings.HasPrefix(m.MountPoint, "/") {
		return m, errPath
	}
	if m.Options = p.list(f.next()); len(m.Options) == 0 {
		return m, errOptions
	}
	if m.Optional, m.PeerGroup, ok = p.propagation(&f); !ok {
		return m, errSeparator
	}
	m.FSType = p.word(f.next())
	m.Source = p.word(f.next()) // an empty source is two blanks in a row
	// All the rest: some kernels print options with blanks in them.
	m.SuperOptions = p.list(f.rest)
	if m.FSType == "" || len(m.SuperOptions) == 0 {
		return m, errFS
	}
	return m, nil
}

// propagation reads the optional fields and the separator that ends them.
func (p *parser) propagation(f *fields) (tags []string, group int, ok bool) {
	start := len(p.tags)
	for len(f.rest) > 0 {
		b := f.next()
		if string(b) == "-" {
			if start < len(p.tags) {
				tags = p.tags[start:len(p.tags):len(p.tags)]
			}
			return tags, group, true
		}
		if n, ok := bytes.CutPrefix(b, []byte("shared:")); ok {
			group, _ = number(n)
		}
		if len(p.tags) == cap(p.tags) {
			p.tags = append(make([]string, 0, tagsPiece), p.tags[start:]...)
			start = 0
		}
		p.tags = append(p.tags, p.word(b))
	}
	return nil, 0, false
}

// fields are what is left of a line. Exactly one blank parts two of them.
type fields struct{ rest []byte }

func (f *fields) next() []byte {
	field := f.rest
	if i := bytes.IndexByte(field, ' '); i >= 0 {
		field, f.rest = field[:i], field[i+1:]
	} else {
		f.rest = nil
	}
	return field
}

func number(b []byte) (int, bool) {
	n, err := strconv.ParseUint(string(b), 10, 31)
	return int(n), err == nil
}

func device(b []byte) (major, minor int, ok bool) {
	before, after, _ := bytes.Cut(b, []byte(":"))
	major, ok1 := number(before)
	minor, ok2 := number(after)
	return major, minor, ok1 && ok2
}

// word unescapes a field.
func (p *parser) word(b []byte) string { return p.words.get(p, b, unescape) }

func (p *parser) list(b []byte) []string { return p.lists.get(p, b, splitOptions) }

// splitOptions cuts at commas, then undoes escapes: a comma inside of a value is
// \054 there. Only the security modules print a plain one, in a value that they
// quote: context="system_u:object_r:svirt_t:s0:c1,c2". A quote that has no end
// is part of a name.
func splitOptions(s string) []string {
	if s == "" {
		return nil
	}
	out := make([]string, 0, strings.Count(s, ",")+1)
	quotes := true // there may be an end of a quote in s
	for {
		end := strings.IndexByte(s, ',')
		if end < 0 {
			return append(out, unescape(s))
		}
		if start := strings.Index(s[:end], `="`); start >= 0 && quotes {
			switch q := strings.Index(s[start+2:], `",`); {
			case q >= 0:
				end = start + 2 + q + 1
			case s[len(s)-1] == '"':
				return append(out, unescape(s))
			default:
				quotes = false
			}
		}
		out = append(out, unescape(s[:end]))
		s = s[end+1:]
	}
}

// unescape undoes the kernel's escapes, a backslash and three octal digits, once:
// a backslash of the name itself is printed as \134. Any other backslash stays.
func unescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for ; i >= 0; i = strings.IndexByte(s, '\\') {
		b.WriteString(s[:i])
		if n, err := strconv.ParseUint(s[i+1:min(i+4, len(s))], 8, 8); err == nil && len(s) >= i+4 {
			b.WriteByte(byte(n))
			s = s[i+4:]
		} else {
			b.WriteByte('\\')
			s = s[i+1:]
		}
	}
	b.WriteString(s)
	return b.String()
}

func quote(line []byte) string {
	if len(line) > quoteLine {
		return strconv.Quote(string(line[:quoteLine])) + "..."
	}
	return strconv.Quote(string(line))
}
