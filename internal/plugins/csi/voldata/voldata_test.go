package voldata

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

const whole = `{"attachmentID":"a","driverName":"d.example","nodeName":"n","specVolID":"pv","volumeHandle":"h\"\\ é","volumeLifecycleMode":"Persistent"}` + "\n"

// A file is read as the kubelet reads it, and of one that is cut short whatever came
// whole: every cut is tried.
func TestParse(t *testing.T) {
	all, wrong := Parse([]byte(whole))
	if wrong != "" || len(all) != 6 || all[Handle] != `h"\ é` || all.VolumeName() != `d.example^h"\ é` {
		t.Fatalf("%q %v", wrong, all)
	}
	for cut := range len(whole) - 2 {
		got, wrong := Parse([]byte(whole[:cut]))
		if wrong == "" {
			t.Errorf("cut at %d it is whole", cut)
		}
		for key, value := range got {
			if all[key] != value {
				t.Errorf("cut at %d %s is %q", cut, key, value)
			}
		}
		for key, value := range all {
			if came := strings.Contains(whole[:cut], `"`+key+`":"`+value+`"`); came && got[key] != value {
				t.Errorf("cut at %d %s is forgotten", cut, key)
			}
		}
	}
}

func TestWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "it is empty",
		"\x00\x00\x00":                          "it is no JSON object",
		"[" + whole + "]":                       "it is no JSON object",
		"7":                                     "it is no JSON object",
		"null":                                  "it is no JSON object",
		whole + whole:                           "",
		whole + "\x00\x00":                      "",
		`{"driverName":7}`:                      "the value of driverName is no text",
		`{"driverName":"d","x":{"y":"z"}}`:      "the value of x is no text",
		"{\"a\x1b\\n\":7}":                      "it is cut short or damaged",
		`{"a\n":7}`:                             "the value of a key is no text",
		`{"driverName":"d"}`:                    "it has no volumeHandle",
		`{"driverName":"d","volumeHandle":"h"}`: "it has no specVolID",
		`{"driverName":"d","volumeHandle":"h","specVolID":null}`: "it has no specVolID",
		`{"driverName":"","volumeHandle":"h"}`:                   "it has no driverName",
		strings.Replace(whole, "d.ex", "../", 1):                 "its driverName is none",
		strings.Replace(whole, `"n"`, "null", 1):                 "",
		strings.TrimSuffix(whole, "\n"):                          "",
		" \n" + whole + "\n\n":                                   "",
	} {
		data, wrong := Parse([]byte(text))
		if wrong == "" {
			wrong = data.Lacks(Driver, Handle, Spec)
		}
		if wrong != want {
			t.Errorf("%q: %q, not %q", text, wrong, want)
		}
	}
}

// What a kubelet can read is whole, and nothing else is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"a":null,"a":"b"}{`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var kubelets Data
		err := json.NewDecoder(bytes.NewReader(raw)).Decode(&kubelets)
		data, wrong := Parse(raw)
		if (wrong == "") != (err == nil && kubelets != nil) || wrong == "" && !maps.Equal(data, kubelets) {
			t.Errorf("%q: a kubelet reads %v (%v), this is %v (%s)", raw, kubelets, err, data, wrong)
		}
	})
}
