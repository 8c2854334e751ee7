package main

import (
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// times is how a length of time is written.
const times = "500ms, 10s or 2m"

// allowed are the words of the settings that take no others.
var allowed = map[string][]string{
	"color":     {"auto", "always", "never"},
	"log-level": {"debug", "info", "warn", "error"},
	"output":    everyFormat(),
}

func everyFormat() (out []string) {
	for _, f := range []render.Format{
		render.Table, render.Wide, render.JSON, render.JSONL, render.YAML, render.Name, render.Tree, render.Shell,
		render.JSONPath, render.JSONPathAsJSON, render.JSONPathFile, render.GoTemplate, render.GoTemplateFile,
		render.CustomColumns, render.CustomColumnsFile,
	} {
		out = append(out, string(f))
	}
	return append(out, slices.Sorted(maps.Keys(shortForms))...)
}

// unfit says what is wrong with the value of a setting, wherever it comes from; ""
// for nothing.
func unfit(f *pflag.Flag, value string) string {
	switch f.Value.Type() {
	case "bool":
		if _, err := strconv.ParseBool(value); err != nil {
			return "has to be true or false"
		}
	case "stringSlice":
		if _, err := csv.NewReader(strings.NewReader(value)).Read(); err != nil && value != "" {
			return "is no list: write one,two"
		}
	case "duration":
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			return "is no time: write " + times
		case f.Name == "lock-timeout": // 0 is not to wait
			if d < 0 {
				return "cannot be negative"
			}
		case d <= 0:
			return "has to be more than 0"
		}
	}
	word := value
	if f.Name == "output" {
		word, _, _ = strings.Cut(value, "=")
	}
	if words := allowed[f.Name]; words != nil && !slices.Contains(words, word) {
		return "is none of: " + strings.Join(words, ", ")
	}
	return ""
}

// stranger says more of a word that is no setting: that it is a flag only, and why, or
// what was meant.
func (s *settings) stranger(word string, flags *pflag.FlagSet) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if configurable(f) {
			names = append(names, f.Name)
		}
	})
	f := flags.Lookup(kebab(word))
	if f == nil {
		f = flagOf(s.tree, kebab(word))
	}
	switch {
	case f == nil || f.Hidden:
	case f.Name == "config":
		return ": --config names the file itself; it is a flag, or KVOL_CONFIG"
	case strings.HasPrefix(f.Usage, "risk"):
		return fmt.Sprintf(": --%s is a risk, which is taken anew each time, on the command line", f.Name)
	case !configurable(f) || flags.Lookup(f.Name) == nil:
		return fmt.Sprintf(": --%s is about one command, and is given with it", f.Name)
	}
	if name := nearest(word, names); name != "" {
		return fmt.Sprintf("; did you mean %s?", name)
	}
	return ""
}

// flagOf is a flag that only some commands have.
func flagOf(cmd *cobra.Command, name string) *pflag.Flag {
	if cmd == nil {
		return nil
	}
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	for _, sub := range cmd.Commands() {
		if f := flagOf(sub, name); f != nil {
			return f
		}
	}
	return nil
}

// kebab is a name however it is spelt: rootDir, ROOT_DIR.
func kebab(word string) string {
	var b strings.Builder
	for i, r := range word {
		switch {
		case r == '_' || r == '.' || r == ' ':
			r = '-'
		case i > 0 && r >= 'A' && r <= 'Z' && word[i-1] >= 'a' && word[i-1] <= 'z':
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// nearest is the name that a word was probably meant to be; "" for none.
func nearest(word string, names []string) string {
	squeeze := func(s string) string { return strings.ReplaceAll(kebab(s), "-", "") }
	best, least := "", 3
	for _, name := range names {
		if d := distance(squeeze(word), squeeze(name)); d < least && d < len(name)/2 {
			best, least = name, d
		}
	}
	for _, name := range names {
		if best == "" && len(word) > 2 && strings.HasPrefix(name, kebab(word)+"-") {
			best = name
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0]++
		for j := range len(b) {
			above := row[j+1]
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, above, row[j])
			}
			row[j+1], corner = cost, above
		}
	}
	return row[len(b)]
}

// strangeVariables are warnings about variables of the environment that look as if they
// set something and do not. One that looks like nothing of kvol is somebody else's:
// Kubernetes itself has KVOL_SERVICE_HOST for a Service of that name.
func (s *settings) strangeVariables(flags *pflag.FlagSet) (out []string) {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		word, ours := strings.CutPrefix(name, envPrefix+"_")
		word = strings.ToLower(strings.ReplaceAll(word, "_", "-"))
		f := flags.Lookup(word)
		if !ours || value == "" || name == envName(word) && f != nil && (configurable(f) || f.Name == "config") {
			continue
		}
		why := s.stranger(word, flags)
		if near, ok := strings.CutPrefix(why, "; did you mean "); ok {
			why = "; did you mean " + envName(strings.TrimSuffix(near, "?")) + "?"
		}
		if why != "" {
			out = append(out, fmt.Sprintf("the environment variable %s sets nothing%s", name, why))
		}
	}
	slices.Sort(out)
	return out
}
