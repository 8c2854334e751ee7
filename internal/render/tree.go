package render

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

// branch is a line of a tree and what hangs on it.
type branch struct {
	*shape
	// parts are safe to print. The first stands behind the lines of the tree, the last
	// goes on to the end of its line.
	parts    []string
	note     string // what else is to be said, below it
	children []*branch
}

// shape is what the branches of one kind have in common: their parts line up.
type shape struct {
	mood int   // the part that is painted and never cut; 0 is none
	last bool  // the last part is never cut
	drop []int // the parts that are left out where there is little room, one after the other
}

func (b *branch) add(children ...*branch) { b.children = append(b.children, children...) }

// text is a branch of one part.
func text(s string) *branch { return &branch{shape: &shape{}, parts: []string{s}} }

// glyphs are the lines of a tree: to a branch, to the last one, and past both.
type glyphs struct{ fork, end, past, gone string }

func (o Options) glyphs() glyphs {
	if o.Unicode {
		return glyphs{"├─ ", "└─ ", "│  ", "   "}
	}
	return glyphs{"|- ", "`- ", "|  ", "   "}
}

// twig is a branch in its place.
type twig struct {
	*branch
	before string // the lines of the tree in front of it
	below  string // and of its note
}

// writeTree draws the branches, each on a line of its own.
func writeTree(w io.Writer, roots []*branch, o Options) error {
	var all []twig
	g := o.glyphs()
	var walk func(list []*branch, before string, depth int)
	walk = func(list []*branch, before string, depth int) {
		for i, b := range list {
			fork, past := g.fork, g.past
			switch {
			case depth == 0:
				fork, past = "", ""
			case i == len(list)-1:
				fork, past = g.end, g.gone
			}
			below := before + past
			if len(b.children) > 0 {
				below += g.past
			} else {
				below += g.gone
			}
			all = append(all, twig{b, before + fork, below})
			walk(b.children, before+past, depth+1)
		}
	}
	walk(roots, "", 0)
	byShape := map[*shape][]twig{}
	for _, t := range all {
		byShape[t.shape] = append(byShape[t.shape], t)
	}
	widths := map[*shape][]int{}
	for s, twigs := range byShape {
		widths[s] = s.fit(twigs, o)
	}
	var b bytes.Buffer
	for _, t := range all {
		t.write(&b, widths[t.shape], o)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ample is how narrow a part of a branch is cut while another one can be left out.
const ample = 20

// fit gives the widths of all parts but the last of each branch, and leaves parts out
// where the terminal has no room for them.
func (s *shape) fit(twigs []twig, o Options) []int {
	for drop := s.drop; ; drop = drop[1:] {
		widths, last := measure(twigs)
		if o.Width == 0 || len(widths) == 0 {
			return widths
		}
		room := o.Width - len(tight)*len(widths)
		if s.last {
			room -= last
			last = 0
		}
		if fitted, ok := fit(widths, s.floor(twigs, widths, ample), room-min(fair, last)); ok {
			return fitted
		}
		if len(drop) == 0 {
			floor := s.floor(twigs, widths, least+2)
			if fitted, ok := fit(widths, floor, room-min(least+2, last)); ok {
				return fitted
			}
			return floor
		}
		for _, t := range twigs {
			if drop[0] < len(t.parts) {
				t.parts = slices.Delete(t.parts, drop[0], drop[0]+1)
			}
		}
		if drop[0] < s.mood {
			s.mood--
		}
	}
}

// floor is how far each part can be cut. What the lines of the tree take comes on top.
func (s *shape) floor(twigs []twig, widths []int, least int) []int {
	floor := slices.Clone(widths)
	for i := range floor {
		if i == 0 || i != s.mood {
			floor[i] = min(widths[i], least)
		}
	}
	for _, t := range twigs {
		floor[0] = max(floor[0], min(widths[0], width(t.before)+least))
	}
	return floor
}

// measure gives the widths that the parts have by themselves, and that of the longest
// last one.
func measure(twigs []twig) (widths []int, last int) {
	for _, t := range twigs {
		n := len(t.parts) - 1
		for i, part := range t.parts[:n] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i == 0 {
				part = t.before + part
			}
			widths[i] = max(widths[i], width(part))
		}
		if n > 0 {
			last = max(last, width(t.parts[n]))
		}
	}
	return widths, last
}

func (t twig) write(b *bytes.Buffer, widths []int, o Options) {
	b.WriteString(t.before)
	at, end := width(t.before), 0
	for i, part := range t.parts {
		switch {
		case i < len(t.parts)-1:
			end += widths[i]
			part = cutLabel(part, end-at, o.mark())
		case o.Width > 0:
			part = strings.TrimRight(cut(part, o.Width-at, o.mark()), " ")
		}
		at += width(part)
		if i > 0 && i == t.mood {
			part = o.paint(part)
		}
		b.WriteString(part)
		if i < len(t.parts)-1 {
			end += len(tight)
			blanks(b, end-at)
			at = end
		}
	}
	b.WriteByte('\n')
	if t.note == "" {
		return
	}
	lines := []string{t.note}
	if o.Width > 0 {
		lines = wrap(t.note, o.Width-width(t.below))
	}
	for _, line := range lines {
		b.WriteString(t.below + line + "\n")
	}
}

// cutLabel cuts a text, but not its first word, which says what the rest is.
func cutLabel(s string, most int, mark string) string {
	what, name, ok := strings.Cut(s, " ")
	if room := most - width(what) - 1; ok && room > least {
		return what + " " + cut(name, room, mark)
	}
	return cut(s, most, mark)
}
