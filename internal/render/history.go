package render

import (
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// Operations shows what was changed on this node (kvol history).
func Operations() View[api.Operation] {
	return View[api.Operation]{
		empty:   "No operations found.",
		columns: operationColumns,
		ofPod:   func(uid string) api.Operation { return api.Operation{PodUID: uid} },
		names:   func(o api.Operation) []string { return []string{o.ID} },
		tree:    operationTree,
	}
}

func operationColumns(items []api.Operation, f Format) []column[api.Operation] {
	uid := podUIDs(items, f, func(o api.Operation) string { return o.PodUID })
	return []column[api.Operation]{
		{name: "time", keep: true, cell: func(o api.Operation) string { return o.Time.Local().Format(time.RFC3339) },
			less: func(a, b api.Operation) int { return a.Time.Compare(b.Time) }},
		{name: "id", wide: true, cell: func(o api.Operation) string { return o.ID }},
		{name: "verb", keep: true, cell: func(o api.Operation) string { return o.Verb }},
		{name: "plugin", wide: true, cell: func(o api.Operation) string { return o.Plugin }},
		{name: "volume", cell: func(o api.Operation) string { return o.Volume }},
		{name: "podUID", head: "POD", keep: true, cell: func(o api.Operation) string { return uid(o.PodUID) }},
		{name: "outcome", mood: true, cell: func(o api.Operation) string { return o.Outcome }},
		{name: "steps", spare: true, cell: func(o api.Operation) string { return number(len(o.Steps)) },
			less: by(func(o api.Operation) int { return len(o.Steps) })},
		{name: "risks", wide: true, cell: func(o api.Operation) string { return strings.Join(o.Risks, ",") }},
		{name: "user", wide: true, cell: func(o api.Operation) string { return o.User }},
		{name: "pid", wide: true, cell: func(o api.Operation) string { return number(o.PID) },
			less: by(func(o api.Operation) int { return o.PID })},
		{name: "error", cell: func(o api.Operation) string { return o.Error }},
	}
}

// Settings shows the configuration (kvol config view); with the origin of each
// value, which JSON and YAML always have.
func Settings(origin bool) View[api.Setting] {
	return View[api.Setting]{
		empty: "No settings found.",
		columns: func([]api.Setting, Format) []column[api.Setting] {
			return []column[api.Setting]{
				{name: "name", keep: true, cell: func(s api.Setting) string { return s.Name }},
				{name: "value", cell: func(s api.Setting) string { return s.Value }},
				{name: "origin", wide: !origin, cell: func(s api.Setting) string { return s.Origin }},
			}
		},
		names: func(s api.Setting) []string { return []string{s.Name} },
	}
}
