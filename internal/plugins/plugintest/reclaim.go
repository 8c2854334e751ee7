package plugintest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

var reclaimChecks = []check{
	{name: "Outside", outside: checkOutside},
	{name: "Recycle", outside: checkRecycle},
	{name: "Delete", outside: checkDelete},
	{name: "Provision", plugin: checkProvision},
}

// checkOutside wants a volume that the container runtime binds from where it is to
// leave nothing in the pod's directory, and its storage to stay when it is taken down.
func checkOutside(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	before := testutil.Tree(n, n.root) + testutil.MountTable(n, n.root)
	bound := func(m any, err error) {
		t.Helper()
		if b, ok := m.(plugins.RuntimeBound); err != nil || !ok || b.RuntimeBinds() == "" {
			t.Errorf("a %T does not say that the runtime binds the volume (%v)", m, err)
		}
	}
	m, err := n.plugin.NewMounter(n.spec, podA)
	bound(m, err)
	u, err := n.plugin.NewUnmounter(n.ref(), podA.UID)
	bound(u, err)
	n.nothingToDo("tear down of what was never set up", n.down(podA, true, way{}))
	n.planned("set up", func(w way) outcome { return n.up(withGroup(), w) })
	there := testutil.Tree(n, n.storage())
	n.nothingToDo("set up again", n.up(withGroup(), way{}))
	n.restart()
	n.nothingToDo("set up by another command", n.up(podB, way{}))
	n.nothingToDo("tear down", n.down(podA, true, way{}))
	n.same("the storage after tear down", testutil.Tree(n, n.storage()), there)
	n.same("the kubelet's root", testutil.Tree(n, n.root)+testutil.MountTable(n, n.root), before)
}

// reclaimed is a volume in a directory with everything in it that a recursive delete
// can go wrong with.
type reclaimed struct {
	*node
	path    string
	outside string // what links in it point to
}

// reclaimable fills the example's volume; false is one that is no directory.
func reclaimable(n *node) (reclaimed, bool) {
	n.Helper()
	n.ok("set up", n.up(podA, way{}))
	v := reclaimed{n, n.target(podA), filepath.Join(n.dir, "outside")}
	if info, err := os.Stat(v.path); err != nil || !info.IsDir() {
		return v, false
	}
	v.fill()
	return v, true
}

func (v reclaimed) fill() {
	v.Helper()
	v.mkdirAll(v.outside)
	v.put(filepath.Join(v.outside, "file"))
	v.mkdirAll(filepath.Join(v.path, "dir", "deeper"))
	v.put(filepath.Join(v.path, "dir", "deeper", "file"))
	v.put(filepath.Join(v.path, "file"))
	link := filepath.Join(v.path, "link")
	if err := os.Symlink(v.outside, link); err != nil && !errors.Is(err, os.ErrExist) {
		v.Fatal(err)
	}
}

// refusals are what neither recycle nor delete touches; do is one of the two.
func (v reclaimed) refusals(do func(way) outcome) {
	v.Helper()
	dir := filepath.Join(v.path, "dir")
	for what, mount := range map[string]func(t *T){
		"a mount inside":                        func(t *T) { testutil.Tmpfs(t, dir) },
		"a bind of the same file system inside": func(t *T) { testutil.Bind(t, v.outside, dir, false) },
		"a bind of a file inside":               func(t *T) { testutil.Bind(t, filepath.Join(v.outside, "file"), filepath.Join(v.path, "file"), false) },
		"a container that has the volume":       func(t *T) { testutil.Bind(t, v.path, v.elsewhere("c"), false) },
		"a container that has a subPath of it":  func(t *T) { testutil.Bind(t, dir, v.elsewhere("s"), false) },
		"a directory in it bound on itself":     func(t *T) { testutil.Bind(t, dir, dir, false) },
	} {
		scope(v.T, func(t *T) {
			mount(t)
			before := testutil.Tree(v, v.dir+"/outside") + testutil.Tree(v, v.storage())
			for _, w := range []way{{dryRun: true}, {}} {
				v.refused(what, do(w), api.ErrBusy, api.ErrRefused)
			}
			v.same(what, testutil.Tree(v, v.dir+"/outside")+testutil.Tree(v, v.storage()), before)
		})
	}
	v.kept(filepath.Join(v.outside, "file"))
}

func (v reclaimed) elsewhere(name string) string {
	path := filepath.Join(v.dir, "container-"+name)
	v.mkdirAll(path)
	return path
}

