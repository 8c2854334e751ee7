package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/test/catalogue"

	"github.com/spf13/cobra"
)

// sentinels are the kinds as the source calls them, in the order of the page.
var sentinels = []struct {
	name string
	kind error
}{
	{catalogue.Plain, nil},
	{"Usage", api.ErrUsage},
	{"Input", api.ErrInput},
	{"AmbiguousPlugin", api.ErrAmbiguousPlugin},
	{"Partly", api.ErrPartly},
	{"Refused", api.ErrRefused},
	{"NotEmpty", api.ErrNotEmpty},
	{"NotFound", api.ErrNotFound},
	{"NotMounted", api.ErrNotMounted},
	{"NoPlugin", api.ErrNoPlugin},
	{"NotSupported", api.ErrNotSupported},
	{"MissingTool", api.ErrMissingTool},
	{"Uncertain", api.ErrUncertain},
	{"Timeout", api.ErrTimeout},
	{"Busy", api.ErrBusy},
	{"Locked", api.ErrLocked},
	{"Findings", api.ErrFindings},
	{"Interrupt", api.ErrInterrupt},
}

// atRunTime are the functions that find the kind of an error at run time, and what it
// can be: each of these has a door, unless the place says what is next.
var atRunTime = map[string][]error{
	"internal/host/exec.wait":         {api.ErrTimeout, api.ErrInterrupt},
	"internal/host/probe.Call":        {api.ErrTimeout, api.ErrInterrupt},
	"internal/host/probe.post":        {api.ErrTimeout, nil},
	"internal/host/format.Probe":      {nil},
	"internal/host/format.blank":      {api.ErrRefused, api.ErrTimeout, api.ErrInterrupt, api.ErrUncertain},
	"internal/host/format.unfinished": {api.ErrRefused, api.ErrTimeout, api.ErrInterrupt, api.ErrUncertain},
	"internal/node/alive.criError":    {nil, api.ErrTimeout, api.ErrNotSupported},
	"internal/host/devices.mutation":  {nil, api.ErrUncertain, api.ErrNotFound, api.ErrBusy},
	"internal/host/safefs.fail":       {nil, api.ErrNotFound}, // the others of its table say what is next
	"internal/host/probe.Unwrap":      {},                     // as it was in the helper, with its next step
	"internal/ops.err":                {api.ErrPartly, api.ErrRefused, api.ErrNotFound, api.ErrBusy, nil},
	"internal/ops.fromClaim":          {api.ErrInput, api.ErrNotSupported},
	"internal/ops.specOnNode":         {api.ErrNotFound, api.ErrNotSupported, api.ErrInput, nil},
	"cmd/kvol.resume":                 {nil, api.ErrNotFound, api.ErrTimeout}, // ErrRefused brings what is next
	"cmd/kvol.execute":                {nil},
}

func madeErrors(t *testing.T) []catalogue.Place {
	t.Helper()
	all, err := catalogue.Read("../..", "cmd", "internal")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 500 {
		t.Errorf("only %d places where an error is made", len(all))
	}
	return all
}

func reason(kind error) string {
	if kind == nil {
		return api.Reason(os.ErrInvalid)
	}
	return api.Reason(kind)
}

func reasons(kinds []error) string {
	var out []string
	for _, kind := range kinds {
		out = append(out, reason(kind))
	}
	return strings.Join(out, ", ")
}

func exitCode(kind error) int { return api.ExitCode(cmp.Or(kind, os.ErrInvalid)) }

// Every refusal and failure says what to do next, where it is made or at the door of
// its kind.
func TestEveryFailureSaysWhatIsNext(t *testing.T) {
	kinds := map[string]error{}
	for _, s := range sentinels {
		kinds[s.name] = s.kind
	}
	used := map[string]bool{}
	for _, p := range madeErrors(t) {
		kind, known := kinds[p.Kind]
		where := p.Package + "." + p.Func
		late := atRunTime[where]
		if p.Late && late == nil {
			t.Errorf("%v: of what kind can it be? say so in atRunTime", p)
		}
		used[where] = used[where] || p.Late
		switch {
		case p.Next != "" || p.Cause:
		case p.Kind == catalogue.Passed && late != nil:
			used[where] = true
			for _, kind := range late {
				if doors[kind] == nil {
					t.Errorf("%v: no next step for %s", p, reason(kind))
				}
			}
		case p.Kind == catalogue.Stays:
			t.Errorf("%v: there is no next step", p)
		case !known:
			t.Errorf("%v: of what kind is it? say so in atRunTime", p)
		case doors[kind] == nil:
			t.Errorf("%v: there is no next step", p)
		}
	}
	for where := range atRunTime {
		if !used[where] && where != "cmd/kvol.execute" { // whose panic is of no kind
			t.Errorf("%s makes no such error any more", where)
		}
	}
}

