package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// make docs completions is these tests with -update: nothing of what they need is
// linked into kvol.
var update = flag.Bool("update", false, "write what is generated into the tree")

// TestCompletions: completions/ has what kvol completion prints.
func TestCompletions(t *testing.T) {
	made := map[string]string{}
	for shell, name := range map[string]string{"bash": "kvol.bash", "zsh": "_kvol", "fish": "kvol.fish"} {
		var out, errs bytes.Buffer
		if code := Run([]string{"completion", shell}, nil, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Fatalf("%s: exit code %d: %s", shell, code, &errs)
		}
		made[name] = out.String()
	}
	holds(t, "completions/*", made)
}

// TestManual: docs/man has a page a command.
func TestManual(t *testing.T) {
	made := map[string]string{}
	for words, c := range every(t) {
		long, codes := texts(c)
		c.Long = prose(long)
		var below []term
		for _, sub := range c.Commands() {
			below = append(below, term{sub.Name(), sub.Short})
		}
		if len(below) > 0 {
			c.Use += " COMMAND"
			c.Long += "\n\n# COMMANDS\n" + terms(below)
		}
		if flags := own(c); len(flags) > 0 {
			c.Long += "\n\n# OPTIONS\n" + terms(flags)
		}
		if c.HasParent() {
			c.Long += "\n\nThe options that every command has are in kvol(8)."
		}
		c.Long += "\n\n# EXIT STATUS\n" + terms(codes)
		if !c.HasParent() {
			c.Long += "\n\n# ENVIRONMENT\n" + terms(environment) + "\n\n# FILES\n" + terms(ownFiles)
		}
		made[page(words)+".8"] = roff(t, c)
	}
	holds(t, "docs/man/*", made)

	testutil.Tool(t, "mandoc")
	pages, err := filepath.Glob("../../docs/man/*.8")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("mandoc", append([]string{"-Tlint", "-Wwarning"}, pages...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "missing date") { // it would make another page of the same text
			t.Error(line)
		}
	}
}

// What kvol(8) has beside its help.
var (
	environment = []term{
		{"KVOL_CONFIG", "the configuration file"},
		{"KVOL_OPTION", "each option that is a setting, as KVOL_ROOT_DIR for --root-dir; kvol config view --show-origin has them"},
		{"NO_COLOR", "no colour, whatever it is set to"},
	}
	ownFiles = []term{
		{defaultConfig, "the configuration"}, {"/var/lib/kvol", "the journal, which kvol history shows"}, {"/run/kvol", "locks"},
		{"/usr/share/doc/kvol/docs", "what to do when something is broken, and how kvol works"},
		{"/usr/share/doc/kvol/examples", "a configuration, and the script that recovers a node"},
	}
)

// roff is the manual page of a command whose text is Markdown and has its options:
// the library's own list of them has no place for the name of a value.
func roff(t *testing.T, c *cobra.Command) string {
	t.Helper()
	c.Use += " [flags]"
	c.DisableAutoGenTag = true
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	never := time.Time{}
	var b bytes.Buffer
	err := doc.GenMan(c, &doc.GenManHeader{Section: "8", Source: "kvol", Manual: "System Administration", Date: &never}, &b)
	if err != nil {
		t.Fatal(err)
	}
	// A page that is the same for the same text has no date. A hyphen is one that can
	// be copied into a shell.
	text := strings.Replace(b.String(), `"`+never.Format("Jan 2006")+`"`, `""`, 1)
	text = strings.TrimRight(text, "\n") // which ends with the names of other pages
	for _, words := range seeAlso(c) {
		text += `, \fB` + page(words) + `(8)\fP`
	}
	text += "\n"
	return strings.ReplaceAll(strings.ReplaceAll(text, `\-`, "-"), "-", `\-`)
}