// checkRecycle wants a volume to be emptied, and nothing but it.
func checkRecycle(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, ok := as[plugins.RecyclableVolumePlugin](n)
	if !ok || n.spec.PersistentVolume == nil {
		return
	}
	recycle := func(w way) outcome {
		return n.do("recycle", w, func(ctx context.Context, run *act.Runner) error { return p.Recycle(ctx, run, n.spec) })
	}
	v, is := reclaimable(n)
	if !is {
		n.refused("recycle of what is no directory", recycle(way{}), api.ErrRefused)
		return
	}
	v.refusals(recycle)
	beside := filepath.Join(n.storage(), "beside")
	n.put(beside)
	info, err := os.Stat(v.path)
	if err != nil {
		t.Fatal(err)
	}
	n.planned("recycle", recycle)
	for _, crash := range []way{crashAt(act.Before, 1), crashAt(act.After, 1)} {
		v.fill()
		n.crashed(recycle(crash))
		n.ok("recycle after a crash", recycle(way{}))
	}
	left, err := os.ReadDir(v.path)
	if again, serr := os.Stat(v.path); err != nil || serr != nil || len(left) > 0 || again.Mode() != info.Mode() {
		t.Errorf("recycled, and there is %v (%v, %v, mode %v, was %v)", left, err, serr, again.Mode(), info.Mode())
	}
	n.kept(filepath.Join(v.outside, "file"))
	n.kept(beside)
	n.nothingToDo("recycle again", recycle(way{}))
}

// checkDelete wants a volume to be deleted, and nothing but it.
func checkDelete(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, ok := as[plugins.DeletableVolumePlugin](n)
	if !ok || n.spec.PersistentVolume == nil {
		return
	}
	remove := func(w way) outcome {
		return n.do("delete", w, func(ctx context.Context, run *act.Runner) error {
			d, err := p.NewDeleter(n.spec)
			if err != nil {
				return err
			}
			return d.Delete(ctx, run)
		})
	}
	v, is := reclaimable(n)
	if !is {
		return
	}
	v.refusals(remove)
	beside := filepath.Join(n.storage(), "beside")
	n.put(beside)
	n.planned("delete", remove)
	for _, crash := range []way{crashAt(act.Before, 1), crashAt(act.After, 1)} {
		v.fill()
		n.crashed(remove(crash))
		n.ok("delete after a crash", remove(way{}))
	}
	if exists(v.path) {
		t.Errorf("%s is still there", v.path)
	}
	n.kept(filepath.Join(v.outside, "file"))
	n.kept(beside)
	n.nothingToDo("delete again", remove(way{}))
}

// checkProvision wants a new volume to be one that the plugin carries, the same one
// for the same name, and two for two.
func checkProvision(t *T, c *Case) {
	n := newNode(t, c, c.Examples[0])
	p, ok := as[plugins.ProvisionableVolumePlugin](n)
	if !ok {
		return
	}
	made := map[string]*v1.PersistentVolume{}
	provision := func(name string, w way) outcome {
		return n.do("provision", w, func(ctx context.Context, run *act.Runner) error {
			maker, err := p.NewProvisioner(plugins.ProvisionOptions{PVName: name, PVC: claim()})
			if err == nil {
				made[name], err = maker.Provision(ctx, run)
			}
			return err
		})
	}
	names := []string{"pvc-" + filepath.Base(n.dir), "pvc-other-" + filepath.Base(n.dir)}
	for _, name := range names {
		n.planned("provision", func(w way) outcome { return provision(name, w) })
		first := made[name].DeepCopy()
		n.nothingToDo("provision again", provision(name, way{}))
		n.same("provisioned again", made[name].String(), first.String())
		n.provisioned(name, made[name])
	}
	one, err := n.plugin.GetVolumeName(plugins.NewSpecFromPersistentVolume(made[names[0]], false))
	two, err2 := n.plugin.GetVolumeName(plugins.NewSpecFromPersistentVolume(made[names[1]], false))
	if err != nil || err2 != nil || one == two {
		t.Errorf("two volumes are called %q and %q (%v, %v)", one, two, err, err2)
	}
	block := claim()
	mode := v1.PersistentVolumeBlock
	block.Spec.VolumeMode = &mode
	if _, isBlock := as[plugins.BlockVolumePlugin](n); !isBlock {
		if _, err := p.NewProvisioner(plugins.ProvisionOptions{PVName: "block", PVC: block}); !errors.Is(err, api.ErrNotSupported) {
			t.Errorf("a block volume: %v", err)
		}
	}
}

func claim() *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default"},
		Spec: v1.PersistentVolumeClaimSpec{Resources: v1.VolumeResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
		}},
	}
}

// provisioned wants a new volume to be set up, taken down, and deleted where the
// plugin deletes.
func (n *node) provisioned(name string, pv *v1.PersistentVolume) {
	n.Helper()
	spec := plugins.NewSpecFromPersistentVolume(pv, false)
	size := pv.Spec.Capacity[v1.ResourceStorage]
	if !n.plugin.CanSupport(spec) || pv.Name != name || len(pv.Spec.AccessModes) == 0 || size.String() != "1Gi" {
		n.Errorf("provisioned is %v", pv)
	}
	was := n.spec
	n.spec = spec
	n.ok("set up", n.up(podA, way{}))
	if path := n.target(podA); !exists(path) || !strings.HasPrefix(path, "/") {
		n.Errorf("provisioned at %s, where nothing is", path)
	}
	n.ok("tear down", n.down(podA, true, way{}))
	p, ok := as[plugins.DeletableVolumePlugin](n)
	n.Cleanup(func() {
		if !ok {
			return
		}
		n.ok("delete", n.do("delete", way{}, func(ctx context.Context, run *act.Runner) error {
			d, err := p.NewDeleter(spec)
			if err != nil {
				return err
			}
			return d.Delete(ctx, run)
		}))
	})
	n.spec = was
}
