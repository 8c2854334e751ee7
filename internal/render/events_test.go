package render

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// eventsOf are two looks: what there was, and a change. Of the second the cells are
// longer, and the UID of its pod begins as that of the first does.
func eventsOf() [][]api.MountEvent {
	event := func(is api.EventType, m api.Mount) api.MountEvent {
		return api.MountEvent{APIVersion: api.Version, Kind: "MountEvent", Type: is, Time: time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC), Object: m}
	}
	all := mounts().Items
	later := all[0]
	later.PodUID, later.Path, later.State = all[0].PodUID[:len(all[0].PodUID)-1]+"9", later.Path+"/longer\nthan before", api.StateDisconnected
	return [][]api.MountEvent{{event(api.EventAdded, all[0]), event(api.EventAdded, all[1])}, {event(api.EventModified, later)}, {}, {event(api.EventRemoved, later)}}
}

func eventsAs(t *testing.T, o Options) string {
	t.Helper()
	var b bytes.Buffer
	e := &Events{}
	if err := e.Check(o); err != nil {
		t.Fatal(err)
	}
	for _, batch := range eventsOf() {
		if err := e.Write(&b, batch, o); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestEvents(t *testing.T) {
	time.Local = time.UTC
	for name, o := range map[string]Options{
		"table": {Format: Table}, "wide": {Format: Wide}, "json": {Format: JSON}, "yaml": {Format: YAML}, "name": {Format: Name},
		"columns":        {Format: Table, Columns: []string{"event", "state", "path"}},
		"narrow":         {Format: Table, Width: 40},
		"custom-columns": {Format: CustomColumns, Template: "WHAT:.type,PATH:.object.path"},
		"go-template":    {Format: GoTemplate, Template: "{{.type}} {{.object.state}}\n"},
	} {
		golden(t, "events."+name, eventsAs(t, o))
	}
	if a, b := eventsAs(t, Options{Format: JSON}), eventsAs(t, Options{Format: JSONL}); a != b || strings.Count(a, "\n") != 4 {
		t.Errorf("json and jsonl differ:\n%s\n%s", a, b)
	}
	if got := eventsAs(t, Options{Format: Table, NoHeaders: true}); strings.Contains(got, "EVENT") {
		t.Error(got)
	}
}

func TestEventsRefused(t *testing.T) {
	for what, o := range map[string]Options{
		"an order": {Format: Table, SortBy: "path"}, "a tree": {Format: Tree}, "a script": {Format: Shell},
		"a column": {Format: Table, Columns: []string{"event", "none"}}, "columns of names": {Format: Name, Columns: []string{"event"}},
		"a bad template": {Format: JSONPath, Template: "{"},
	} {
		if err := (&Events{}).Check(o); !errors.Is(err, api.ErrUsage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
