package api_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// bash reads each word as it was, and what is shown of it is text on one line.
func TestQuote(t *testing.T) {
	var words []string
	var line strings.Builder
	for c := 1; c < 256; c++ {
		for _, word := range []string{string([]byte{byte(c)}), "ä'\n" + string([]byte{byte(c)}) + "0f"} {
			words = append(words, word)
			line.WriteString(" " + api.Quote(word))
		}
	}
	out, err := exec.Command("bash", "-c", `printf '%s\0'`+line.String()).Output()
	if want := strings.Join(words, "\x00") + "\x00"; err != nil || string(out) != want {
		t.Errorf("%v\n%q\n%q", err, out, want)
	}
	for in, want := range map[string]string{
		"": "''", "/a-b": "/a-b", "it's ä": `'it'\''s ä'`, "bad\ufffd": "'bad\ufffd'", "bad\xff": `$'bad\xff'`, "\xffff'": `$'\xffff\''`, "a\nä": `$'a\x0aä'`,
	} {
		if got := api.Quote(in); got != want {
			t.Errorf("%q is quoted as %s and not as %s", in, got, want)
		}
	}
}
