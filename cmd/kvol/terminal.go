package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
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

// unicode decides whether box lines are drawn: on a terminal that shows them.
func (a *app) unicode() bool {
	if a.ascii || !a.terminal || os.Getenv("TERM") == "dumb" {
		return false
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // locale(7)
		if locale := os.Getenv(name); locale != "" {
			_, charset, _ := strings.Cut(strings.ToLower(locale), ".")
			return strings.HasPrefix(charset, "utf-8") || strings.HasPrefix(charset, "utf8")
		}
	}
	return false
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

// columns is how wide the terminal is that w leads to; 0 is none. As with git and
// systemd COLUMNS has the first word, and a terminal that does not tell has 80.
func columns(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if size, err := unix.IoctlGetWinsize(int(w.(*os.File).Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return int(size.Col)
	}
	return 80
}

// foldHelp has the help fit the terminal.
func (a *app) foldHelp(root *cobra.Command) {
	if a.width == 0 {
		return
	}
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		var b bytes.Buffer
		root.SetOut(&b)
		help(cmd, words)
		root.SetOut(a.out)
		_, _ = a.out.WriteString(render.Fold(b.String(), a.width)) // it keeps the error
	})
}
