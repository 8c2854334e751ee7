package render

import (
	"io"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Paths shows where one volume's mount points are (kvol paths -f).
func Paths() Document[*api.PathSet] {
	return Document[*api.PathSet]{
		kind: "PathSet",
		text: pathTable,
		tree: pathTree,
		names: func(p *api.PathSet) []string {
			var out []string
			for _, at := range places(*p) {
				out = append(out, at.path)
			}
			return out
		},
	}
}

func pathTable(w io.Writer, p *api.PathSet, o Options) error {
	var rows [][]string
	for _, at := range places(*p) {
		row := []string{at.what, cell(at.path)}
		if o.Format == Wide {
			row = []string{cell(p.Plugin), cell(p.Volume), at.what, cell(at.path)}
		}
		rows = append(rows, row)
	}
	columns := tracks("MOUNT POINT", "PATH")
	if o.Format == Wide {
		columns = tracks("PLUGIN", "VOLUME", "MOUNT POINT", "PATH")
	}
	return grid{columns, rows}.write(w, o)
}

// PathInfos shows what paths are (kvol paths PATH).
func PathInfos() View[api.PathInfo] {
	return View[api.PathInfo]{
		empty:   "No paths found.",
		columns: pathInfoColumns,
		names:   func(p api.PathInfo) []string { return []string{p.Path} },
	}
}

func pathInfoColumns([]api.PathInfo, Format) []column[api.PathInfo] {
	return []column[api.PathInfo]{
		{name: "kind", keep: true, cell: func(p api.PathInfo) string { return p.Kind }},
		{name: "plugin", cell: func(p api.PathInfo) string { return p.Plugin }},
		{name: "volume", cell: func(p api.PathInfo) string { return p.Volume }},
		// One path is asked about, so its pod is shown whole.
		{name: "podUID", head: "POD", cell: func(p api.PathInfo) string { return p.PodUID }},
		{name: "container", wide: true, cell: func(p api.PathInfo) string { return p.Container }},
		{name: "index", wide: true, cell: func(p api.PathInfo) string { return indexOf(p) },
			less: by(func(p api.PathInfo) int { return p.Index })},
		{name: "driver", wide: true, cell: func(p api.PathInfo) string { return p.Driver }},
		{name: "rest", wide: true, cell: func(p api.PathInfo) string { return p.Rest }},
		{name: "path", cell: func(p api.PathInfo) string { return p.Path }},
	}
}

func indexOf(p api.PathInfo) string {
	if p.Index < 0 {
		return ""
	}
	return strconv.Itoa(p.Index)
}

// Plugins shows what the plugins can do (kvol plugins).
func Plugins() View[api.Info] {
	return View[api.Info]{
		empty:   "No plugins found.",
		columns: pluginColumns,
		names:   func(i api.Info) []string { return []string{i.Name} },
		tree:    pluginTree,
	}
}

func pluginColumns([]api.Info, Format) []column[api.Info] {
	return []column[api.Info]{
		{name: "name", cell: func(i api.Info) string { return i.Name }},
		{name: "accessModes", head: "MODES", cell: func(i api.Info) string { return strings.Join(i.AccessModes, ",") }},
		{name: "rungs", cell: func(i api.Info) string { return strings.Join(i.Rungs, ",") }},
		{name: "missing", head: "MISSING-TOOLS", cell: func(i api.Info) string { return tools(i, false) }},
		{name: "tools", wide: true, cell: func(i api.Info) string { return tools(i, true) }},
		{name: "since", wide: true, cell: func(i api.Info) string { return i.Since }},
		{name: "until", wide: true, cell: func(i api.Info) string { return i.Until }},
		{name: "description", cell: func(i api.Info) string { return i.Description }},
	}
}

// tools names the programs of a plugin that are on this node, or that are not.
func tools(i api.Info, present bool) string {
	var out []string
	for _, t := range i.Tools {
		if t.Present == present {
			out = append(out, t.Name)
		}
	}
	return strings.Join(out, ",")
}
