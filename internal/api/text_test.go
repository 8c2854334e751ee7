package api_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"bad\xff": `bad\xff`, "bad\ufffd": "bad\ufffd", "\xc3(\xe2\x82": `\xc3(\xe2\x82`, "ä\n": "ä\n", `a\x2db`: `a\x2db`, "": "",
	} {
		if got := api.Text(in); got != want {
			t.Errorf("%q is %q and not %q", in, got, want)
		}
	}
}

// Two names are never the same in JSON, wherever in a value they are, and the value
// stays as it is.
func TestJSONTellsNamesApart(t *testing.T) {
	type Inner struct{ Path string }
	type value struct {
		Inner
		Time    time.Time
		Mounts  []api.Mount
		Next    *Inner
		Any     any
		Nothing *Inner
		None    []string
		ByName  map[string]*Inner
		hidden  string
	}
	with := func(name string) value {
		return value{
			Inner: Inner{name}, Time: time.Unix(1, 0).UTC(), Mounts: []api.Mount{{Path: "/<" + name}}, Next: &Inner{name},
			Any: map[string]any{"a": []any{name, 1}}, ByName: map[string]*Inner{name: {name}, "nil": nil}, hidden: name,
		}
	}
	odd := with("bad\xff")
	b := bytes.NewBufferString("before ")
	if err := api.AppendJSON(b, odd); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(with(`bad\xff`)); err != nil {
		t.Fatal(err)
	}
	if b.String()+"\n" != "before "+want.String() {
		t.Errorf("%s\n%s", b, &want)
	}
	if !reflect.DeepEqual(odd, with("bad\xff")) {
		t.Error("the value was changed")
	}
	b.Reset()
	if err := api.AppendJSON(b, []string{"bad\ufffd", `\ufffd`}); err != nil || b.String() != "[\"bad\ufffd\",\"\\\\ufffd\"]" {
		t.Errorf("%s %v", b, err)
	}
}
