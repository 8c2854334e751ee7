package kill

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
)

// smallState puts a tmpfs of so many pages on the state directory.
func (n *node) smallState(pages int) {
	n.t.Helper()
	n.must(unix.Mount("tmpfs", n.state, "tmpfs", 0, stateSize(pages)))
	n.t.Cleanup(func() { n.must(unix.Unmount(n.state, unix.MNT_DETACH)) })
}

func stateSize(pages int) string {
	return fmt.Sprintf("mode=700,size=%d", pages*os.Getpagesize())
}

// full leaves no room in the state directory.
func (n *node) full() {
	n.t.Helper()
	f, err := os.OpenFile(n.state+"/ballast", os.O_WRONLY|os.O_CREATE, 0o600)
	n.must(err)
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
}

// Without a place for the record nothing is formatted; mounts can be made and are
// always removed.
func TestNoStateDir(t *testing.T) {
	breaks := map[string]func(n *node){
		"full": func(n *node) { n.smallState(16); n.full() },
		"read-only": func(n *node) {
			n.smallState(16)
			n.must(unix.Mount("", n.state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		},
	}
	for name, broken := range breaks {
		t.Run(name, func(t *testing.T) {
			blank := newNode(t, mode{fs: "ext4", blank: true})
			before := blank.raw()
			broken(blank)
			tree := blank.look()
			if a := blank.call(ops.Setup).run(t); a.Code != api.ExitRefused || !strings.Contains(a.Error, "state") {
				t.Errorf("format: %v", a)
			}
			if blank.raw() != before || blank.look() != tree {
				t.Errorf("something was changed:\n%s", diff(tree, blank.look()))
			}
			blank.quiet()
			n := newNode(t, mode{fs: "ext4"})
			empty := n.look()
			n.do(n.call(ops.Setup))
			broken(n)
			for _, v := range []ops.Verb{ops.Teardown, ops.Setup, ops.Teardown} {
				if a := n.call(v).run(t); a.Code != 0 || len(a.Warnings) == 0 {
					t.Errorf("%s: %v", v, a)
				}
			}
			if mounts := n.mountPoints(); len(mounts) > 0 {
				t.Errorf("left: %v; was\n%s", mounts, empty)
			}
			n.quiet()
		})
	}
	t.Run("full, and the run directory too", func(t *testing.T) {
		n := newNode(t, mode{fs: "ext4"})
		n.do(n.call(ops.Setup))
		breaks["full"](n)
		n.must(unix.Mount(n.state, n.runDir, "", unix.MS_BIND, ""))
		t.Cleanup(func() { n.must(unix.Unmount(n.runDir, unix.MNT_DETACH)) })
		if a := n.call(ops.Teardown).run(t); a.Code != 0 || len(n.mountPoints()) > 0 {
			t.Errorf("%v %v", a, n.mountPoints())
		}
	})
}

// The disk gets full in the middle of a line; what comes after there is room
// again is told whole.
func TestCutLine(t *testing.T) {
	n := newNode(t, mode{})
	n.smallState(1)
	for i := 0; ; i++ {
		n.do(n.call(ops.Setup))
		if a := n.call(ops.Teardown).run(t); a.Code != 0 {
			t.Fatal(a)
		}
		raw, err := os.ReadFile(n.state + "/journal-000001.jsonl")
		n.must(err)
		if i > 50 {
			t.Fatalf("not full after %d bytes", len(raw))
		}
		if len(raw) == os.Getpagesize() && !strings.HasSuffix(string(raw), "\n") {
			break
		}
	}
	n.must(unix.Mount("tmpfs", n.state, "tmpfs", unix.MS_REMOUNT, stateSize(16)))
	if a := n.call(ops.Setup).run(t); a.Code != 0 {
		t.Fatal(a)
	}
	l, err := n.historyList()
	n.must(err)
	last := l.Items[len(l.Items)-1]
	if last.Verb != "setup" || last.PID == 0 || last.User == "" || last.Outcome != "done" || len(last.Steps) == 0 {
		t.Errorf("history has %+v", last)
	}
	if len(l.Warnings) != 1 || !strings.HasPrefix(l.Warnings[0], "1 line") {
		t.Errorf("history warns: %q", l.Warnings)
	}
}
