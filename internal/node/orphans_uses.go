package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/paths"
)

// use is what a pod has of a volume.
type use struct {
	uid, plugin, volume string
	path                string
	kind                api.MountKind
	mount               *mounts.Mount
	handle              string // driver^handle of a CSI volume, "" where its metadata does not tell
}

func (l *Leftovers) findUses() {
	for _, p := range l.places {
		if p.PodUID == "" || p.kind == api.KindOther {
			continue
		}
		u := use{uid: p.PodUID, plugin: p.Plugin, volume: p.Volume, path: p.path, kind: p.kind, mount: p.mount}
		if p.kind != api.KindSubPath {
			u.handle = l.handleOf(p)
		}
		l.uses = append(l.uses, u)
		if pod := l.pod(u.uid); pod != nil && u.volume != "" {
			pod.Volumes = append(pod.Volumes, u.volume)
		}
	}
}

// tie is how a use belongs to what is node-wide.
type tie int

const (
	none tie = iota
	perhaps
	same
)

// ties says whether a use is of a node-wide thing: by the file system where both are
// mounted, by the name or the handle, or perhaps, where neither tells.
func (l *Leftovers) ties(u use, o *Leftover, m *mounts.Mount) tie {
	block := u.kind == api.KindPodDevice || u.kind == api.KindGlobalMapDevice
	switch {
	case block != (o.Kind == api.OrphanBlockMap):
		return none
	case u.kind != api.KindSubPath && u.plugin == o.Plugin && named(u, o):
		return same
	case u.mount != nil && m != nil && u.mount.PartOf(*m):
		return same
	case u.mount != nil && m != nil && (u.plugin != paths.CSIPlugin || u.handle != ""):
		return none // a CSI driver may publish another file system than it stages
	case u.kind == api.KindSubPath || u.plugin != o.Plugin:
		return none
	case o.At.HandleHash != "" && u.handle == "", o.Plugin != paths.CSIPlugin && o.At.Volume == "":
		return perhaps
	}
	return none
}

// named says whether a use has the name or the handle of what is node-wide.
func named(u use, o *Leftover) bool {
	if o.At.Volume != "" {
		return o.called(u.volume) || u.handle != "" && u.handle == o.Handle && o.Kind == api.OrphanStaging
	}
	driver, handle, ok := strings.Cut(u.handle, "^")
	return ok && o.At.HandleHash != "" && driver == o.At.Driver && paths.HandleHash(handle) == o.At.HandleHash
}

// called says whether a pod's directories have its volume under a name.
func (o *Leftover) called(volume string) bool {
	return volume == o.At.Volume || volume == paths.EscapePlugin(o.At.Volume)
}

// owner is the verdict on the pod that has something; born is when that came to be
// at the latest, for a pod without a directory.
func (l *Leftovers) owner(uid string, born time.Time) (api.Verdict, string) {
	if pod := l.pod(uid); pod != nil {
		return pod.Verdict, pod.Reason
	}
	v, evidence := l.sets.Verdict(uid, born)
	return v, reasonOf(v, evidence)
}

// users judges a node-wide thing by who has it: alive while one lives, unknown while
// of one that is not known, and otherwise it goes after those that are gone.
func (l *Leftovers) users(o *Leftover, m *mounts.Mount, born time.Time) {
	o.Verdict = api.VerdictOrphan
	for _, u := range l.uses {
		how := l.ties(u, o, m)
		if how == none {
			continue
		}
		v, why := l.owner(u.uid, born)
		if v == api.VerdictOrphan {
			if how == same && u.kind != api.KindGlobalMapDevice {
				o.After = append(o.After, u.path)
				o.note("metadata", api.SaysAbsent, u.path+" is of pod "+u.uid+", which is gone")
			}
			continue
		}
		if how == perhaps {
			v, why = api.VerdictUnknown, "it may be of this volume, whose metadata does not tell"
		}
		o.judge(v, fmt.Sprintf("pod %s has %s (%s)", u.uid, u.path, why))
	}
	for uid := range l.pods {
		if pod := l.pod(uid); pod.Verdict == api.VerdictUnknown && pod.BlockedBy == api.BlockedByMount {
			o.judge(api.VerdictUnknown, "what pod "+pod.PodUID+" has cannot be seen: something is mounted on its directory")
		}
	}
	l.unseen(o, born)
	if m != nil {
		l.mountedBy(o, *m)
	}
}

// unseen doubts what a pod may have where nobody can look: in a directory that cannot be
// read, or behind a symbolic link in the place of a volume.
func (l *Leftovers) unseen(o *Leftover, born time.Time) {
	for _, path := range l.unread {
		at := l.host.Layout.Parse(path)
		if at.PodUID == "" || at.Plugin != "" && at.Plugin != o.Plugin || at.Volume != "" && o.At.Volume != "" && !o.called(at.Volume) {
			continue
		}
		if v, why := l.owner(at.PodUID, born); v != api.VerdictOrphan {
			o.judge(api.VerdictUnknown, fmt.Sprintf("pod %s may have it: %s cannot be looked into (%s)", at.PodUID, path, why))
		}
	}
}

