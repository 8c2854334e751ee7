package render

import (
	"bytes"
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// gap is between two columns, as in kubectl.
const gap = "   "

// writeTable draws no lines, cuts nothing and wraps nothing: one line an item.
func writeTable[T any](w io.Writer, columns []column[T], items []T, o Options) error {
	rows := make([][]string, len(items))
	for i, item := range items {
		row := make([]string, len(columns))
		for j, c := range columns {
			row[j] = cell(c.cell(item))
			if o.Color && c.mood {
				row[j] = paint(row[j])
			}
		}
		rows[i] = row
	}
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = c.heading()
	}
	return writeRows(w, heads, rows, o.NoHeaders)
}

// writeRows aligns rows of cells that are safe to print.
func writeRows(w io.Writer, heads []string, rows [][]string, noHeaders bool) error {
	trim := &trimmer{w: w}
	t := tablewriter.NewTable(trim,
		tablewriter.WithRenderer(renderer.NewBlueprint()),
		tablewriter.WithRendition(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		}),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithTrimSpace(tw.Off),
		tablewriter.WithPadding(tw.Padding{Right: gap, Overwrite: true}),
	)
	if !noHeaders {
		t.Header(heads)
	}
	if err := t.Bulk(rows); err != nil {
		return err
	}
	if err := t.Render(); err != nil {
		return err
	}
	return trim.err
}

// trimmer takes the blanks from the end of each line, which tablewriter pads to
// the width of the last column, and keeps the first error, which tablewriter
// does not report.
type trimmer struct {
	w   io.Writer
	buf []byte
	err error
}

func (t *trimmer) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	for {
		i := bytes.IndexByte(t.buf, '\n')
		if i < 0 {
			return len(p), t.err
		}
		if t.err == nil {
			_, t.err = t.w.Write(append(bytes.TrimRight(t.buf[:i:i], " "), '\n'))
		}
		t.buf = t.buf[i+1:]
	}
}

// colors of states and outcomes: good, to be looked at, bad.
var colors = map[string]string{
	"ok": "32", "done": "32", "already": "32",
	"readonly": "33", "deleted": "33", "unmounted": "33", "unknown": "33", "denied": "33", "skipped": "33",
	"stale": "31", "disconnected": "31", "unresponsive": "31", "failed": "31", "refused": "31",
	"uncertain": "31", "interrupted": "31",
}

func paint(s string) string {
	if c, ok := colors[s]; ok {
		return "\x1b[" + c + "m" + s + "\x1b[0m"
	}
	return s
}
