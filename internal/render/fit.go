package render

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
)

// How narrow a cell is cut: while something else can be left out, while nothing can.
const (
	fair  = 12
	least = 6
)

// width is how many columns of a terminal a text takes.
func width(s string) int {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return twwidth.Width(s)
		}
	}
	return len(s)
}

// fit narrows columns until they have room: the widest are cut first, and to the same
// width. floor is what each needs at least. It is false where that is too much.
func fit(widths, floor []int, room int) ([]int, bool) {
	at := func(most int) ([]int, int) {
		out, sum := make([]int, len(widths)), 0
		for i, w := range widths {
			out[i] = min(w, max(most, floor[i]))
			sum += out[i]
		}
		return out, sum
	}
	most := slices.Max(widths)
	if _, sum := at(0); sum > room {
		return nil, false
	}
	for lo := 0; lo < most; { // lo always fits
		mid := (lo + most + 1) / 2
		if _, sum := at(mid); sum <= room {
			lo = mid
		} else {
			most = mid - 1
		}
	}
	out, sum := at(most)
	for i, w := range widths {
		if sum < room && out[i] < w {
			out[i]++
			sum++
		}
	}
	return out, true
}

// mark stands for what was cut away.
func (o Options) mark() string {
	if o.Unicode {
		return "…"
	}
	return "..."
}

// cut makes a text as narrow as most, with a mark where something is missing: a path
// keeps its end, a sentence its beginning, a name both.
func cut(s string, most int, mark string) string {
	if width(s) <= most {
		return s
	}
	room := most - width(mark)
	if room <= 0 {
		return first(s, most)
	}
	switch {
	case strings.HasPrefix(s, "/"), strings.Contains(s, "/") && !strings.Contains(s, " "):
		end := last(s, room)
		if i := strings.IndexByte(end, '/'); i > 0 && (i <= len(end)/2 || strings.Count(s, "/") == 1) {
			end = end[i:] // half a name, or most of a plugin's domain, says nothing
		}
		return mark + end
	case strings.Contains(s, " "):
		return strings.TrimRight(first(s, room), " ") + mark
	}
	tail := last(s, room/2)
	return first(s, room-width(tail)) + mark + tail
}

// first is as much of the beginning of a text as has room.
func first(s string, room int) string {
	for i, r := range s {
		if room -= width(string(r)); room < 0 {
			return s[:i]
		}
	}
	return s
}

// last is as much of its end as has room.
func last(s string, room int) string {
	runes := []rune(s)
	at := len(runes)
	for at > 0 {
		if room -= width(string(runes[at-1])); room < 0 {
			break
		}
		at--
	}
	return string(runes[at:])
}

// wrap breaks a text into lines that have room: at a blank, else after what divides a
// name or a path, else anywhere. Nothing is left out but the blanks.
func wrap(s string, room int) []string {
	var lines []string
	room = max(room, 2) // of a double-width character
	for width(s) > room {
		head := first(s, room)
		at := len(head)
		switch blank := strings.LastIndexByte(s[:at+1], ' '); {
		case blank > 0:
			at = blank
		default:
			at = cmp.Or(strings.LastIndexAny(head, "/,-")+1, at)
		}
		lines = append(lines, strings.TrimRight(s[:at], " "))
		s = strings.TrimLeft(s[at:], " ")
	}
	return append(lines, s)
}

// blocks writes a block of lines for each row, a line for each cell that has something.
func (g grid) blocks(b *bytes.Buffer, o Options) {
	side := 0
	if !o.NoHeaders {
		for _, t := range g.columns {
			side = max(side, width(t.head)+len(tight))
		}
	}
	for i, row := range g.rows {
		if i > 0 || o.goesOn {
			b.WriteByte('\n')
		}
		for j, value := range row {
			if value == none {
				continue
			}
			t := g.columns[j]
			for k, line := range wrap(value, o.Width-side) {
				head := ""
				if k == 0 && side > 0 {
					head = t.head
				}
				pad(b, head, side)
				b.WriteString(t.paint(line, o))
				b.WriteByte('\n')
			}
		}
	}
}

// pad writes a text and blanks behind it up to a width.
func pad(b *bytes.Buffer, s string, to int) {
	b.WriteString(s)
	blanks(b, to-width(s))
}

func blanks(b *bytes.Buffer, n int) {
	const some = "                                                                "
	for ; n > 0; n -= len(some) {
		b.WriteString(some[:min(n, len(some))])
	}
}

// Fold breaks the lines of a help page that are wider than the terminal: a paragraph
// is filled again, a list keeps its columns, an example stays as it is, to be copied.
func Fold(page string, most int) string {
	var b strings.Builder
	var paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			b.WriteString(strings.Join(wrap(strings.Join(paragraph, " "), most), "\n") + "\n")
		}
		paragraph = nil
	}
	example := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if line != "" && line[0] != ' ' && !strings.HasSuffix(line, ":") {
			paragraph = append(paragraph, line)
			continue
		}
		if strings.HasSuffix(line, ":") && len(paragraph) > 0 && line[0] != ' ' {
			paragraph = append(paragraph, line)
			end()
			continue
		}
		end()
		example = line == "Examples:" || example && line != ""
		if example {
			b.WriteString(line + "\n")
			continue
		}
		side := strings.LastIndex(first(line, most), tight) + len(tight)
		b.WriteString(hang(line, side, most))
	}
	end()
	return b.String()
}

// hang breaks a line, of which what comes after the first stands below its text.
func hang(line string, side, most int) string {
	if width(line) <= most {
		return line + "\n"
	}
	if side > most/2 {
		side = most / 4
	}
	body := strings.TrimLeft(line, " ")
	lead := line[:len(line)-len(body)]
	head := wrap(body, most-len(lead))[0]
	rest := strings.TrimLeft(body[len(head):], " ")
	return lead + strings.TrimRight(head, " ") + "\n" + indent(wrap(rest, most-side), side)
}

func indent(lines []string, side int) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.Repeat(" ", side) + line + "\n")
	}
	return b.String()
}
