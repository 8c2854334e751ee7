package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// item is an item of a list, as JSON has it.
type item = map[string]any

// ran is what a run of kvol said.
type ran struct {
	words          []string
	code           int
	stdout, stderr string
}

func (r ran) String() string {
	return fmt.Sprintf("kvol %s: %d\n%s%s", strings.Join(r.words, " "), r.code, r.stdout, r.stderr)
}

// kvol runs it for a program that reads its output, as in a pipe.
func kvol(t *testing.T, words ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	r := ran{words: words, code: Run(words, strings.NewReader(""), &out, &errs)}
	r.stdout, r.stderr = out.String(), errs.String()
	if strings.ContainsAny(r.stdout+r.stderr, "\x1b\r…├└│") {
		t.Errorf("in a pipe there is no colour, no progress, nothing is cut, and lines are of ASCII: %v", r)
	}
	return r
}

// listFormat reads the items back from what a format prints: whole, or by their key only,
// which is the field that tells them apart.
type listFormat struct {
	words []string
	whole func(t *testing.T, out string) []item
	keys  func(c listCase, out string) []string
}

// listFormats are all that a list has; the words of kvol's refusal hold that.
var listFormats = map[string]listFormat{
	"json":  {whole: func(t *testing.T, out string) []item { return decoded[api.List[item]](t, out).Items }},
	"jsonl": {whole: func(t *testing.T, out string) []item { return eachDecoded(t, out) }},
	"yaml": {whole: func(t *testing.T, out string) []item {
		raw, err := yaml.YAMLToJSON([]byte(out))
		if err != nil {
			t.Error(err)
		}
		return decoded[api.List[item]](t, string(raw)).Items
	}},
	"jsonpath=":         {[]string{`{range .items[*]}{@}{"\n"}{end}`}, func(t *testing.T, out string) []item { return eachDecoded(t, out) }, nil},
	"jsonpath-as-json=": {[]string{`{.items[*]}`}, func(t *testing.T, out string) []item { return decoded[[]item](t, out) }, nil},
	"jsonpath-file=":    {[]string{`{range .items[*]}{@}{"\n"}{end}`}, func(t *testing.T, out string) []item { return eachDecoded(t, out) }, nil},

	"go-template=":         {words: []string{`{{range .items}}{{println .KEY}}{{end}}`}, keys: func(_ listCase, out string) []string { return textLines(out) }},
	"go-template-file=":    {words: []string{`{{range .items}}{{println .KEY}}{{end}}`}, keys: func(_ listCase, out string) []string { return textLines(out) }},
	"custom-columns=":      {words: []string{`HEAD:.KEY`}, keys: func(_ listCase, out string) []string { return unheaded("HEAD", out) }},
	"custom-columns-file=": {words: []string{"HEAD\n.KEY\n"}, keys: func(_ listCase, out string) []string { return unheaded("HEAD", out) }},

	"table": {words: []string{"--columns", "KEY", "--no-headers"}, keys: func(_ listCase, out string) []string { return textLines(out) }},
	"wide":  {words: []string{"--columns", "KEY"}, keys: func(c listCase, out string) []string { return unheaded(c.head, out) }},
	"name":  {}, // not of every item
	"tree":  {}, // in an order of its own
}

func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return v
}

func eachDecoded(t *testing.T, out string) []item {
	t.Helper()
	items := []item{}
	for _, line := range textLines(out) {
		items = append(items, decoded[item](t, line))
	}
	return items
}

func textLines(out string) []string {
	if out == "" {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
}

// unheaded are the lines below the heading; a list without items may leave that out too.
func unheaded(head, out string) []string {
	if all := textLines(out); len(all) > 0 && all[0] == head {
		return all[1:]
	}
	return textLines(out)
}

// args are the words that make a command print in the format.
func (f listFormat) args(t *testing.T, name string, c listCase) []string {
	kind, ok := strings.CutSuffix(name, "=")
	if !ok {
		words := []string{"-o", kind}
		for _, word := range f.words {
			words = append(words, strings.ReplaceAll(word, "KEY", c.key))
		}
		return words
	}
	text := strings.ReplaceAll(f.words[0], "KEY", c.key)
	if strings.HasSuffix(kind, "-file") {
		text = writeText(t, t.TempDir()+"/template", text)
	}
	return []string{"-o", name + text}
}

// TestEveryListInEveryFormat: the same items in the same order by the same filter.
// Every command that there is shows a list that is in the table, or none.
func TestEveryListInEveryFormat(t *testing.T) {
	n := newListNode(t)
	tried := slices.Clone(noLists)
	for _, c := range n.cases() {
		name := strings.Join(c.words[:c.named()], " ")
		tried = append(tried, name)
		t.Run(name, func(t *testing.T) {
			c.offers(t)
			all := c.inEveryFormat(t)
			if c.sort != "" {
				c.inOrder(t, all, c.inEveryFormat(t, "--sort-by", c.sort))
			}
			for _, filter := range c.filters {
				some := c.inEveryFormat(t, filter...)
				if len(some) == 0 || len(some) >= len(all) {
					t.Errorf("%v leaves %d of %d", filter, len(some), len(all))
				}
			}
			if c.none != nil {
				if items := c.inEveryFormat(t, c.none...); len(items) != 0 {
					t.Errorf("%v leaves %v", c.none, items)
				}
			}
		})
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			walk(below)
		}
		if name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "kvol"), " "); !slices.Contains(tried, name) {
			t.Errorf("kvol %s has to be in the table of lists, or in that of what shows none", name)
		}
	}
	walk(newApp(nil, nil, io.Discard, io.Discard).root())
}

