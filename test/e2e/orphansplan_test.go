package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// planned is a node with two pods that are gone, one of them with a disk, and the plan
// for it.
func planned(t *testing.T) (n *orphanNode, plan string) {
	t.Helper()
	n = newOrphans(t)
	for _, uid := range []string{podA, podGone, podStatic} {
		n.leave(uid)
	}
	n.write(n.podData(podGone, "cut"), "{")
	disk, _ := n.disk(16 << 20)
	testutil.Mkfs(t, disk, "ext4")
	n.must(0, "setup", "-f", n.pv("disk", disk, "fsType: ext4"), "--pod-uid", podGone)
	n.must(0, "unpublish", "disk", "--pod-uid", podGone)
	o := n.must(0, "gc-orphans", "--pods-from", "file:"+n.live(podA), "--min-age", "0", "-o", "json")
	return n, n.file("plan.json", o.stdout)
}

// A plan is carried out as it was made; where one fact has changed that item alone is
// refused, with what changed, and the others go.
func TestOrphansFromPlan(t *testing.T) {
	pod, global := "pods/"+podGone, "plugins/kubernetes.io/local-volume/mounts/disk"
	for name, c := range map[string]struct {
		item, says string // "" is refused nothing
		change     func(n *orphanNode)
	}{
		"nothing":       {"", "", func(*orphanNode) {}},
		"a mount added": {pod, "stays now", func(n *orphanNode) { tmpfsAt(n, n.pod(podGone)+"/mine") }},
		"a mount in a volume": {pod, "stays now", func(n *orphanNode) {
			tmpfsAt(n, n.pod(podGone)+"/volumes/kubernetes.io~empty-dir/empty/mine")
		}},
		"a mount stacked": {pod, "mem was mounted", func(n *orphanNode) {
			testutil.Tmpfs(n.t, n.pod(podGone)+"/volumes/kubernetes.io~empty-dir/mem")
		}},
		"a mount replaced": {pod, "mem was mounted", func(n *orphanNode) {
			at := n.pod(podGone) + "/volumes/kubernetes.io~empty-dir/mem"
			must(n.t, os.Mkdir(n.dir+"/other", 0o755), unix.Unmount(at, 0))
			testutil.Bind(n.t, n.dir+"/other", at, false)
		}},
		"an inode replaced": {pod, "etc-hosts was regular file, inode", func(n *orphanNode) {
			must(n.t, os.WriteFile(n.dir+"/new", []byte("127.0.0.1 localhost\n"), 0o644), os.Rename(n.dir+"/new", n.pod(podGone)+"/etc-hosts"))
		}},
		"a directory replaced": {pod, "main was directory, inode", func(n *orphanNode) {
			dir := n.pod(podGone) + "/containers/main"
			must(n.t, os.Mkdir(n.dir+"/main", 0o750), os.Rename(dir, n.dir+"/old"), os.Rename(n.dir+"/main", dir))
			n.write(dir+"/4f937ac4", "")
		}},
		"metadata written": {pod, "vol_data.json was regular file", func(n *orphanNode) { n.write(n.podData(podGone, "cut"), "}") }},
		"data written":     {pod, "stays now", func(n *orphanNode) { n.user(n.pod(podGone)+"/volumes/kubernetes.io~empty-dir/empty/file", "new") }},
		"a volume came":    {pod, "a step that the plan does not have", func(n *orphanNode) { must(n.t, os.Mkdir(n.pod(podGone)+"/volumes/kubernetes.io~empty-dir/new", 0o755)) }},
		"a pod came alive": {pod, "it is live now", func(n *orphanNode) { n.live(podA, podGone) }},
		"a device swapped": {global, "disk was mounted", func(n *orphanNode) {
			disk, _ := n.disk(16 << 20)
			testutil.Mkfs(n.t, disk, "ext4")
			must(n.t, unix.Unmount(n.global("disk"), 0), unix.Mount(disk, n.global("disk"), "ext4", 0, ""))
		}},
		"a pod took it": {global, "it is live now", func(n *orphanNode) { n.must(0, "setup", "-f", n.dir+"/disk.yaml", "--pod-uid", podA) }},
	} {
		t.Run(name, func(t *testing.T) {
			n, plan := planned(t)
			c.change(n)
			before, code := testutil.Tree(t, n.root+"/"+c.item), 3
			if c.item == "" {
				code = 0
			}
			// Not n.gc, which writes the list anew.
			all := n.byPath(n.must(code, "gc-orphans", "--apply", "--from-plan", plan, "--pods-from", "file:"+n.dir+"/pods.txt", "--min-age", "0", "-o", "json"))
			for _, path := range []string{pod, "pods/" + podStatic, global} {
				o := all[path]
				if path != c.item {
					if o.Outcome != "done" || exists(n.root+"/"+path) {
						t.Errorf("%s: %s %s", path, o.Outcome, o.Reason)
					}
					continue
				}
				if o.Outcome != "refused" || len(o.Steps) > 0 || !strings.Contains(o.Reason, c.says) || o.Next == "" {
					t.Errorf("%s: %s %v %s", path, o.Outcome, o.Steps, o.Reason)
				}
				if after := testutil.Tree(t, n.root+"/"+path); after != before {
					t.Errorf("%s was touched:\n%s", path, after)
				}
			}
			n.kept()
			if len(all) != 3 {
				t.Errorf("the plan has 3 orphans: %v", keysOf(all))
			}
		})
	}
}

