package documents

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// decode fills a Kubernetes object from a tree. It is not the library's decoder
// because that one names neither the line nor the path of a field that is
// unknown or of the wrong kind, and matches names whatever their case. What it
// makes of good input is held equal to sigs.k8s.io/yaml by a test.
func decode(o origin, root *yaml.Node, into any) error {
	_, secret := into.(*v1.Secret)
	d := decoder{hide: secret, fields: map[reflect.Type]map[string][]int{}}
	d.value(root, reflect.ValueOf(into).Elem())
	return d.error(o)
}

// faults gathers what is wrong with one object.
type faults struct {
	list []fault
}

type fault struct {
	line              int
	field, what, next string
}

// maxFaults is how many are told; more help nobody.
const maxFaults = 20

func (f *faults) add(line int, path []any, next, format string, args ...any) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, fault{line, fieldPath(path), fmt.Sprintf(format, args...), next})
	}
}

func (f fault) String() string {
	if f.field == "" {
		return fmt.Sprintf("line %d: %s", f.line, f.what)
	}
	return fmt.Sprintf("line %d: %s: %s", f.line, f.field, f.what)
}

// error is the first fault, with the others as details; nil when there is none.
func (f *faults) error(o origin) error {
	if len(f.list) == 0 {
		return nil
	}
	e := o.bad(f.list[0].next, "%s", f.list[0])
	for _, other := range f.list[1:] {
		e.Details = append(e.Details, fmt.Sprintf("%s: %s", o, other))
	}
	return e
}

// fieldPath is a path as Kubernetes writes it: spec.volumes[2].name.
func fieldPath(path []any) string {
	var b strings.Builder
	for _, element := range path {
		switch x := element.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", x)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(printable(x))
		}
	}
	return b.String()
}

type decoder struct {
	faults
	path   []any // field names and indexes from the object down to here
	hide   bool  // no value may be told
	fields map[reflect.Type]map[string][]int
}

func (d *decoder) bad(n *yaml.Node, next, format string, args ...any) {
	d.add(n.Line, d.path, next, format, args...)
}

// wants is the fault that a value is not of the kind of its field.
func (d *decoder) wants(n *yaml.Node, want, next string) {
	d.bad(n, next, "%s where %s is wanted", describe(n, d.hide), want)
}

// under decodes a value one step further down.
func (d *decoder) under(step any, n *yaml.Node, v reflect.Value) {
	d.path = append(d.path, step)
	d.value(n, v)
	d.path = d.path[:len(d.path)-1]
}

func (d *decoder) value(n *yaml.Node, v reflect.Value) {
	n = resolved(n)
	if v.Type() == reflect.TypeFor[yaml.Node]() {
		v.Set(reflect.ValueOf(*n))
		return
	}
	if isNull(n) {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem())
		return
	}
	if own, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		d.own(n, own)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v)
	case reflect.Map:
		d.table(n, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			d.bytes(n, v)
			return
		}
		d.list(n, v)
	default:
		d.scalar(n, v)
	}
}

func (d *decoder) object(n *yaml.Node, v reflect.Value) {
	known := d.fieldsOf(v.Type())
	for key, value := range d.pairs(n) {
		index, ok := known[key.Value]
		if ok {
			d.under(key.Value, value, v.FieldByIndex(index))
			continue
		}
		if len(d.path) > 0 && d.path[0] == "status" {
			continue
		}
		where := append(slices.Clone(d.path), key.Value)
		if near := nearest(key.Value, known); near != "" {
			d.add(key.Line, where, fmt.Sprintf("write %q", near), "unknown field, did you mean %q?", near)
		} else {
			d.add(key.Line, where, "take it out, or write one of: "+strings.Join(slices.Sorted(maps.Keys(known)), " "), "unknown field")
		}
	}
}

// fieldsOf finds the fields of a struct by their names in JSON.
func (d *decoder) fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := d.fields[t]; ok {
		return known
	}
	known := map[string][]int{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name != "":
			known[name] = f.Index
		case f.Anonymous:
			for inner, index := range d.fieldsOf(f.Type) {
				known[inner] = append(slices.Clone(f.Index), index...)
			}
		}
	}
	d.fields[t] = known
	return known
}

func (d *decoder) table(n *yaml.Node, v reflect.Value) {
	table := reflect.MakeMapWithSize(v.Type(), len(n.Content)/2)
	for key, value := range d.pairs(n) {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.under(key.Value, value, elem)
		table.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), elem)
	}
	v.Set(table)
}

func (d *decoder) list(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.wants(n, "a list", `begin each item with "- "`)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.under(i, item, v.Index(i))
	}
}

func (d *decoder) bytes(n *yaml.Node, v reflect.Value) {
	data, err := base64.StdEncoding.DecodeString(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.bad(n, "encode it with base64, or write it under stringData", "it is not base64")
		return
	}
	v.SetBytes(data)
}

// own is for types that read themselves: quantities, times, int-or-string.
//
// Quantities need bounds: a million digits, or 9e-99999999, take them minutes.
func (d *decoder) own(n *yaml.Node, into json.Unmarshaler) {
	_, isQuantity := into.(*resource.Quantity)
	if e := strings.IndexAny(n.Value, "eE"); len(n.Value) > 64 || isQuantity && e >= 0 && len(n.Value)-e > 5 {
		d.bad(n, "write it as Kubernetes does", "%s is too long", describe(n, d.hide))
		return
	}
	data, err := toJSON(n)
	if err == nil {
		err = into.UnmarshalJSON(data)
	}
	if err != nil {
		d.bad(n, "write it as Kubernetes does", "%s: %v", describe(n, d.hide), err)
	}
}

func toJSON(n *yaml.Node) ([]byte, error) {
	if n.Kind == yaml.ScalarNode {
		if tag := n.ShortTag(); tag != "!!str" && json.Valid([]byte(n.Value)) {
			return []byte(n.Value), nil
		}
		return json.Marshal(n.Value)
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value) {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch v.Kind() {
	case reflect.String:
		// A time stands in a text field of Kubernetes as it is written.
		if tag != "!!str" && tag != "!!timestamp" {
			d.wants(n, "text", "put it in quotes")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		// The YAML of Kubernetes is 1.1, in which a plain yes is true.
		var b bool
		if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 ||
			tag != "!!bool" && tag != "!!str" || n.Decode(&b) != nil {
			d.wants(n, "true or false", "write true or false, without quotes")
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		var i int64
		if tag != "!!int" || n.Decode(&i) != nil || v.OverflowInt(i) {
			d.wants(n, fmt.Sprintf("a whole number of %d bits", v.Type().Bits()), "write a number, without quotes")
			return
		}
		v.SetInt(i)
	default:
		d.bad(n, "take it out", "kvol does not read a %s", v.Type())
	}
}
