package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Error tells people why a command failed: what it is about and what was found,
// the details one a line, and what to do next. Nothing in a message can break
// out of its line.
func Error(w io.Writer, err error) {
	d := api.NewErrorDoc(err)
	var b strings.Builder
	for i, s := range strings.Split(d.Message, "\n") {
		switch {
		case i == 0:
			fmt.Fprintf(&b, "kvol: %s\n", Line(s))
		case s != "":
			fmt.Fprintf(&b, "  %s\n", Line(s)) // of joined errors
		}
	}
	for _, s := range d.Details {
		fmt.Fprintf(&b, "  %s\n", Line(s))
	}
	if d.Next != "" {
		fmt.Fprintf(&b, "next: %s\n", Line(d.Next))
	}
	_, _ = io.WriteString(w, b.String()) // there is nowhere left to say that it failed
}

// ErrorJSON tells programs the same in one line.
func ErrorJSON(w io.Writer, err error) {
	raw, jsonErr := compact(api.NewErrorDoc(err))
	if jsonErr != nil {
		Error(w, err)
		return
	}
	_, _ = w.Write(append(raw, '\n'))
}

// Note writes one line for people beside a result.
func Note(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, Line(fmt.Sprintf(format, args...))+"\n")
}
