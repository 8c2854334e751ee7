package api

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

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
