package alive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/procs"
)

// podCgroup is what the kubelet calls the control group of a pod, for the driver
// cgroupfs (podUID) and for systemd (kubepods-burstable-podUID.slice, in which a
// dash separates levels, so that those of the uid are underscores).
var podCgroup = regexp.MustCompile(`(?:^|-)pod([0-9A-Za-z_.:-]+?)(?:\.slice)?$`)

// askCgroups looks for control groups of pods with a process in them or below.
func (l *look) askCgroups(ctx context.Context) answer {
	a := answer{note: "no control group with a process is named after it"}
	uid := func(name string) (string, bool) {
		m := podCgroup.FindStringSubmatch(name)
		if m == nil {
			return "", false
		}
		return m[1], true
	}
	a.err = procs.Cgroups(ctx, l.host.SysRoot, uid, func(uid, path string) {
		p := Pod{UID: strings.ReplaceAll(uid, "_", "-"), State: "processes in " + path}
		if p.UID != uid {
			p.Aliases = []string{uid}
		}
		a.pods = append(a.pods, p)
	})
	if errors.Is(a.err, fs.ErrNotExist) {
		a.err = api.Errorf(api.ErrNotFound, "no control groups are mounted").WithNext("see where they are: findmnt -t cgroup2,cgroup").At(l.host.SysRoot + "/fs/cgroup")
	}
	return a
}

// askProcesses looks for processes that use something of a pod. Two things tell:
//
// A file or directory below the pod's directory that a process has open, works in or
// runs, in whatever mount namespace it is.
//
// A mount in another mount namespace of something below the pod's directory, at a
// place that is not named after the pod. That is what a container has (its
// /etc/hosts, its termination log, its volumes on the same disk), and so it says that
// the container has a process. A mount point with the uid in it is another matter: a
// namespace that was copied from the node's, a CSI driver's or an agent's, has all
// mounts of all pods where the kubelet has them, and keeps them when the kubelet
// unmounts its own, although nobody in there knows of the pod. Such a copy is no
// life, and neither is a mount that this namespace has in the same place; what
// somebody in there has open of it shows as said above. The mounts of this process's
// own namespace are what is asked about.
//
// A volume of another file system, bound into a container, does not show whose it is,
// and may be of several pods; its container shows by its other mounts.
func (l *look) askProcesses(ctx context.Context) answer {
	mine, err := l.host.Mounts()
	if err != nil {
		return answer{err: err}
	}
	proc, own := l.host.ProcRoot, l.host.Devices.OwnMountNamespace()
	pods := locate(mine, l.host.Layout.Root+"/pods")
	tables := map[string]*mounts.Table{own: mine}
	found := map[string]string{}
	note := func(uid string, pid int, format string, args ...any) {
		if found[uid] == "" {
			found[uid] = fmt.Sprintf("process %d (%s) has ", pid, procs.Command(proc, pid)) + fmt.Sprintf(format, args...)
		}
	}
	errNS := l.host.Devices.EachMountNamespace(func(pid int, ns string, table *mounts.Table) {
		if ns == own {
			return
		}
		tables[ns] = table
		for _, m := range table.Mounts {
			uid, ok := pods.uid(spot{m.Device(), m.Root})
			if ok && !slices.Contains(strings.Split(m.MountPoint, "/"), uid) && !has(mine, m) {
				note(uid, pid, "%s mounted on %s", m.Root, m.MountPoint)
			}
		}
	})
	self := map[int]bool{os.Getpid(): true, l.host.Helper.PID(): true}
	denied, errUses := procs.Uses(ctx, proc, self, func(u procs.Use) {
		if strings.Count(u.Path, "-") < 4 && !strings.Contains(u.Path, "/pods/") {
			return // as nearly all
		}
		table := tables[procs.MountNamespace(proc, u.PID)]
		for dir := u.Path; table != nil && dir != "/"; dir = path.Dir(dir) {
			// A kvol at work in there is no life, and it has its own lock.
			if uid, ok := pods.uid(locate(table, dir)); ok && !procs.Own(proc, u.PID, own) {
				note(uid, u.PID, "%s: %s", u.Path, u.How)
			}
		}
	})
	a := answer{err: errors.Join(errNS, errUses), note: "no process uses its directory"}
	if denied > 0 {
		a.note += fmt.Sprintf(" (%d cannot be looked at)", denied)
	}
	for uid, why := range found {
		a.pods = append(a.pods, Pod{UID: uid, State: why})
	}
	slices.SortFunc(a.pods, func(a, b Pod) int { return strings.Compare(a.UID, b.UID) })
	return a
}

// spot is where a thing lies: a file system, and the path in it. That is the same in
// every mount namespace. In a chroot the mount that its root is on does not show; the
// path alone is known then.
type spot struct {
	device string
	path   string
}

// locate tells where a path of a mount namespace lies.
func locate(table *mounts.Table, name string) spot {
	m, ok := table.Covering(name)
	if !ok {
		return spot{"", name}
	}
	return spot{m.Device(), path.Join(m.Root, strings.TrimPrefix(name, m.MountPoint))}
}

// uid gives the pod whose directory a thing is, or is in, where s is the directory of
// all pods. Where one of the two is not known, what lies below any "pods" may be.
func (s spot) uid(at spot) (string, bool) {
	rest, ok := strings.CutPrefix(at.path, strings.TrimSuffix(s.path, "/")+"/")
	if ok = ok && s.device == at.device; s.device == "" || at.device == "" {
		_, rest, ok = strings.Cut(at.path, "/pods/")
	}
	uid, _, _ := strings.Cut(rest, "/")
	return uid, ok && uid != ""
}

// has says whether a table has the same thing in the same place.
func has(table *mounts.Table, m mounts.Mount) bool {
	return slices.ContainsFunc(table.At(m.MountPoint), func(o mounts.Mount) bool {
		return o.Major == m.Major && o.Minor == m.Minor && o.Root == m.Root
	})
}
