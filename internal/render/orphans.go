package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// OrphanView shows what was left on the node by pods that are gone.
type OrphanView struct{ View[api.Orphan] }

// Orphans shows the plan of gc-orphans, which has a shell form, or what came of it.
func Orphans(plan bool) OrphanView {
	return OrphanView{View[api.Orphan]{
		empty:   "No pod directories, global mounts or block maps found.",
		columns: orphanColumns,
		ofPod:   func(uid string) api.Orphan { return api.Orphan{PodUID: uid} },
		names:   orphanNames,
		tree:    orphanTree,
		shell:   plan,
	}}
}

// orphanNames are the paths of what goes or went, and of nothing else: such a list is
// handed to other commands.
func orphanNames(o api.Orphan) []string {
	if o.Verdict != api.VerdictOrphan || len(o.Steps) == 0 || o.BlockedBy != "" {
		return nil
	}
	return []string{o.Path}
}

func orphanColumns(items []api.Orphan, f Format) []column[api.Orphan] {
	uid := podUIDs(items, f, func(o api.Orphan) string { return o.PodUID })
	return []column[api.Orphan]{
		{name: "kind", keep: true, cell: func(o api.Orphan) string { return string(o.Kind) }},
		{name: "verdict", mood: true, cell: func(o api.Orphan) string { return string(o.Verdict) }},
		{name: "outcome", mood: true, cell: func(o api.Orphan) string { return o.Outcome }},
		{name: "blockedBy", head: "BLOCKED BY", keep: true, cell: func(o api.Orphan) string { return o.BlockedBy }},
		{name: "podUID", head: "POD", keep: true, cell: func(o api.Orphan) string { return uid(o.PodUID) }},
		{name: "namespace", wide: true, cell: func(o api.Orphan) string { return o.Namespace }},
		{name: "podName", wide: true, cell: func(o api.Orphan) string { return o.PodName }},
		{name: "plugin", wide: true, cell: func(o api.Orphan) string { return o.Plugin }},
		{name: "volume", cell: func(o api.Orphan) string { return o.Volume }},
		{name: "steps", spare: true, cell: func(o api.Orphan) string { return number(len(o.Steps)) }, less: by(func(o api.Orphan) int { return len(o.Steps) })},
		{name: "since", wide: true, cell: since, less: func(a, b api.Orphan) int { return a.Since.Compare(b.Since) }},
		{name: "path", cell: func(o api.Orphan) string { return o.Path }},
		{name: "reason", cell: orphanReason},
		{name: "next", wide: true, cell: func(o api.Orphan) string { return o.Next }},
	}
}

func since(o api.Orphan) string {
	if o.Since.IsZero() {
		return ""
	}
	return o.Since.Format(time.RFC3339)
}

// orphanReason is why it stays, or else why it is what it is.
func orphanReason(o api.Orphan) string {
	if len(o.Stays) == 0 {
		return o.Reason
	}
	s := o.Stays[0]
	where := ""
	if s.Path != o.Path {
		where = strings.TrimPrefix(s.Path, o.Path+"/") + ": "
	}
	if more := len(o.Stays) - 1; more > 0 {
		return fmt.Sprintf("%s%s; and %d more", where, s.Reason, more)
	}
	return where + s.Reason
}

// Write shows the plan.
func (v OrphanView) Write(w io.Writer, p *api.OrphanPlan, o Options) error {
	if o.Format == Shell {
		if p.Plan.NoShell != "" {
			return api.Errorf(api.ErrNotSupported, "this plan has no shell form, because of step %s", p.Plan.NoShell).
				WithNext("run the command itself: kvol gc-orphans --apply")
		}
		return script(w, p.Plan)
	}
	return v.View.Write(w, p.List, o)
}

// Summary says in a line for pods, and one for the rest, what there is: for people,
// behind the result; on a terminal a blank line sets it off.
func (OrphanView) Summary(items []api.Orphan, o Options) (out []string) {
	if !o.ForPeople() || o.NoHeaders || len(o.Columns) > 0 {
		return nil
	}
	if o.Width > 0 && len(items) > 0 {
		out = append(out, "")
	}
	for _, part := range []struct {
		one, many string
		is        func(api.OrphanKind) bool
	}{
		{"pod directory", "pod directories", func(k api.OrphanKind) bool { return k == api.OrphanPodDir }},
		{"global mount, staging directory or block map", "global mounts, staging directories and block maps", func(k api.OrphanKind) bool { return k != api.OrphanPodDir }},
	} {
		if line := summaryOf(part.one, part.many, slices.DeleteFunc(slices.Clone(items), func(o api.Orphan) bool { return !part.is(o.Kind) })); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func summaryOf(one, many string, items []api.Orphan) string {
	if len(items) == 0 {
		return ""
	}
	counts, because := map[string]int{}, map[string]map[string]bool{}
	for _, o := range items {
		word := wordOf(o)
		counts[word]++
		if o.BlockedBy != "" {
			if because[word] == nil {
				because[word] = map[string]bool{}
			}
			because[word][o.BlockedBy] = true
		}
	}
	words := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Compare(slices.Index(summaryOrder, a), slices.Index(summaryOrder, b))
	})
	var parts []string
	for _, word := range words {
		part := fmt.Sprintf("%d %s", counts[word], word)
		if why := because[word]; len(why) > 0 {
			part += " (" + strings.Join(slices.Sorted(maps.Keys(why)), ", ") + ")"
		}
		parts = append(parts, part)
	}
	what := many
	if len(items) == 1 {
		what = one
	}
	return fmt.Sprintf("%d %s: %s", len(items), what, strings.Join(parts, ", "))
}

// summaryOrder has what happened or can happen first, in words that fit one and many.
var summaryOrder = []string{"taken away", "gone already", "can go", "can go in part", "went in part", "must stay", "left alone", "unknown", "live"}

func wordOf(o api.Orphan) string {
	if o.Verdict != api.VerdictOrphan {
		return string(o.Verdict)
	}
	some := len(o.Steps) > 0
	switch api.Outcome(o.Outcome) {
	case api.OutcomeDone:
		return "taken away"
	case api.OutcomeAlready:
		return "gone already"
	case api.OutcomeSkipped:
		return "left alone"
	case "":
		if o.BlockedBy == "" && some {
			return "can go"
		}
		if some {
			return "can go in part"
		}
	default:
		if some {
			return "went in part"
		}
	}
	return "must stay"
}
