package states

import (
	"fmt"
	"strings"
)

// A state is what a seed makes: a node as a list of elements, and what is asked of
// kvol there. Elements stand for themselves, so that a state without some of them is
// one too.
type state struct {
	Pods     []pod
	Vols     []volume
	Elements []element
	Driver   string // how the CSI driver behaves
	Fault    string // in which way it fails, where it does
	PodsFrom string // how the live pods are told: lines, crictl, list; "" not at all
	Before   *call  // an earlier run, killed
	Call     call
}

// Life says what is known of a pod.
const (
	live    = "live"
	gone    = "gone"
	unknown = "unknown" // its directory is younger than the list of live pods
)

type pod struct{ UID, Life string }

// volume is a volume of the node. Its name is that of its directories.
type volume struct {
	Kind   string
	Name   string
	Disk   int // of the pool, where it is on one
	Driver string
	Handle string
}

// The kinds of volumes.
const (
	localDir   = "local directory"
	localDisk  = "local disk"
	localRaw   = "local raw"
	csiStaged  = "csi staged"
	csiPlain   = "csi not staged"
	csiInline  = "csi inline"
	csiBlock   = "csi block"
	secret     = "secret"
	projected  = "projected"
	configMap  = "configmap"
	emptyDisk  = "emptyDir"
	emptyMem   = "emptyDir Memory"
	hostPath   = "hostPath"
	foreignFS  = "nfs" // a plugin that kvol does not have
	foreignVen = "vendor/driver"
)

func (v volume) csi() bool { return strings.HasPrefix(v.Kind, "csi") }

// content says that it has files that kvol may take away with it.
func (v volume) content() bool { return v.Kind == secret || v.Kind == projected || v.Kind == configMap }

func (v volume) raw() bool { return v.Kind == localRaw || v.Kind == csiBlock }

// disk says that it is on a disk of the pool.
func (v volume) disk() bool { return v.raw() || v.Kind == localDisk || v.Kind == csiStaged }

// plugin is the name of its directory in a pod.
func (v volume) plugin() string {
	switch v.Kind {
	case localDir, localDisk, localRaw:
		return "kubernetes.io~local-volume"
	case emptyDisk, emptyMem:
		return "kubernetes.io~empty-dir"
	case foreignVen:
		return "vendor~driver"
	case hostPath:
		return "kubernetes.io~host-path"
	}
	if v.csi() {
		return "kubernetes.io~csi"
	}
	return "kubernetes.io~" + v.Kind
}

// element is a thing on the node. Pod and Vol are numbers, -1 is none.
type element struct {
	Kind     string
	Pod, Vol int
	How      string
	Meta     string // of vol_data.json
}

// The kinds of elements, in the order in which they are made.
const (
	podDir    = "pod directory"
	odd       = "odd entry"
	global    = "global"
	publish   = "publish"
	subPath   = "subpath"
	userFile  = "user file"
	link      = "link"
	foreign   = "foreign mount"
	held      = "open file"
	elsewhere = "mount namespace"
)

// call is a run of kvol.
type call struct {
	Verb     string
	Vol, Pod int
	Name     string // how the volume is named: name, path, device, handle, file, nothing
	Flags    []string
	Kill     string // at which action, "" never
	With     string // another kvol at the same time: same, list, gc
}

func (c call) has(flag string) bool {
	for _, f := range c.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

// String is the state as a person reads it.
func (s state) String() string {
	var b strings.Builder
	for i, p := range s.Pods {
		fmt.Fprintf(&b, "  pod %d: %s %s\n", i, p.UID, p.Life)
	}
	used := map[int]bool{s.Call.Vol: true}
	for _, e := range s.Elements {
		used[e.Vol] = true
	}
	for i, v := range s.Vols {
		if used[i] {
			fmt.Fprintf(&b, "  volume %d: %s %q disk %d %s\n", i, v.Kind, v.Name, v.Disk, v.Handle)
		}
	}
	for _, e := range s.Elements {
		fmt.Fprintf(&b, "  %s", e.Kind)
		if e.Pod >= 0 {
			fmt.Fprintf(&b, " of pod %d", e.Pod)
		}
		if e.Vol >= 0 {
			fmt.Fprintf(&b, " of volume %d (%s)", e.Vol, s.Vols[e.Vol].Kind)
		}
		fmt.Fprintf(&b, " %s", e.How)
		if e.Meta != "" {
			fmt.Fprintf(&b, " metadata %s", e.Meta)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "  CSI driver: %s %s; live pods told by: %q\n", s.Driver, s.Fault, s.PodsFrom)
	if s.Before != nil {
		fmt.Fprintf(&b, "  earlier: %+v\n", *s.Before)
	}
	fmt.Fprintf(&b, "  run: %+v\n", s.Call)
	return b.String()
}
