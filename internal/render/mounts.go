package render

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Mounts shows what lies below the kubelet's root (kvol list-mounts).
func Mounts() View[api.Mount] {
	return View[api.Mount]{
		empty:   "No volume mounts found.",
		columns: mountColumns,
		ofPod:   mountOf,
		names:   func(m api.Mount) []string { return []string{m.Path} },
		tree:    mountTreeOf,
	}
}

func mountColumns(items []api.Mount, f Format) []column[api.Mount] {
	uid := podUIDs(items, f, func(m api.Mount) string { return m.PodUID })
	return []column[api.Mount]{
		{name: "kind", keep: true, cell: func(m api.Mount) string { return string(m.Kind) }},
		{name: "plugin", cell: func(m api.Mount) string { return m.Plugin }},
		{name: "volume", cell: func(m api.Mount) string { return m.Volume }},
		{name: "podUID", head: "POD", keep: true, cell: func(m api.Mount) string { return uid(m.PodUID) }},
		{name: "namespace", wide: true, cell: func(m api.Mount) string { return m.Namespace }},
		{name: "podName", wide: true, cell: func(m api.Mount) string { return m.PodName }},
		{name: "state", mood: true, cell: func(m api.Mount) string { return string(m.State) }},
		{name: "stateReason", wide: true, cell: func(m api.Mount) string { return m.StateReason }},
		{name: "owner", wide: true, cell: func(m api.Mount) string { return string(m.Owner) }},
		{name: "source", spare: true, cell: func(m api.Mount) string { return m.Source }},
		{name: "fsType", spare: true, cell: func(m api.Mount) string { return m.FSType }},
		{name: "capacityBytes", head: "SIZE", wide: true, cell: func(m api.Mount) string { return space(m, m.CapacityBytes) },
			less: by(func(m api.Mount) int64 { return m.CapacityBytes })},
		{name: "usedBytes", head: "USED", wide: true, cell: func(m api.Mount) string { return space(m, m.UsedBytes) },
			less: by(func(m api.Mount) int64 { return m.UsedBytes })},
		{name: "availableBytes", head: "AVAILABLE", wide: true, cell: func(m api.Mount) string { return space(m, m.AvailableBytes) },
			less: by(func(m api.Mount) int64 { return m.AvailableBytes })},
		{name: "options", wide: true, cell: func(m api.Mount) string { return strings.Join(m.Options, ",") }},
		{name: "readOnly", wide: true, cell: func(m api.Mount) string { return strconv.FormatBool(m.ReadOnly) }},
		{name: "mountID", wide: true, cell: func(m api.Mount) string { return number(m.MountID) },
			less: by(func(m api.Mount) int { return m.MountID })},
		{name: "device", wide: true, cell: func(m api.Mount) string { return m.Device }},
		{name: "root", wide: true, cell: func(m api.Mount) string { return m.Root }},
		{name: "mounted", wide: true, cell: func(m api.Mount) string { return strconv.FormatBool(m.Mounted) }},
		{name: "stacked", wide: true, cell: func(m api.Mount) string { return number(m.Stacked) },
			less: by(func(m api.Mount) int { return m.Stacked })},
		{name: "path", cell: func(m api.Mount) string { return m.Path }},
	}
}

func mountOf(podUID string) api.Mount { return api.Mount{PodUID: podUID} }

// podUIDs gives what a format shows of a pod UID: all of it, or in a table as
// much as tells them, and others of the node, apart.
func podUIDs[T any](items []T, f Format, of func(T) string, others ...string) func(string) string {
	if f != Table {
		return func(uid string) string { return uid }
	}
	uids := slices.Clone(others)
	for _, item := range items {
		uids = append(uids, of(item))
	}
	return shortest(uids)
}

// number leaves out a zero, which stands for "does not apply".
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// space is one of the sizes of a file system, "" where it tells none.
func space(m api.Mount, n int64) string {
	if m.CapacityBytes == 0 {
		return ""
	}
	return size(n)
}

// size is a number of bytes in the units of Kubernetes, in as few digits as people
// need; all of them are in JSON.
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	const units = "KMGTPE"
	value, unit := float64(n)/1024, 0
	for ; value >= 999.5 && unit < len(units)-1; unit++ {
		value /= 1024
	}
	digits := 0
	if value < 9.95 {
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + units[unit:unit+1] + "i"
}