func tmpfsAt(n *orphanNode, path string) {
	must(n.t, os.MkdirAll(path, 0o755))
	testutil.Tmpfs(n.t, path)
}

// A plan that was edited does nothing that a plan of now does not; one that is no plan,
// or another node's, is refused.
func TestOrphansBadPlan(t *testing.T) {
	n, plan := planned(t)
	list := decode[api.List[api.Orphan]](t, readText(t, plan))
	apply := func(code int, says string, edit func(l *api.List[api.Orphan])) {
		t.Helper()
		l := decode[api.List[api.Orphan]](t, readText(t, plan))
		edit(&l)
		text, err := json.Marshal(l)
		must(t, err)
		n.applyText(code, says, string(text))
	}
	n.applyText(2, "no plan in JSON", "{")
	n.applyText(2, "no plan in JSON", `{"items":[{"path":7}]}`)
	n.applyText(2, "not an OrphanList", `{"apiVersion":"kvol/v1","kind":"StepList","items":[]}`)
	n.applyText(2, "has no items", `{"apiVersion":"kvol/v1","kind":"OrphanList"}`)
	n.applyText(2, "more after the plan", readText(t, plan)+"{}")
	apply(2, "item 1 has no kind", func(l *api.List[api.Orphan]) { l.Items[0].Path = "" })
	apply(2, "are the same", func(l *api.List[api.Orphan]) { l.Items = append(l.Items, l.Items[0]) })
	apply(2, "result of --apply", func(l *api.List[api.Orphan]) { l.Items[0].Outcome = "done" })
	n.must(2, "gc-orphans", "--from-plan", plan)
	n.must(2, "gc-orphans", "--apply", "--from-plan", n.dir+"/nothing")
	for about, edit := range map[string]string{"another node": `"node": `, "another root": `"root": `} {
		apply(4, about, func(l *api.List[api.Orphan]) {
			for i := range l.Items {
				for j, f := range l.Items[i].Facts {
					if strings.HasPrefix(f, edit) {
						l.Items[i].Facts[j] = edit + "elsewhere"
					}
				}
			}
		})
	}
	apply(4, "another node", func(l *api.List[api.Orphan]) {
		for i := range l.Items {
			l.Items[i].Facts = nil
		}
	})
	// Steps and paths that somebody adds are not done, for a live pod neither.
	for _, edit := range []func(o *api.Orphan){
		func(o *api.Orphan) { o.Path = n.pod(podA) },
		func(o *api.Orphan) { o.Facts = o.Facts[:3] },
		func(o *api.Orphan) { o.Steps = o.Steps[:1] },
		func(o *api.Orphan) { o.Steps[0].Target = n.pod(podA) + "/etc-hosts" },
	} {
		apply(3, "", func(l *api.List[api.Orphan]) {
			for i := range l.Items {
				l.Items[i].Steps = append([]api.Step{}, l.Items[i].Steps...)
				if o := &l.Items[i]; o.PodUID == podGone {
					edit(o)
					l.Items = l.Items[i : i+1]
					break
				}
			}
		})
		if !exists(n.pod(podGone)+"/etc-hosts") || !exists(n.pod(podA)+"/etc-hosts") {
			t.Fatal("an edited plan was carried out")
		}
	}
	// An item that is taken out of a plan is left alone.
	apply(0, "", func(l *api.List[api.Orphan]) { l.Items = l.Items[:0] })
	if len(list.Items) != 4 || !exists(n.pod(podStatic)) {
		t.Errorf("%d items", len(list.Items))
	}
}

func (n *orphanNode) applyText(code int, says, text string) {
	n.t.Helper()
	o := n.must(code, "gc-orphans", "--apply", "--from-plan", n.file("edited.json", text), "--pods-from", "file:"+n.live(podA), "--min-age", "0")
	if !strings.Contains(o.stderr, says) {
		n.t.Errorf("%q is not said:\n%v", says, o)
	}
}