// calls are the commands of kvol in a next step.
var calls = regexp.MustCompile(`(?:^|[^-\w./])kvol ([^\s;,:)]+)((?: [^\s;(]+)*)`)

// What a next step names is there: commands of kvol and their flags, also where the
// flag stands alone.
func TestNextStepsCanBeDone(t *testing.T) {
	root := newApp(nil, nil, nil, nil).root()
	root.InitDefaultHelpCmd()
	steps := map[string]string{}
	for _, p := range madeErrors(t) {
		steps[p.Next] = p.String()
	}
	a := &app{command: "kvol list-mounts"}
	for kind, door := range doors {
		for _, a.changes = range []bool{false, true} {
			steps[door(a)] = "the door of " + reason(kind)
		}
	}
	named := 0
	for next, where := range steps {
		if what := undoable(root, next); what != "" {
			t.Errorf("%s: %q: %s", where, next, what)
		}
		named += len(calls.FindAllString(next, -1))
	}
	if named < 30 {
		t.Errorf("only %d next steps name a command", named)
	}
	for next, want := range map[string]string{
		"see: kvol inspekt %s": "no command", "kvol history; then kvol list-mounts --nope": "no flag --nope",
		"give --no-such-flag": "no flag --no-such-flag", "give -y": "no flag -y", "kvol wait x (or kvol config show)": "no command",
	} {
		if what := undoable(root, next); !strings.Contains(what, want) {
			t.Errorf("%q is found to be %q", next, what)
		}
	}
}

// foreign are the flags of other programs that next steps have.
var foreign = regexp.MustCompile(`(?:^|[^-\w])(?:kubectl|crictl|nsenter|findmnt|lsblk|fuser|lsof|ls|namei|lsattr|stat|mkdir|umount|blkid|blkdiscard|blockdev|ss|pgrep|iconv|apt|df|chown|chmod|mount\(8\))(?: [^;,)]*)?`)

// undoable says what of a next step there is not.
func undoable(root *cobra.Command, next string) string {
	for _, m := range calls.FindAllStringSubmatch(next, -1) {
		if strings.HasPrefix(m[1], "%") || m[1] == "…" || m[1] == "COMMAND" {
			continue // a verb, or the same command
		}
		cmd, _, err := root.Find([]string{m[1]})
		if err != nil || cmd == root {
			return "there is no command " + m[1]
		}
		if sub, _, _ := strings.Cut(strings.TrimSpace(m[2]), " "); cmd.HasSubCommands() && sub != "" {
			if cmd, _, err = cmd.Find([]string{strings.Trim(sub, "(),;")}); err != nil || cmd.HasSubCommands() {
				return "there is no command " + sub
			}
		}
		if what := lacks(m[2], cmd); what != "" {
			return cmd.CommandPath() + " has " + what
		}
	}
	rest := foreign.ReplaceAllString(calls.ReplaceAllString(next, " "), "")
	return lacks(rest, append(below(root), root)...)
}

func below(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		all = append(append(all, sub), below(sub)...)
	}
	return all
}

// lacks names a flag that none of the commands has.
func lacks(text string, cmds ...*cobra.Command) string {
	for _, word := range strings.Fields(text) {
		flag, _, _ := strings.Cut(strings.Trim(word, "(),:;."), "=")
		if !strings.HasPrefix(flag, "-") || strings.Trim(flag, "-") == "" || strings.HasPrefix(flag, "--%s") {
			continue
		}
		if !slices.ContainsFunc(cmds, func(c *cobra.Command) bool {
			c.InitDefaultHelpFlag()
			if name, long := strings.CutPrefix(flag, "--"); long {
				return c.Flag(name) != nil
			}
			short := flag[1:2]
			return c.Flags().ShorthandLookup(short) != nil || c.InheritedFlags().ShorthandLookup(short) != nil || c.PersistentFlags().ShorthandLookup(short) != nil
		}) {
			return "no flag " + flag
		}
	}
	return ""
}

