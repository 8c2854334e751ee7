package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode"

	"github.com/kvol/kvol/internal/api"
	"sigs.k8s.io/yaml"
)

// Document shows a result that is one thing, not a list.
type Document[T any] struct {
	kind string // for a type that does not say its own apiVersion and kind
	// text is what people see.
	text func(w io.Writer, v T, o Options) error
	// names are what -o name prints; nil offers no such format.
	names func(T) []string
	// tree is what Tree shows; nil offers no such format.
	tree func(v T, o Options) []*branch
}

// Formats are those that the document has.
func (d Document[T]) Formats() []Format { return formats(d.names != nil, false, d.tree != nil) }

// Check refuses a format that this document does not have, and flags for lists.
func (d Document[T]) Check(o Options) error {
	if len(o.Columns) > 0 || o.SortBy != "" {
		return api.Errorf(api.ErrUsage, "--columns and --sort-by are for lists; this result is one document")
	}
	return checkFormat(o, d.Formats())
}

// HasNames says that Name is one of the formats.
func (d Document[T]) HasNames() bool { return d.names != nil }

// Write shows the document. The options have passed Check.
func (d Document[T]) Write(w io.Writer, v T, o Options) error {
	switch o.Format {
	case JSON, JSONL, YAML:
		return d.writeJSON(w, v, o.Format)
	case Name:
		return writeNames(w, []T{v}, d.names, o.Null)
	case Tree:
		return writeTree(w, d.tree(v, o), o)
	}
	if o.Format.TakesTemplate() {
		raw, err := d.json(v)
		if err != nil {
			return err
		}
		return writeTemplate(w, raw, o)
	}
	return d.text(w, v, o)
}

// writeJSON indents, since a document is often read by people too, unless it has to
// be a line.
func (d Document[T]) writeJSON(w io.Writer, v T, f Format) error {
	raw, err := d.json(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	switch f {
	case YAML:
		return jsonToYAML(w, raw)
	case JSONL:
		b.Write(raw)
	default:
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return err
		}
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// json puts the apiVersion and the kind in front where the type has none.
func (d Document[T]) json(v T) ([]byte, error) {
	raw, err := compact(v)
	if err != nil || d.kind == "" {
		return raw, err
	}
	head, err := compact(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}{api.Version, d.kind})
	return append(append(head[:len(head)-1], ','), raw[1:]...), err
}

// writeList is a list in JSON with an item a line.
func writeList[T any](w io.Writer, l *api.List[T]) error {
	head, err := compact(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}{l.APIVersion, l.Kind})
	if err != nil {
		return err
	}
	if _, err := w.Write(append(head[:len(head)-1], `,"items":[`...)); err != nil {
		return err
	}
	if err := writeItems(w, l.Items, "\n", ",\n"); err != nil {
		return err
	}
	warnings, err := compact(l.Warnings)
	if err != nil {
		return err
	}
	end := "],"
	if len(l.Items) > 0 {
		end = "\n],"
	}
	_, err = w.Write([]byte(end + `"warnings":` + string(warnings) + "}\n"))
	return err
}

// writeLines is an item a line and nothing else.
func writeLines[T any](w io.Writer, items []T) error {
	if err := writeItems(w, items, "", "\n"); err != nil || len(items) == 0 {
		return err
	}
	_, err := w.Write([]byte("\n"))
	return err
}

// writeItems encodes each item by itself: marshalling a long list as a whole takes
// three times as long and all of it in memory.
func writeItems[T any](w io.Writer, items []T, first, next string) error {
	var b bytes.Buffer
	before := first
	for _, item := range items {
		b.Reset()
		b.WriteString(before)
		before = next
		if err := api.AppendJSON(&b, item); err != nil {
			return err
		}
		if _, err := w.Write(escapeOdd(b.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

func writeYAML(w io.Writer, v any) error {
	raw, err := compact(v)
	if err != nil {
		return err
	}
	return jsonToYAML(w, raw)
}

func jsonToYAML(w io.Writer, raw []byte) error {
	out, err := yaml.JSONToYAML(raw)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// compact is JSON on one line.
func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	err := api.AppendJSON(&b, v)
	return escapeOdd(b.Bytes()), err
}

// escapeOdd writes as \u… what JSON allows in a string but a terminal obeys: DEL,
// the C1 controls and what turns the direction of writing. Outside of strings
// JSON has none of these.
func escapeOdd(raw []byte) []byte {
	if !slices.ContainsFunc(raw, func(c byte) bool { return c >= 0x7f }) {
		return raw
	}
	var b bytes.Buffer
	for _, r := range string(raw) {
		if r >= 0x7f && r < 1<<16 && !unicode.IsPrint(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// Object shows an object of Kubernetes, which has its own apiVersion and kind: as YAML
// unless another format is asked for.
func Object() Document[any] {
	return Document[any]{text: func(w io.Writer, v any, _ Options) error { return writeYAML(w, v) }}
}
