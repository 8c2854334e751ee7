package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/paths"
)

// ListOptions narrow a list; an empty field takes everything, of several values any.
type ListOptions struct {
	// Probe asks every file system once whether it answers, and the node whose pods
	// they are.
	Probe     bool
	Pods      alive.Options
	Kinds     []api.MountKind
	Plugin    []string
	Volume    []string
	PodUID    string
	Pod       []string // UID, at least 8 characters that one begins with, name or namespace/name; names only with Probe
	Namespace []string // known only with Probe
	States    []api.State
	Device    []string // a path of its node, or major:minor
	Owners    []api.Owner
	Orphans   bool // what is of pods that are gone; known only with Probe, as Owners
	// Duplicates are the paths with more than one mount.
	Duplicates bool

	memory *memory // of a watch
}

// List is every volume on the node, mounted or not, and every other mount below
// the root. It is ordered by pod, then path; node-wide ones come first.
func List(ctx context.Context, h *host.Host, o ListOptions) (*api.List[api.Mount], error) {
	l, _, err := list(ctx, h, o)
	return l, err
}

func list(ctx context.Context, h *host.Host, o ListOptions) (*api.List[api.Mount], *snapshot, error) {
	s, err := lookAt(h, h.RecentMounts)
	if err != nil {
		return nil, nil, err
	}
	s.tell()
	on, err := s.onDevice(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	s.places = slices.DeleteFunc(s.places, func(p place) bool { return !s.takes(o, p) || !on.mayHave(p) })
	owners := s.askOwners(ctx, o)
	items := s.items(ctx, o.Probe)
	if err := owners(items); err != nil {
		return nil, nil, err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, nil, ctx.Err() // half a list is none
	}
	pod, err := o.pods(items)
	if err != nil {
		return nil, nil, err
	}
	items = slices.DeleteFunc(items, func(m api.Mount) bool { return !pod(m) || !o.takesItem(m) || !on.has(m) })
	return api.NewList("MountList", items, s.warnings), s, nil
}

// items makes the places into what is shown, with their health.
func (s *snapshot) items(ctx context.Context, ask bool) []api.Mount {
	items := make([]api.Mount, len(s.places))
	for i, p := range s.places {
		items[i] = s.item(p, ask)
	}
	if ask {
		s.probe(ctx, items)
	}
	return items
}

func (s *snapshot) item(p place, ask bool) api.Mount {
	m := api.Mount{
		Kind: p.kind, Path: p.path, Plugin: p.Plugin, Volume: p.name(), PodUID: p.PodUID,
		Options: []string{}, Owner: api.OwnerUnknown, State: api.StateUnknown,
	}
	if p.mount == nil {
		s.unmounted(&m, p)
		return m
	}
	t := *p.mount
	m.Source, m.FSType, m.Options, m.ReadOnly = t.Source, t.FSType, t.Options, t.ReadOnly() || t.SuperReadOnly()
	m.MountID, m.Device, m.Root, m.Mounted, m.Stacked = t.ID, t.Device(), t.Root, true, p.stack
	switch {
	case !s.table.Visible(t):
		m.StateReason = "it is hidden under a mount on a directory above it"
	case t.Deleted:
		m.State, m.StateReason = api.StateDeleted, "what was bound there has been unlinked"
	case !ask:
		m.StateReason = "not probed"
	}
	if p.kind == api.KindGlobalMapDevice || p.kind == api.KindPodDevice {
		s.deviceNode(&m, p)
	}
	return m
}

// unmounted tells the state of a volume that nothing is mounted on.
func (s *snapshot) unmounted(m *api.Mount, p place) {
	switch {
	case p.kind == api.KindPodDevice:
		s.link(m, p)
	case plain(p.Path):
		m.State, m.StateReason = api.StateOK, "a plain directory by design"
	case mayBePlain(p.Path):
		m.State, m.StateReason = api.StateOK, "nothing is mounted, and not every driver mounts here"
	default:
		m.State, m.StateReason = api.StateUnmounted, "the "+what(p.entry)+" is there and nothing is mounted on it"
	}
}

func what(t safefs.Type) string {
	if t == "" {
		return "entry"
	}
	return string(t)
}

// plain are the volumes that are a directory and no mount; kubelet-layout.md 2.
func plain(p paths.Path) bool {
	switch p.Plugin {
	case paths.ConfigMapPlugin, paths.GitRepoPlugin, paths.EmptyDirPlugin, paths.HostPathPlugin:
		return p.Kind == paths.PodVolume
	}
	return false
}

// mayBePlain are those where the driver decides: a CSI driver may mount at publish
// only, and a FlexVolume driver not at all.
func mayBePlain(p paths.Path) bool {
	if p.Plugin == paths.CSIPlugin {
		return p.Kind == paths.GlobalMount || p.Kind == paths.CSIBlockStaging
	}
	return p.Kind == paths.PodVolume && filepath.Dir(p.Plugin) != "kubernetes.io"
}

// link reads where a pod's device link leads; [snapshot.follow] goes there.
func (s *snapshot) link(m *api.Mount, p place) {
	m.StateReason = "not probed"
	root, err := s.host.Root()
	if err != nil {
		return
	}
	if m.Source, err = root.Readlink(p.path); err != nil {
		m.Source, m.StateReason = "", err.Error()
	}
}

// follow says what a pod's device link leads to, which is outside of the root. a is
// the answer of a probe that went there first, beside all others: with a link for
// each that hangs, one time-out follows another.
func (s *snapshot) follow(ctx context.Context, m *api.Mount, a probe.Answer) {
	if a.State == api.StateUnresponsive {
		m.State, m.StateReason = a.State, "what it points to does not answer: "+a.Reason
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.host.ProbeTimeout)
	defer cancel()
	f, info, err := s.host.Helper.Open(ctx, m.Source, unix.O_PATH)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.State, m.StateReason = api.StateStale, "the device that it points to is gone"
	case errors.Is(err, api.ErrTimeout):
		m.State, m.StateReason = api.StateUnresponsive, "what it points to does not answer"
	case err != nil:
		m.StateReason = err.Error()
	default:
		f.Close()
		m.State, m.StateReason, m.Device = api.StateOK, "", fmt.Sprintf("%d:%d", unix.Major(info.Rdev), unix.Minor(info.Rdev))
		if info.Type != safefs.BlockDevice {
			m.State, m.StateReason, m.Device = api.StateStale, "it points to a "+string(info.Type), ""
		}
	}
}

