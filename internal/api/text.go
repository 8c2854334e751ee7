package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Text is a name as JSON can have it. The kernel takes any byte in a name; one that is no
// UTF-8 becomes \x and two digits, as findmnt(8) lists it: the encoder would make U+FFFD
// of every one of them, and two names the same.
func Text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// AppendJSON adds a value to b: on one line, every string as [Text] has it, and <, > and
// & as they are, since paths and reasons are for people too.
func AppendJSON(b *bytes.Buffer, v any) error {
	start := b.Len()
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	// The character itself is not escaped: this is what a byte that is no text became.
	if err == nil && bytes.Contains(b.Bytes()[start:], []byte(`\ufffd`)) {
		b.Truncate(start)
		err = enc.Encode(AsText(v))
	}
	if err == nil {
		b.Truncate(b.Len() - 1) // the end of the line
	}
	return err
}

// AsText is a copy of a value in which every string is what reading its JSON gives.
func AsText[T any](v T) T {
	out := reflect.ValueOf(&v).Elem()
	out.Set(asText(out))
	return v
}

func asText(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(Text(v.String()))
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(asText(v.Elem()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(asText(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(asText(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for key, value := range v.Seq2() {
				out.SetMapIndex(asText(key), asText(value))
			}
		}
	case reflect.Struct:
		for i := range out.NumField() {
			if f := out.Field(i); f.CanSet() {
				f.Set(asText(f))
			}
		}
	}
	return out
}
