package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// twin is what lies behind an obstacle: the same names as in the root, so that
// every operation that crosses it finds what it needs.
var twin = []string{"pods/u1/volumes/kubernetes.io~csi/v1/vol_data.json={}"}

// TestInTheWay puts each kind of obstacle at each depth above a name and tries
// every operation: each is refused, and neither side of the obstacle is changed.
func TestInTheWay(t *testing.T) {
	testutil.Root(t)
	type situation struct{ root, outside, elem, rel string } // elem: absolute path of the obstacle
	replace := func(t *testing.T, s situation, put func(old string) error) {
		t.Helper()
		err := os.Rename(s.elem, s.elem+".was")
		if err == nil {
			err = put(s.elem + ".was")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, obstacle := range []struct {
		name    string
		want    error
		mount   bool
		prepare func(t *testing.T, s situation) (free func())
	}{
		{"absolute link out", unix.ELOOP, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(string) error { return os.Symlink(filepath.Join(s.outside, s.rel), s.elem) })
			return nil
		}},
		{"relative link out", unix.ELOOP, false, func(t *testing.T, s situation) func() {
			to, err := filepath.Rel(filepath.Dir(s.elem), filepath.Join(s.outside, s.rel))
			if err != nil {
				t.Fatal(err)
			}
			replace(t, s, func(string) error { return os.Symlink(to, s.elem) })
			return nil
		}},
		{"link within", unix.ELOOP, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(old string) error { return os.Symlink(filepath.Base(old), s.elem) })
			return nil
		}},
		{"link to itself", unix.ELOOP, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(string) error { return os.Symlink(filepath.Base(s.elem), s.elem) })
			return nil
		}},
		{"magic link", unix.ELOOP, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(string) error { return os.Symlink("/proc/self/cwd", s.elem) })
			return nil
		}},
		{"file", unix.ENOTDIR, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(string) error { return os.WriteFile(s.elem, nil, 0o600) })
			return nil
		}},
		{"fifo", unix.ENOTDIR, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(string) error { return unix.Mkfifo(s.elem, 0o600) })
			return nil
		}},
		{"nothing", fs.ErrNotExist, false, func(t *testing.T, s situation) func() {
			replace(t, s, func(string) error { return nil })
			return nil
		}},
		{"tmpfs", unix.EXDEV, true, func(t *testing.T, s situation) func() {
			testutil.Tmpfs(t, s.elem)
			below, _ := strings.CutPrefix(leaf, s.rel+"/")
			plant(t, s.elem, below+"={}")
			return nil
		}},
		{"bind of the same file system", unix.EXDEV, true, func(t *testing.T, s situation) func() {
			testutil.Bind(t, filepath.Join(s.outside, s.rel), s.elem, false)
			return nil
		}},
		{"bind on itself", unix.EXDEV, true, func(t *testing.T, s situation) func() {
			testutil.Bind(t, s.elem, s.elem, false)
			return nil
		}},
		{"dead FUSE", unix.EXDEV, true, func(t *testing.T, s situation) func() {
			return testutil.FUSE(t, s.elem, testutil.FUSEDead).Kill
		}},
		{"hung FUSE", unix.EXDEV, true, func(t *testing.T, s situation) func() {
			return testutil.FUSE(t, s.elem, testutil.FUSEHung).Kill
		}},
	} {
		elems := strings.Split(volDir, "/")
		for depth := range elems {
			if obstacle.mount && depth == 0 {
				continue // pods may be a mount: TestOwnMounts
			}
			rel := strings.Join(elems[:depth+1], "/")
			t.Run(obstacle.name+"/"+elems[depth], func(t *testing.T) {
				dir := testutil.TempDir(t)
				s := situation{filepath.Join(dir, "root"), filepath.Join(dir, "outside"), filepath.Join(dir, "root", rel), rel}
				plant(t, s.root, twin...)
				plant(t, s.outside, twin...)
				free := obstacle.prepare(t, s)
				if free == nil {
					free = func() {}
				}
				eachWay(t, func(t *testing.T, opt Option) {
					if depth == 0 && !errors.Is(obstacle.want, fs.ErrNotExist) {
						_, err := OpenLayout(s.root, opt)
						wantErr(t, err, obstacle.want, s.elem)
						return
					}
					r := openRoots(t, s.root, opt)
					before := testutil.Tree(t, dir)
					for _, op := range operations {
						if op.name == "MkdirAll" && errors.Is(obstacle.want, fs.ErrNotExist) {
							continue // makes what is missing
						}
						var err error
						within(t, op.name, free, func() { err = r.do(op, leaf) })
						wantErr(t, err, obstacle.want, filepath.Join(s.root, leaf))
						kind := api.ErrRefused
						if errors.Is(obstacle.want, fs.ErrNotExist) {
							kind = api.ErrNotFound
						} else if !strings.Contains(err.Error(), s.elem+" is a ") {
							t.Errorf("%s: %q does not name what is in the way", op.name, err)
						}
						if !errors.Is(err, kind) {
							t.Errorf("%s: %v is no %v", op.name, err, kind)
						}
					}
					if after := testutil.Tree(t, dir); after != before {
						t.Errorf("changed:\n%s\nwas:\n%s", after, before)
					}
				})
			})
		}
	}
}

