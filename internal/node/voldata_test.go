package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/paths"
)

const wholeData = `{"attachmentID":"a","driverName":"d.example","nodeName":"n","specVolID":"pv","volumeHandle":"h\"\\ é","volumeLifecycleMode":"Persistent"}` + "\n"

// A file is read as the kubelet reads it, and of one that is cut short whatever came
// whole: every cut is tried.
func TestParseVolData(t *testing.T) {
	need := needed[paths.PodVolumeMetadata]
	all, wrong := parseVolData([]byte(wholeData), need)
	if wrong != "" || len(all) != 6 || all["volumeHandle"] != `h"\ é` {
		t.Fatalf("%q %v", wrong, all)
	}
	for cut := range len(wholeData) - 2 {
		got, wrong := parseVolData([]byte(wholeData[:cut]), need)
		if wrong == "" {
			t.Errorf("cut at %d it is whole", cut)
		}
		for key, value := range got {
			if all[key] != value {
				t.Errorf("cut at %d %s is %q", cut, key, value)
			}
		}
		for key, value := range all {
			if whole := strings.Contains(wholeData[:cut], `"`+key+`":"`+value+`"`); whole && got[key] != value {
				t.Errorf("cut at %d %s is forgotten", cut, key)
			}
		}
	}
	for text, want := range map[string]string{
		"":                                      "it is empty",
		"\x00\x00\x00":                          "it is no JSON object",
		"[" + wholeData + "]":                   "it is no JSON object",
		"7":                                     "it is no JSON object",
		wholeData + wholeData:                   "",
		wholeData + "\x00\x00":                  "",
		`{"driverName":7}`:                      "the value of driverName is no text",
		`{"driverName":"d","x":{"y":"z"}}`:      "the value of x is no text",
		"{\"a\x1b\\n\":null}":                   "it is cut short or damaged",
		`{"a\n":null}`:                          "the value of a key is no text",
		`{"driverName":"d"}`:                    "it has no volumeHandle",
		`{"driverName":"d","volumeHandle":"h"}`: "it has no specVolID",
		`{"driverName":"","volumeHandle":"h"}`:  "it has no driverName",
		strings.Replace(wholeData, "d.ex", "../", 1): "its driverName is none",
		strings.TrimSuffix(wholeData, "\n"):          "",
		" \n" + wholeData + "\n\n":                   "",
	} {
		if _, wrong := parseVolData([]byte(text), need); wrong != want {
			t.Errorf("%q: %q, not %q", text, wrong, want)
		}
	}
	// What a kubelet can read it may hold in memory.
	if m := parseMetadata("f", []byte(wholeData+"\x00"), nil); m.State != "ok" || m.Data["driverName"] == "" {
		t.Errorf("%+v", m)
	}
	if m := parseMetadata("f", []byte("null"), nil); m.State != "broken" || m.Data == nil {
		t.Errorf("%+v", m)
	}
	if _, wrong := parseVolData([]byte(`{"driverName":"d","volumeHandle":"h"}`), needed[paths.GlobalMetadata]); wrong != "" {
		t.Error(wrong)
	}
}

func FuzzVolData(f *testing.F) {
	f.Add([]byte(wholeData))
	f.Fuzz(func(t *testing.T, raw []byte) {
		data, wrong := parseVolData(raw, needed[paths.PodVolumeMetadata])
		again, _ := parseVolData(raw, nil)
		if fmt.Sprint(data) != fmt.Sprint(again) {
			t.Error("what is needed changes what is read")
		}
		if wrong == "" && (data["driverName"] == "" || data["volumeHandle"] == "" || data["specVolID"] == "") {
			t.Errorf("%q is whole: %v", raw, data)
		}
	})
}
