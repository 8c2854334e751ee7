package act

import "github.com/kvol/kvol/internal/api"

// Value is a string that may be known only after a step has been done: the
// device path that attach gives, the name of a new loop device. Plugins pass it
// on and never branch on what it holds.
type Value struct {
	text string
	ref  string // the shell variable that stands for it, "DEV1"
}

// Known makes a Value of a string that is known now.
func Known(s string) Value { return Value{text: s} }

// Text gives the string, and false when it is not known yet (in a dry run).
func (v Value) Text() (string, bool) { return v.text, v.ref == "" || v.text != "" }

// String is for steps and messages: the string itself, or $DEV1.
func (v Value) String() string {
	if v.text == "" && v.ref != "" {
		return "$" + v.ref
	}
	return v.text
}

// Empty says that there is no value at all, known or to come.
func (v Value) Empty() bool { return v.text == "" && v.ref == "" }

func (v Value) shell() string {
	if v.ref != "" {
		return `"$` + v.ref + `"`
	}
	return Quote(v.text)
}

// Quote writes s as one word of bash.
func Quote(s string) string { return api.Quote(s) }
