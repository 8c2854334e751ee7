package exec

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// Whoever was given a secret prints it as programs do; nothing of it is left.
func TestMask(t *testing.T) {
	const pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhk\nAASCBKcwggSjAgEAAo\n-----END KEY-----\n"
	asJSON, err := json.Marshal(`a"b\c<d>é`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ secret, said, want string }{
		{"swordfish\n", "swordfish", "***"},
		{"swordfish", base64.StdEncoding.EncodeToString([]byte("swordfish")), "***"},
		{"swordfish\n", base64.URLEncoding.EncodeToString([]byte("swordfish\n")), "***=="},
		{"sword fish/é", url.QueryEscape("sword fish/é"), "***"},
		{"sword fish/é", url.PathEscape("sword fish/é"), "***"},
		{"swordfish", fmt.Sprintf("%x", "swordfish"), "***"},
		{"sword\"fish\t\x01", fmt.Sprintf("%q", "sword\"fish\t\x01"), `"***"`},
		{"sword\"fishé", fmt.Sprintf("%+q", "sword\"fishé"), `"***"`},
		{`a"b\c<d>é`, string(asJSON), `"***"`},
		{pem, pem, "***\n"},
		{pem, strings.Join(strings.Fields(pem), " "), "***"},
		{pem, "line 2: AASCBKcwggSjAgEAAo is no key", "line 2: *** is no key"},
		{"ab", "abbreviation", "abbreviation"},
	} {
		if got := Mask(c.said, NewSecret([]byte(c.secret))); got != c.want {
			t.Errorf("of %q in %q is shown %q", c.secret, c.said, got)
		}
	}
	short, long := NewSecret([]byte("admin")), NewSecret([]byte("admin-of-all"))
	for _, secrets := range [][]Secret{{short, long}, {long, short}} {
		if got := Mask("admin-of-all, admin", secrets...); got != "***, ***" {
			t.Errorf("one that begins another: %q", got)
		}
	}
}
