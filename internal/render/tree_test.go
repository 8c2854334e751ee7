package render

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
)

// treeMounts has everything that hangs on something else.
func treeMounts() *api.List[api.Mount] {
	const a, b, gone = "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2", "7b1f04c4-9a53-4f4e-9a57-6a6a1b8a2d11", "c3d2e1f0-1111-4222-8333-944455566677"
	on := func(kind api.MountKind, path, volume, uid, device, root string) api.Mount {
		m := api.Mount{Kind: kind, Path: "/var/lib/kubelet/" + path, Volume: volume, PodUID: uid, Plugin: "kubernetes.io/local-volume", Source: "/dev/sdb1",
			FSType: "ext4", Device: device, Root: root, Mounted: true, Stacked: 1, State: api.StateOK, Owner: api.OwnerLive}
		if uid == a {
			m.PodName, m.Namespace = "web-0", "shop"
		}
		if uid == gone {
			m.Owner = api.OwnerGone
		}
		return m
	}
	global := on(api.KindGlobalMount, "plugins/kubernetes.io/local-volume/mounts/data", "data", "", "8:17", "/")
	global.CapacityBytes, global.UsedBytes, global.AvailableBytes = 10<<30, 3<<30, 7<<30
	// The same names, and another device.
	twin := on(api.KindPodVolume, "pods/"+b+"/volumes/kubernetes.io~local-volume/data", "data", b, "8:33", "/")
	twin.Source, twin.State, twin.StateReason = "/dev/sdc1", api.StateStale, "statfs: stale file handle"
	twin.Stacked = 2
	dir := on(api.KindPodVolume, "pods/"+a+"/volumes/kubernetes.io~local-volume/scratch", "scratch", a, "8:1", "/mnt/disks/ssd")
	dir.Source = "/dev/sda1"
	same := on(api.KindPodVolume, "pods/"+gone+"/volumes/kubernetes.io~local-volume/scratch", "scratch", gone, "8:1", "/mnt/disks/ssd")
	same.Source = "/dev/sda1"
	node := on(api.KindGlobalMapDevice, "plugins/kubernetes.io~local-volume/volumeDevices/raw/"+a, "raw", a, "259:0", "/nvme1n1")
	node.Source, node.FSType = "udev", "devtmpfs"
	link := on(api.KindPodDevice, "pods/"+a+"/volumeDevices/kubernetes.io~local-volume/raw", "raw", a, "259:0", "")
	link.Source, link.FSType, link.Mounted = "/dev/nvme1n1", "", false
	other := on(api.KindOther, "stray", "", "", "0:44", "/")
	other.Source, other.FSType, other.Plugin = "tmpfs", "tmpfs", ""
	plain := on(api.KindPodVolume, "pods/"+gone+"/volumes/kubernetes.io~nfs/lost", "lost", gone, "", "")
	plain.Mounted, plain.State, plain.Source, plain.FSType, plain.StateReason = false, api.StateUnmounted, "", "", "the directory is there and nothing is mounted on it"
	sub := on(api.KindSubPath, "pods/"+a+"/volume-subpaths/data/web/0", "data", a, "8:17", "/html")
	lone := on(api.KindSubPath, "pods/"+gone+"/volume-subpaths/cache/web/1", "cache", gone, "8:1", "/var/lib/kubelet/cache")
	lone.Source = "/dev/sda1"
	return api.NewList("MountList", []api.Mount{
		node, global, sub, on(api.KindPodVolume, "pods/"+a+"/volumes/kubernetes.io~local-volume/data", "data", a, "8:17", "/"), dir, link, twin,
		on(api.KindPodVolume, "pods/"+gone+"/volumes/kubernetes.io~local-volume/data", "data", gone, "8:17", "/"), same, lone, plain, other,
	}, nil)
}

// hostile are mounts with names that could break a line or a terminal.
func hostile() *api.List[api.Mount] {
	var items []api.Mount
	for i, name := range []string{"a\nb", "\x1b]0;x\x07\x1b[2J", "\u202egnp.exe", "a\tb", "\xff\xfe", "世界の名前", "x  y", "\u009b31m"} {
		items = append(items, api.Mount{Kind: api.KindPodVolume, Volume: name, Path: "/r/" + name + strings.Repeat("/long", 20), Source: name, FSType: name, Plugin: name,
			PodUID: name, PodName: name, Namespace: name, Device: fmt.Sprint("0:", i/2), Root: "/" + name, Mounted: true, Stacked: 3, State: api.StateStale, StateReason: name},
			api.Mount{Kind: api.KindOther, Path: "/s/" + name, State: api.StateOK},
			api.Mount{Kind: api.KindSubPath, Path: "/t/" + name + "/0", Device: fmt.Sprint("0:", i), Root: "/" + name, Mounted: true, State: api.State(name)})
	}
	return api.NewList("MountList", items, nil)
}

