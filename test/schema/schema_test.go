package schema

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what was added into docs/schema")

const dir = "../../docs/schema"

// The schemas are what the types are, and never lose what they once had: -update
// does not write that either.
func TestSchemas(t *testing.T) {
	m, err := newMaker("../../internal/api")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(documents)) {
		t.Run(kind, func(t *testing.T) {
			now := m.document(kind)
			old, err := Read(dir, kind)
			if err == nil {
				for _, what := range Taken(old, now) {
					t.Errorf("%s: scripts rely on the JSON, to which fields and values are only added", what)
				}
			} else if !os.IsNotExist(err) {
				t.Error(err)
			}
			if t.Failed() {
				return
			}
			raw, err := json.MarshalIndent(now, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join(dir, kind+".json"), string(raw)+"\n")
		})
	}
}

func golden(t *testing.T, path, text string) {
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, _ := os.ReadFile(path); string(is) != text {
		t.Errorf("%s is not what internal/api has; after an addition: go test ./test/schema -update", path)
	}
}

// A kind of document is not taken away either.
func TestKindsStay(t *testing.T) {
	files, err := filepath.Glob(dir + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if kind := strings.TrimSuffix(filepath.Base(file), ".json"); documents[kind] == nil {
			t.Errorf("%s is the schema of a kind that kvol no longer prints", file)
		}
	}
}

