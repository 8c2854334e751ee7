package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// kinds are the kinds of failure in the order in which they decide, as
// docs/exit-codes.md tells.
var kinds = []struct {
	name   string
	err    error
	code   int
	reason string
}{
	{"ErrInterrupt", api.ErrInterrupt, 130, "Interrupted"},
	{"ErrPartly", api.ErrPartly, 3, "PartlyDone"},
	{"ErrFindings", api.ErrFindings, 11, "Findings"},
	{"ErrUncertain", api.ErrUncertain, 8, "Uncertain"},
	{"ErrLocked", api.ErrLocked, 10, "Locked"},
	{"ErrRefused", api.ErrRefused, 4, "Refused"},
	{"ErrNotEmpty", api.ErrNotEmpty, 4, "NotEmpty"},
	{"ErrBusy", api.ErrBusy, 9, "Busy"},
	{"ErrUsage", api.ErrUsage, 2, "Usage"},
	{"ErrInput", api.ErrInput, 2, "BadInput"},
	{"ErrAmbiguousPlugin", api.ErrAmbiguousPlugin, 2, "AmbiguousPlugin"},
	{"ErrNoPlugin", api.ErrNoPlugin, 5, "NoPlugin"},
	{"ErrNotMounted", api.ErrNotMounted, 5, "NotMounted"},
	{"ErrNotFound", api.ErrNotFound, 5, "NotFound"},
	{"ErrNotSupported", api.ErrNotSupported, 6, "NotSupported"},
	{"ErrMissingTool", api.ErrMissingTool, 7, "MissingTool"},
	{"ErrTimeout", api.ErrTimeout, 8, "Timeout"},
	{"a deadline", context.DeadlineExceeded, 8, "Timeout"},
	{"a cancelled context", context.Canceled, 130, "Interrupted"},
	{"any other", fs.ErrNotExist, 1, "Failed"},
}

func wants(t *testing.T, name string, err error, code int, reason string) {
	t.Helper()
	if c, r := api.ExitCode(err), api.Reason(err); c != code || r != reason {
		t.Errorf("%s: %d %q, want %d %q", name, c, r, code, reason)
	}
}

// However a kind is wrapped, it gives its code and its reason.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		for how, err := range map[string]error{
			"alone":        k.err,
			"wrapped":      fmt.Errorf("a: %w", fmt.Errorf("b: %w", k.err)),
			"kind":         &api.Error{Op: "publish", Kind: k.err, Err: syscall.EBUSY},
			"made":         api.Errorf(k.err, "it is %d", 7).At("/p").WithNext("do"),
			"cause":        &api.Error{Op: "publish", Err: &api.Error{Op: "mount", Err: k.err}},
			"cause of fmt": api.Errorf(nil, "of %w", k.err),
			"joined":       errors.Join(errors.New("first"), nil, fmt.Errorf("c: %w", k.err)),
		} {
			wants(t, k.name+" "+how, err, k.code, k.reason)
		}
	}
	wants(t, "nil", nil, 0, "")
	wants(t, "nothing joined", errors.Join(nil, nil), 0, "")
	wants(t, "an empty Error", &api.Error{}, 1, "Failed")
}

// Where two kinds are true the first decides, whichever lies outside.
func TestFirstKindDecides(t *testing.T) {
	for i, first := range kinds {
		for _, other := range kinds[i+1:] {
			for _, err := range []error{
				errors.Join(first.err, other.err), errors.Join(other.err, first.err),
				&api.Error{Kind: first.err, Err: other.err}, &api.Error{Kind: other.err, Err: first.err},
			} {
				wants(t, first.name+" and "+other.name, err, first.code, first.reason)
			}
		}
	}
}

// No sentinel is left out of the table above.
func TestEveryKindIsTried(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var tried []string
	for _, k := range kinds {
		tried = append(tried, k.name)
	}
	for _, decl := range file.Decls {
		vars, ok := decl.(*ast.GenDecl)
		if !ok || vars.Tok != token.VAR {
			continue
		}
		for _, spec := range vars.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if strings.HasPrefix(name.Name, "Err") && !slices.Contains(tried, name.Name) {
					t.Errorf("%s has no line in the table", name.Name)
				}
			}
		}
	}
}

