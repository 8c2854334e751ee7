package render

import (
	"io"
	"slices"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// Events shows changes as they come (kvol list-mounts --watch): an object, a line or
// what the template makes of it for each. It keeps what holds for the whole of a table.
type Events struct {
	began  bool
	pods   []api.Mount // one of each pod, by which UIDs are told apart
	widths []int
}

// Check refuses what cannot be shown before all of it is there.
func (e *Events) Check(o Options) error {
	if o.SortBy != "" {
		return api.Errorf(api.ErrUsage, "--sort-by orders a list, and --watch tells each change as it comes").
			WithNext("leave one of the two out")
	}
	v := View[api.MountEvent]{columns: e.columns, names: eventNames}
	if err := checkFormat(o, formats(true, false, false)); err != nil {
		return err
	}
	return v.Check(o)
}

// room is left for what comes later.
var room = map[string]int{"event": len(api.EventModified), "state": len(api.StateUnresponsive)}

func eventNames(e api.MountEvent) []string { return []string{e.Object.Path} }

func (e *Events) columns(_ []api.MountEvent, f Format) []column[api.MountEvent] {
	out := []column[api.MountEvent]{
		{name: "event", keep: true, cell: func(e api.MountEvent) string { return string(e.Type) }},
		{name: "time", wide: true, cell: func(e api.MountEvent) string { return e.Time.Local().Format(time.DateTime) }},
	}
	for _, c := range mountColumns(e.pods, f) {
		out = append(out, column[api.MountEvent]{
			name: c.name, head: c.head, wide: c.wide, keep: c.keep, mood: c.mood,
			cell: func(e api.MountEvent) string { return c.cell(e.Object) },
		})
	}
	return out
}

// Write shows some more events. The options have passed Check.
func (e *Events) Write(w io.Writer, events []api.MountEvent, o Options) error {
	if len(events) == 0 {
		return nil
	}
	switch {
	case o.Format == JSON, o.Format == JSONL:
		return writeLines(w, events)
	case o.Format == Name:
		return writeNames(w, events, eventNames, o.Null)
	case o.ForPeople():
		return e.table(w, events, o)
	}
	for _, event := range events {
		o.NoHeaders = o.NoHeaders || e.began
		if err := e.document(w, event, o); err != nil {
			return err
		}
		e.began = true
	}
	return nil
}

func (e *Events) document(w io.Writer, event api.MountEvent, o Options) error {
	if o.Format == YAML {
		if _, err := io.WriteString(w, map[bool]string{true: "---\n"}[e.began]); err != nil {
			return err
		}
		return writeYAML(w, event)
	}
	raw, err := compact(event)
	if err != nil {
		return err
	}
	return writeTemplate(w, raw, o)
}

// table goes on with the widths of the lines before.
func (e *Events) table(w io.Writer, events []api.MountEvent, o Options) error {
	known := map[string]bool{}
	for _, m := range e.pods {
		known[m.PodUID] = true
	}
	uids := slices.Clone(o.Pods)
	for _, event := range events {
		uids = append(uids, event.Object.PodUID)
	}
	for _, uid := range uids {
		if !known[uid] {
			known[uid] = true
			e.pods = append(e.pods, mountOf(uid))
		}
	}
	columns, err := pick(e.columns(nil, o.Format), e.columns(nil, Wide), o)
	if err != nil {
		return err
	}
	g := gridOf(columns, events)
	for _, c := range columns {
		if !e.began {
			e.widths = append(e.widths, room[c.name])
		}
	}
	o.goesOn, o.from = e.began, e.widths
	e.began, e.widths = true, g.widths(o)
	return g.write(w, o)
}