// TestBadNames refuses what is no clean path below the root, before anything
// is looked at.
func TestBadNames(t *testing.T) {
	dir := testutil.TempDir(t)
	root := filepath.Join(dir, "root")
	plant(t, dir, "root/a/b/", "rootless/x=1", "x=1")
	for _, name := range []string{
		"", "..", "../x", "a/..", "a/../../x", "a/b/../../..", ".", "./a", "a/.", "a//b", "a/", "a/b/", "a\x00", "a/\x00/b",
		"/", "/etc", "/etc/passwd", dir, root + "less/x", root + "/../x", root + "/a/", root + "//a", root + "/", root,
	} {
		eachWay(t, func(t *testing.T, opt Option) {
			r := openRoots(t, root, opt)
			before := testutil.Tree(t, dir)
			for _, op := range operations {
				err := r.do(op, name)
				isRoot := name == "." || name == root || name == root+"/"
				if isRoot && (op.name == "Open" || op.name == "Stat" || op.name == "ReadDir" || op.name == "OpenDir" || op.name == "MkdirAll") {
					wantErr(t, err, nil, "")
					continue
				}
				if isRoot && (op.name == "Chown" || op.name == "Chmod") {
					continue // the root of a volume gets its fsGroup that way
				}
				if !errors.Is(err, api.ErrRefused) {
					t.Errorf("%s(%q): %v", op.name, name, err)
				}
			}
			if err := os.Chmod(root, 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(root, 0, 0); err != nil {
				t.Fatal(err)
			}
			if after := testutil.Tree(t, dir); after != before {
				t.Errorf("%q changed:\n%s\nwas:\n%s", name, after, before)
			}
		})
	}
}

// TestOddNames works with every name that a directory can hold.
func TestOddNames(t *testing.T) {
	names := []string{
		"plain", "bl ank", " ", "new\nline", "tab\t", "\x1b[31m", "\xff\xfe", "\x01", `back\slash`, `quo"te'`, "-rf", "--", "~", "..x", "...",
		"*", "$(id)", "ünï", "x (deleted)", strings.Repeat("n", 255),
	}
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		r := openOwn(t, filepath.Join(dir, "odd\n \xff"), opt)
		for _, n := range names {
			sub := n + "/" + n
			_, err := r.MkdirAll(sub, 0o700)
			wantErr(t, err, nil, "")
			_, err = r.Stat(r.Path() + "/" + sub)
			wantErr(t, err, nil, "")
			wantErr(t, r.WriteFile(sub+"/f", []byte(n), 0o600), nil, "")
			got, err := r.ReadFile(sub+"/f", 300)
			if string(got) != n || err != nil {
				t.Errorf("ReadFile: %q, %v", got, err)
			}
			wantErr(t, r.Symlink(n, sub+"/l"), nil, "")
			to, err := r.Readlink(sub + "/l")
			if to != n || err != nil {
				t.Errorf("Readlink: %q, %v", to, err)
			}
			wantErr(t, r.Rmdir(sub), api.ErrNotEmpty, r.Path()+"/"+sub)
		}
		entries, err := r.ReadDir(".")
		if err != nil || len(entries) != len(names) {
			t.Fatalf("%q, %v", entries, err)
		}
		for _, e := range entries {
			if _, err := os.Lstat(filepath.Join(r.Path(), e.Name)); err != nil || e.Type != Dir {
				t.Errorf("%q %v: %v", e.Name, e.Type, err)
			}
		}
	})
}

// TestLongNames: a name too long for the file system is an error, a path too long
// for one system call is not.
func TestLongNames(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		r := openOwn(t, filepath.Join(testutil.TempDir(t), "own"), opt)
		long := strings.Repeat("n", 256)
		_, err := r.Mkdir(long, 0o700)
		wantErr(t, err, unix.ENAMETOOLONG, r.Path()+"/"+long)
		deep := strings.Repeat(strings.Repeat("d", 200)+"/", 30) + "end"
		if _, err := r.MkdirAll(deep, 0o700); err != nil {
			t.Fatalf("%.60q…", err.Error())
		}
		wantErr(t, r.WriteFile(deep+"/f", []byte("x"), 0o600), nil, "")
		if got, err := r.ReadFile(deep+"/f", 1); string(got) != "x" {
			t.Errorf("%q %v", got, err)
		}
	})
}
