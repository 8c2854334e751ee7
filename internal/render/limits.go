package render

import (
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Limits shows volumes against limits (kvol limits).
func Limits() View[api.Limit] {
	return View[api.Limit]{
		empty:   "No plugin with a limit has volumes here.",
		columns: limitColumns,
		names:   func(l api.Limit) []string { return []string{l.Key} },
		tree:    limitTree,
	}
}

func limitColumns([]api.Limit, Format) []column[api.Limit] {
	return []column[api.Limit]{
		{name: "plugin", cell: func(l api.Limit) string { return l.Plugin }},
		{name: "key", spare: true, cell: func(l api.Limit) string { return l.Key }},
		{name: "attached", keep: true, cell: func(l api.Limit) string { return strconv.Itoa(l.Attached) }, less: by(func(l api.Limit) int { return l.Attached })},
		{name: "limit", keep: true, cell: func(l api.Limit) string { return limitOf(l) }, less: by(func(l api.Limit) int { return int(l.Limit) })},
		{name: "volumes", wide: true, cell: func(l api.Limit) string { return strings.Join(l.Volumes, ",") }},
	}
}

func limitOf(l api.Limit) string {
	if l.LimitState == api.Limited {
		return strconv.FormatInt(l.Limit, 10)
	}
	return string(l.LimitState)
}