// inOrder holds that the items are in the order of a column, which is not that of the
// list by itself.
func (c listCase) inOrder(t *testing.T, all, sorted []item) {
	t.Helper()
	if !slices.IsSortedFunc(sorted, func(a, b item) int { return strings.Compare(asText(a[c.sort]), asText(b[c.sort])) }) {
		t.Errorf("not by %s: %v", c.sort, sorted)
	}
	if len(all) != len(sorted) || cmp.Equal(all, sorted) {
		t.Errorf("the order of --sort-by %s is that without it: %v", c.sort, c.keys(all))
	}
}

// offers holds that the formats of the command are those that are tried, and that the
// columns that it lists are those of its table.
func (c listCase) offers(t *testing.T) {
	t.Helper()
	refused := kvol(t, append(slices.Clone(c.words), "-o", "nope")...)
	_, allowed, _ := strings.Cut(textLines(refused.stderr)[0], "allowed formats are: ")
	known := slices.DeleteFunc(strings.Split(allowed, ", "), func(word string) bool { return word == "shell" })
	if diff := cmp.Diff(slices.Sorted(maps.Keys(listFormats)), slices.Sorted(slices.Values(known))); diff != "" {
		t.Errorf("(-tried +there): %s\n%v", diff, refused)
	}
	listed := kvol(t, append(slices.Clone(c.words), "--list-columns", "-o", "custom-columns=:.heading", "--no-headers")...)
	wide := kvol(t, append(slices.Clone(c.words), "-o", "wide")...)
	heads := strings.Join(textLines(listed.stdout), " ")
	if !slices.ContainsFunc(textLines(wide.stdout), func(line string) bool { return strings.Join(treeCells.Split(line, -1), " ") == heads }) {
		t.Errorf("%q is not the heading of %v", heads, wide)
	}
}

// inEveryFormat holds every format against JSON, and gives the items.
func (c listCase) inEveryFormat(t *testing.T, more ...string) []item {
	t.Helper()
	words := append(slices.Clone(c.words), more...)
	first := kvol(t, append(words, "-o", "json")...)
	if first.code != c.code {
		t.Errorf("want %d: %v", c.code, first)
	}
	want := c.without(decoded[api.List[item]](t, first.stdout).Items)
	if want == nil {
		t.Fatalf("no items: %v", first)
	}
	for name, f := range listFormats {
		r := kvol(t, append(slices.Clone(words), f.args(t, name, c)...)...)
		switch {
		case r.code != c.code:
			t.Errorf("exit code, want %d: %v", c.code, r)
		case f.whole != nil:
			if diff := cmp.Diff(want, c.without(f.whole(t, r.stdout))); diff != "" {
				t.Errorf("(-json +%s): %s\n%v", name, diff, r)
			}
		case name == "name":
			c.names(t, want, r)
		case name == "tree":
			c.tree(t, want, r)
		default:
			if diff := cmp.Diff(c.keys(want), c.same(f.keys(c, r.stdout))); diff != "" {
				t.Errorf("(-json +%s): %s\n%v", name, diff, r)
			}
		}
	}
	return want
}

func (c listCase) keys(items []item) []string {
	keys := []string{}
	for _, i := range items {
		keys = append(keys, asText(i[c.key]))
	}
	return keys
}

// without leaves out what is not the same in every format.
func (c listCase) without(items []item) []item {
	return slices.DeleteFunc(items, func(i item) bool { return slices.Contains(c.not, asText(i[c.key])) })
}

func (c listCase) same(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(c.not, key) })
}

// asText is a value as a table and a template have it.
func asText(v any) string { return fmt.Sprint(v) }

// names hold -o name, with NUL too: each name once.
func (c listCase) names(t *testing.T, items []item, r ran) {
	t.Helper()
	want := []string{}
	for _, i := range items {
		for _, name := range c.name(i) {
			if !slices.Contains(want, name) {
				want = append(want, name)
			}
		}
	}
	if diff := cmp.Diff(want, c.same(textLines(r.stdout))); diff != "" {
		t.Errorf("(-json +name): %s\n%v", diff, r)
	}
	null := kvol(t, append(r.words, "-0")...)
	if got := strings.ReplaceAll(null.stdout, "\x00", "\n"); got != r.stdout || null.code != r.code {
		t.Errorf("with -0: %q, and without: %q", null.stdout, r.stdout)
	}
}

// treeCells are what is between the cells of a line.
var treeCells = regexp.MustCompile(` {2,}`)

// tree counts the items in a tree: each is a line that says what c.inTree says of it.
func (c listCase) tree(t *testing.T, items []item, r ran) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, i := range items {
		want[c.inTree(i)]++
	}
	for _, line := range textLines(r.stdout) {
		words := treeCells.Split(strings.TrimLeft(line, "|`- "), -1)
		for _, word := range slices.Compact(words) {
			if want[word] > 0 {
				got[word]++
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("times in json and in a tree: %s\n%v", diff, r)
	}
	if len(items) == 0 && r.stdout != "" {
		t.Errorf("a tree of nothing: %v", r)
	}
}
