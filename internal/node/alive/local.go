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
		a.err = api.Errorf(api.ErrNotFound, "no control groups are mounted").At(l.host.SysRoot + "/fs/cgroup")
	}
	return a
}

// askProcesses looks for processes that use something of a pod. Two things tell:
//
// A file or directory below the pod's directory that a process has open, works in or
// runs, in whatever mount namespace: /proc shows the path as that namespace has it,
// and the uid is a part of it wherever the kubelet's root is mounted.
//
// A mount in another mount namespace of something below the pod's directory: its
// root field, the path within the file system, has the uid in it, and its mount point
// has not. That is what a container has (its /etc/hosts, its termination log, its
// volumes on the same disk), and so it says that the container has a process. A mount
// point with the uid is another matter: a namespace that was copied from the
// node's, a CSI driver's or an agent's, has all mounts of all pods at the kubelet's own
// paths, keeps them when the kubelet unmounts its own, and nobody there may know of
// the pod. So such a copy is no life, and neither is a mount that this namespace has
// in the same place; what somebody in there really has open shows as said above.
// The mounts of this process's own namespace are what is asked about.
//
// A volume of another file system, bound into a container, names no pod in either
// field, and may be of several pods; its container shows by its other mounts.
func (l *look) askProcesses(ctx context.Context) answer {
	found := map[string]string{}
	note := func(in, why string) {
		for _, uid := range uidsIn(in) {
			if found[uid] == "" {
				found[uid] = why
			}
		}
	}
	proc, own := l.host.ProcRoot, l.host.Devices.OwnMountNamespace()
	mine, err := l.host.Mounts()
	if err != nil {
		return answer{err: err}
	}
	errNS := l.host.Devices.EachMountNamespace(func(pid int, ns string, table *mounts.Table) {
		if ns == own {
			return
		}
		for _, m := range table.Mounts {
			if len(uidsIn(m.Root)) > 0 && !sameUID(m.Root, m.MountPoint) && !has(mine, m) {
				note(m.Root, fmt.Sprintf("process %d (%s) has %s mounted on %s", pid, procs.Command(proc, pid), m.Root, m.MountPoint))
			}
		}
	})
	self := map[int]bool{os.Getpid(): true, l.host.Helper.PID(): true}
	errUses := procs.Uses(ctx, proc, self, func(u procs.Use) {
		if len(uidsIn(u.Path)) > 0 {
			note(u.Path, fmt.Sprintf("process %d (%s) has %s: %s", u.PID, procs.Command(proc, u.PID), u.Path, u.How))
		}
	})
	a := answer{err: errors.Join(errNS, errUses), note: "no process uses its directory"}
	for uid, why := range found {
		a.pods = append(a.pods, Pod{UID: uid, State: why})
	}
	slices.SortFunc(a.pods, func(a, b Pod) int { return strings.Compare(a.UID, b.UID) })
	return a
}

// podElement is an element of a path that can only be a pod's uid.
var podElement = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// uidsIn are the elements of a path that may be the uid of a pod: by their form, and
// after "pods", where one may have any form (but for NAMESPACE_NAME_UID, as in
// /var/log/pods). In a root field that directory may be missing, where it is a mount
// of its own.
func uidsIn(name string) []string {
	if !strings.Contains(name, "/") {
		return nil
	}
	var out []string
	before := ""
	for element := range strings.SplitSeq(path.Clean(name), "/") {
		if before == "pods" && !strings.Contains(element, "_") || podElement.MatchString(element) {
			out = append(out, element)
		}
		before = element
	}
	return out
}

// sameUID says whether a mount point has a uid of a root field.
func sameUID(root, mountPoint string) bool {
	at := strings.Split(mountPoint, "/")
	return slices.ContainsFunc(uidsIn(root), func(uid string) bool { return slices.Contains(at, uid) })
}

// has says whether a table has the same thing in the same place.
func has(table *mounts.Table, m mounts.Mount) bool {
	return slices.ContainsFunc(table.At(m.MountPoint), func(o mounts.Mount) bool {
		return o.Major == m.Major && o.Minor == m.Minor && o.Root == m.Root
	})
}
