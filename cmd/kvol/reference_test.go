package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestReference: docs/reference has a page a command, and what else the code tells.
func TestReference(t *testing.T) {
	made := map[string]string{
		"settings.md": settingsPage(), "plugins.md": pluginsPage(), "json.md": jsonPage(t), "columns.md": columnsPage(t),
	}
	index := "# The commands\n\n"
	commands := every(t)
	for _, words := range slices.Sorted(maps.Keys(commands)) {
		c := commands[words]
		made[page(words)+".md"] = commandPage(c)
		index += fmt.Sprintf("* [%s](%s.md): %s\n", c.CommandPath(), page(words), c.Short)
	}
	index += "\nBeside them: [settings](settings.md), [plugins](plugins.md), [columns](columns.md), [JSON](json.md), [errors](errors.md).\n"
	made["commands.md"] = index
	holds(t, "docs/reference/*", made)
	holds(t, "deploy/config.yaml", map[string]string{"config.yaml": exampleConfig()})
}

// commandPage is the page of a command.
func commandPage(c *cobra.Command) string {
	long, codes := texts(c)
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n    %s\n\n%s\n\n", c.CommandPath(), c.Short, c.UseLine(), prose(long))
	fmt.Fprintf(&b, "## Examples\n\n```\n%s\n```\n\n## Options\n\n", unindent(c.Example))
	for _, f := range own(c) {
		fmt.Fprintf(&b, "* `%s`: %s\n", f.term, escape.Replace(f.text))
	}
	if c.HasParent() {
		b.WriteString("* [those that every command has](kvol.md#options)\n")
	}
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, code := range codes {
		fmt.Fprintf(&b, "| %s | %s |\n", code.term, escape.Replace(code.text))
	}
	if c.HasSubCommands() {
		b.WriteString("\n## Commands\n\n")
	}
	for _, sub := range c.Commands() {
		fmt.Fprintf(&b, "* [%s](%s.md): %s\n", sub.CommandPath(), strings.ReplaceAll(sub.CommandPath(), " ", "-"), sub.Short)
	}
	if also := seeAlso(c); len(also) > 0 {
		b.WriteString("\n## See also\n\n")
		for _, words := range also {
			fmt.Fprintf(&b, "* [kvol %s](%s.md)\n", words, page(words))
		}
	}
	return b.String()
}

func unindent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}

// setting is a global flag that is a setting too.
type setting struct{ name, value, kind, text string }

func everySetting() (out []setting) {
	newApp(nil, nil, nil, nil).root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if _, text := pflag.UnquoteUsage(f); configurable(f) {
			out = append(out, setting{f.Name, strings.Trim(f.DefValue, "[]"), f.Value.Type(), text})
		}
	})
	return out
}