func leftovers() *api.OrphanPlan {
	const a, b = "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2", "7b1f04c4-9a53-4f4e-9a57-6a6a1b8a2d11"
	steps := make([]api.Step, 3)
	return &api.OrphanPlan{List: api.NewList("OrphanList", []api.Orphan{
		{Kind: api.OrphanPodDir, Path: "/var/lib/kubelet/pods/" + a, PodUID: a, Verdict: api.VerdictOrphan, Reason: "kubelet and cri do not have it", Steps: steps,
			Since: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)},
		{Kind: api.OrphanPodDir, Path: "/var/lib/kubelet/pods/" + b, PodUID: b, PodName: "db-0", Namespace: "shop", Verdict: api.VerdictOrphan, Reason: "kubelet and cri do not have it",
			BlockedBy: "data", Steps: steps, Stays: []api.Stay{{Path: "/var/lib/kubelet/pods/" + b + "/volumes/kubernetes.io~empty-dir/cache", BlockedBy: "data",
				Reason: "it holds 3 files", Next: "look at them, or --discard-ephemeral"}}},
		{Kind: api.OrphanGlobalMount, Path: "/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/data", Volume: "data", Verdict: api.VerdictLive, Reason: "a pod has it"},
		{Kind: api.OrphanStaging, Path: "/var/lib/kubelet/plugins/kubernetes.io/csi/ebs.csi.aws.com/b0bb6ba8/globalmount", Verdict: api.VerdictUnknown, Reason: "nobody answers"},
	}, nil), Plan: &api.Plan{}}
}

func TestTree(t *testing.T) {
	for name, w := range narrow() {
		for suffix, o := range map[string]Options{"": {Format: Tree}, "-unicode": {Format: Tree, Unicode: true, Color: true}} {
			got, err := w.to(o)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".tree"+suffix, got)
		}
	}
	parts := plan()
	parts.Parts = []api.PlanPart{{Rung: "mount-device", Volume: "data", Steps: parts.Items[:1]}, {Rung: "publish", Volume: "data", Steps: parts.Items[1:]}}
	var b strings.Builder
	if err := Plans().Write(&b, parts, Options{Format: Tree}); err != nil {
		t.Fatal(err)
	}
	golden(t, "parts.tree", b.String())
}

// Every mount has one line, whatever hangs on what, in any order.
func TestTreeHasEachMountOnce(t *testing.T) {
	l := treeMounts()
	for turn := range len(l.Items) {
		got, err := list(Mounts(), l).to(Options{Format: Tree})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Items {
			if n := strings.Count(got+"\n", m.Path+"\n"); n != 1 {
				t.Errorf("turn %d: %s is there %d times:\n%s", turn, m.Path, n, got)
			}
		}
		l.Items = append(l.Items[1:], l.Items[0])
	}
}

// What is told of a device is the size of the whole of it, and what a pod has of it hangs
// on what is mapped for that pod.
func TestTreeOfADevice(t *testing.T) {
	shared := []api.Mount{
		{Kind: api.KindPodVolume, Path: "/whole", PodUID: "a", CapacityBytes: 100 << 10, Root: "/"},
		{Kind: api.KindPodVolume, Path: "/quota", PodUID: "b", CapacityBytes: 1 << 10, Root: "/sub"},
	}
	block := []api.Mount{
		{Kind: api.KindGlobalMapDevice, Path: "/map/a", PodUID: "a"}, {Kind: api.KindGlobalMapDevice, Path: "/map/b", PodUID: "b"},
		{Kind: api.KindPodDevice, Path: "/pod/b", PodUID: "b"},
	}
	for want, items := range map[string][]api.Mount{`100Ki .*/whole\n.*/sub\n.*/quota\n$`: shared, `/map/a\n.*/map/b\n.*/pod/b\n$`: block} {
		for i := range items {
			items[i].Device, items[i].Mounted = "8:1", true
		}
		got, err := list(Mounts(), api.NewList("", items, nil)).to(Options{Format: Tree})
		if err != nil || !regexp.MustCompile(`(?s)`+want).MatchString(got) {
			t.Errorf("%v\n%s", err, got)
		}
	}
}

