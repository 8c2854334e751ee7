package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Inspection shows everything about one volume, path or pod, a table for each
// part that has something (kvol inspect).
func Inspection() Document[*api.Inspection] {
	return Document[*api.Inspection]{
		text: inspection,
		tree: inspectionTree,
		names: func(i *api.Inspection) []string {
			var out []string
			for _, m := range i.Mounts {
				out = append(out, m.Path)
			}
			return out
		},
	}
}

func inspection(w io.Writer, i *api.Inspection, o Options) error {
	s := sections{w: w, o: o}
	s.printf("%s %s\n", Line(i.SubjectKind), cell(i.Subject))
	if i.Path != nil {
		section(&s, "path", pathInfoColumns(nil, Wide), []api.PathInfo{*i.Path})
	}
	var rows [][]string
	for _, v := range i.Volumes {
		for _, p := range places(v) {
			rows = addNew(rows, cell(v.Plugin), cell(v.Volume), p.what, cell(p.path))
		}
	}
	s.rows("mount points", tracks("PLUGIN", "VOLUME", "MOUNT POINT", "PATH"), rows)
	section(&s, "spec, as far as the disk tells it", specColumns(), i.Specs)
	section(&s, "mounts", mountColumns(Mounts().among(i.Mounts, o), o.Format), i.Mounts)
	section(&s, "devices, the file system's own first", deviceColumns(), i.Devices)
	section(&s, "metadata", metadataColumns(), i.Metadata)
	section(&s, "what the plugin can do", pluginColumns(nil, o.Format), i.Plugins)
	var warnings [][]string
	for _, warning := range i.Warnings {
		warnings = append(warnings, []string{Line(warning)})
	}
	s.rows("warnings", tracks("WARNING"), warnings)
	return s.err
}

func deviceColumns() []column[api.Device] {
	return []column[api.Device]{
		{name: "path", cell: func(d api.Device) string { return firstOf(d.Path, d.Name) }},
		{name: "number", keep: true, cell: func(d api.Device) string { return d.Number }},
		{name: "type", keep: true, cell: func(d api.Device) string { return d.Type }},
		{name: "size", keep: true, cell: func(d api.Device) string { return size(d.Size) }},
		{name: "backing", cell: func(d api.Device) string { return d.Backing }},
		{name: "parents", cell: func(d api.Device) string { return strings.Join(d.Parents, ",") }},
		{name: "holders", cell: func(d api.Device) string { return strings.Join(d.Holders, ",") }},
	}
}

func metadataColumns() []column[api.Metadata] {
	return []column[api.Metadata]{
		{name: "path", cell: func(m api.Metadata) string { return m.Path }},
		{name: "state", mood: true, cell: func(m api.Metadata) string { return m.State }},
		{name: "data", cell: func(m api.Metadata) string { return pairs(m.Data) }},
	}
}

func specColumns() []column[api.SpecInfo] {
	return []column[api.SpecInfo]{
		{name: "volume", cell: func(s api.SpecInfo) string { return s.Volume }},
		{name: "pod", cell: func(s api.SpecInfo) string { return s.PodUID }},
		{name: "known", cell: func(s api.SpecInfo) string { return pairs(s.Fields) }},
		{name: "unknown", cell: func(s api.SpecInfo) string { return strings.Join(s.Missing, ",") }},
	}
}

// pairs writes a map as k=v words, in the order of the keys.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, " ")
}

// sections writes parts of a page one below the other; the first error stays.
type sections struct {
	w   io.Writer
	o   Options
	err error
}

func (s *sections) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *sections) rows(title string, columns []track, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	s.printf("\n%s\n", title)
	if s.err == nil {
		s.err = grid{columns, rows}.write(s.w, s.o)
	}
}

// section is one table of a page, left out when it has nothing.
func section[T any](s *sections, title string, columns []column[T], items []T) {
	if len(items) == 0 {
		return
	}
	shown := slices.DeleteFunc(columns, func(c column[T]) bool { return c.wide && s.o.Format != Wide })
	s.printf("\n%s\n", title)
	if s.err == nil {
		s.err = writeTable(s.w, shown, items, s.o)
	}
}

// Version shows what was built from what (kvol version).
func Version() Document[*api.VersionInfo] {
	return Document[*api.VersionInfo]{
		text: func(w io.Writer, v *api.VersionInfo, o Options) error {
			if _, err := fmt.Fprintf(w, "kvol %s\n", v.Version); err != nil || o.Format != Wide {
				return err
			}
			for _, line := range [][2]string{{"commit", v.Commit}, {"built", v.Date}, {v.Go, v.Platform}} {
				if line[1] == "" {
					continue // a build outside a repository knows neither
				}
				if _, err := fmt.Fprintln(w, line[0], line[1]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