// The table of docs/exit-codes.md has the codes and reasons of api, and each kind has
// a line there.
func TestExitCodesPage(t *testing.T) {
	raw, err := os.ReadFile("../../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	is := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]*)\|`).FindAllStringSubmatch(string(raw), -1) {
		is[m[1]] = strings.TrimSpace(m[2])
	}
	want := map[string]string{"0": ""}
	for _, s := range sentinels {
		code := strconv.Itoa(exitCode(s.kind))
		want[code] = strings.TrimSpace(want[code] + " `" + reason(s.kind) + "`")
	}
	for code := range meanings {
		if words := strconv.Itoa(code); sorted(is[words]) != sorted(want[words]) {
			t.Errorf("%d is %q, and the page says %q", code, want[words], is[words])
		}
	}
	if len(is) != len(meanings) || len(want) != len(meanings) {
		t.Errorf("%d codes in the page, %d of kinds, %d in the help", len(is), len(want), len(meanings))
	}
}

func sorted(words string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(words))), " ")
}

// TestCatalogue: docs/reference/errors.md has every message.
func TestCatalogue(t *testing.T) {
	const path = "../../docs/reference/errors.md"
	made := cataloguePage(madeErrors(t))
	if *update {
		if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, _ := os.ReadFile(path); string(is) != made {
		t.Errorf("%s is not what kvol has now: make docs", path)
	}
}

func cataloguePage(all []catalogue.Place) string {
	var b strings.Builder
	b.WriteString("# Every message of a failure\n\nBy exit code and reason ([exit-codes.md](../exit-codes.md)); `…` is what is filled in. In front of a message stands what it is\n" +
		"about: the verb, the volume, the path. It may be the end of a longer one, or hold one from the last table.\n")
	a := &app{command: "kvol COMMAND", changes: true}
	for _, s := range sentinels {
		fmt.Fprintf(&b, "\n## %d %s\n", exitCode(s.kind), reason(s.kind))
		if door := doors[s.kind]; door != nil {
			fmt.Fprintf(&b, "\nNext, unless another step is given: %s.\n", door(a))
		}
		catalogueTable(&b, all, func(p catalogue.Place) bool { return p.Kind == s.name && !p.Cause })
	}
	b.WriteString("\n## Of a kind that is found at run time\n")
	catalogueTable(&b, all, func(p catalogue.Place) bool { return p.Kind == catalogue.Passed && !p.Cause })
	b.WriteString("\n## What gc-orphans leaves alone\n\nNot failures, but the reason and the next step of an item, or of one thing in it.\n")
	catalogueTable(&b, all, func(p catalogue.Place) bool { return p.Kind == catalogue.Stays })
	b.WriteString("\n## In other messages\n\nBy themselves these are plain failure (1).\n")
	catalogueTable(&b, all, func(p catalogue.Place) bool { return p.Cause })
	return b.String()
}

// filled is what fmt fills in.
var filled = regexp.MustCompile(`%(\[\d+\])?[-+#0-9.]*[a-zA-Z]`)

func catalogueTable(b *strings.Builder, all []catalogue.Place, is func(catalogue.Place) bool) {
	var rows []string
	words := func(s string) string {
		s = filled.ReplaceAllString(strings.ReplaceAll(s, "%%", "\x00"), "…")
		return strings.NewReplacer("\x00", "%", "|", `\|`).Replace(s)
	}
	for _, p := range all {
		if is(p) && (strings.TrimSpace(filled.ReplaceAllString(p.Message, "")) != "" || p.Kind == catalogue.Stays) {
			in := p.Package[strings.IndexByte(p.Package, '/')+1:]
			if late := reasons(atRunTime[p.Package+"."+p.Func]); p.Kind == catalogue.Passed && late != "" {
				in += ": " + late
			}
			rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", words(p.Message), strings.TrimPrefix(words(p.Next), "…"), in))
		}
	}
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n| message | next | in |\n|---|---|---|\n")
	slices.Sort(rows)
	b.WriteString(strings.Join(slices.Compact(rows), ""))
}