// deviceNode tells of a bound device node which device it is. The node is in
// devtmpfs, so it answers; nothing of the disk is asked.
func (s *snapshot) deviceNode(m *api.Mount, p place) {
	root, err := s.host.Root()
	if err != nil {
		return
	}
	info, err := root.Stat(p.path)
	if err != nil || info.Type != safefs.BlockDevice {
		m.State, m.StateReason = api.StateStale, "no device node is bound there"
		return
	}
	m.Device = fmt.Sprintf("%d:%d", unix.Major(info.Rdev), unix.Minor(info.Rdev))
	if _, err := s.host.Devices.ByNumber(int(unix.Major(info.Rdev)), int(unix.Minor(info.Rdev))); err != nil {
		m.State, m.StateReason = api.StateStale, "the device is gone"
		return
	}
	m.State, m.StateReason = api.StateOK, ""
}

// probe asks each file system once, through one of the paths that show it, and what
// the pods' device links lead to.
func (s *snapshot) probe(ctx context.Context, items []api.Mount) {
	var targets []probe.Target
	var at []int
	for i, m := range items {
		switch {
		case m.Mounted && m.State == api.StateUnknown && m.StateReason == "":
			targets = append(targets, probe.Target{Path: m.Path, MountID: m.MountID, Dev: m.Device, Root: m.Root})
		case !m.Mounted && m.Kind == api.KindPodDevice && m.Source != "":
			targets = append(targets, probe.Target{Path: m.Source, Dev: "path " + m.Source})
		default:
			continue
		}
		at = append(at, i)
	}
	if len(targets) == 0 {
		return
	}
	for k, a := range s.host.Helper.Probe(ctx, targets, s.host.ProbeTimeout) {
		m := &items[at[k]]
		if !m.Mounted {
			s.follow(ctx, m, a)
			continue
		}
		m.State, m.StateReason = a.State, a.Reason
		m.CapacityBytes, m.UsedBytes, m.AvailableBytes = a.Space.Capacity, a.Space.Used, a.Space.Available
		if m.State == api.StateOK {
			s.readOnlyUnderneath(m, *s.places[at[k]].mount)
		}
	}
}

// readOnlyUnderneath finds a file system that the kernel turned read-only after
// an error, below a mount that is read-write.
func (s *snapshot) readOnlyUnderneath(m *api.Mount, t mounts.Mount) {
	if t.SuperReadOnly() && !t.ReadOnly() {
		m.State, m.StateReason = api.StateReadOnly, "the mount is read-write and its file system is read-only, as after an error: see dmesg"
	}
}
