// Package render shows results: as a table for people, as JSON and YAML for
// programs, by a template, as names and as bash. It is a view: it decides nothing, changes
// nothing and asks nobody; what it is given is all it knows. A name that could
// break a line or a terminal is quoted, except in JSON, YAML and after -0.
//
// It is the only importer of tablewriter. Do not use it to write logs.
package render

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Format is a value of --output.
type Format string

// The formats. Shell is offered for plans only. Those below it take a template and
// are kubectl's; of one that ends in -file the caller has read the file.
const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	JSONL Format = "jsonl"
	YAML  Format = "yaml"
	Name  Format = "name"
	Tree  Format = "tree"
	Shell Format = "shell"

	JSONPath          Format = "jsonpath"
	JSONPathAsJSON    Format = "jsonpath-as-json"
	JSONPathFile      Format = "jsonpath-file"
	GoTemplate        Format = "go-template"
	GoTemplateFile    Format = "go-template-file"
	CustomColumns     Format = "custom-columns"
	CustomColumnsFile Format = "custom-columns-file"
)

// templates are the formats that are nothing without a template.
var templates = []Format{JSONPath, JSONPathAsJSON, JSONPathFile, GoTemplate, GoTemplateFile, CustomColumns, CustomColumnsFile}

// TakesTemplate says that the format is nothing without a template.
func (f Format) TakesTemplate() bool { return slices.Contains(templates, f) }

// InFile says that what is given to the format is the file of the template.
func (f Format) InFile() bool { return strings.HasSuffix(string(f), "-file") }

// Options are the output flags of one command.
type Options struct {
	Format Format
	// Template is the text of the template, for the formats that take one.
	Template string
	// StrictKeys makes it an error that a template names what is not there.
	StrictKeys bool
	NoHeaders  bool
	// Null ends each name with a NUL and writes it as it is; with Name only.
	Null bool
	// Columns are names of columns; with a "+" in front of the first they are added to
	// those that the format has.
	Columns []string
	// SortBy is the name of a column, and holds in every format; "" keeps the order.
	SortBy string
	// Pods are the UIDs of the node's pods, which a short one is told apart from although
	// the list does not have them.
	Pods []string
	// Color paints states; the caller knows whether it writes to a terminal.
	Color bool
	// Width is that of the terminal, to which a table is fitted; 0 cuts nothing.
	Width int
	// Unicode draws trees with box lines and marks what is cut with one character;
	// else both are ASCII.
	Unicode bool

	goesOn bool  // the table has begun before
	from   []int // its widths
}

// ForPeople says that the format is read by people, so that notes may stand
// beside it.
func (o Options) ForPeople() bool { return o.Format == Table || o.Format == Wide || o.Format == Tree }

// adds says that Columns are added to those of the format, as lsblk(8) has it.
func (o Options) adds() bool { return len(o.Columns) > 0 && strings.HasPrefix(o.Columns[0], "+") }

func (o Options) names() []string {
	out := slices.Clone(o.Columns)
	for i := range out {
		out[i] = strings.TrimPrefix(out[i], "+")
	}
	return out
}

// Checker tells whether output flags fit a kind of result, before the command
// that makes the result runs. The error is api.ErrUsage and lists what is allowed.
type Checker interface {
	Check(Options) error
}

// column is one column of a table and one key to sort by.
type column[T any] struct {
	name  string // as --columns and --sort-by know it: the field in JSON
	head  string // the heading; empty is the name in capitals
	wide  bool   // shown in Wide only
	keep  bool   // never cut to fit a terminal
	spare bool   // left out where a terminal has no room
	mood  bool   // a state or an outcome, painted when in colour and never cut
	cell  func(T) string
	less  func(a, b T) int // empty compares the cells as text
}

func (c column[T]) heading() string {
	if c.head != "" {
		return c.head
	}
	return strings.ToUpper(c.name)
}

func (c column[T]) compare(a, b T) int {
	if c.less != nil {
		return c.less(a, b)
	}
	return strings.Compare(c.cell(a), c.cell(b))
}

// View shows lists of one kind of item.
type View[T any] struct {
	empty string // what people are told of an empty list
	// columns may shorten by what all the items have; items is nil for a check.
	columns func(items []T, f Format) []column[T]
	// ofPod is an item that has nothing but the UID of its pod; nil where none has one.
	ofPod func(uid string) T
	// names are what -o name prints for an item; nil offers no such format.
	names func(T) []string
	// after adds to a table for people what is not a row.
	after func(w io.Writer, items []T, o Options) error
	shell bool // Shell is offered too
	// tree is the list as Tree has it; nil is a line an item.
	tree func(items []T, o Options) []*branch
}

// Empty tells people that the list is empty.
func (v View[T]) Empty() string { return v.empty }

// Formats are those that the list has.
func (v View[T]) Formats() []Format { return formats(v.names != nil, v.shell, true) }

// Check refuses a format that this kind of result does not have, and columns
// that are not there.
func (v View[T]) Check(o Options) error {
	if err := checkFormat(o, v.Formats()); err != nil {
		return err
	}
	all := v.columns(nil, Wide)
	for i, name := range o.Columns {
		if i > 0 && !o.adds() && strings.HasPrefix(name, "+") {
			return api.Errorf(api.ErrUsage, "--columns: %q adds a column, and %q before it names all that there are", name, o.Columns[0]).
				WithNext("begin with a +, which is for the whole list, or give none: --columns +%s", strings.Join(o.names(), ","))
		}
		if _, err := find(all, "--columns", strings.TrimPrefix(name, "+")); err != nil {
			return err
		}
	}
	if o.SortBy != "" {
		_, err := sortKey(all, o)
		return err
	}
	return nil
}

