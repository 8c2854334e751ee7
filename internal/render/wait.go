package render

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Waits shows what became of waiting (kvol wait).
func Waits() View[api.Wait] {
	return View[api.Wait]{
		empty:   "Nothing was waited for.",
		columns: waitColumns,
		ofPod:   func(uid string) api.Wait { return api.Wait{PodUID: uid} },
		names:   func(w api.Wait) []string { return []string{w.Subject} },
		tree:    waitTree,
	}
}

func waitColumns(items []api.Wait, f Format) []column[api.Wait] {
	uid := podUIDs(items, f, func(w api.Wait) string { return w.PodUID })
	return []column[api.Wait]{
		{name: "subject", cell: func(w api.Wait) string { return w.Subject }},
		{name: "subjectKind", head: "KIND", keep: true, cell: func(w api.Wait) string { return w.SubjectKind }},
		{name: "podUID", head: "POD", wide: true, keep: true, cell: func(w api.Wait) string { return uid(w.PodUID) }},
		{name: "condition", keep: true, cell: func(w api.Wait) string { return string(w.Condition) }},
		{name: "met", keep: true, cell: func(w api.Wait) string { return strconv.FormatBool(w.Met) }},
		{name: "mounts", wide: true, cell: func(w api.Wait) string { return strings.Join(mountStates(w), ",") }},
		{name: "reason", cell: func(w api.Wait) string { return w.Reason }},
	}
}

func mountStates(w api.Wait) []string {
	var out []string
	for _, m := range w.Mounts {
		out = append(out, fmt.Sprintf("%s %s", m.Path, m.State))
	}
	return out
}

// waitTree has what there is of each subject below it.
func waitTree(items []api.Wait, _ Options) []*branch {
	s, mount := &shape{}, &shape{mood: 1}
	var out []*branch
	for _, w := range items {
		is := map[bool]string{true: "is ", false: "is not "}[w.Met] + string(w.Condition)
		b := &branch{shape: s, parts: []string{cell(w.SubjectKind) + " " + cell(w.Subject), is}, note: Line(w.Reason)}
		for _, m := range w.Mounts {
			b.add(&branch{shape: mount, parts: []string{cell(m.Path), cell(string(m.State))}})
		}
		out = append(out, b)
	}
	return out
}
