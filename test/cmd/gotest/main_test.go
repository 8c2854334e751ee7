package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module makes a module of one package with the given test functions.
func module(t *testing.T, tests string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\n" + tests,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

func TestRun(t *testing.T) {
	const (
		pass = "func TestA(t *testing.T) { t.Log(\"quiet\") }\n"
		skip = "func TestB(t *testing.T) { t.Skip(\"no tool\") }\n"
		fail = "func TestC(t *testing.T) { t.Log(\"loud\"); t.Fail() }\n"
		die  = "func TestD(t *testing.T) { t.Log(\"last words\"); panic(\"dead\") }\n"
	)
	for _, c := range []struct {
		name, tests, ci string
		code            int
		want, not       string
	}{
		{"pass", pass, "true", 0, "ok  \tm\t", "quiet"},
		{"count", pass + fail, "", 1, "1 passed, 1 failed, 0 skipped\n", "quiet"},
		{"fail", fail, "", 1, "loud", "did not end"},
		{"skip", pass + skip, "", 0, "1 passed, 0 failed, 1 skipped\n", "quiet"},
		{"skip in CI", pass + skip, "true", 1, "skipped: m TestB: ", "quiet"},
		{"panic", die, "", 1, "panic: dead", "ok  "},
		{"does not compile", "func TestE(", "", 1, "m_test.go", "ok  "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CI", c.ci)
			module(t, c.tests)
			var out strings.Builder
			code, err := run([]string{"-count=1", "."}, &out)
			if code != c.code || (err != nil) != (c.code != 0) {
				t.Errorf("code %d, error %v, want code %d", code, err, c.code)
			}
			if got := out.String(); !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
				t.Errorf("want %q and no %q in\n%s", c.want, c.not, got)
			}
		})
	}
}

// The parts run, each with what is for all, and are counted together.
func TestParts(t *testing.T) {
	t.Setenv("CI", "")
	module(t, "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Log(\"loud\"); t.Fail() }\n")
	var out strings.Builder
	code, err := run([]string{"-count=1", "--", "-skip", "TestA", ".", "--", "-run", "TestA", "."}, &out)
	if got := out.String(); code != 1 || err == nil || !strings.Contains(got, "loud") || !strings.HasSuffix(got, "1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("code %d, error %v:\n%s", code, err, got)
	}
}