func settingsPage() string {
	var b strings.Builder
	b.WriteString(`# Settings

Each is a flag, a variable of the environment and a key of the configuration file, /etc/kvol/config.yaml or the one that
` + "`--config` or `KVOL_CONFIG`" + ` names. The flag comes before the environment, that before the file, that before what a running
kubelet was told, and that before the default. In the file every value is a text, but true and false, and of ` + "`pods-from`" + ` also a
list; a key that is no setting is an error. How it is read is in [configuration.md](../configuration.md). ` + "`kvol config view --show-origin`" + ` shows what holds and why. An example is [config.yaml](../../deploy/config.yaml).

| flag | key of the file | environment | default | meaning |
|---|---|---|---|---|
`)
	for _, s := range everySetting() {
		value := unset[s.name]
		if value == "" && s.value != "" {
			value = "`" + s.value + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%[1]s` | `%s` | %s | %s |\n", s.name, envName(s.name), value, cell(s.text))
	}
	b.WriteString("\nWhat fits one result and not the next, names the file itself or is a risk is a flag only: ")
	for i, name := range perCommand {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`--" + name + "`")
	}
	return b.String() + ".\n"
}

func cell(text string) string { return strings.ReplaceAll(escape.Replace(text), "|", `\|`) }

// exampleConfig is a configuration of nothing but comments. Without the first mark of
// each setting it is the configuration that holds without a file.
func exampleConfig() string {
	var b strings.Builder
	b.WriteString(`# What kvol does where neither a flag nor the environment (KVOL_ROOT_DIR) says otherwise.
# It is read from /etc/kvol/config.yaml. Every setting is here with its default.
`)
	for _, s := range everySetting() {
		value := fmt.Sprintf("%q", s.value)
		switch {
		case s.kind == "bool":
			value = s.value
		case s.name == "timeout":
			value = `"2m"` // it has no one default
		}
		fmt.Fprintf(&b, "\n# %s\n#%s: %s\n", s.text, s.name, value)
	}
	return b.String()
}

// TestExampleConfig: every setting of the example is one, and has its default there.
func TestExampleConfig(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bare := regexp.MustCompile(`(?m)^#(\S)`).ReplaceAllString(string(raw), "$1")
	_, a, code, stderr := parse(t, "ls --config "+configFile(t, bare))
	if code != 0 {
		t.Fatal(stderr)
	}
	for _, s := range everySetting() {
		if want := "file " + a.configFile; a.origins[s.name] != want {
			t.Errorf("%s comes from %q", s.name, a.origins[s.name])
		}
	}
	_, plain, _, _ := parse(t, "ls --config /dev/null")
	if diff := cmp.Diff(plain.settings, a.settings, cmp.AllowUnexported(settings{}),
		cmpopts.IgnoreFields(settings{}, "origins", "configFile", "files", "tree", "timeout")); diff != "" {
		t.Error(diff)
	}
}

func pluginsPage() string {
	var b strings.Builder
	b.WriteString("# The plugins\n\n`kvol plugins` tells this, and which of the tools are missing on the node.\n")
	for _, p := range all.All() {
		i := p.Info()
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n", i.Name, escape.Replace(strings.TrimSuffix(i.Description, ".")))
		line := func(what, text string) {
			if text != "" {
				fmt.Fprintf(&b, "* %s: %s\n", what, escape.Replace(text))
			}
		}
		line("can do", strings.Join(plugins.Rungs(p), ", "))
		line("access modes", strings.Join(i.AccessModes, ", "))
		for _, tool := range i.Tools {
			line("runs `"+tool.Name+"`", tool.Needed)
		}
		line("since Kubernetes", i.Since)
		line("until Kubernetes", i.Until)
	}
	return b.String()
}

// columnsPage has the columns of each list, which some commands have in common.
func columnsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# The columns\n\n`--columns` and `--sort-by` take these names, or the headings; `--list-columns` tells those of a command.\n")
	users := map[string][]string{}
	var order []string
	add := func(c *cobra.Command, as string) {
		view := listOf(c)
		if view == nil {
			return
		}
		rows := ""
		for _, col := range view.Columns() {
			shown := "table and wide"
			if col.WideOnly {
				shown = "wide"
			}
			rows += fmt.Sprintf("| `%s` | %s | %s |\n", col.Name, col.Heading, shown)
		}
		if users[rows] == nil {
			order = append(order, rows)
		}
		users[rows] = append(users[rows], "`"+strings.TrimPrefix(c.CommandPath()+as, "kvol ")+"`")
	}
	commands := every(t)
	for _, words := range slices.Sorted(maps.Keys(commands)) {
		c := commands[words]
		add(c, "")
		for _, flag := range []string{"dry-run", "apply", "show-origin"} {
			if c.Flags().Lookup(flag) == nil {
				continue
			}
			if err := c.Flags().Set(flag, "true"); err != nil {
				t.Fatal(err)
			}
			add(c, " --"+flag)
		}
	}
	for _, rows := range order {
		fmt.Fprintf(&b, "\n## %s\n\n| name | heading | shown in |\n|---|---|---|\n%s", strings.Join(users[rows], ", "), rows)
	}
	return b.String()
}

// schema is what the page about JSON shows of one.
type schema struct {
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Enum        []string           `json:"enum"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
}

func jsonPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# The JSON\n\nA kind of document is made by the commands that [the schemas' page](../schema/README.md) has, and means what is there.\n")
	files, err := filepath.Glob("../../docs/schema/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &schema{}
		if err := json.Unmarshal(raw, s); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		fmt.Fprintf(&b, "\n## %s\n\n[its schema](../schema/%s)\n\n| field | type | meaning |\n|---|---|---|\n", strings.TrimSuffix(name, ".json"), name)
		s.rows(&b, "")
	}
	return b.String()
}

// rows are the fields of an object, each followed by those of what is in it.
func (s *schema) rows(b *strings.Builder, prefix string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		kind, path := p.Type, prefix+name
		for p.Items != nil {
			p, path = p.Items, path+"[]"
			kind = "array of " + p.Type
		}
		text := s.Properties[name].Description
		if len(p.Enum) > 0 {
			text += " (" + strings.Join(p.Enum, ", ") + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, kind, cell(strings.TrimSpace(text)))
		p.rows(b, path+".")
	}
}
