package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/kubelet"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

// Ordered is the way to clean up what a running kubelet may hold in its memory.
const Ordered = "systemctl stop kubelet; kvol gc-orphans --apply; systemctl start kubelet"

// findKubelet finds the kubelet whose root directory this is. One of which that cannot
// be told counts, and so does one that only answers.
func (l *Leftovers) findKubelet(ctx context.Context) error {
	all, err := kubelet.Find(l.host.ProcRoot)
	if err != nil {
		return err
	}
	for _, k := range slices.Backward(all) {
		if owns, err := l.host.OwnedBy(ctx, k); owns || err != nil {
			l.Kubelet = &k
			return nil
		}
	}
	answered := func(r alive.Report) bool { return r.Source == alive.SourceKubelet && r.Answered }
	if slices.ContainsFunc(l.sets.Reports(), answered) {
		l.Kubelet = &kubelet.Process{}
	}
	return nil
}

// Held says whether a running kubelet may have a leftover volume of a pod in its
// memory, so that it must not be taken from under it; the reason is for people.
//
// At its start a kubelet reads the names below pods/*/volumes and volumeDevices, and
// holds each volume whose spec it can make from that until it has torn it down: of a
// CSI volume this takes its metadata. What it sets up later it holds as well. To tear
// down again what is gone does no harm, but for CSI: without its metadata the call
// fails for ever (upstream issue 101911), every 100 ms. So, beside a kubelet,
//
//   - a CSI volume whose metadata can be read stays;
//   - one whose metadata is missing or broken can go if both it and the file are older
//     than the kubelet, which then could not read it either;
//   - of any other plugin what is mounted stays: the kubelet is unmounting it, or
//     about to. What is not can go.
func (l *Leftovers) Held(path string) (held bool, reason string) {
	if l.Kubelet == nil {
		return false, ""
	}
	at := l.host.Layout.Parse(path)
	if at.Plugin != paths.CSIPlugin {
		for _, m := range l.mountsOf(path, at) {
			return true, "the running kubelet may hold it, and it is mounted: " + m
		}
		return false, ""
	}
	m := l.metadataOf(place{Path: at, path: path})
	if m.State == "ok" && m.Data[voldata.Driver] != "" {
		return true, "the running kubelet may hold it: its metadata can be read"
	}
	for _, name := range []string{path, m.Path} {
		if l.since(name) {
			return true, "its metadata cannot be read, and it is younger than the running kubelet, which may have set it up"
		}
	}
	return false, ""
}

// mountsOf are what is mounted for a volume of a pod.
func (l *Leftovers) mountsOf(path string, at paths.Path) []string {
	var out []string
	for _, m := range l.table.Under(path) {
		out = append(out, m.MountPoint)
	}
	for _, u := range l.uses {
		if u.uid == at.PodUID && u.plugin == at.Plugin && u.volume == at.Volume && u.kind == api.KindGlobalMapDevice && u.mount != nil {
			out = append(out, u.path)
		}
	}
	return out
}

// since says whether something was made or written since the kubelet was started; a
// kubelet that only answers may be older than anything.
func (l *Leftovers) since(path string) bool {
	root, err := l.host.Root()
	if err != nil {
		return true
	}
	info, err := root.Stat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	start := l.Kubelet.Started
	born := info.Birth.After(start)
	return start.IsZero() || born || info.Type == safefs.File && info.ModTime.After(start) || info.Birth.IsZero() && info.ModTime.After(start)
}

// aboutToUse says, beside a running kubelet, why a volume that no pod has could be one
// that a pod is about to have; "" where that is known not to be. A pod whose volume
// cannot be published is staged all the same, again and again, without anything of the
// volume in its directory.
func (l *Leftovers) aboutToUse(ctx context.Context, o *Leftover) string {
	nv, err := l.nodeVolumes(ctx)
	if err != nil {
		return err.Error()
	}
	for _, name := range nv.InUse {
		if l.names(name, o) {
			return "node.status.volumesInUse has " + name
		}
	}
	for _, c := range nv.Claims {
		switch {
		case c.Finished:
		case c.PV == "":
			return fmt.Sprintf("pod %s claims %s/%s, and to which volume that is bound is not known", c.PodUID, c.Namespace, c.Name)
		case !l.published(c):
			return fmt.Sprintf("pod %s claims volume %s, which is not published here yet", c.PodUID, c.PV)
		}
	}
	return ""
}

func (l *Leftovers) nodeVolumes(ctx context.Context) (alive.NodeVolumes, error) {
	if !l.asked {
		l.asked = true
		l.nv, l.nvErr = l.sets.NodeVolumes(ctx)
	}
	return l.nv, l.nvErr
}

// names says whether a unique volume name is that of a leftover, or may be.
func (l *Leftovers) names(unique string, o *Leftover) bool {
	volume, ok := strings.CutPrefix(unique, o.Plugin+"/")
	if !ok {
		return false
	}
	if o.Plugin != paths.CSIPlugin {
		return volume == o.Volume || o.Volume == "" || o.At.ID != ""
	}
	driver, handle, _ := strings.Cut(volume, "^")
	switch {
	case o.At.HandleHash != "":
		return driver == o.At.Driver && paths.HandleHash(handle) == o.At.HandleHash
	case o.Handle != "":
		return volume == o.Handle
	}
	return true
}

// published says whether a claim's volume is in its pod's directory.
func (l *Leftovers) published(c alive.Claim) bool {
	return slices.ContainsFunc(l.uses, func(u use) bool {
		return u.uid == c.PodUID && (u.volume == c.PV || u.volume == paths.EscapePlugin(c.PV)) && (u.mount != nil || u.kind == api.KindPodDevice)
	})
}