// neighbours are commands that somebody who looks at one of them may have to know.
var neighbours = [][]string{
	{"attach", "mount-device", "publish", "setup"},
	{"detach", "unmount-device", "unpublish", "teardown"},
	{"attach", "detach"},
	{"mount-device", "unmount-device"},
	{"publish", "unpublish"},
	{"setup", "teardown"},
	{"provision", "recycle", "delete"},
	{"list-mounts", "inspect", "wait"},
	{"inspect", "paths", "expand"},
	{"attach", "limits"},
	{"limits", "plugins"},
	{"gc-orphans", "recover", "history"},
	{"list-mounts", "gc-orphans"},
	{"history", "inspect"},
	{"completion", "config"},
	{"config", "config view", "version"},
}

// seeAlso are the neighbours of a command, in the order above.
func seeAlso(c *cobra.Command) (out []string) {
	self := strings.TrimPrefix(c.CommandPath(), "kvol ")
	for _, group := range neighbours {
		if !slices.Contains(group, self) {
			continue
		}
		for _, words := range group {
			below := strings.HasPrefix(words, self+" ") || strings.HasPrefix(self, words+" ") // the library has them
			if words != self && !below && !slices.Contains(out, words) {
				out = append(out, words)
			}
		}
	}
	return out
}

// Each command but help has neighbours, and they are commands.
func TestNeighbours(t *testing.T) {
	commands := every(t)
	for _, group := range neighbours {
		for _, words := range group {
			if commands[words] == nil {
				t.Errorf("there is no command %q", words)
			}
		}
	}
	for words, c := range commands {
		if words != "" && words != "help" && len(seeAlso(c)) == 0 {
			t.Errorf("kvol %s has no neighbours", words)
		}
	}
}

// page is the name of a command's page.
func page(words string) string {
	return strings.ReplaceAll(strings.TrimSpace("kvol "+words), " ", "-")
}

// term is an entry of a list: an option or an exit code, and what it means.
type term struct{ term, text string }

// texts are the two parts of a command's help.
func texts(c *cobra.Command) (long string, codes []term) {
	long, list, _ := strings.Cut(c.Long, "\n\nExit codes:\n")
	for line := range strings.Lines(list) {
		code, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
		codes = append(codes, term{code, strings.TrimSpace(meaning)})
	}
	return long, codes
}

// own are the options that a command does not have from kvol itself.
func own(c *cobra.Command) (out []term) {
	c.InitDefaultHelpFlag()
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		name, text := pflag.UnquoteUsage(f)
		words := strings.TrimSpace("--" + f.Name + " " + name)
		if f.Shorthand != "" {
			words = "-" + f.Shorthand + ", " + words
		}
		if f.DefValue != "" && !slices.Contains([]string{"false", "0", "0s", "[]"}, f.DefValue) && !strings.Contains(text, "(default") {
			text += " (default " + strings.Trim(f.DefValue, "[]") + ")"
		}
		out = append(out, term{words, text})
	})
	return out
}

// terms is a list as the maker of manual pages understands one.
func terms(list []term) string {
	var b strings.Builder
	for _, t := range list {
		fmt.Fprintf(&b, "\n**%s**\n: %s\n", escape.Replace(t.term), escape.Replace(t.text))
	}
	return b.String()
}

// prose is the text of a help as Markdown: a paragraph that has columns keeps them.
func prose(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if strings.Contains("\n"+p, "\n ") {
			paragraphs[i] = "    " + strings.ReplaceAll(p, "\n", "\n    ")
		} else {
			paragraphs[i] = escape.Replace(p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

var escape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, `<`, `\<`, `[`, `\[`, "`", "\\`")

// holds compares files of the tree, those that a pattern names, with what was generated
// for them, or writes that.
func holds(t *testing.T, pattern string, made map[string]string) {
	t.Helper()
	pattern = filepath.Join("../..", pattern)
	dir := filepath.Dir(pattern)
	if *update {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range made {
		path := filepath.Join(dir, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if is, _ := os.ReadFile(path); string(is) != text {
			t.Errorf("%s is not what kvol has now: make docs completions", path)
		}
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, ok := made[filepath.Base(file)]; !ok && filepath.Base(file) != "errors.md" { // which is the catalogue's
			t.Errorf("%s is not generated any more", file)
		}
	}
}