// A line is an item, a device, a directory or what is told below an item, whatever the
// names are, and a terminal obeys none of them.
func TestHostileNamesInTheTree(t *testing.T) {
	l := hostile()
	for _, columns := range []int{0, 40, 80} {
		got, err := list(Mounts(), l).to(Options{Format: Tree, Width: columns})
		if err != nil {
			t.Fatal(err)
		}
		if !printable(strings.ReplaceAll(got, "\n", "")) {
			t.Errorf("in %d a terminal obeys it: %q", columns, got)
		}
		mounts := 0
		for line := range strings.Lines(got) {
			if columns > 0 && width(strings.TrimSuffix(line, "\n")) > columns {
				t.Errorf("wider than %d: %q", columns, line)
			}
			for _, label := range []string{"- pod", "- other", "- subP"} {
				mounts += strings.Count(line, label)
			}
		}
		if mounts != len(l.Items) {
			t.Errorf("in %d there are %d mounts, not %d:\n%s", columns, mounts, len(l.Items), got)
		}
	}
}

// Why something is as it is can hold a name too.
func TestHostileReasons(t *testing.T) {
	const evil = "/r/a\nevil\x1b[31m"
	for name, w := range map[string]write{
		"waits":      list(Waits(), api.NewList("", []api.Wait{{Subject: evil, Reason: evil, Mounts: []api.Mount{{Path: evil}}}}, nil)),
		"results":    list(Results(), api.NewList("", []api.Result{{Op: "publish", Reason: evil, Steps: []api.Step{{Target: evil, Reason: evil}}}}, nil)),
		"operations": list(Operations(), api.NewList("", []api.Operation{{Error: evil, Steps: []api.Step{{Reason: "failed " + evil}}}}, nil)),
		"orphans":    list(Orphans(true).View, api.NewList("", []api.Orphan{{Reason: evil, Stays: []api.Stay{{Path: evil, Reason: evil, Next: evil}}}}, nil)),
		"inspection": document(Inspection(), &api.Inspection{Subject: evil, Warnings: []string{evil}}),
	} {
		for _, format := range []Format{Table, Wide, Tree} {
			for _, columns := range []int{0, 40} {
				got, err := w.to(Options{Format: format, Width: columns})
				if err != nil || !printable(strings.ReplaceAll(got, "\n", "")) || strings.Contains(got, "\nevil") || format == Tree && !strings.Contains(got, "evil") {
					t.Errorf("%s as %s in %d: %v\n%q", name, format, columns, err, got)
				}
			}
		}
	}
}

// One thing of each kind, counted in words.
func TestSummaryOfOne(t *testing.T) {
	l := leftovers()
	for want, items := range map[string][]api.Orphan{
		"1 pod directory: 1 can go":                              l.Items[:1],
		"2 pod directories: 1 can go, 1 can go in part (data)":   l.Items[:2],
		"1 global mount, staging directory or block map: 1 live": l.Items[2:3],
	} {
		if got := Orphans(true).Summary(items, Options{Format: Table}); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1.0Ki", 10 << 10: "10Ki", 1<<20 - 1: "1.0Mi", 58 << 20: "58Mi", 1 << 30: "1.0Gi", 999 << 30: "999Gi", 1000 << 30: "1.0Ti",
		1<<63 - 1: "8.0Ei",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// No limit and one that nobody told are two things.
func TestLimits(t *testing.T) {
	list := api.NewList("LimitList", []api.Limit{
		{Plugin: "p", Key: "a", Limit: 7, LimitState: api.Limited, Attached: 1, Volumes: []string{"v"}},
		{Plugin: "p", Key: "b", LimitState: api.Unlimited},
		{Plugin: "p", Key: "c", LimitState: api.LimitUnknown},
	}, nil)
	for format, want := range map[Format]string{
		Table: "PLUGIN KEY ATTACHED LIMIT p a 1 7 p b 0 unlimited p c 0 unknown",
		Tree:  "p a 1 attached of 7 `- v p b 0 attached without a limit p c 0 attached limit unknown",
	} {
		var b strings.Builder
		if err := Limits().Write(&b, list, Options{Format: format}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(b.String()), " "); got != want {
			t.Errorf("%s: %s", format, got)
		}
	}
}
