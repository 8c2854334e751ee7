package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"

	"github.com/spf13/cobra"
)

// every gives each command with the words that call it: "config view".
func every(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	out := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		out[strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "kvol"), " ")] = c
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := newApp(nil, nil, nil, nil).root()
	root.InitDefaultHelpCmd()
	walk(root)
	return out
}

// help is what a user sees.
func help(t *testing.T, words string) string {
	t.Helper()
	var out, errs strings.Builder
	if code := Run(append(strings.Fields(words), "--help"), strings.NewReader(""), &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("kvol %s --help: code %d: %s", words, code, &errs)
	}
	return out.String()
}

func TestEveryCommandIsDocumented(t *testing.T) {
	for words, c := range every(t) {
		for what, text := range map[string]string{
			"a description":                c.Short,
			"a long one and exit codes":    c.Long,
			"an example that names itself": c.Example,
		} {
			if text == "" {
				t.Errorf("kvol %s has not %s", words, what)
			}
		}
		shown := help(t, words)
		for _, section := range []string{"\nExamples:\n  ", "\nExit codes:\n  0    done"} {
			if !strings.Contains(shown, section) {
				t.Errorf("the help of kvol %s has no %s", words, strings.Fields(section)[0])
			}
		}
		if !strings.Contains(c.Example, strings.TrimSpace("kvol "+words)) {
			t.Errorf("the example of kvol %s does not call it", words)
		}
		for _, line := range strings.Split(c.Long+"\n"+c.Example, "\n") {
			if len([]rune(line)) > 110 {
				t.Errorf("the help of kvol %s has a line of %d characters: %s", words, len(line), line)
			}
		}
	}
}

// A script that only fails shows nothing: each command has one in which it works.
func TestEveryCommandHasAScript(t *testing.T) {
	files, err := filepath.Glob("../../test/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(raw)
	}
	for words := range every(t) {
		if words != "" && !strings.Contains(all.String(), "\nexec kvol "+words) {
			t.Errorf("no script runs kvol %s", words)
		}
		if !strings.Contains(all.String(), strings.TrimSpace("exec kvol "+words)+" --help\n") {
			t.Errorf("no script shows the help of kvol %s", words)
		}
	}
}

// The examples parse: what help shows can be typed.
func TestExamplesParse(t *testing.T) {
	for words, c := range every(t) {
		for _, line := range strings.Split(c.Example, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
			line, _, _ = strings.Cut(line, " > ")
			fields := strings.Fields(line)
			i := slices.Index(fields, "kvol")
			if strings.HasPrefix(line, "#") || i < 0 {
				continue
			}
			if next := fields[i+1]; next == "help" || next == "completion" {
				continue // which have no options
			}
			if got, _, code, stderr := parse(t, strings.Join(fields[i+1:], " ")); code != 0 || got == nil {
				t.Errorf("the help of kvol %s: %s: %s", words, line, stderr)
			}
		}
	}
}

// The document, the help and the code say the same.
func TestExitCodesDocument(t *testing.T) {
	raw, err := os.ReadFile("../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, meaning := range meanings {
		found := slices.ContainsFunc(strings.Split(string(raw), "\n"), func(line string) bool {
			return strings.HasPrefix(line, fmt.Sprintf("| %d |", code)) && strings.Contains(line, "| "+meaning+" |")
		})
		if !found {
			t.Errorf("docs/exit-codes.md does not say that %d is %q", code, meaning)
		}
	}
	for _, kind := range []error{api.ErrUsage, api.ErrInput, api.ErrAmbiguousPlugin, api.ErrNoPlugin, api.ErrNotMounted, api.ErrNotFound,
		api.ErrNotSupported, api.ErrMissingTool, api.ErrTimeout, api.ErrUncertain, api.ErrBusy, api.ErrNotEmpty, api.ErrRefused,
		api.ErrLocked, api.ErrPartly, api.ErrFindings, api.ErrInterrupt} {
		row := fmt.Sprintf("| %d |", api.ExitCode(kind))
		found := slices.ContainsFunc(strings.Split(string(raw), "\n"), func(line string) bool {
			return strings.HasPrefix(line, row) && strings.Contains(line, "`"+api.Reason(kind)+"`")
		})
		if !found {
			t.Errorf("docs/exit-codes.md does not give the reason %q to %d", api.Reason(kind), api.ExitCode(kind))
		}
	}
}