// judge lowers the verdict: live counts more than unknown, unknown more than orphan.
func (o *Leftover) judge(v api.Verdict, reason string) {
	if v == api.VerdictOrphan || o.Verdict == api.VerdictLive {
		return
	}
	if v == api.VerdictLive || o.Verdict != v {
		o.Verdict, o.Reason = v, reason
	}
	o.note("mounts", map[api.Verdict]string{api.VerdictLive: api.SaysAlive, api.VerdictUnknown: api.SaysSilent}[v], reason)
}

func (o *Leftover) note(source, says, detail string) {
	o.Evidence = append(o.Evidence, api.Evidence{Source: source, Says: says, Detail: detail})
}

// elsewhere is a mount in another mount namespace.
type elsewhere struct {
	mounts.Mount
	pid int
	ns  string
}

// mountedBy looks for who else has the file system mounted, here or in any mount
// namespace. Copies of the layout's own mounts in other namespaces are no users: they
// are another view of the same, and the kubelet takes them for that (HasMountRefs).
func (l *Leftovers) mountedBy(o *Leftover, m mounts.Mount) {
	for _, other := range l.table.SameDevice(m.Major, m.Minor) {
		at := l.host.Layout.Parse(other.MountPoint)
		switch {
		case !other.PartOf(m) || at.Kind == paths.GlobalMount:
		case at.PodUID != "": // also below another mount, where it is no use
			v, why := l.owner(at.PodUID, time.Time{})
			o.judge(v, fmt.Sprintf("pod %s has it mounted at %s (%s)", at.PodUID, other.MountPoint, why))
		default:
			o.judge(api.VerdictUnknown, "its file system is mounted at "+other.MountPoint+" too")
		}
	}
	others, err := l.elsewhere()
	if err != nil {
		o.judge(api.VerdictUnknown, "not every mount namespace could be read: "+err.Error())
	}
	for _, other := range others[m.Device()] {
		if !other.PartOf(m) {
			continue
		}
		uid := l.podOfCopy(other.MountPoint)
		switch {
		case uid != "":
			if v, why := l.owner(uid, time.Time{}); v == api.VerdictLive {
				o.judge(v, fmt.Sprintf("pod %s has it in mount namespace %s (%s)", uid, other.ns, why))
			}
		case strings.Contains(other.MountPoint, "/plugins/kubernetes.io"):
		default:
			o.judge(api.VerdictLive, fmt.Sprintf("process %d has it mounted at %s in mount namespace %s", other.pid, other.MountPoint, other.ns))
		}
	}
}

// podOfCopy reads a path of another mount namespace as one of a pod, wherever the
// kubelet's root is there: what comes after its last "/pods/".
func (l *Leftovers) podOfCopy(path string) string {
	i := strings.LastIndex(path, "/pods/")
	if i < 0 {
		return ""
	}
	return l.host.Layout.Parse(filepath.Join(l.host.Layout.Root, path[i:])).PodUID
}

// elsewhere reads the mount tables of all other mount namespaces, once.
func (l *Leftovers) elsewhere() (map[string][]elsewhere, error) {
	if l.others != nil {
		return l.others, l.othersErr
	}
	l.others = map[string][]elsewhere{}
	own := l.host.Devices.OwnMountNamespace()
	l.othersErr = l.host.Devices.EachMountNamespace(func(pid int, ns string, t *mounts.Table) {
		if ns == own {
			return
		}
		for _, m := range t.Mounts {
			l.others[m.Device()] = append(l.others[m.Device()], elsewhere{m, pid, ns})
		}
	})
	return l.others, l.othersErr
}

// VolumesOf are the places of a pod's volume by name, of whatever plugin.
func (l *Leftovers) VolumesOf(uid, volume string) []string {
	var out []string
	for _, u := range l.uses {
		if u.uid != uid || u.volume != volume && u.volume != paths.EscapePlugin(volume) || u.kind != api.KindPodVolume && u.kind != api.KindPodDevice {
			continue
		}
		if path := u.path; l.host.Layout.Parse(path).Kind == paths.PodVolumeMount {
			out = append(out, filepath.Dir(path))
		} else {
			out = append(out, path)
		}
	}
	return out
}

// MapsOf are the binds of devices for a pod, of one plugin.
func (l *Leftovers) MapsOf(uid, plugin string) []string {
	var out []string
	for _, u := range l.uses {
		if u.uid == uid && u.plugin == plugin && u.kind == api.KindGlobalMapDevice {
			out = append(out, u.path)
		}
	}
	return out
}