// Write shows the list. The options have passed Check.
func (v View[T]) Write(w io.Writer, l *api.List[T], o Options) error {
	l, err := v.sorted(l, o)
	if err != nil {
		return err
	}
	switch o.Format {
	case JSON:
		return writeList(w, l)
	case JSONL:
		return writeLines(w, l.Items)
	case YAML:
		return writeYAML(w, l)
	case Name:
		return writeNames(w, l.Items, v.names, o.Null)
	}
	if o.Format.TakesTemplate() {
		var b bytes.Buffer
		if err := writeList(&b, l); err != nil {
			return err
		}
		return writeTemplate(w, b.Bytes(), o)
	}
	if len(l.Items) == 0 {
		return nil
	}
	if o.Format == Tree {
		return writeTree(w, v.branches(l.Items, o), o)
	}
	columns, err := pick(v.columns(v.among(l.Items, o), o.Format), v.columns(l.Items, Wide), o)
	if err != nil {
		return err
	}
	if err := writeTable(w, columns, l.Items, o); err != nil {
		return err
	}
	if v.after != nil && !o.NoHeaders && len(o.Columns) == 0 {
		return v.after(w, l.Items, o)
	}
	return nil
}

// among adds the other pods of the node to the items, by all of which columns shorten.
func (v View[T]) among(items []T, o Options) []T {
	if v.ofPod == nil || o.Format == Wide {
		return items
	}
	out := slices.Clone(items)
	for _, uid := range o.Pods {
		out = append(out, v.ofPod(uid))
	}
	return out
}

func (v View[T]) branches(items []T, o Options) []*branch {
	if v.tree == nil {
		return listed(v.columns(v.among(items, o), Table), items)
	}
	return v.tree(items, o)
}

// sorted is the list in the order asked for; the given one stays as it is.
func (v View[T]) sorted(l *api.List[T], o Options) (*api.List[T], error) {
	if o.SortBy == "" {
		return l, nil
	}
	key, err := sortKey(v.columns(nil, Wide), o)
	if err != nil {
		return nil, err
	}
	out := *l
	out.Items = slices.Clone(l.Items)
	slices.SortStableFunc(out.Items, key.compare)
	return &out, nil
}

// sortKey is the column to sort by, whose name may be written as kubectl's JSONPath.
func sortKey[T any](columns []column[T], o Options) (column[T], error) {
	if field, ok := fieldPath(o.SortBy); ok {
		o.SortBy = field
	}
	return find(columns, "--sort-by", o.SortBy)
}

// pick chooses the columns of a table: those of the format, or those named.
func pick[T any](shown, all []column[T], o Options) ([]column[T], error) {
	base := slices.DeleteFunc(shown, func(c column[T]) bool { return c.wide && o.Format != Wide })
	if len(o.Columns) > 0 && !o.adds() {
		base = nil
	}
	// A column that is named is cut like its neighbours, so that a short pod UID
	// stays short.
	from := all
	if o.Format == Table {
		from = shown
	}
	for _, name := range o.Columns {
		c, err := find(slices.Concat(from, all), "--columns", strings.TrimPrefix(name, "+"))
		if err != nil {
			return nil, err
		}
		base = append(base, c)
	}
	return base, nil
}

// find looks a column up by its name or its heading, in either case.
func find[T any](columns []column[T], flag, name string) (column[T], error) {
	for _, c := range columns {
		if strings.EqualFold(c.name, name) || strings.EqualFold(c.heading(), name) {
			return c, nil
		}
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return column[T]{}, api.Errorf(api.ErrUsage, "%s: there is no column %q; the columns are: %s",
		flag, name, strings.Join(names, ", "))
}

// formats are those of a result that has names, has a tree, or is steps for a shell.
func formats(names, shell, tree bool) []Format {
	allowed := []Format{Table, Wide, JSON, JSONL, YAML}
	if names {
		allowed = append(allowed, Name)
	}
	if tree {
		allowed = append(allowed, Tree)
	}
	allowed = append(allowed, templates...)
	if shell {
		allowed = append(allowed, Shell)
	}
	return allowed
}

// checkFormat refuses what does not go together, and a format that is not one of
// those that the result has.
func checkFormat(o Options, allowed []Format) error {
	if !slices.Contains(allowed, o.Format) {
		words := make([]string, len(allowed))
		for i, f := range allowed {
			words[i] = string(f)
			if f.TakesTemplate() {
				words[i] += "="
			}
		}
		return api.Errorf(api.ErrUsage, "--output %q is not a format of this command; allowed formats are: %s",
			o.Format, strings.Join(words, ", "))
	}
	if o.Null && o.Format != Name {
		return api.Errorf(api.ErrUsage, "--null goes with --output name only, not with %q", o.Format)
	}
	if len(o.Columns) > 0 && o.Format != Table && o.Format != Wide {
		return api.Errorf(api.ErrUsage, "--columns goes with --output table or wide, not with %q", o.Format)
	}
	if o.Format.TakesTemplate() {
		_, err := newPrinter(o)
		return err
	}
	return nil
}

// by compares two items by a field that has an order of its own.
func by[T any, K cmp.Ordered](key func(T) K) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(key(a), key(b)) }
}
