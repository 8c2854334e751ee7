package states

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// verdict collects what is wrong.
type verdict struct{ faults []string }

func (v *verdict) add(rule, format string, args ...any) {
	v.faults = append(v.faults, rule+": "+fmt.Sprintf(format, args...))
}

// The rules that a run can break. A state that is made smaller has to break one that
// the whole one broke.
const (
	ruleLost   = "a file is lost"
	ruleScope  = "touched what it is not about"
	ruleTime   = "not in time"
	ruleCode   = "an exit code out of the contract"
	ruleOutput = "its output"
	ruleDry    = "a dry run changed something"
	ruleTruth  = "success that is not true"
	ruleAgain  = "the same again"
	ruleLeft   = "something is left behind"
	ruleDriver = "files before the driver"
	ruleLazy   = "what is proven gone and in nobody's way stays"
)

// judge compares a node before and after runs of kvol that were about some scopes.
func (b *builder) judge(v *verdict, before, after snapshot, calls ...call) {
	var scopes []*scope
	discard, quarantine, driverless := false, false, false
	for _, c := range calls {
		scopes = append(scopes, b.scope(c))
		discard = discard || c.has("--discard-ephemeral")
		quarantine = quarantine || c.has("--quarantine")
		driverless = driverless || c.has("--without-driver")
	}
	in := func(path string) bool {
		return slices.ContainsFunc(scopes, func(s *scope) bool { return s.has(path) })
	}
	b.judgeFiles(v, before, after, in, discard && quarantine)
	b.judgeMounts(v, before, after, in)
	for i, t := range b.tmpfs {
		for path, e := range before.memory[i] {
			_, still := after.memory[i][path]
			if !strings.HasPrefix(e.text, userText) || !before.of(t.dev) || still && after.of(t.dev) {
				continue
			}
			// A verb takes off what is mounted on the volume that was named, whatever it is.
			named := in(path) && !ephemeral(path) && calls[0].Verb != "gc-orphans"
			if !named && (!discard || !in(path) || !ephemeral(path)) {
				v.add(ruleLost, "%q: its file system in memory was unmounted", path)
			}
		}
	}
	for dev, backing := range before.loops {
		if after.loops[dev] == "" && !in(strings.TrimSuffix(backing, " (deleted)")) {
			v.add(ruleScope, "loop device %s over %q was detached", dev, backing)
		}
	}
	if !driverless {
		b.judgeDriver(v, before, after)
	}
}

func (b *builder) judgeFiles(v *verdict, before, after snapshot, in func(string) bool, quarantine bool) {
	inodes := map[uint64]entry{}
	for path, e := range after.files {
		if below(path, b.dir+"/quarantine") {
			inodes[e.inode] = e
		}
	}
	for _, path := range slices.Sorted(maps.Keys(before.files)) {
		was := before.files[path]
		is, there := after.files[path]
		switch {
		case there && is == was:
		case there:
			v.add(ruleLost, "%q was %v %.80q and is %v %.80q", path, was.mode, was.text, is.mode, is.text)
		case !in(path):
			v.add(ruleScope, "%q (%s) was removed", path, was.mode)
		case was.mode.IsDir() || b.tags[path] == tagMeta && was.mode&^fs.ModePerm&^fs.ModeSymlink == 0:
		case quarantine && inodes[was.inode] == was && ephemeral(path):
		default:
			v.add(ruleLost, "%q (%s %s) was removed", path, was.mode, b.tags[path])
		}
	}
	for path, is := range after.files {
		if _, was := before.files[path]; !was && (!quarantine || !below(path, b.dir+"/quarantine")) {
			v.add(ruleScope, "%q (%s) was made", path, is.mode)
		}
	}
}

// ephemeral says that a path is in an emptyDir, or in a volume that the kubelet makes
// of one.
func ephemeral(path string) bool {
	return slices.ContainsFunc([]string{"empty-dir", "secret", "projected", "configmap"}, func(kind string) bool {
		return strings.Contains(path, "/volumes/kubernetes.io~"+kind+"/")
	})
}

func (b *builder) judgeMounts(v *verdict, before, after snapshot, in func(string) bool) {
	for id, was := range before.mounts {
		is, there := after.mounts[id]
		switch {
		case there && is == was:
		case there && is.root == was.root+"//deleted" && in(b.dir+was.root):
		case there:
			v.add(ruleScope, "mount %v is now %v", was, is)
		case b.made[id] == tagOther || !in(was.point):
			v.add(ruleScope, "%v (%s) was unmounted", was, b.made[id])
		}
	}
	for id, is := range after.mounts {
		if _, was := before.mounts[id]; !was {
			v.add(ruleScope, "%v was mounted", is)
		}
	}
}

// judgeDriver wants the driver to have been asked before what is needed to ask it goes.
func (b *builder) judgeDriver(v *verdict, before, after snapshot) {
	for _, e := range b.Elements {
		if e.Kind != publish || e.Meta != "good" || !b.Vols[e.Vol].csi() || b.Vols[e.Vol].raw() {
			continue
		}
		at := b.at(e.Pod, b.Vols[e.Vol])
		meta := filepath.Dir(at) + "/vol_data.json"
		_, was := before.files[meta]
		_, is := after.files[meta]
		if was && !is && !b.csi.took(at) {
			v.add(ruleDriver, "%q is gone and the driver did not unpublish the volume", meta)
		}
		if len(before.at(at)) > 0 && len(after.at(at)) == 0 && !b.csi.took(at) {
			v.add(ruleDriver, "%q is unmounted and the driver did not unpublish the volume", at)
		}
	}
}

