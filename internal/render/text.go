package render

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// none stands for an empty cell, so that a line keeps its number of words.
const none = "-"

// cell makes a value safe for a table: one that holds control characters, bytes
// that are no text, characters that turn the direction of writing, or blanks
// that look like the gap between two columns is quoted as in Go.
func cell(s string) string {
	switch {
	case s == "":
		return none
	case s == none || s[0] == '"' || s[0] == ' ' || s[len(s)-1] == ' ' || strings.Contains(s, "  "):
		return strconv.Quote(s)
	}
	return quoteOdd(s)
}

// quoteOdd quotes a name that could break a line or a terminal.
func quoteOdd(s string) string {
	if printable(s) {
		return s
	}
	return strconv.Quote(s)
}

func printable(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Line makes a message safe to print as one line: what is not printable is
// escaped, the rest stays readable.
func Line(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// writeNames prints one name a line; after NUL each name is exactly what it is.
func writeNames[T any](w io.Writer, items []T, names func(T) []string, null bool) error {
	seen := map[string]bool{}
	for _, item := range items {
		for _, name := range names(item) {
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			out := quoteOdd(name) + "\n"
			if null {
				out = name + "\x00"
			}
			if _, err := io.WriteString(w, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// shortest gives a function that cuts UIDs to the shortest prefix, of at least
// eight characters, that still tells all of the given ones apart.
func shortest(uids []string) func(string) string {
	n := 8
	seen := map[string]string{}
	for i := 0; i < len(uids); i++ {
		cut := uids[i][:min(n, len(uids[i]))]
		if other, ok := seen[cut]; ok && other != uids[i] {
			n, i = n+1, -1
			clear(seen)
			continue
		}
		seen[cut] = uids[i]
	}
	return func(uid string) string {
		if !printable(uid) {
			return uid // cut in the middle of a character it would say even less
		}
		return uid[:min(n, len(uid))]
	}
}
