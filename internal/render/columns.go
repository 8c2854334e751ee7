package render

import (
	"strconv"

	"github.com/kvol/kvol/internal/api"
)

// Lister is the view of a list, whatever its items are.
type Lister interface {
	Checker
	Formats() []Format
	Columns() []api.Column
}

// Columns are those that --columns and --sort-by take, as -o wide shows them.
func (v View[T]) Columns() []api.Column {
	var out []api.Column
	for _, c := range v.columns(nil, Wide) {
		out = append(out, api.Column{Name: c.name, Heading: c.heading(), WideOnly: c.wide})
	}
	return out
}

// Columns shows the columns of a command (--list-columns).
func Columns() View[api.Column] {
	return View[api.Column]{
		empty: "No columns found.",
		columns: func([]api.Column, Format) []column[api.Column] {
			return []column[api.Column]{
				{name: "name", cell: func(c api.Column) string { return c.Name }},
				{name: "heading", cell: func(c api.Column) string { return c.Heading }},
				{name: "wideOnly", head: "WIDE ONLY", cell: func(c api.Column) string { return strconv.FormatBool(c.WideOnly) }},
			}
		},
		names: func(c api.Column) []string { return []string{c.Name} },
	}
}
