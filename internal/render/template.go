package render

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/kvol/kvol/internal/api"

	"github.com/liggitt/tabwriter"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// printer writes a document, as JSON has it, by a template.
type printer func(w io.Writer, doc map[string]any) error

// newPrinter reads the template as kubectl does. The error is api.ErrUsage and says
// where the template is wrong.
func newPrinter(o Options) (printer, error) {
	if o.Template == "" {
		return nil, api.Errorf(api.ErrUsage, "--output %s has no template", o.Format).
			WithNext("give it one, as in --output %s", examples[o.Format])
	}
	p, err := parse(o)
	if err != nil {
		return nil, api.Errorf(api.ErrUsage, "the template of --output %s: %w", o.Format, err).
			WithNext("correct it, as in --output %s; -o json shows what there is", examples[o.Format])
	}
	return p, nil
}

// examples have a template that fits every list, or the name of a file.
var examples = map[Format]string{
	JSONPath:          "jsonpath='{.items[*]}'",
	JSONPathAsJSON:    "jsonpath-as-json='{.items[*]}'",
	JSONPathFile:      "jsonpath-file=FILE",
	GoTemplate:        "go-template='{{range .items}}{{println .}}{{end}}'",
	GoTemplateFile:    "go-template-file=FILE",
	CustomColumns:     "custom-columns=HEADING:.field,OTHER:.field.inner",
	CustomColumnsFile: "custom-columns-file=FILE",
}

func parse(o Options) (printer, error) {
	switch o.Format {
	case JSONPath, JSONPathAsJSON, JSONPathFile:
		return parseJSONPath(o)
	case GoTemplate, GoTemplateFile:
		return parseGoTemplate(o)
	}
	split := columnWords
	if o.Format == CustomColumnsFile {
		split = columnLines
	}
	heads, paths, err := split(o.Template)
	if err != nil {
		return nil, err
	}
	return columnPrinter(heads, paths, o.NoHeaders)
}

// writeTemplate shows a document by the template of o. What it writes is the user's
// own, so nothing is quoted; and nothing is written of a template that fails.
func writeTemplate(w io.Writer, raw []byte, o Options) error {
	p, err := newPrinter(o)
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := safely(func() error { return p(&out, doc) }); err != nil {
		failed := &api.Error{Err: fmt.Errorf("the template of --output %s fails: %w", o.Format, err)}
		return failed.WithNext("correct it; -o json shows what there is")
	}
	_, err = w.Write(out.Bytes())
	return err
}

// safely makes an error of a panic: jsonpath has them for odd templates.
func safely(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return f()
}

func parseJSONPath(o Options) (printer, error) {
	parsed := func(text string) (j *jsonpath.JSONPath, err error) {
		j = jsonpath.New("out").AllowMissingKeys(!o.StrictKeys)
		return j, safely(func() error { return j.Parse(text) })
	}
	j, err := parsed(o.Template)
	if err != nil {
		// The parser does not tell where: it is after the longest part that is good.
		good := 0
		for i := range o.Template[:min(len(o.Template), 4096)] {
			if _, err := parsed(o.Template[:i]); err == nil {
				good = i
			}
		}
		return nil, fmt.Errorf("after character %d, %.40s: %w", utf8.RuneCountInString(o.Template[:good]), Line(o.Template[good:]), err)
	}
	j.EnableJSONOutput(o.Format == JSONPathAsJSON)
	return func(w io.Writer, doc map[string]any) error { return j.Execute(w, doc) }, nil
}

func parseGoTemplate(o Options) (printer, error) {
	t, err := template.New("output").Funcs(template.FuncMap{"exists": exists, "base64decode": base64decode}).Parse(o.Template)
	if err != nil {
		return nil, errors.New(strings.Replace(err.Error(), "template: output:", "line ", 1))
	}
	if o.StrictKeys {
		t.Option("missingkey=error")
	}
	return func(w io.Writer, doc map[string]any) error { return t.Execute(w, doc) }, nil
}

