package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Each maps to one exit code in [ExitCode] and one reason
// in [Reason]; every other error is plain failure.
var (
	ErrUsage           = errors.New("bad usage")
	ErrInput           = errors.New("bad input")
	ErrNoPlugin        = errors.New("no plugin for this volume")
	ErrAmbiguousPlugin = errors.New("more than one plugin claims this volume")
	ErrNotSupported    = errors.New("not supported")
	ErrNotMounted      = errors.New("not mounted")
	ErrNotFound        = errors.New("not found")
	ErrBusy            = errors.New("busy")
	ErrNotEmpty        = errors.New("not empty")
	ErrRefused         = errors.New("refused for safety")
	ErrMissingTool     = errors.New("a needed tool is missing")
	ErrTimeout         = errors.New("timed out")
	// ErrUncertain means that the change may have happened: it is never retried
	// or undone blindly.
	ErrUncertain = errors.New("outcome uncertain")
	ErrLocked    = errors.New("another kvol holds the lock")
	ErrPartly    = errors.New("partly done")
	ErrFindings  = errors.New("there are findings")
	ErrInterrupt = errors.New("interrupted")
)

// Exit codes of kvol; scripts rely on them (docs/exit-codes.md).
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitUsage        = 2
	ExitPartly       = 3
	ExitRefused      = 4
	ExitNotFound     = 5
	ExitNotSupported = 6
	ExitMissingTool  = 7
	ExitUncertain    = 8
	ExitBusy         = 9
	ExitLocked       = 10
	ExitFindings     = 11
	ExitInterrupted  = 130
)

// kinds is the one table from a failure to its exit code and its reason. The
// first sentinel that an error wraps decides, so the order is part of it: what
// is uncertain stays uncertain whatever it was caused by.
var kinds = []struct {
	err    error
	code   int
	reason string
}{
	{ErrInterrupt, ExitInterrupted, "Interrupted"},
	{ErrPartly, ExitPartly, "PartlyDone"},
	{ErrFindings, ExitFindings, "Findings"},
	{ErrUncertain, ExitUncertain, "Uncertain"},
	{ErrLocked, ExitLocked, "Locked"},
	{ErrRefused, ExitRefused, "Refused"},
	{ErrNotEmpty, ExitRefused, "NotEmpty"},
	{ErrBusy, ExitBusy, "Busy"},
	{ErrUsage, ExitUsage, "Usage"},
	{ErrInput, ExitUsage, "BadInput"},
	{ErrAmbiguousPlugin, ExitUsage, "AmbiguousPlugin"},
	{ErrNoPlugin, ExitNotFound, "NoPlugin"},
	{ErrNotMounted, ExitNotFound, "NotMounted"},
	{ErrNotFound, ExitNotFound, "NotFound"},
	{ErrNotSupported, ExitNotSupported, "NotSupported"},
	{ErrMissingTool, ExitMissingTool, "MissingTool"},
	{ErrTimeout, ExitUncertain, "Timeout"},
	{context.DeadlineExceeded, ExitUncertain, "Timeout"},
	{context.Canceled, ExitInterrupted, "Interrupted"},
}

// ExitCode maps an error to kvol's exit code; nil is 0.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.code
		}
	}
	return ExitFailed
}

// KindOf is the sentinel that decides about an error's exit code; nil where it is of
// no special kind.
func KindOf(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.err
		}
	}
	return nil
}

// Reason is the stable, CamelCase word for the kind of an error: "Busy",
// "Refused"; "Failed" where it is of no special kind and "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.reason
		}
	}
	return "Failed"
}

// Error carries what a failure is about. It is wrapped once, at a layer's door;
// a zero field is unknown or does not apply.
type Error struct {
	Op     string // the verb or the step: "publish", "mount"
	Plugin string
	Volume string
	Path   string // the path or device that it is about
	Kind   error  // one of the sentinels above, or nil
	Err    error  // the cause, in words that name what was found
	// Details are further facts, one a line: holders, candidates, what was looked at.
	Details []string
	// Next is what the operator does now, as an exact command where there is one.
	Next string
}

// Error says, in one line, where and what was found; Details and Next are apart.
func (e *Error) Error() string {
	var b strings.Builder
	for _, part := range []string{e.Op, e.Volume, e.Path} {
		if part != "" {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(quoteOdd(part))
		}
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	switch {
	case e.Err != nil:
		b.WriteString(plainly.Replace(e.Err.Error()))
	case e.Kind != nil:
		b.WriteString(e.Kind.Error())
	default:
		b.WriteString("failed")
	}
	return b.String()
}

// Unwrap gives both the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var out []error
	if e.Kind != nil {
		out = append(out, e.Kind)
	}
	if e.Err != nil {
		out = append(out, e.Err)
	}
	return out
}

// Errorf makes an Error of a kind whose cause is a formatted message.
func Errorf(kind error, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// WithNext says what the operator does next.
func (e *Error) WithNext(format string, args ...any) *Error {
	e.Next = fmt.Sprintf(format, args...)
	return e
}

// At names the path or device that the failure is about.
func (e *Error) At(path string) *Error {
	e.Path = path
	return e
}

// plainly has words for people where the standard library speaks of itself.
var plainly = strings.NewReplacer("context deadline exceeded", "its time was over", "context canceled", "interrupted")

// quoteOdd quotes what could break a line of a terminal or a log: a name found
// on disk can hold newlines and escape sequences.
func quoteOdd(s string) string {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\ufffd' || r >= 0x80 && r < 0xa0 {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}

// ErrorDoc is the JSON form of a failure, the last line on standard error with
// -o json.
type ErrorDoc struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Code       int      `json:"code"`
	Reason     string   `json:"reason"`
	Message    string   `json:"message"`
	Op         string   `json:"op"`
	Plugin     string   `json:"plugin"`
	Volume     string   `json:"volume"`
	Path       string   `json:"path"`
	Next       string   `json:"next"`
	Details    []string `json:"details"`
}

// NewErrorDoc flattens an error and the Errors inside it; the outermost
// non-empty value of a field wins, details and next steps are gathered.
func NewErrorDoc(err error) ErrorDoc {
	d := ErrorDoc{
		APIVersion: Version, Kind: "Error", Code: ExitCode(err), Reason: Reason(err),
		Message: plainly.Replace(err.Error()), Details: []string{},
	}
	walk(err, func(e *Error) {
		first(&d.Op, e.Op)
		first(&d.Plugin, e.Plugin)
		first(&d.Volume, e.Volume)
		first(&d.Path, e.Path)
		first(&d.Next, e.Next)
		d.Details = append(d.Details, e.Details...)
	})
	return d
}

func first(dst *string, v string) {
	if *dst == "" {
		*dst = v
	}
}

// walk calls f for every *Error in the tree of err, outermost first.
func walk(err error, f func(*Error)) {
	if err == nil {
		return
	}
	if e, ok := err.(*Error); ok { //nolint:errorlint // the walk itself does the unwrapping
		f(e)
	}
	switch u := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		walk(u.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, inner := range u.Unwrap() {
			walk(inner, f)
		}
	}
}
