package render

import (
	"io"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Results shows what a verb did, rung by rung, and where the volume is mounted.
func Results() View[api.Result] {
	return View[api.Result]{
		empty:   "No results found.",
		columns: resultColumns,
		ofPod:   func(uid string) api.Result { return api.Result{PodUID: uid} },
		names:   func(r api.Result) []string { return []string{resultPath(r)} },
		after:   mountPoints,
		tree:    resultTree,
	}
}

func resultColumns(items []api.Result, f Format) []column[api.Result] {
	uid := podUIDs(items, f, func(r api.Result) string { return r.PodUID })
	return []column[api.Result]{
		{name: "op", keep: true, cell: func(r api.Result) string { return r.Op }},
		{name: "plugin", wide: true, cell: func(r api.Result) string { return r.Plugin }},
		{name: "volume", cell: func(r api.Result) string { return r.Volume }},
		{name: "podUID", head: "POD", wide: true, keep: true, cell: func(r api.Result) string { return uid(r.PodUID) }},
		{name: "outcome", mood: true, cell: func(r api.Result) string { return string(r.Outcome) }},
		{name: "devicePath", head: "DEVICE", wide: true, cell: func(r api.Result) string { return r.DevicePath }},
		{name: "steps", wide: true, cell: func(r api.Result) string { return number(len(r.Steps)) },
			less: by(func(r api.Result) int { return len(r.Steps) })},
		{name: "path", cell: resultPath},
		{name: "reason", cell: func(r api.Result) string { return r.Reason }},
	}
}

// resultPath is the path that a rung is about.
func resultPath(r api.Result) string {
	p := r.Paths
	op, _, _ := strings.Cut(r.Op, " ") // of "attach --check" too
	switch op {
	case "attach", "detach":
		return r.DevicePath
	case "mount-device", "unmount-device":
		return firstOf(p.GlobalMountPath, p.GlobalMapPath, r.DevicePath)
	}
	return firstOf(p.PodVolumePath, p.PodDeviceMapPath, p.GlobalMountPath, p.GlobalMapPath, r.DevicePath)
}

// mountPoints lists below the results where each volume is, or was.
func mountPoints(w io.Writer, items []api.Result, o Options) error {
	var rows [][]string
	for _, r := range items {
		for _, p := range places(r.Paths) {
			rows = addNew(rows, cell(r.Volume), p.what, cell(p.path))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return grid{tracks("VOLUME", "MOUNT POINT", "PATH"), rows}.write(w, o)
}

// addNew adds a row unless it is there.
func addNew(rows [][]string, row ...string) [][]string {
	if slices.ContainsFunc(rows, func(have []string) bool { return slices.Equal(have, row) }) {
		return rows
	}
	return append(rows, row)
}

// place is one of a volume's mount points in words.
type place struct{ what, path string }

// places are the mount points that a volume has, in the order of the way up.
func places(p api.PathSet) []place {
	all := []place{
		{"global mount", p.GlobalMountPath},
		{"global map", p.GlobalMapPath},
		{"pod volume", p.PodVolumePath},
		{"pod device", p.PodDeviceMapPath},
	}
	for _, m := range p.Metadata {
		all = append(all, place{"metadata", m})
	}
	return slices.DeleteFunc(all, func(p place) bool { return p.path == "" })
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
