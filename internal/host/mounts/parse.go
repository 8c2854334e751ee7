package mounts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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
	p := parser{words: map[string]string{}, lists: map[string][]string{}}
	in := lines{r: bufio.NewReaderSize(r, 64<<10)}
	for n := 1; ; n++ {
		line, err := in.next()
		if err == io.EOF && len(line) == 0 {
			return t, nil
		}
		var m Mount
		switch {
		case err == nil:
			m, err = p.mount(line)
		case errors.Is(err, errTooLong):
		case err == io.EOF:
			// The kernel ends every line, so this one is cut. What is left of it may
			// still tell that something is mounted there.
			if m, err = p.mount(line); err == nil {
				t.Mounts = append(t.Mounts, m)
			}
			err = errCut
		default:
			return nil, err
		}
		if err != nil {
			t.Bad = append(t.Bad, BadLine{Line: n, Reason: err.Error(), Text: quote(line)})
			continue
		}
		t.Mounts = append(t.Mounts, m)
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
	if err != bufio.ErrBufferFull {
		return bytes.TrimSuffix(line, []byte("\n")), err
	}
	l.long = l.long[:0]
	tooLong := false
	for {
		if tooLong = tooLong || len(l.long)+len(line) > maxLine; !tooLong {
			l.long = append(l.long, line...)
		}
		if err != bufio.ErrBufferFull {
			break
		}
		line, err = l.r.ReadSlice('\n')
	}
	if tooLong && (err == nil || err == io.EOF) {
		err = errTooLong
	}
	return bytes.TrimSuffix(l.long, []byte("\n")), err
}

// parser keeps what many mounts of one table have in common, so that a table of
// 50,000 mounts costs little more than its mount points.
type parser struct {
	words map[string]string   // as printed → unescaped
	lists map[string][]string // as printed → cut apart and unescaped
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
	if m.MountPoint = unescape(string(f.next())); !strings.HasPrefix(m.MountPoint, "/") {
		return m, errPath
	}
	if m.Options = p.list(f.next()); len(m.Options) == 0 {
		return m, errOptions
	}
	for {
		if len(f.rest) == 0 {
			return m, errSeparator
		}
		tag := string(f.next())
		if tag == "-" {
			break
		}
		if group, ok := strings.CutPrefix(tag, "shared:"); ok {
			m.PeerGroup, _ = strconv.Atoi(group)
		}
		m.Optional = append(m.Optional, tag)
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

// fields are what is left of a line. Exactly one blank parts two of them.
type fields struct{ rest []byte }

func (f *fields) next() []byte {
	field, rest, _ := bytes.Cut(f.rest, []byte(" "))
	f.rest = rest
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

// word unescapes a field and keeps one copy of a short one.
func (p *parser) word(b []byte) string {
	if s, ok := p.words[string(b)]; ok { // the compiler makes no string for this
		return s
	}
	raw := string(b)
	s := unescape(raw)
	if len(raw) <= maxShared {
		p.words[raw] = s
	}
	return s
}

// list is word for options.
func (p *parser) list(b []byte) []string {
	if l, ok := p.lists[string(b)]; ok {
		return l
	}
	raw := string(b)
	l := splitOptions(raw)
	if len(raw) <= maxShared {
		p.lists[raw] = l
	}
	return l
}

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
