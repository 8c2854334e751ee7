package exec

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// mask stands for a secret wherever one would be shown.
const mask = "***"

// Secret is a value that must not be seen: every text form of it (fmt with any
// verb, JSON, YAML, text, slog) is "***". The zero value is the empty secret.
//
// The bytes are held by a closure: fmt cannot call the methods of an unexported
// field of somebody's struct and prints what it finds inside, which is then an
// address.
type Secret struct {
	reveal func() []byte
}

// NewSecret keeps a copy of b.
func NewSecret(b []byte) Secret {
	b = bytes.Clone(b)
	return Secret{reveal: func() []byte { return b }}
}

// Reveal gives the secret itself. The caller neither changes nor prints it.
func (s Secret) Reveal() []byte {
	if s.reveal == nil {
		return nil
	}
	return s.reveal()
}

// Equal compares the secrets themselves.
func (s Secret) Equal(o Secret) bool { return bytes.Equal(s.Reveal(), o.Reveal()) }

// String, GoString, Format, MarshalJSON, MarshalText and LogValue are the text forms.
func (s Secret) String() string { return mask }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return mask }

// Format implements fmt.Formatter for every verb, %x and %d too.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(mask)) }

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(mask), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(mask) }

// shortest is the length below which a secret is not looked for in text: one of
// two letters is in every other word.
const shortest = 4

// Mask replaces secrets in a text that somebody who was given them said, in the
// forms that programs make of text.
func Mask(text string, secrets ...Secret) string {
	var all []string
	for _, s := range secrets {
		all = append(all, s.forms()...)
	}
	// One secret may be the beginning of another, whose rest would be left.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, form := range slices.Compact(all) {
		text = strings.ReplaceAll(text, form, mask)
	}
	return text
}

// forms are the secret as it is, quoted, encoded, on one line, and each line of it
// that is long enough to tell.
func (s Secret) forms() []string {
	whole := string(s.Reveal())
	core := strings.TrimSpace(whole)
	if len(core) < shortest {
		return nil
	}
	inner := func(quoted []byte) string { return string(quoted[1 : len(quoted)-1]) }
	all := []string{
		core, strings.Join(strings.Fields(core), " "), inner(strconv.AppendQuote(nil, core)), inner(strconv.AppendQuoteToASCII(nil, core)),
		url.QueryEscape(core), url.PathEscape(core), hex.EncodeToString([]byte(core)),
	}
	if text, err := json.Marshal(core); err == nil {
		all = append(all, inner(text))
	}
	for _, raw := range []string{whole, core} { // the padding tells nothing
		all = append(all, base64.RawStdEncoding.EncodeToString([]byte(raw)), base64.RawURLEncoding.EncodeToString([]byte(raw)))
	}
	for line := range strings.Lines(core) {
		if line = strings.TrimSpace(line); len(line) >= 2*shortest {
			all = append(all, line)
		}
	}
	return all
}

// in says whether text has the secret in it, with or without the newline that
// files end with.
func (s Secret) in(text string) bool {
	core := bytes.TrimSpace(s.Reveal())
	return len(core) >= shortest && bytes.Contains([]byte(text), core)
}

// redact replaces the secret in what a tool printed.
func (s Secret) redact(out []byte) []byte { return []byte(Mask(string(out), s)) }
