package act

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Value is a string that may be known only after a step has been done: the
// device path that attach gives, the name of a new loop device. Plugins pass it
// on and never branch on what it holds.
type Value struct {
	text string
	ref  string // the shell variable that stands for it, "DEV1"
}

// Known makes a Value of a string that is known now.
func Known(s string) Value { return Value{text: s} }

// Text gives the string, and false when it is not known yet (in a dry run).
func (v Value) Text() (string, bool) { return v.text, v.ref == "" || v.text != "" }

// String is for steps and messages: the string itself, or $DEV1.
func (v Value) String() string {
	if v.text == "" && v.ref != "" {
		return "$" + v.ref
	}
	return v.text
}

// Empty says that there is no value at all, known or to come.
func (v Value) Empty() bool { return v.text == "" && v.ref == "" }

func (v Value) shell() string {
	if v.ref != "" {
		return `"$` + v.ref + `"`
	}
	return Quote(v.text)
}

// Quote writes s as one word of bash. Control characters and bytes that are no text go
// into $'…', so that a script stays a list of lines whatever the names in it are, and a
// name that was shown can be copied.
func Quote(s string) string {
	if s != "" && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(`\` + s[:n])
		case r < ' ' || r == 0x7f || r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	b.WriteByte('\'')
	return b.String()
}

func odd(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("/._-:+,=@%", r)
}
