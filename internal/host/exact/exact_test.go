package exact

import (
	"reflect"
	"testing"
	"time"
)

// What comes out is what went in, whatever the bytes of a string are.
func TestRoundTrip(t *testing.T) {
	type inner struct{ Size, Offset int64 }
	type value struct {
		inner
		Name    string
		Names   []string
		ByPath  map[string]*inner
		Files   map[string][]byte
		Text    string `json:"text,omitempty"`
		At      time.Time
		For     time.Duration
		Seq     uint64
		Nothing *inner
	}
	var names []string
	for c := range 256 {
		names = append(names, "bad"+string([]byte{byte(c)}))
	}
	in := value{
		inner: inner{Size: -1, Offset: 1 << 62}, Name: "bad\xff", Names: append(names, "", "bad\ufffd", "a\x00b"),
		ByPath: map[string]*inner{"/\xff": {Size: 1}, "/\ufffd": {Size: 2}, "/\xfe": nil},
		Files:  map[string][]byte{"not there": nil, "empty": {}, "/\xff": {0xff, 0}},
		At:     time.Now().UTC().Round(0), For: time.Second, Seq: 1<<64 - 1,
	}
	raw, err := Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out value
	if err := Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	out.inner = in.inner // neither is exported
	if !reflect.DeepEqual(in, out) {
		t.Errorf("went in as\n%#v\nand came out as\n%#v", in, out)
	}
	many := make([]string, 1<<18)
	if raw, err = Marshal(many); err != nil || Unmarshal(raw, &many) != nil {
		t.Errorf("%d names: %v", len(many), err)
	}
	var text string
	for _, broken := range []string{"", "\x45ab", "{}"} {
		if err := Unmarshal([]byte(broken), &text); err == nil {
			t.Errorf("%q is taken for %q", broken, text)
		}
	}
	if raw, _ = Marshal(nil); Unmarshal(raw, &text) != nil {
		t.Error("nothing cannot be said")
	}
}
