package plugintest

import (
	"context"
	"os"
	"path/filepath"
	"reflect"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

// rungs are those above the first, each with the check that it behaves.
var rungs = []rung{
	rungOf[plugins.PersistentVolumePlugin]("PersistentVolume", "Persistent"),
	rungOf[plugins.DeviceMountableVolumePlugin]("DeviceMountable", "DeviceMount"),
	rungOf[plugins.AttachableVolumePlugin]("Attachable", "Attach"),
	rungOf[plugins.BlockVolumePlugin]("Block", "Block"),
	rungOf[plugins.RecyclableVolumePlugin]("Recyclable", "Recycle"),
	rungOf[plugins.DeletableVolumePlugin]("Deletable", "Delete"),
	rungOf[plugins.ProvisionableVolumePlugin]("Provisionable", "Provision"),
	rungOf[plugins.ExpandableVolumePlugin]("Expandable", ""),
	rungOf[plugins.NodeExpandableVolumePlugin]("NodeExpandable", "NodeExpand"),
	rungOf[plugins.VolumePluginWithAttachLimits]("AttachLimits", "Limits"),
}

type rung struct {
	name  string
	iface string // the interface, as Go calls it
	check string // "" where the first plugin that has it brings the check
	as    func(plugins.VolumePlugin) error
}

func rungOf[T plugins.VolumePlugin](name, check string) rung {
	return rung{
		name: name, iface: reflect.TypeFor[T]().Name(), check: check,
		as: func(p plugins.VolumePlugin) error {
			_, err := plugins.As[T](p)
			return err
		},
	}
}

var rungChecks = []check{
	{name: "RungsChecked", plugin: checkRungsChecked},
	{name: "Types", plugin: checkTypes},
	{name: "Persistent", plugin: checkPersistent},
	{name: "DeviceMount", filesystem: checkDeviceMount},
	{name: "ForeignMount", filesystem: checkForeignMount},
	{name: "Attach", filesystem: checkAttach},
	{name: "Block", block: checkBlock},
	{name: "NodeExpand", filesystem: checkNodeExpand},
	{name: "Limits", any: checkLimits},
}

// checkRungsChecked wants a check for every rung that is claimed.
func checkRungsChecked(t *T, c *Case) {
	p := c.New()
	for _, r := range rungs {
		if r.as(p) == nil && r.check == "" {
			t.Errorf("it is a %s, and the suite has no check for that rung yet: write it with this plugin", r.iface)
		}
	}
	_, is := p.(plugins.BlockVolumePlugin)
	if has := c.example().Block; is != has {
		t.Errorf("it is a BlockVolumePlugin: %t; it has an example of a raw block volume: %t", is, has)
	}
}

// example is one of a raw block volume if the plugin has those, or else the first.
func (c *Case) example() Example {
	for _, ex := range c.Examples {
		if ex.Block {
			return ex
		}
	}
	return c.Examples[0]
}

// checkTypes wants what mounts never to be what unmounts: a plugin that made one
// of the other, half filled, has unmounted the wrong thing (kubernetes #9139).
func checkTypes(t *T, c *Case) {
	n := newNode(t, c, c.example())
	apart := func(what string, up, down any, errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if reflect.TypeOf(up) == reflect.TypeOf(down) {
			t.Errorf("%s: both are a %T", what, up)
		}
		for _, v := range []any{up, down} {
			isUp := isA[plugins.Mounter](v) || isA[plugins.DeviceMounter](v) || isA[plugins.Attacher](v) || isA[plugins.BlockVolumeMapper](v)
			isDown := isA[plugins.Unmounter](v) || isA[plugins.DeviceUnmounter](v) || isA[plugins.Detacher](v) || isA[plugins.BlockVolumeUnmapper](v)
			if isUp && isDown {
				t.Errorf("%s: a %T is the way up and the way down", what, v)
			}
		}
	}
	m, err := n.plugin.NewMounter(n.spec, podA)
	u, uerr := n.plugin.NewUnmounter(n.ref(), podA.UID)
	apart("mounter and unmounter", m, u, err, uerr)
	if p, ok := as[plugins.DeviceMountableVolumePlugin](n); ok {
		m, err := p.NewDeviceMounter()
		u, uerr := p.NewDeviceUnmounter()
		apart("device mounter and unmounter", m, u, err, uerr)
	}
	if p, ok := as[plugins.AttachableVolumePlugin](n); ok {
		a, err := p.NewAttacher()
		d, derr := p.NewDetacher()
		apart("attacher and detacher", a, d, err, derr)
	}
	if _, ok := as[plugins.BlockVolumePlugin](n); ok {
		apart("mapper and unmapper", n.mapper(podA), n.unmapper(podA))
	}
}

func isA[T any](v any) bool {
	_, is := v.(T)
	return is
}

func checkPersistent(t *T, c *Case) {
	p, err := plugins.As[plugins.PersistentVolumePlugin](c.New())
	if err != nil {
		return
	}
	told := p.Info().AccessModes
	modes := p.GetAccessModes()
	if len(modes) == 0 || len(modes) != len(told) {
		t.Errorf("access modes %v, and Info has %v", modes, told)
		return
	}
	for i := range modes {
		if string(modes[i]) != told[i] {
			t.Errorf("access modes %v, and Info has %v", modes, told)
		}
	}
}

// onNode carries out the node's part of a verb alone.
func (n *node) onNode(verb string, f func(context.Context, *act.Runner) error) outcome {
	n.Helper()
	return n.do(verb, way{}, f)
}

// checkDeviceMount wants one global mount for all pods, that goes and comes on
// its own.
func checkDeviceMount(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	global := n.global()
	if global == "" {
		return
	}
	stage := func(ctx context.Context, run *act.Runner) error { return n.stage(ctx, run, podA) }
	n.ok("mount device", n.onNode("mount-device", stage))
	if got := n.mounts(global); got != 1 {
		t.Errorf("%d global mounts", got)
	}
	n.nothingToDo("mount device again", n.onNode("mount-device", stage))
	n.ok("set up in a pod", n.up(podA, way{}))
	n.ok("set up in another", n.up(podB, way{}))
	n.put(filepath.Join(n.target(podA), "data"))
	n.kept(filepath.Join(n.target(podB), "data"))
	n.ok("tear down in a pod", n.down(podA, false, way{}))
	n.kept(filepath.Join(n.target(podB), "data"))
	n.ok("tear down in the other", n.down(podB, false, way{}))
	if got := n.mounts(global); got != 1 {
		t.Errorf("%d global mounts once no pod has it any more", got)
	}
	n.ok("unmount device", n.onNode("unmount-device", n.unstage))
	if exists(global) {
		t.Errorf("%s is left", global)
	}
	n.nothingToDo("unmount device again", n.onNode("unmount-device", n.unstage))
}

// checkForeignMount wants UnmountDevice to leave alone what is no global mount of
// the plugin: a mount of somebody's below the root, another pod's volume, what is
// mounted inside of a volume, and the storage itself.
func checkForeignMount(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, ok := as[plugins.DeviceMountableVolumePlugin](n)
	if !ok {
		return
	}
	n.ok("set up", n.up(podA, way{}))
	n.ok("set up in another pod", n.up(podB, way{}))
	stray, storage, inner := filepath.Join(n.root, "stray"), filepath.Join(n.storage(), "stray"), filepath.Join(n.target(podA), "inner")
	for _, dir := range []string{stray, storage, inner} {
		n.mkdirAll(dir)
		testutil.Tmpfs(t, dir)
		n.put(filepath.Join(dir, "data"))
	}
	before := n.content()
	for _, path := range []string{stray, storage, inner, n.target(podB), n.root, "/"} {
		u, err := p.NewDeviceUnmounter()
		if err != nil {
			t.Fatal(err)
		}
		n.onNode("unmount-device", func(ctx context.Context, run *act.Runner) error { return u.UnmountDevice(ctx, run, n.ref(), path) })
	}
	n.same("after UnmountDevice of what is not its own", n.content(), before)
}

// checkAttach wants attach and detach to be repeatable and to agree.
func checkAttach(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	p, ok := as[plugins.AttachableVolumePlugin](n)
	if !ok {
		return
	}
	if can, err := p.CanAttach(n.spec); err != nil || !can {
		if err != nil {
			t.Error(err)
		}
		return
	}
	a, err := p.NewAttacher()
	if err != nil {
		t.Fatal(err)
	}
	attached := func() (is bool) {
		t.Helper()
		withTime(func(ctx context.Context) {
			all, err := a.VolumesAreAttached(ctx, []*plugins.Spec{n.spec}, n.host.NodeName)
			if err != nil {
				t.Fatal(err)
			}
			is = all[n.spec]
		})
		return is
	}
	var device act.Value
	attach := func(ctx context.Context, run *act.Runner) (err error) {
		device, err = n.attach(ctx, run, podA)
		return err
	}
	detach := func(ctx context.Context, run *act.Runner) error {
		d, err := p.NewDetacher()
		if err != nil {
			return err
		}
		return d.Detach(ctx, run, n.ref(), n.host.NodeName)
	}
	n.nothingToDo("detach of what is not attached", n.onNode("detach", detach))
	n.ok("attach", n.onNode("attach", attach))
	first := device
	if first.Empty() && n.spec.PublishContext == nil || !attached() {
		t.Errorf("attached as %q with %v, and VolumesAreAttached says %t", first, n.spec.PublishContext, attached())
	}
	n.nothingToDo("attach again", n.onNode("attach", attach))
	if device != first {
		t.Errorf("attached as %s, and again as %s", first, device)
	}
	n.ok("detach", n.onNode("detach", detach))
	if attached() {
		t.Error("it is attached after detach")
	}
	n.nothingToDo("detach again", n.onNode("detach", detach))
}

func (n *node) mapper(pod plugins.PodRef) plugins.BlockVolumeMapper {
	n.Helper()
	p, _ := as[plugins.BlockVolumePlugin](n)
	m, err := p.NewBlockVolumeMapper(n.spec, pod)
	if err != nil {
		n.Fatal(err)
	}
	return m
}

func (n *node) unmapper(pod plugins.PodRef) plugins.BlockVolumeUnmapper {
	n.Helper()
	p, _ := as[plugins.BlockVolumePlugin](n)
	u, err := p.NewBlockVolumeUnmapper(n.ref(), pod.UID)
	if err != nil {
		n.Fatal(err)
	}
	return u
}

// device maps the volume and gives the device that a pod gets.
func (n *node) device() (path string, out outcome) {
	n.Helper()
	out = n.onNode("publish", func(ctx context.Context, run *act.Runner) error {
		m := n.mapper(podA)
		if _, err := m.SetUpDevice(ctx, run); err != nil {
			return err
		}
		v, err := m.MapPodDevice(ctx, run)
		path = v.String()
		return err
	})
	return path, out
}

// link makes the pod's link to its device as the common map step does.
func (n *node) link() {
	n.Helper()
	device, out := n.device()
	n.ok("map", out)
	dir, name, err := n.mapper(podA).GetPodDeviceMapPath()
	if err != nil {
		n.Fatal(err)
	}
	n.mkdirAll(dir)
	if err := os.Symlink(device, filepath.Join(dir, name)); err != nil {
		n.Fatal(err)
	}
}

// checkBlock wants a mapper to give a block device, the same each time, and an
// unmapper to need no more than names. The common steps are those of internal/ops.
func checkBlock(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	first, out := n.device()
	n.ok("map", out)
	var st unix.Stat_t
	if err := unix.Stat(first, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		t.Errorf("the pod gets %q, which is no block device (mode %o, %v)", first, st.Mode, err)
	}
	again, out := n.device()
	n.nothingToDo("map again", out)
	if again != first {
		t.Errorf("the pod gets %s, and again %s", first, again)
	}
	unmap := func(ctx context.Context, run *act.Runner) error {
		u := n.unmapper(podA)
		if err := u.UnmapPodDevice(ctx, run); err != nil {
			return err
		}
		global, err := u.GetGlobalMapPath()
		if err != nil {
			return err
		}
		return u.TearDownDevice(ctx, run, global, first)
	}
	n.ok("unmap", n.onNode("unpublish", unmap))
	n.nothingToDo("unmap again", n.onNode("unpublish", unmap))
}
