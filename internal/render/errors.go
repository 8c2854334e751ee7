package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Error tells people why a command failed: what it is about and what was found,
// the details one a line, and what to do next. Nothing in a message can break
// out of its line. On a terminal of that many columns long lines are broken
// between words.
func Error(w io.Writer, columns int, err error) {
	d := api.NewErrorDoc(err)
	var b strings.Builder
	for i, s := range strings.Split(d.Message, "\n") {
		switch {
		case i == 0:
			b.WriteString(message("kvol: "+s, columns))
		case s != "":
			b.WriteString(message("  "+s, columns)) // of joined errors
		}
	}
	for _, s := range d.Details {
		b.WriteString(message("  "+s, columns))
	}
	if d.Next != "" {
		b.WriteString(next("next: "+Line(d.Next), columns))
	}
	_, _ = io.WriteString(w, b.String()) // there is nowhere left to say that it failed
}

// message makes one line of a text, or as many as a terminal needs.
func message(s string, columns int) string {
	s = Line(s)
	if columns == 0 {
		return s + "\n"
	}
	return hang(s, 6, columns)
}

// next breaks what to do next between its clauses only: a command is to be copied whole.
func next(s string, columns int) string {
	var lines []string
	for side := ""; columns > 0 && width(side+s) > columns; side = "      " {
		head := first(s, columns-len(side))
		at := strings.LastIndex(head, "; ")
		if at < 0 {
			at = strings.LastIndex(head[min(len(head), len("next: ")):], ": ") + len("next: ")
		}
		if at < len("next: ") {
			break
		}
		lines, s = append(lines, side+s[:at+1]), s[at+2:]
	}
	if len(lines) > 0 {
		s = "      " + s
	}
	return strings.Join(append(lines, s), "\n") + "\n"
}

// ErrorJSON tells programs the same in one line.
func ErrorJSON(w io.Writer, err error) {
	raw, jsonErr := compact(api.NewErrorDoc(err))
	if jsonErr != nil {
		Error(w, 0, err)
		return
	}
	_, _ = w.Write(append(raw, '\n'))
}

// Note writes one line for people beside a result.
func Note(w io.Writer, columns int, format string, args ...any) {
	_, _ = io.WriteString(w, message(fmt.Sprintf(format, args...), columns))
}
