package safefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// ways are the kernels that the package works on; every table runs on each, the
// races on the first two.
var ways = []struct {
	name string
	k    kernel
}{
	{"openat2", kernel{openat2: true, mountIDs: true}}, // 5.8
	{"walk+fdinfo", kernel{}},                          // before 5.6
	{"openat2+fdinfo", kernel{openat2: true}},          // 5.6
	{"walk+statx", kernel{mountIDs: true}},             // seccomp without openat2
}

func using(k kernel) Option { return func(r *Root) { r.kernel = k } }

// eachWay runs f once for each way.
func eachWay(t *testing.T, f func(t *testing.T, opt Option)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			if w.k.openat2 && !haveOpenat2(unix.AT_FDCWD) {
				testutil.Skip(t, "this kernel has no openat2")
			}
			f(t, using(w.k))
		})
	}
}

func openLayout(t *testing.T, root string, opts ...Option) *Root {
	t.Helper()
	r, err := OpenLayout(root, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func openOwn(t *testing.T, dir string, opts ...Option) *Root {
	t.Helper()
	r, err := OwnDir(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// the leaf is a name that every operation may be tried on: a metadata file of
// the list.
const (
	volDir = "pods/u1/volumes/kubernetes.io~csi/v1"
	leaf   = volDir + "/vol_data.json"
)

// operation is one method of Root, tried on a name.
type operation struct {
	name string
	own  bool // only kvol's own directories have it
	run  func(r *Root, name string) error
}

var operations = []operation{
	{"Open", false, func(r *Root, n string) error { return closing(r.Open(n)) }},
	{"Parent", false, func(r *Root, n string) error { f, _, err := r.Parent(n); return closing(f, err) }},
	{"OpenMount", false, func(r *Root, n string) error { f, _, err := r.OpenMount(n); return closing(f, err) }},
	{"Stat", false, func(r *Root, n string) error { _, err := r.Stat(n); return err }},
	{"ReadDir", false, func(r *Root, n string) error { _, err := r.ReadDir(n); return err }},
	{"OpenDir", false, openDirIn},
	{"ReadFile", false, func(r *Root, n string) error { _, err := r.ReadFile(n, 1<<10); return err }},
	{"Readlink", false, func(r *Root, n string) error { _, err := r.Readlink(n); return err }},
	{"Mkdir", false, func(r *Root, n string) error { _, err := r.Mkdir(n, 0o750); return err }},
	{"MkdirAll", false, func(r *Root, n string) error { _, err := r.MkdirAll(n, 0o750); return err }},
	{"Rmdir", false, func(r *Root, n string) error { return r.Rmdir(n) }},
	{"Unlink", false, func(r *Root, n string) error { return r.Unlink(n, VolData) }},
	{"Symlink", false, func(r *Root, n string) error { return r.Symlink("/dev/null", n) }},
	{"CreateEmpty", false, func(r *Root, n string) error { return r.CreateEmpty(n, 0o640) }},
	{"WriteFile", false, func(r *Root, n string) error { return r.WriteFile(n, []byte("new"), 0o600) }},
	{"Chown", false, func(r *Root, n string) error { return r.Chown(n, 1, 1) }},
	{"Chmod", false, func(r *Root, n string) error { return r.Chmod(n, 0o777) }},
	{"OpenFile", true, func(r *Root, n string) error {
		return closing(r.OpenFile(n, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND, 0o600))
	}},
	{"UnlinkOwn", true, func(r *Root, n string) error { return r.UnlinkOwn(n) }},
}

// openDirIn opens a directory from the one that it lies in, where there is one.
func openDirIn(r *Root, n string) error {
	d, err := r.OpenDir(n)
	if elems, bad := r.elements("", n); bad == nil && len(elems) > 0 {
		if in, bad := r.OpenDir(filepath.Dir(n)); bad == nil {
			defer in.Close()
			if err == nil {
				d.Close()
			}
			d, err = in.OpenDir(filepath.Base(n))
		}
	}
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.Read()
	return err
}

func closing(f *os.File, err error) error {
	if err == nil {
		err = f.Close()
	}
	return err
}

// roots are a layout root and an own directory on the same tree.
type roots struct{ layout, own *Root }

func openRoots(t *testing.T, dir string, opt Option) roots {
	t.Helper()
	return roots{openLayout(t, dir, opt), openOwn(t, dir, opt)}
}

func (r roots) do(op operation, name string) error {
	if op.own {
		return op.run(r.own, name)
	}
	return op.run(r.layout, name)
}

// plant makes a tree: "dir/", "file=content", "link->target".
func plant(t *testing.T, root string, entries ...string) {
	t.Helper()
	for _, e := range entries {
		var err error
		if name, target, ok := strings.Cut(e, "->"); ok {
			mkdirs(t, filepath.Dir(filepath.Join(root, name)))
			err = os.Symlink(target, filepath.Join(root, name))
		} else if name, content, ok := strings.Cut(e, "="); ok {
			mkdirs(t, filepath.Dir(filepath.Join(root, name)))
			err = os.WriteFile(filepath.Join(root, name), []byte(content), 0o644)
		} else {
			mkdirs(t, filepath.Join(root, e))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func mkdirs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
}

// history is everything about a tree that a change of it, also one undone since,
// leaves behind: contents by testutil.Tree, and the times of change.
func history(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(testutil.Tree(t, root))
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%q %v %v\n", p, st.Mtim, st.Ctim)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// within ends the test if f does not come back; free makes it come back then.
func within(t *testing.T, what string, free func(), f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		free()
		<-done
		t.Fatalf("%s hung", what)
	}
}

// wantErr checks the kind of an error, that it names the path, and that a
// refusal says what to do.
func wantErr(t *testing.T, err, want error, path string) {
	t.Helper()
	if want == nil {
		if err != nil {
			t.Errorf("%v", err)
		}
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
		return
	}
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Op == "" || e.Path != path {
		t.Errorf("error %#v does not name its operation and the path %q", err, path)
		return
	}
	if strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("message %q breaks the line", err)
	}
}
