package exec

import (
	"bytes"
	"fmt"
	"log/slog"
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

// Mask replaces the secret in a text that somebody who was given it said.
func (s Secret) Mask(text string) string { return string(s.redact([]byte(text))) }

// in says whether text has the secret in it, with or without the newline that
// files end with.
func (s Secret) in(text string) bool {
	core := bytes.TrimSpace(s.Reveal())
	return len(core) >= shortest && bytes.Contains([]byte(text), core)
}

// redact replaces the secret in what a tool printed.
func (s Secret) redact(out []byte) []byte {
	core := bytes.TrimSpace(s.Reveal())
	if len(core) < shortest {
		return out
	}
	return bytes.ReplaceAll(out, core, []byte(mask))
}
