// Package schema makes the JSON Schemas of docs/schema from the types of
// internal/api, tells what a change takes away from whoever reads the JSON, and
// checks documents. It knows the keywords of JSON Schema 2020-12 that it writes,
// and no others. Only tests import it.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Schema is a JSON Schema. The zero Schema allows everything; its JSON is true.
type Schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Const       string             `json:"const,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Format      string             `json:"format,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	// Additional is for the members of an object that are not in Properties.
	Additional *Schema `json:"additionalProperties,omitempty"`
}

// fields has Schema's fields without its methods.
type fields Schema

// MarshalJSON writes the zero Schema as true.
func (s *Schema) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal((*fields)(s))
	if string(raw) == "{}" {
		return []byte("true"), err
	}
	return raw, err
}

// UnmarshalJSON refuses keywords that Schema does not have.
func (s *Schema) UnmarshalJSON(raw []byte) error {
	if string(raw) == "true" {
		*s = Schema{}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode((*fields)(s))
}

// Read reads the schema of a kind from a folder.
func Read(dir, kind string) (*Schema, error) {
	raw, err := os.ReadFile(dir + "/" + kind + ".json")
	if err != nil {
		return nil, err
	}
	s := &Schema{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return s, nil
}

// Taken says what a script that relies on the old schema no longer has in the new
// one: a field that is gone, is not always there any more or has another type, a
// value that is gone. What is added is no such thing.
func Taken(old, now *Schema) []string { return taken("", old, now) }

func taken(at string, old, now *Schema) []string {
	var out []string
	say := func(format string, args ...any) {
		out = append(out, at+": "+fmt.Sprintf(format, args...))
	}
	for _, was := range [][3]string{{"type", old.Type, now.Type}, {"const", old.Const, now.Const}, {"format", old.Format, now.Format}} {
		if was[1] != was[2] {
			say("%s was %q and is %q", was[0], was[1], was[2])
		}
	}
	for _, v := range old.Enum {
		if !slices.Contains(now.Enum, v) {
			say("the value %q is gone", v)
		}
	}
	for name, was := range old.Properties {
		is := now.Properties[name]
		switch {
		case is == nil:
			say("the field %q is gone", name)
			continue
		case slices.Contains(old.Required, name) && !slices.Contains(now.Required, name):
			say("the field %q is not always there any more", name)
		}
		out = append(out, taken(at+"."+name, was, is)...)
	}
	for _, part := range []struct {
		at       string
		old, now *Schema
	}{{at + "[]", old.Items, now.Items}, {at + ".*", old.Additional, now.Additional}} {
		if part.old != nil && part.now != nil {
			out = append(out, taken(part.at, part.old, part.now)...)
		} else if part.old != part.now {
			say("%s is described in only one of the two", part.at)
		}
	}
	slices.Sort(out)
	return out
}
