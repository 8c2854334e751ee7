package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Check says where a document is not as the schema has it. It is stricter than a
// reader may be: a field that is not in the schema is wrong too.
func (s *Schema) Check(doc string) []string { return s.read(doc, true) }

// Refused says what of a document breaks a reader who knows only this schema, which
// may be an old one, and reads as docs/schema/README.md tells: a field or a value
// that it does not know is no matter.
func (s *Schema) Refused(doc string) []string { return s.read(doc, false) }

func (s *Schema) read(doc string, strict bool) []string {
	d := json.NewDecoder(bytes.NewReader([]byte(doc)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return []string{"not JSON: " + err.Error()}
	}
	if _, err := d.Token(); err != io.EOF {
		return []string{"more than one document"}
	}
	return s.check("", v, strict)
}

func (s *Schema) check(at string, v any, strict bool) []string {
	wrong := func(format string, args ...any) []string {
		return []string{at + ": " + fmt.Sprintf(format, args...)}
	}
	if is := typeOf(v); s.Type != "" && is != s.Type {
		return wrong("is %s (%v), not %s", is, v, s.Type)
	}
	switch v := v.(type) {
	case string:
		switch {
		case s.Const != "" && v != s.Const:
			return wrong("is %q, not %q", v, s.Const)
		case strict && s.Enum != nil && !slices.Contains(s.Enum, v):
			return wrong("%q is none of %q", v, s.Enum)
		case s.Format == dateTime:
			if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
				return wrong("%v", err)
			}
		}
	case []any:
		var out []string
		for i, item := range v {
			out = append(out, s.Items.check(fmt.Sprintf("%s[%d]", at, i), item, strict)...)
		}
		return out
	case map[string]any:
		return s.checkObject(at, v, strict)
	}
	return nil
}

func (s *Schema) checkObject(at string, v map[string]any, strict bool) []string {
	var out []string
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			out = append(out, at+": lacks the field "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		member := s.Properties[name]
		if member == nil && s.Properties == nil {
			member = s.Additional
		}
		if member == nil && !strict {
			continue
		}
		if member == nil {
			out = append(out, at+": the field "+name+" is not in the schema")
			continue
		}
		out = append(out, member.check(at+"."+name, v[name], strict)...)
	}
	return out
}

// typeOf is JSON Schema's name for the type of a decoded value.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return "integer"
		}
		return "number"
	default:
		return "object"
	}
}
