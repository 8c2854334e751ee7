package plugintest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

var accessChecks = []check{
	{name: "ReadOnly", filesystem: checkReadOnly},
	{name: "ReadOnlyBeside", filesystem: checkReadOnlyBeside},
	{name: "FSGroup", filesystem: checkFSGroup},
	{name: "FSGroupOnRootMismatch", filesystem: checkOnRootMismatch},
	{name: "FSGroupOtherPod", filesystem: checkFSGroupOtherPod},
	{name: "FSGroupReadOnly", filesystem: checkFSGroupReadOnly},
}

// readOnly fails the check when a volume takes a write, or does not take one.
func (n *node) readOnly(what string, pod plugins.PodRef, want bool) {
	n.Helper()
	err := os.WriteFile(filepath.Join(n.target(pod), "written"), nil, 0o600)
	if is := errors.Is(err, unix.EROFS); is != want || !is && err != nil {
		n.Errorf("%s: a write gives %v, read-only is %t", what, err, want)
	}
}

// checkReadOnly wants a volume that was asked for read-only to be it, and to stay
// it whatever is asked for next.
func checkReadOnly(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	if ex.Format {
		// Nothing is made on a device that is to be read-only.
		n.ok("set up", n.up(podA, way{}))
		n.ok("tear down", n.down(podA, true, way{}))
	}
	n.spec.ReadOnly = true
	n.planned("set up read-only", func(w way) outcome { return n.up(podA, w) })
	n.readOnly("set up", podA, true)
	n.nothingToDo("set up again", n.up(podA, way{}))
	n.readOnly("set up again", podA, true)
	n.spec.ReadOnly = false
	n.refused("set up read-write where it is read-only", n.up(podA, way{}), api.ErrRefused)
	n.readOnly("after the other was refused", podA, true)
	n.ok("tear down", n.down(podA, true, way{}))
	n.ok("set up read-write", n.up(podA, way{}))
	n.readOnly("set up read-write", podA, false)
	n.spec.ReadOnly = true
	n.refused("set up read-only where it is read-write", n.up(podA, way{}), api.ErrRefused)
}

// checkReadOnlyBeside wants one pod to have read-only what another writes.
func checkReadOnlyBeside(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.ok("set up", n.up(podA, way{}))
	n.spec.ReadOnly = true
	n.ok("set up read-only for another pod", n.up(podB, way{}))
	n.readOnly("read-write", podA, false)
	n.readOnly("read-only beside it", podB, true)
	n.nothingToDo("set up read-only again", n.up(podB, way{}))
}

const group = 2001

// owned is a tree in a volume with everything that a group can be given to wrongly.
type owned struct {
	*node
	root, sub, file, link, nested string
	outside                       string // what link points to
}

func (n *node) makeOwned() owned {
	n.Helper()
	root := n.target(podA)
	o := owned{
		node: n, root: root, sub: filepath.Join(root, "sub"), file: filepath.Join(root, "sub", "file"),
		link: filepath.Join(root, "link"), nested: filepath.Join(root, "nested"), outside: filepath.Join(n.storage(), "outside"),
	}
	n.mkdirAll(o.sub)
	n.mkdirAll(o.nested)
	n.put(o.file)
	n.put(o.outside)
	if err := errors.Join(os.Chmod(root, 0o700), os.Chmod(o.sub, 0o700), os.Chmod(o.file, 0o500), os.Symlink(o.outside, o.link)); err != nil {
		n.Fatal(err)
	}
	testutil.Tmpfs(n, o.nested)
	n.put(filepath.Join(o.nested, "file"))
	return o
}

// is fails the check when a thing has another group or mode.
func (n *node) is(what, path string, gid, mode uint32) {
	n.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		n.Fatal(err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		st.Mode = mode // links have none
	}
	if st.Gid != gid || st.Mode&0o7777 != mode {
		n.Errorf("%s: the group of %s is %d and its mode %04o, want %d and %04o", what, path, st.Gid, st.Mode&0o7777, gid, mode)
	}
}

func (o owned) untouched(what string) {
	o.Helper()
	o.is(what, o.outside, 0, 0o640)
	o.is(what, o.nested, 0, 0o755)
	o.is(what, filepath.Join(o.nested, "file"), 0, 0o640)
}

func grouped(pod plugins.PodRef, gid int64, policy v1.PodFSGroupChangePolicy) plugins.PodRef {
	pod.FSGroup, pod.FSGroupChangePolicy = &gid, policy
	return pod
}

// checkFSGroup wants all of a volume to be the group's and nothing beside: what a
// link points to, what is mounted inside.
func checkFSGroup(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.ok("set up", n.up(podA, way{}))
	o := n.makeOwned()
	for _, policy := range []v1.PodFSGroupChangePolicy{"", v1.FSGroupChangeAlways} {
		pod := grouped(podA, group, policy)
		n.ok("set up", n.up(pod, way{}))
		o.is("fsGroup", o.root, group, 0o2770)
		o.is("fsGroup", o.sub, group, 0o2770)
		o.is("fsGroup", o.file, group, 0o760)
		o.is("fsGroup", o.link, group, 0)
		o.untouched("fsGroup")
		n.nothingToDo("set up again", n.up(pod, way{}))
		if err := os.Chown(o.file, 0, 0); err != nil {
			t.Fatal(err)
		}
		n.ok("set up", n.up(pod, way{}))
		o.is("a file of another group", o.file, group, 0o760)
	}
	n.kept(o.file)
}

// checkOnRootMismatch wants a volume to be left alone whose root fits.
func checkOnRootMismatch(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.ok("set up", n.up(podA, way{}))
	o := n.makeOwned()
	pod := grouped(podA, group, v1.FSGroupChangeOnRootMismatch)
	n.ok("set up", n.up(pod, way{}))
	o.is("the root did not fit", o.root, group, 0o2770)
	o.is("the root did not fit", o.file, group, 0o760)
	o.untouched("the root did not fit")
	if err := errors.Join(os.Chown(o.file, 0, 0), os.Chmod(o.file, 0o500)); err != nil {
		t.Fatal(err)
	}
	n.nothingToDo("set up with a root that fits", n.up(pod, way{}))
	o.is("the root fits", o.file, 0, 0o500)
}

// checkFSGroupOtherPod wants a second pod not to take the files from the first.
func checkFSGroupOtherPod(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.ok("set up", n.up(grouped(podA, group, ""), way{}))
	n.ok("set up for another pod", n.up(grouped(podB, group+1, ""), way{}))
	n.is("after the second pod", n.target(podA), group, 0o2775)
	if said := strings.Join(n.said, "\n"); !strings.Contains(said, podA.UID) {
		t.Error("nobody was told that the first pod keeps its group")
	}
}

// checkFSGroupReadOnly wants no owner to change in a volume that is read-only.
func checkFSGroupReadOnly(t *T, c *Case, ex Example) {
	n := newNode(t, c, ex)
	n.ok("set up", n.up(podA, way{}))
	n.put(filepath.Join(n.target(podA), "data"))
	n.ok("tear down", n.down(podA, true, way{}))
	n.spec.ReadOnly = true
	n.ok("set up read-only", n.up(grouped(podA, group, ""), way{}))
	n.is("read-only", filepath.Join(n.target(podA), "data"), 0, 0o640)
	n.kept(filepath.Join(n.target(podA), "data"))
}