func parse(t *testing.T, text string) *Schema {
	t.Helper()
	s := &Schema{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func TestTaken(t *testing.T) {
	const old = `{"type":"object","required":["a"],"additionalProperties":true,"properties":{
		"a":{"type":"string","enum":["x","y"]},
		"b":{"type":"array","items":{"type":"object","properties":{"c":{"type":"integer"}}}},
		"d":{"type":"object","additionalProperties":{"type":"string"}},
		"e":{"type":"string","format":"date-time"}}}`
	for _, c := range []struct{ name, from, to, want string }{
		{"nothing", "", "", ""},
		{"a field added", `"a":{`, `"new":{"type":"string"},"a":{`, ""},
		{"a value added", `"y"`, `"y","z"`, ""},
		{"always there now", `["a"]`, `["a","b"]`, ""},
		{"a comment", `"a":{`, `"a":{"description":"now said",`, ""},
		{"a field gone", `"c":`, `"renamed":`, `.b[]: the field "c" is gone`},
		{"a value gone", `,"y"`, ``, `.a: the value "y" is gone`},
		{"any value", `,"enum":["x","y"]`, ``, `.a: the value "x" is gone; .a: the value "y" is gone`},
		{"not always there", `["a"]`, `["b"]`, `: the field "a" is not always there any more`},
		{"a type", `"integer"`, `"string"`, `.b[].c: type was "integer" and is "string"`},
		{"the values of a map", `{"type":"string"}}`, `{"type":"integer"}}`, `.d.*: type was "string" and is "integer"`},
		{"a format", `,"format":"date-time"`, ``, `.e: format was "date-time" and is ""`},
		{"closed", `"additionalProperties":true,`, ``, `: .* is described in only one of the two`},
	} {
		if c.from != "" && !strings.Contains(old, c.from) {
			t.Fatalf("%s: %s is not there", c.name, c.from)
		}
		now := strings.Replace(old, c.from, c.to, 1)
		if got := strings.Join(Taken(parse(t, old), parse(t, now)), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	s := parse(t, `{"type":"object","required":["kind","n"],"additionalProperties":true,"properties":{
		"kind":{"type":"string","const":"K"},
		"n":{"type":"integer"},
		"state":{"type":"string","enum":["ok","bad"]},
		"time":{"type":"string","format":"date-time"},
		"list":{"type":"array","items":{"type":"boolean"}},
		"data":{"type":"object","additionalProperties":{"type":"string"}}}}`)
	for doc, want := range map[string]string{
		`{"kind":"K","n":1,"state":"ok","time":"2026-01-02T03:04:05.6Z","list":[true],"data":{"a":"b"}}`: "",
		`{"kind":"K","n":1,"list":[],"data":{}}`:                                                         "",
		`{"kind":"K","n":1`:                                                                              "not JSON: unexpected EOF",
		`{"kind":"K","n":1} {}`:                                                                          "more than one document",
		`[]`:                                                                                             ": is array ([]), not object",
		`{"n":1}`:                                                                                        ": lacks the field kind",
		`{"kind":"L","n":1}`:                                                                             `.kind: is "L", not "K"`,
		`{"kind":"K","n":1.5}`:                                                                           ".n: is number (1.5), not integer",
		`{"kind":"K","n":1,"list":null}`:                                                                 ".list: is null (<nil>), not array",
		`{"kind":"K","n":1,"list":[true,"no"]}`:                                                          ".list[1]: is string (no), not boolean",
		`{"kind":"K","n":1,"state":""}`:                                                                  `.state: "" is none of ["ok" "bad"]`,
		`{"kind":"K","n":1,"data":{"a":2}}`:                                                              ".data.a: is integer (2), not string",
		`{"kind":"K","n":1,"other":1}`:                                                                   ": the field other is not in the schema",
		`{"kind":"K","n":1,"time":"yesterday"}`:                                                          `.time: parsing time "yesterday" as "2006-01-02T15:04:05.999999999Z07:00": cannot parse "yesterday" as "2006"`,
	} {
		if got := strings.Join(s.Check(doc), "; "); got != want {
			t.Errorf("%s: %q, want %q", doc, got, want)
		}
	}
}

// frozen are the schemas as they once were. They are never updated: who wrote a
// script against them reads today's output still (test/e2e holds all of it against
// them too).
const frozen = "testdata/frozen"

func TestOldSchemas(t *testing.T) {
	files, err := filepath.Glob(frozen + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".json")
		old, err := Read(frozen, kind)
		if err != nil {
			t.Fatal(err)
		}
		now, err := Read(dir, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range Taken(old, now) {
			t.Errorf("%s%s", kind, what)
		}
	}
}

func TestRefused(t *testing.T) {
	old, err := Read(frozen, "MountList")
	if err != nil {
		t.Fatal(err)
	}
	const doc = `{"apiVersion":"kvol/v1","kind":"MountList","items":[{"kind":"podVolume","path":"/p","plugin":"","volume":"","podUID":"",
		"podName":"","namespace":"","source":"","fsType":"","options":["rw"],"readOnly":false,"mountID":7,"device":"","root":"",
		"mounted":true,"stacked":1,"state":"ok","stateReason":"","owner":"live"}],"warnings":[]}`
	for _, c := range []struct{ name, from, to, want string }{
		{"as it was", "", "", ""},
		{"a field added", `"mountID":7`, `"mountID":7,"new":{"a":[1]}`, ""},
		{"a field added on top", `"warnings"`, `"more":null,"warnings"`, ""},
		{"a value added", `"state":"ok"`, `"state":"frozen"`, ""},
		{"a field taken away", `"mountID":7,`, ``, ".items[0]: lacks the field mountID"},
		{"a list taken away", `,"warnings":[]`, ``, ": lacks the field warnings"},
		{"another type", `"mountID":7`, `"mountID":"7"`, ".items[0].mountID: is string (7), not integer"},
		{"another type in a list", `["rw"]`, `[{"rw":true}]`, ".items[0].options[0]: is object (map[rw:true]), not string"},
		{"null for a list", `"warnings":[]`, `"warnings":null`, ".warnings: is null (<nil>), not array"},
		{"another version", `kvol/v1`, `kvol/v2`, `.apiVersion: is "kvol/v2", not "kvol/v1"`},
	} {
		if c.from != "" && !strings.Contains(doc, c.from) {
			t.Fatalf("%s: %s is not there", c.name, c.from)
		}
		if got := strings.Join(old.Refused(strings.Replace(doc, c.from, c.to, 1)), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A schema by hand with a keyword that Check ignores would check nothing.
func TestUnknownKeyword(t *testing.T) {
	if err := json.Unmarshal([]byte(`{"items":{"minimum":1}}`), &Schema{}); err == nil {
		t.Error("a keyword that is not known was taken")
	}
}