// judgeRun looks at how a run ended by itself.
func judgeRun(v *verdict, o outcome, c call, contract []int) {
	if o.took > o.limit+time.Second {
		v.add(ruleTime, "%v with a time-out of %v", o.took, o.limit)
	}
	if !slices.Contains(contract, o.code) && !refusedName(o) && (o.code != 1 || !driverFailed(o)) {
		v.add(ruleCode, "%d", o.code)
	}
	for _, word := range []string{"panic:", "goroutine ", "a defect in kvol", "runtime error"} {
		if strings.Contains(o.stdout+o.stderr, word) {
			v.add(ruleOutput, "a panic")
		}
	}
	if !slices.Contains(o.args, "json") {
		return
	}
	var doc struct {
		Kind  string
		Code  int
		Items []json.RawMessage
	}
	if text := strings.TrimSpace(o.stdout); text != "" || o.code == 0 && !c.has("-q") {
		if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.Items == nil {
			v.add(ruleOutput, "standard output is no list: %v", err)
		}
	}
	lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
	if o.code != 0 && o.code != 11 {
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &doc); err != nil || doc.Kind != "Error" || doc.Code != o.code {
			v.add(ruleOutput, "the last line of standard error is no error document: %v", err)
		}
	}
}

// driverFailed says that the driver answered with an error.
func driverFailed(o outcome) bool {
	return strings.Contains(o.stderr, "CSI driver "+driverName+": Node") || strings.Contains(o.stderr, "CSI driver "+driverName+" said")
}

// refusedName says that a name was refused that could be of several volumes, or is
// none that a cluster gives.
func refusedName(o outcome) bool {
	return o.code == 2 && (strings.Contains(o.stderr, "could be meant") || strings.Contains(strings.Join(o.args, " ")+o.stderr, "odd"))
}

// truth wants a success to be one.
func (b *builder) truth(v *verdict, c call, o outcome, after snapshot) {
	if !c.changes() || o.code != 0 {
		return
	}
	if c.Verb == "gc-orphans" {
		for i, p := range b.Pods {
			// Of two at the same time one sees the other at work in a pod's directory.
			if p.Life == gone && b.proof(c) && !c.has("--max") && !b.busy(i) && c.With != "same" {
				b.nothingAt(v, after, b.pod(i))
			}
		}
		return
	}
	if c.Name == "nothing" || c.Name == "device" || c.Name == "handle" && b.Vols[c.Vol].Kind == csiInline {
		return
	}
	vol := b.Vols[c.Vol]
	told := !vol.raw() || c.Name != "handle"
	for _, e := range b.Elements {
		if e.Vol != c.Vol {
			continue
		}
		if e.Meta == "contradictory" || c.Name == "handle" && e.Kind == publish && e.Meta != "good" && !vol.raw() {
			return // it is another volume, by all that can be read, or none that is known
		}
		told = told || e.Kind == global && e.Meta == "good"
	}
	if !told {
		return
	}
	if c.Verb == "teardown" || c.Verb == "unpublish" {
		if vol.raw() {
			b.nothingAt(v, after, b.globalAt(vol)+"/"+b.Pods[c.Pod].UID)
			b.nothingAt(v, after, b.pod(c.Pod)+"/volumeDevices/"+vol.plugin()+"/"+vol.Name)
		} else {
			b.nothingAt(v, after, b.at(c.Pod, vol))
		}
	}
	if c.Verb == "unmount-device" && !vol.raw() {
		for _, m := range after.at(b.globalAt(vol)) {
			v.add(ruleTruth, "%v is still mounted", m)
		}
	}
	if c.Verb == "detach" {
		b.nobodyUses(v, after, c)
	}
}

// busy says that a process has something of a pod, which may be one of its own, or
// that its directory cannot be looked at.
func (b *builder) busy(p int) bool {
	return slices.ContainsFunc(b.Elements, func(e element) bool {
		return e.Kind == elsewhere || e.Pod == p && (e.Kind == held || e.How == "bind on the pod")
	})
}

func (b *builder) nothingAt(v *verdict, after snapshot, path string) {
	for name := range after.files {
		if below(name, path) {
			v.add(ruleTruth, "%q is still there", name)
			return
		}
	}
	for _, m := range after.mounts {
		if below(m.point, path) {
			v.add(ruleTruth, "%v is still mounted", m)
			return
		}
	}
}

// nobodyUses wants no mount of a volume's device, or of its directory in a pod.
func (b *builder) nobodyUses(v *verdict, after snapshot, c call) {
	vol := b.Vols[c.Vol]
	for _, m := range after.mounts {
		switch {
		case vol.raw() && below(m.point, b.globalAt(vol)):
			v.add(ruleTruth, "%v is a map of it", m)
		case vol.disk() && !vol.raw() && m.dev == devNumber(b.disks[vol.Disk].number):
			v.add(ruleTruth, "%v is of its device", m)
		case vol.Kind == localDir && strings.HasSuffix(m.point, "/"+vol.plugin()+"/"+vol.Name):
			v.add(ruleTruth, "%v is of its directory", m)
		}
	}
}
