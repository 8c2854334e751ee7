package render

import (
	"bytes"
	"io"
	"slices"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// gap is between two columns, as in kubectl, and tight where there is little room.
const (
	gap   = "   "
	tight = "  "
)

// track is a column of a grid.
type track struct {
	head  string
	keep  bool // never cut
	mood  bool // painted, and never cut
	spare bool // left out where there is no room
}

// paint colours a cell of the column.
func (t track) paint(s string, o Options) string {
	if t.mood {
		return o.paint(s)
	}
	return s
}

// grid is a table of cells that are safe to print.
type grid struct {
	columns []track
	rows    [][]string
}

// tracks are columns of which any may be cut.
func tracks(heads ...string) []track {
	out := make([]track, len(heads))
	for i, head := range heads {
		out[i].head = head
	}
	return out
}

// writeTable draws no lines: one line an item.
func writeTable[T any](w io.Writer, columns []column[T], items []T, o Options) error {
	return gridOf(columns, items).write(w, o)
}

func gridOf[T any](columns []column[T], items []T) grid {
	g := grid{columns: make([]track, len(columns)), rows: make([][]string, len(items))}
	for i, c := range columns {
		g.columns[i] = track{head: c.heading(), keep: c.keep, mood: c.mood, spare: c.spare}
	}
	cells := make([]string, len(items)*len(columns))
	for i, item := range items {
		row := cells[i*len(columns) : (i+1)*len(columns)]
		for j, c := range columns {
			row[j] = cell(c.cell(item))
		}
		g.rows[i] = row
	}
	return g
}

// write aligns the cells. A table that is wider than the terminal is fitted to it, or
// becomes blocks of lines; wide is never cut.
func (g grid) write(w io.Writer, o Options) error {
	widths := g.widths(o)
	if o.Width == 0 || o.Format == Wide || total(widths, len(gap)) <= o.Width {
		return g.lines(w, widths, gap, o)
	}
	fitted := g.narrow(widths, o)
	if fitted == nil {
		var b bytes.Buffer
		g.blocks(&b, o)
		_, err := w.Write(b.Bytes())
		return err
	}
	g.cut(fitted, o.mark())
	return g.lines(w, fitted, tight, o)
}

// narrow finds widths that fit the terminal. It leaves out columns that have nothing in
// any row, and then those that can be spared, as long as what is cut would say too little.
// nil is that no table fits.
func (g *grid) narrow(widths []int, o Options) []int {
	for i := len(widths) - 1; i >= 0 && o.from == nil; i-- { // later rows may have it
		if !slices.ContainsFunc(g.rows, func(row []string) bool { return row[i] != none }) {
			widths = g.leaveOut(i, widths)
		}
	}
	for len(widths) > 1 { // one alone is text, and loses nothing in a block
		room := o.Width - len(tight)*(len(widths)-1)
		if fitted, ok := fit(widths, g.floor(widths, fair), room); ok {
			return fitted
		}
		spare := slices.IndexFunc(g.columns, func(t track) bool { return t.spare && len(o.Columns) == 0 })
		if spare < 0 {
			fitted, _ := fit(widths, g.floor(widths, least), room)
			return fitted
		}
		widths = g.leaveOut(spare, widths)
	}
	return nil
}

// leaveOut takes a column away.
func (g *grid) leaveOut(i int, widths []int) []int {
	g.columns = slices.Delete(slices.Clone(g.columns), i, i+1)
	g.rows = slices.Clone(g.rows)
	for j, row := range g.rows {
		g.rows[j] = slices.Delete(slices.Clone(row), i, i+1)
	}
	return slices.Delete(slices.Clone(widths), i, i+1)
}

// widths are what the columns take when nothing is cut.
func (g grid) widths(o Options) []int {
	out := make([]int, len(g.columns))
	copy(out, o.from)
	for i, t := range g.columns {
		if !o.NoHeaders {
			out[i] = max(out[i], width(t.head))
		}
	}
	for _, row := range g.rows {
		for i, s := range row {
			out[i] = max(out[i], width(s))
		}
	}
	return out
}

// floor is how far each column can be cut, to no less than so much.
func (g grid) floor(widths []int, least int) []int {
	out := slices.Clone(widths)
	for i, t := range g.columns {
		if !t.keep && !t.mood {
			out[i] = min(widths[i], max(least, width(t.head)))
		}
	}
	return out
}

func total(widths []int, gap int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

func (g grid) cut(widths []int, mark string) {
	for _, row := range g.rows {
		for i := range row {
			row[i] = cut(row[i], widths[i], mark)
		}
	}
}

// lines hands the rows to tablewriter one by one, which has the widths already: to find
// them itself it would keep and measure every cell several times.
func (g grid) lines(w io.Writer, widths []int, between string, o Options) error {
	r := &plain{grid: g, o: o, widths: widths, between: between, w: w}
	r.Blueprint = renderer.NewBlueprint(tw.Rendition{
		Borders: tw.BorderNone, Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone}, Streaming: true,
	})
	fixed := tw.NewMapper[int, int]()
	for i, n := range widths {
		fixed.Set(i, n+len(between))
	}
	t := tablewriter.NewTable(w,
		tablewriter.WithRenderer(r),
		tablewriter.WithStreaming(tw.StreamConfig{Enable: true}),
		tablewriter.WithColumnWidths(fixed),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithTrimSpace(tw.Off),
		tablewriter.WithPadding(tw.Padding{Overwrite: true}),
	)
	if err := t.Start(); err != nil {
		return err
	}
	if !o.NoHeaders && !o.goesOn {
		heads := make([]string, len(g.columns))
		for i, c := range g.columns {
			heads[i] = c.head
		}
		t.Header(heads)
	}
	for _, row := range g.rows {
		if err := t.Append(row); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return r.err
}

// plain draws the lines for tablewriter: no borders, and no blanks at the end of a
// line. It keeps the first error, which tablewriter does not report.
type plain struct {
	*renderer.Blueprint // for what these tables do not have: footers, lines between rows
	grid
	o       Options
	widths  []int
	between string
	w       io.Writer
	b       bytes.Buffer
	err     error
}

// Row writes one line.
func (p *plain) Row(row []string, _ tw.Formatting) {
	if p.err != nil {
		return
	}
	p.b.Reset()
	owed := 0
	for i, s := range row {
		blanks(&p.b, owed)
		p.b.WriteString(p.columns[i].paint(s, p.o))
		owed = p.widths[i] - width(s) + len(p.between)
	}
	p.b.WriteByte('\n')
	_, p.err = p.w.Write(p.b.Bytes())
}

// Header writes the headings.
func (p *plain) Header(rows [][]string, f tw.Formatting) {
	for _, row := range rows {
		p.Row(row, f)
	}
}

// colors of states and outcomes: good, to be looked at, bad.
var colors = map[string]string{
	"ok": "32", "done": "32", "already": "32",
	"live":   "32",
	"orphan": "33", "empty": "33", "readonly": "33", "deleted": "33", "unmounted": "33", "unknown": "33", "denied": "33", "skipped": "33",
	"stale": "31", "disconnected": "31", "unresponsive": "31", "failed": "31", "refused": "31",
	"uncertain": "31", "interrupted": "31", "broken": "31", "missing": "31",
}

func (o Options) paint(s string) string {
	if c, ok := colors[s]; ok && o.Color {
		return "\x1b[" + c + "m" + s + "\x1b[0m"
	}
	return s
}
