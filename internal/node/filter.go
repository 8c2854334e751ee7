package node

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/safefs"
)

// uidStart is what a UID begins with, or is: of a static pod it has no dashes.
var uidStart = regexp.MustCompile(`^[0-9a-f]{8}[0-9a-f-]*$`)

// LikeUID says whether a word can be the UID of a pod, or how one begins.
func LikeUID(word string) bool { return uidStart.MatchString(word) }

// IsUID says whether a UID is what a word says of one.
func IsUID(uid, word string) bool {
	return uid == word || LikeUID(word) && strings.HasPrefix(uid, word)
}

// Check refuses what nobody could answer.
func (o ListOptions) Check() error {
	if o.Probe {
		return nil
	}
	names := slices.DeleteFunc(slices.Clone(o.Pod), LikeUID)
	for flag, needed := range map[string]bool{
		"--namespace": len(o.Namespace) > 0, "--orphans": o.Orphans, "--owner": len(o.Owners) > 0,
		"--pod " + strings.Join(names, ","): len(names) > 0,
	} {
		if needed {
			return api.Errorf(api.ErrUsage, "%s needs to know whose the pods are, and --no-probe asks nobody", flag).
				WithNext("leave --no-probe out, or name the pod by its UID: --pod-uid UID")
		}
	}
	return nil
}

// takes says whether a place is asked for, as far as the node itself tells.
func (s *snapshot) takes(o ListOptions, p place) bool {
	return (len(o.Kinds) == 0 || slices.Contains(o.Kinds, p.kind)) &&
		(len(o.Plugin) == 0 || slices.Contains(o.Plugin, p.Plugin)) &&
		(len(o.Volume) == 0 || slices.ContainsFunc(o.Volume, func(word string) bool { return s.isCalled(p, word) })) &&
		(o.PodUID == "" || o.PodUID == p.PodUID) &&
		(!o.Duplicates || p.stack > 1)
}

func (s *snapshot) isCalled(p place, word string) bool {
	return word == p.name() || strings.Contains(word, "^") && (p.called(word) || s.handleOf(p) == word)
}

// takesItem says whether an item is, as far as others tell.
func (o ListOptions) takesItem(m api.Mount) bool {
	return (len(o.States) == 0 || slices.Contains(o.States, m.State)) &&
		o.inNamespace(m) &&
		(!o.Orphans || m.Owner == api.OwnerGone) &&
		(len(o.Owners) == 0 || slices.Contains(o.Owners, m.Owner))
}

func (o ListOptions) inNamespace(m api.Mount) bool {
	return len(o.Namespace) == 0 || slices.Contains(o.Namespace, m.Namespace)
}

// pods is the test for the items of the pods that are meant, nil for those of any.
func (o ListOptions) pods(items []api.Mount) (func(api.Mount) bool, error) {
	meant := map[string]bool{}
	for _, word := range o.Pod {
		uids, err := o.pod(word, items)
		if err != nil {
			return nil, err
		}
		for uid := range uids {
			meant[uid] = true
		}
	}
	return func(m api.Mount) bool { return len(o.Pod) == 0 || meant[m.PodUID] }, nil
}

// pod finds the UID of the pod that a word means, of which there has to be one.
func (o ListOptions) pod(word string, items []api.Mount) (map[string]bool, error) {
	found := map[string]bool{}
	var names []string
	for _, m := range items {
		switch {
		case m.PodUID == "" || !o.inNamespace(m):
		case m.PodUID == word:
			return map[string]bool{word: true}, nil
		case IsUID(m.PodUID, word), m.PodName == word, m.PodName != "" && m.Namespace+"/"+m.PodName == word:
			if !found[m.PodUID] {
				names = append(names, strings.TrimSuffix(m.PodUID+" "+m.Namespace+"/"+m.PodName, " /"))
			}
			found[m.PodUID] = true
		}
	}
	if o.memory != nil && o.memory.looked {
		return found, nil // a watch that began with one goes on with its successor
	}
	if len(found) > 1 {
		err := api.Errorf(api.ErrUsage, "--pod %q could be any of %d pods on this node", word, len(found))
		err.Details = api.Few(names)
		return nil, err.WithNext("name one by its whole UID, or with its namespace: --pod NAMESPACE/NAME")
	}
	if len(found) == 0 {
		if i := slices.IndexFunc(items, func(m api.Mount) bool { return strings.HasPrefix(m.PodUID, word) }); i >= 0 {
			return nil, api.Errorf(api.ErrUsage, "no pod is called %q, and of a UID at least 8 characters are needed", word).
				WithNext("give more of it: --pod %s", items[i].PodUID)
		}
	}
	return found, nil
}

// warnLeftOut says that a list leaves out what nobody knows enough of.
func (s *snapshot) warnLeftOut(o ListOptions, items []api.Mount, proof error) {
	byName := len(o.Namespace) > 0 || slices.ContainsFunc(o.Pod, func(word string) bool {
		return !slices.ContainsFunc(items, func(m api.Mount) bool { return IsUID(m.PodUID, word) })
	})
	nameless, unproven := 0, 0
	for _, m := range items {
		if m.PodUID != "" && m.PodName == "" {
			nameless++
		}
		if m.PodUID != "" && m.Owner == api.OwnerUnknown {
			unproven++
		}
	}
	if nameless > 0 && byName {
		s.warnings = append(s.warnings, api.Count(nameless, "entry is", "entries are")+" left out because no source names the pod")
	}
	if unproven > 0 && o.Orphans {
		why := "kvol gc-orphans tells why"
		if proof != nil {
			why = proof.Error()
		}
		s.warnings = append(s.warnings, api.Count(unproven, "entry is", "entries are")+" left out because it is not proven whether the pod is gone: "+why)
	}
}

