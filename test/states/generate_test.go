package states

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
)

// The disks of a worker's pool.
const (
	fsDisks  = 3 // with ext4
	rawDisks = 2
)

// generator makes a state of random numbers.
type generator struct {
	*rand.Rand
	state
	disks []int // free ones, by kind
	raws  []int
}

// generate makes the state of a seed.
func generate(seed uint64) state {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 8)), disks: []int{0, 1, 2}, raws: []int{fsDisks, fsDisks + 1}}
	g.pods()
	for range 1 + g.IntN(6) {
		g.volume()
	}
	g.strangers()
	g.driver()
	g.Call = g.call()
	if g.IntN(7) == 0 {
		before := g.call()
		if g.IntN(2) == 0 {
			before = g.Call
		}
		before.Kill, before.With = fmt.Sprintf("%s %d", pick(g, "before", "after"), 1+g.IntN(12)), ""
		before.Flags = slices.DeleteFunc(slices.Clone(before.Flags), func(f string) bool { return f == "--dry-run" })
		g.Before = &before
	}
	g.PodsFrom = pick(g, "lines", "lines", "crictl", "list")
	if g.one(12) {
		g.PodsFrom = ""
	}
	return g.state
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// one is true once in n times.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

func (g *generator) add(kind string, pod, vol int, how, meta string) {
	g.Elements = append(g.Elements, element{kind, pod, vol, how, meta})
}

func (g *generator) pods() {
	for i := range 1 + g.IntN(5) {
		sum := sha256.Sum256(fmt.Append(nil, g.Uint64()))
		h := fmt.Sprintf("%x", sum[:16])
		uid := h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:]
		if g.one(4) {
			uid = h // of a static pod
		}
		life := pick(g, live, gone, gone, gone, unknown)
		if i == 0 && g.one(2) {
			life = live // where all are gone nothing is done
		}
		g.Pods = append(g.Pods, pod{uid, life})
		how := pick(g, "as a kubelet leaves it", "as a kubelet leaves it", "as a kubelet leaves it", "bare", "missing", "with an attempt of two containers")
		if g.one(9) {
			how = pick(g, "with a user's file", "with a directory of a user's", "with a hard link to etc-hosts", "with a link in containers", "with a fifo")
		}
		g.add(podDir, i, -1, how, "")
	}
}

var kinds = []string{
	localDir, localDir, localDisk, localDisk, localRaw, csiStaged, csiStaged, csiStaged, csiPlain, csiPlain, csiInline, csiBlock, csiBlock,
	secret, projected, configMap, emptyDisk, emptyDisk, emptyMem, hostPath, foreignFS, foreignVen,
}

// volume adds a volume, published in some pods, in good order or not.
func (g *generator) volume() {
	n := len(g.Vols)
	v := volume{Kind: pick(g, kinds...), Name: fmt.Sprintf("pv-%d", n), Disk: -1}
	switch {
	case v.raw() && len(g.raws) > 0:
		v.Disk, g.raws = g.raws[0], g.raws[1:]
	case v.raw():
		v.Kind = localDir
	case v.disk() && len(g.disks) > 0:
		v.Disk, g.disks = g.disks[0], g.disks[1:]
	case v.disk():
		v.Kind = csiPlain
	}
	if g.one(12) {
		v.Name = pick(g, "odd name", "odd\nname", "-odd", "odd'name$(id)", "ünï", "..odd") + fmt.Sprint(n)
	}
	if v.csi() {
		v.Driver, v.Handle = "a.csi.test", fmt.Sprintf("handle-%d", n)
		if g.one(8) {
			v.Driver = "absent.csi.test" // nobody serves that
		}
	}
	g.Vols = append(g.Vols, v)
	if hasGlobal(v) && !g.one(8) {
		g.add(global, -1, n, pick(g, "mounted", "mounted", "mounted", "mounted", "empty", "twice", "with a user's file below"), g.meta())
	}
	if g.one(7) {
		return // nobody has it published
	}
	first := g.IntN(len(g.Pods))
	for p := range g.Pods {
		if p > 0 && (!shared(v) || !g.one(3)) {
			continue
		}
		g.publish((first+p)%len(g.Pods), n)
	}
}

// hasGlobal says that it has something that is not in a pod.
func hasGlobal(v volume) bool { return v.disk() || v.Kind == csiPlain }

// shared says that several pods can have it.
func shared(v volume) bool { return hasGlobal(v) || v.Kind == localDir || v.Kind == foreignFS }

func (g *generator) meta() string {
	return pick(g, "good", "good", "good", "good", "good", "missing", "empty", "cut", "contradictory", "a link")
}

func (g *generator) publish(p, n int) {
	v := g.Vols[n]
	how := pick(g, "mounted", "mounted", "mounted", "mounted", "mounted", "empty", "twice", "read-only", "with a user's file below")
	switch {
	case v.raw():
		how = pick(g, "whole", "whole", "whole", "no lock", "link only", "no link", "no bind", "a user's file for a target")
	case v.Kind == emptyDisk || v.Kind == configMap:
		how = pick(g, "empty", "content", "content", "content and a user's file")
	case v.Kind == emptyMem:
		how = pick(g, "mounted", "mounted with data", "mounted with data", "empty", "with a user's file below")
	case v.content():
		how = pick(g, "mounted", "mounted", "mounted", "empty", "mounted with a user's file", "content not mounted", "content half written")
	case v.Kind == foreignFS || v.Kind == foreignVen || v.csi():
		if g.one(10) {
			how = pick(g, "dead", "dead", "hung")
		}
	}
	if v.Kind == hostPath {
		g.add(subPath, p, n, pick(g, "directory", "file"), "")
		return
	}
	g.add(publish, p, n, how, g.meta())
	if !v.raw() && g.one(5) {
		g.add(subPath, p, n, pick(g, "directory", "file", "not mounted", "file not mounted"), "")
	}
	switch {
	case g.one(25):
		g.add(held, p, n, pick(g, "file", "directory"), "")
	case g.one(40):
		g.add(link, p, n, "in its place", "")
	case g.one(30):
		g.add(userFile, p, n, pick(g, "beside it", "in it", "odd name"), "")
	}
}

// strangers adds what is nobody's volume.
func (g *generator) strangers() {
	for g.one(3) {
		p, n := g.IntN(len(g.Pods)), g.IntN(len(g.Vols))
		switch g.IntN(6) {
		case 0, 1:
			g.add(foreign, p, n, pick(g, "bind on the volume", "tmpfs on the volume", "bind in the pod", "tmpfs in the pod", "bind on the pod", "bind in plugins", "bind on containers", "bind of another pod's volume", "bind on etc-hosts"), "")
		case 2, 3:
			g.add(odd, p, n, pick(g, "file in pods", "directory in pods", "link in pods", "file in plugins", "directory in the driver's", "file in volumes", "directory in volumes", "link in volumes", "socket in the driver's", "old staging", "flex data"), "")
		case 4:
			g.add(userFile, p, n, pick(g, "beside it", "in it", "in the staging directory", "odd name"), "")
		case 5:
			if g.one(4) {
				g.add(elsewhere, -1, -1, "of a process", "")
			}
		}
	}
}

func (g *generator) driver() {
	g.Driver = pick(g, "serves", "serves", "serves", "serves", "registered", "dead", "dead", "none", "fails", "fails")
	if g.one(25) {
		g.Driver = "hangs"
	}
	g.Fault = pick(g, "Internal", "NotFound", "Unavailable", "FailedPrecondition", "success for nothing", "leaves a directory", "removes the parent", "once", "dies")
	if g.Driver != "fails" {
		g.Fault = ""
	}
}