// exists says that index would find something; kubectl has it for templates.
func exists(item any, indices ...any) bool {
	for _, i := range indices {
		switch v := item.(type) {
		case map[string]any:
			key, ok := i.(string)
			if !ok {
				return false
			}
			item = v[key]
		case []any:
			n, ok := position(i, len(v))
			if !ok {
				return false
			}
			item = v[n]
		case string:
			n, ok := position(i, len(v))
			if !ok {
				return false
			}
			item = v[n]
		default:
			return false
		}
	}
	return item != nil
}

func position(i any, n int) (int, bool) {
	v := reflect.ValueOf(i)
	if !v.CanInt() || v.Int() < 0 || v.Int() >= int64(n) {
		return 0, false
	}
	return int(v.Int()), true
}

func base64decode(s string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(s)
	return string(raw), err
}

// columnWords takes HEAD:PATH,HEAD:PATH apart.
func columnWords(spec string) (heads, paths []string, err error) {
	for i, part := range strings.Split(spec, ",") {
		head, path, ok := strings.Cut(part, ":")
		if !ok {
			return nil, nil, fmt.Errorf("column %d is %q and not HEADING:PATH", i+1, part)
		}
		heads, paths = append(heads, head), append(paths, path)
	}
	return heads, paths, nil
}

// columnLines takes a file apart: a line of headings and one of paths.
func columnLines(text string) (heads, paths []string, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for _, words := range []*[]string{&heads, &paths} {
		if !lines.Scan() {
			return nil, nil, errors.New("it is not a line of headings and a line of as many paths")
		}
		*words = strings.Fields(lines.Text())
	}
	if len(heads) != len(paths) {
		return nil, nil, fmt.Errorf("line 1 has %s, and line 2 %s", api.Count(len(heads), "heading", "headings"), api.Count(len(paths), "path", "paths"))
	}
	return heads, paths, nil
}

// fieldPath takes from a path what may stand around it: kubectl takes name, .name,
// {name} and {.name} for the same.
func fieldPath(s string) (string, bool) {
	if len(s) > 2 && s[0] == '{' && s[len(s)-1] == '}' {
		s = s[1 : len(s)-1]
	}
	if len(s) > 1 {
		s = strings.TrimPrefix(s, ".")
	}
	return s, s != "" && !strings.ContainsAny(s, "{}")
}

// columnPrinter makes a row of each item, and of a document that is no list.
func columnPrinter(heads, paths []string, noHeaders bool) (printer, error) {
	columns := make([]*jsonpath.JSONPath, len(paths))
	for i, path := range paths {
		text := ""
		if path != "" { // which is a column of nothing
			field, ok := fieldPath(path)
			if !ok {
				return nil, fmt.Errorf("the path of column %d is %q, and not as one of: name.name, .name, {name}, {.name}", i+1, path)
			}
			text = "{." + field + "}"
		}
		columns[i] = jsonpath.New("column").AllowMissingKeys(true)
		if err := safely(func() error { return columns[i].Parse(text) }); err != nil {
			return nil, fmt.Errorf("the path of column %d, %q: %w", i+1, path, err)
		}
	}
	return func(w io.Writer, doc map[string]any) error {
		t := tabwriter.NewWriter(w, 6, 4, 3, ' ', tabwriter.RememberWidths) // kubectl's own
		if !noHeaders {
			fmt.Fprintln(t, strings.Join(heads, "\t"))
		}
		rows, ok := doc["items"].([]any)
		if !ok {
			rows = []any{doc}
		}
		for _, row := range rows {
			cells := make([]string, len(columns))
			for i, c := range columns {
				cell, err := columnCell(c, row)
				if err != nil {
					return err
				}
				cells[i] = cell
			}
			fmt.Fprintln(t, strings.Join(cells, "\t"))
		}
		return t.Flush()
	}, nil
}

// unescaped are the characters of a cell that kubectl does not let through.
var unescaped = strings.NewReplacer("\x1b", "^[", "\r", "\\r")

func columnCell(path *jsonpath.JSONPath, row any) (string, error) {
	found, err := path.FindResults(row)
	if err != nil {
		return "", err
	}
	var values []string
	if len(found) == 0 || len(found[0]) == 0 {
		values = append(values, "<none>")
	}
	for _, some := range found {
		for _, v := range some {
			values = append(values, unescaped.Replace(fmt.Sprint(v.Interface())))
		}
	}
	return strings.Join(values, ","), nil
}
