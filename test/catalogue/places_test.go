package catalogue

import (
	"os"
	"path/filepath"
	"testing"
)

// A kind that is no constant is seen wherever an error gets it, and the next step too.
func TestLate(t *testing.T) {
	const source = `package p

func chosen(kind error) error { return api.Errorf(kind, "chosen") }
func literal() error { return &api.Error{Kind: kindOf(1), Err: err, Next: "look"} }
func given(item Item) error {
	e := &api.Error{Err: err, Next: "first"}
	item.Kind = OtherKind
	switch {
	case a:
		e.Kind = kinds[0]
	case b:
		e.Kind = api.ErrBusy
	}
	if late { e.Next = "second" }
	return e
}
func taken(e *api.Error) { e.Kind = kinds[0] }
func passed() error { return &api.Error{Err: err} }
func said() error { return api.Errorf(api.ErrBusy, "said").WithNext("wait") }
func maker(kind error, format string, args ...any) error { return api.Errorf(kind, format, args...) }
func made() error { return maker(api.ErrInput, "made %d", 1) }
func stay(path, next, reason string, args ...any) {}
func stays() { stay("/p", "look at "+quote(path), "it is %s", "there") }
func waits() { item.Next = "wait" }
func madeLate(kind error) error { return maker(kind, "late") }
`
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/internal/p", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "internal/p/p.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	places, err := Read(dir, "internal")
	if err != nil {
		t.Fatal(err)
	}
	want := map[Place]bool{
		{Func: "chosen", Message: "chosen", Late: true}:                       true,
		{Func: "literal", Next: "look", Late: true}:                           true,
		{Func: "given", Next: "first | second", Late: true}:                   true,
		{Func: "given", Kind: "Busy", Next: "first | second"}:                 true,
		{Func: "taken", Late: true}:                                           true,
		{Func: "said", Kind: "Busy", Message: "said", Next: "wait"}:           true,
		{Func: "made", Kind: "Input", Message: "made %d"}:                     true,
		{Func: "stays", Kind: Stays, Message: "it is %s", Next: "look at %s"}: true,
		{Func: "waits", Kind: Stays, Next: "wait"}:                            true,
		{Func: "madeLate", Message: "late", Late: true}:                       true,
	}
	for _, p := range places {
		p.Package = ""
		if !want[p] {
			t.Errorf("there is %+v", p)
		}
		delete(want, p)
	}
	for p := range want {
		t.Errorf("there is no %+v", p)
	}
}