// onDevice is a block device and what is built on it: partitions, device mapper, md
// and loop devices.
type onDevice struct {
	s       *snapshot
	devices []devices.Device
	nodes   map[string]bool // the paths below the root where one of them is bound
}

// onDevice finds out which devices are asked for; nil is any.
func (s *snapshot) onDevice(ctx context.Context, o ListOptions) (*onDevice, error) {
	if len(o.Device) == 0 {
		return nil, nil
	}
	on := &onDevice{s: s, nodes: map[string]bool{}}
	if o.memory != nil {
		on.devices = slices.Clone(o.memory.devices)
	}
	if on.devices == nil {
		for _, word := range o.Device {
			dev, err := s.device(ctx, word)
			if err != nil {
				return nil, err
			}
			on.devices = append(on.devices, dev)
		}
	}
	if o.memory != nil {
		o.memory.devices = slices.Clone(on.devices)
	}
	all, err := s.host.Devices.List()
	if err != nil {
		s.warnings = append(s.warnings, "what is built on the device is not known: "+err.Error())
	}
	for n := 0; n != len(on.devices); {
		n = len(on.devices)
		on.bound()
		for _, d := range all {
			if !on.is(d.Number()) && (slices.ContainsFunc(d.Parents, on.named) || d.Backing != "" && on.leads(d.Backing)) {
				on.devices = append(on.devices, d)
			}
		}
	}
	return on, nil
}

// device is the device of a word: its number, or a path of its node. One that is gone
// and still mounted has only its number.
func (s *snapshot) device(ctx context.Context, word string) (devices.Device, error) {
	var d devices.Device
	if n, err := fmt.Sscanf(word, "%d:%d", &d.Major, &d.Minor); n != 2 || err != nil || d.Number() != word {
		if !filepath.IsAbs(word) {
			return d, api.Errorf(api.ErrUsage, "--device %q is neither a path nor a number", word).WithNext("give /dev/NAME, or MAJOR:MINOR as lsblk has it")
		}
		path := filepath.Clean(word)
		if rest, ok := strings.CutPrefix(path, "/dev/"); ok {
			path = filepath.Join(s.host.DevRoot, rest)
		}
		ctx, cancel := context.WithTimeout(ctx, s.host.ProbeTimeout)
		defer cancel()
		f, info, err := s.host.Helper.Open(ctx, path, unix.O_PATH)
		if err != nil {
			return d, (&api.Error{Err: err}).WithNext("see which devices there are: lsblk -p")
		}
		f.Close()
		if info.Type != safefs.BlockDevice {
			return d, api.Errorf(api.ErrInput, "--device is a %s, not a block device", info.Type).At(path).WithNext("see which devices there are: lsblk -p")
		}
		d.Path, d.Major, d.Minor = path, int(unix.Major(info.Rdev)), int(unix.Minor(info.Rdev))
	}
	found, err := s.host.Devices.ByNumber(d.Major, d.Minor)
	if err == nil {
		return found, nil
	}
	if len(s.table.SameDevice(d.Major, d.Minor)) > 0 {
		return d, nil
	}
	return d, err
}

func (on *onDevice) is(number string) bool {
	return slices.ContainsFunc(on.devices, func(d devices.Device) bool { return d.Number() == number })
}

func (on *onDevice) named(kernelName string) bool {
	return slices.ContainsFunc(on.devices, func(d devices.Device) bool { return d.Name == kernelName })
}

// leads says whether a path is that of a node of one of the devices.
func (on *onDevice) leads(path string) bool {
	return on.nodes[path] || slices.ContainsFunc(on.devices, func(d devices.Device) bool { return d.Path == path })
}

// bound finds the places that have the node of one of the devices bound.
func (on *onDevice) bound() {
	root, err := on.s.host.Root()
	if err != nil {
		return
	}
	for _, p := range on.s.places {
		if p.mount == nil || !blockKinds[p.Kind] || on.nodes[p.path] {
			continue
		}
		info, err := root.Stat(p.path)
		on.nodes[p.path] = err == nil && info.Type == safefs.BlockDevice && on.is(fmt.Sprintf("%d:%d", unix.Major(info.Rdev), unix.Minor(info.Rdev)))
	}
}

// mayHave says whether a place is on the device, as far as that is known without
// following the links of pods' devices.
func (on *onDevice) mayHave(p place) bool {
	if on == nil || p.mount == nil {
		return on == nil || p.kind == api.KindPodDevice
	}
	return on.nodes[p.path] || slices.ContainsFunc(on.devices, func(d devices.Device) bool {
		return on.s.host.Devices.Shows(*p.mount, d.Number(), d.Path)
	})
}

// has is mayHave of an item whose link has been followed.
func (on *onDevice) has(m api.Mount) bool {
	return on == nil || m.Mounted || on.is(m.Device) || on.leads(m.Source)
}