func TestErrorMessage(t *testing.T) {
	cause := errors.New("it is held")
	for want, e := range map[string]*api.Error{
		"publish data /dev/sdb: it is held": {Op: "publish", Volume: "data", Path: "/dev/sdb", Plugin: "not said", Kind: api.ErrBusy, Err: cause},
		"/dev/sdb: it is held":              {Path: "/dev/sdb", Err: cause},
		"it is held":                        {Err: cause},
		"publish: busy":                     {Op: "publish", Kind: api.ErrBusy},
		"ask: its time was over":            {Op: "ask", Err: fmt.Errorf("%w", context.DeadlineExceeded)},
		"failed":                            {Details: []string{"a"}, Next: "not said here"},
		"detach: mount /a: it is held":      {Op: "detach", Err: &api.Error{Op: "mount", Path: "/a", Err: cause}},
		// Names found on disk.
		"/a b/ü/日本~x: busy":        {Path: "/a b/ü/日本~x", Kind: api.ErrBusy},
		`"/a\nkvol: done": busy`:   {Path: "/a\nkvol: done", Kind: api.ErrBusy},
		`"v\x1b[2J" "/a\tb": busy`: {Volume: "v\x1b[2J", Path: "/a\tb", Kind: api.ErrBusy},
		`"/del\x7f": busy`:         {Path: "/del\x7f", Kind: api.ErrBusy},
		`"/c1\u009b": busy`:        {Path: "/c1\u009b", Kind: api.ErrBusy},
		`"/bad\xff": busy`:         {Path: "/bad\xff", Kind: api.ErrBusy},
		`"/nul\x00": busy`:         {Path: "/nul\x00", Kind: api.ErrBusy},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Both the kind and the cause are found, as are Errors further down.
func TestUnwrap(t *testing.T) {
	inner := &api.Error{Op: "mount", Kind: api.ErrBusy, Err: fmt.Errorf("umount: %w", syscall.EBUSY)}
	err := error(&api.Error{Op: "unpublish", Kind: api.ErrUncertain, Err: errors.Join(errors.New("x"), inner)})
	for _, target := range []error{api.ErrUncertain, api.ErrBusy, syscall.EBUSY, inner} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not found", target)
		}
	}
	if errors.Is(err, api.ErrRefused) || errors.Is(&api.Error{}, api.ErrRefused) {
		t.Error("what is not there is found")
	}
}

func TestErrorDoc(t *testing.T) {
	busy := &api.Error{Op: "mount", Plugin: "p", Volume: "inner", Path: "/dev", Kind: api.ErrBusy, Err: errors.New("held"), Details: []string{"pid 7", "pid 8"}, Next: "kill 7"}
	for name, c := range map[string]struct {
		err  error
		want api.ErrorDoc
	}{
		"a context": {fmt.Errorf("read: %w", context.Canceled), api.ErrorDoc{Code: 130, Reason: "Interrupted", Message: "read: interrupted"}},
		"plain":     {errors.New("no"), api.ErrorDoc{Code: 1, Reason: "Failed", Message: "no"}},
		"one": {busy, api.ErrorDoc{Code: 9, Reason: "Busy", Message: "mount inner /dev: held", Op: "mount", Plugin: "p", Volume: "inner",
			Path: "/dev", Next: "kill 7", Details: []string{"pid 7", "pid 8"}}},
		"the outermost wins, details are gathered": {
			&api.Error{Op: "publish", Volume: "data", Details: []string{"outer"}, Err: fmt.Errorf("w: %w", busy)},
			api.ErrorDoc{Code: 9, Reason: "Busy", Message: "publish data: w: mount inner /dev: held", Op: "publish", Plugin: "p", Volume: "data",
				Path: "/dev", Next: "kill 7", Details: []string{"outer", "pid 7", "pid 8"}}},
		"joined: the first wins": {
			errors.Join(errors.New("a"), &api.Error{Op: "attach", Kind: api.ErrMissingTool, Details: []string{"b"}}, busy),
			api.ErrorDoc{Code: 9, Reason: "Busy", Message: "a\nattach: a needed tool is missing\nmount inner /dev: held", Op: "attach", Plugin: "p",
				Volume: "inner", Path: "/dev", Next: "kill 7", Details: []string{"b", "pid 7", "pid 8"}}},
	} {
		c.want.APIVersion, c.want.Kind = "kvol/v1", "Error"
		if c.want.Details == nil {
			c.want.Details = []string{}
		}
		if got, want := toJSON(t, api.NewErrorDoc(c.err)), toJSON(t, c.want); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
