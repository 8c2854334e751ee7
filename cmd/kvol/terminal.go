package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// colorful decides whether states are painted: --color, or by itself on a
// terminal unless NO_COLOR is set to anything (no-color.org).
func (a *app) colorful() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && a.terminal
}

// isTerminal says whether a person reads what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
