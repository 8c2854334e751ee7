package safefs

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// tableID is the id of the uppermost mount on a path, as /proc/self/mountinfo
// has it.
func tableID(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var id uint64
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if fields := strings.Fields(sc.Text()); fields[4] == path {
			id, _ = strconv.ParseUint(fields[0], 10, 64)
		}
	}
	if id == 0 {
		t.Fatalf("nothing is mounted on %s", path)
	}
	return id
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestOpenLayout(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "real/kubelet/pods/u/", "lib->real", "file=", "loop->loop", "odd name\n (deleted)/pods/")
		for _, c := range []struct {
			path, resolved string
			err            error
		}{
			{"real/kubelet", "real/kubelet", nil},
			{"real/kubelet/", "real/kubelet", nil},
			{"lib/kubelet", "real/kubelet", nil},
			{"odd name\n (deleted)", "odd name\n (deleted)", nil},
			{"missing", "", api.ErrNotFound},
			{"file", "", unix.ENOTDIR},
			{"loop", "", unix.ELOOP},
		} {
			given := dir + "/" + c.path
			r, err := OpenLayout(given, opt)
			wantErr(t, err, c.err, given)
			if err != nil {
				continue
			}
			if r.Path() != filepath.Join(dir, c.resolved) {
				t.Errorf("%q is %q", given, r.Path())
			}
			for _, name := range []string{"pods", strings.TrimSuffix(given, "/") + "/pods", r.Path() + "/pods"} {
				if _, err := r.Stat(name); err != nil {
					t.Error(err)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if _, err := r.Stat("pods"); err == nil {
				t.Error("works after Close")
			}
		}
		_, err := OpenLayout("relative", opt)
		wantErr(t, err, api.ErrInput, "relative")
	})
}

// TestRootMovesAway: the root is resolved once; what its path leads to later
// does not matter.
func TestRootMovesAway(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "one/pods/", "two/pods/", "link->one")
		r := openLayout(t, filepath.Join(dir, "link"), opt)
		if err := os.Remove(filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		plant(t, dir, "link->two")
		if _, err := r.Mkdir(filepath.Join(dir, "link/pods/u"), 0o750); err != nil {
			t.Fatal(err)
		}
		inode(t, filepath.Join(dir, "one/pods/u"))
	})
}

// TestOwnMounts: pods and plugins may be mounts, what is beneath them may not.
func TestOwnMounts(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "root/pods/", "root/plugins/", "disk/plugins/p/", "root/other/")
		root := filepath.Join(dir, "root")
		testutil.Tmpfs(t, filepath.Join(root, "pods"))
		testutil.Bind(t, filepath.Join(dir, "disk/plugins"), filepath.Join(root, "plugins"), false)
		testutil.Tmpfs(t, filepath.Join(root, "other"))
		r := openLayout(t, root, opt)
		for _, name := range []string{"pods", "plugins"} {
			made, err := r.MkdirAll(name+"/a/b", 0o750)
			if err != nil || len(made) != 2 || made[1] != filepath.Join(root, name, "a/b") {
				t.Errorf("%q, %v", made, err)
			}
			info, err := r.Stat(name)
			if err != nil || !info.MountRoot || info.MountID != tableID(t, filepath.Join(root, name)) {
				t.Errorf("%+v, %v", info, err)
			}
			f, err := r.Open(name)
			if err := closing(f, err); err != nil {
				t.Error(err)
			}
			entries, err := r.ReadDir(name + "/a")
			if err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}
			wantErr(t, r.Rmdir(name+"/a/b"), nil, "")
			wantErr(t, r.Rmdir(name), api.ErrRefused, filepath.Join(root, name))
			testutil.Bind(t, filepath.Join(root, name, "a"), filepath.Join(root, name, "a"), false)
			_, err = r.Mkdir(name+"/a/c", 0o750)
			wantErr(t, err, unix.EXDEV, filepath.Join(root, name, "a/c"))
		}
		_, err := r.Mkdir("other/x", 0o750)
		wantErr(t, err, unix.EXDEV, filepath.Join(root, "other/x"))
	})
}

// TestFirstPod: pods and plugins may be missing when the root is opened.
func TestFirstPod(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		r := openLayout(t, dir, opt)
		_, err := r.Stat("pods/u")
		wantErr(t, err, api.ErrNotFound, filepath.Join(dir, "pods/u"))
		made, err := r.MkdirAll("pods/u/volumes", 0o750)
		if err != nil || len(made) != 3 {
			t.Errorf("%q, %v", made, err)
		}
		made, err = r.MkdirAll("pods/u/volumes", 0o750)
		if err != nil || len(made) != 0 {
			t.Errorf("%q, %v", made, err)
		}
	})
}

func TestVolume(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "root/pods/p/v/", "root/pods/p/plain/", "outside/x=1")
		at := filepath.Join(dir, "root/pods/p/v")
		testutil.Tmpfs(t, at)
		plant(t, at, "nested/", "sub/", "data=old", "vol_data.json=", "..data->sub", "out->"+filepath.Join(dir, "outside"))
		testutil.Bind(t, filepath.Join(dir, "outside"), filepath.Join(at, "nested"), false)
		r := openLayout(t, filepath.Join(dir, "root"), opt)

		plain, err := r.Open("pods/p/plain")
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		_, err = OpenVolume(plain, tableMountOf(t, plain), opt)
		wantErr(t, err, api.ErrRefused, plain.Name())

		f, info, err := r.OpenMount("pods/p/v")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = OpenVolume(f, info.MountID+1, opt)
		wantErr(t, err, api.ErrRefused, at)
		v, err := OpenVolume(f, info.MountID, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()

		if _, err := v.MkdirAll("sub/a/b", 0o777); err != nil {
			t.Error(err)
		}
		_, err = v.Mkdir("nested/x", 0o777)
		wantErr(t, err, unix.EXDEV, filepath.Join(at, "nested/x"))
		_, err = v.Mkdir("out/x", 0o777)
		wantErr(t, err, unix.ELOOP, filepath.Join(at, "out/x"))
		wantErr(t, v.Chown(".", 0, 1234), nil, "")
		wantErr(t, v.Chmod(".", 0o2775), nil, "")
		if info, err := v.Stat("."); err != nil || info.GID != 1234 || info.Mode != 0o2775 {
			t.Errorf("%+v, %v", info, err)
		}
		for _, what := range []Meta{"", VolData, BindTarget, AtomicWriterFile, DeviceLink, TempFile} {
			for _, name := range []string{"data", "vol_data.json", "..data"} {
				wantErr(t, v.Unlink(name, what), api.ErrRefused, filepath.Join(at, name))
			}
		}
		wantErr(t, v.UnlinkOwn("data"), api.ErrRefused, filepath.Join(at, "data"))
		wantErr(t, v.WriteFile("data", []byte("new"), 0o644), os.ErrExist, filepath.Join(at, "data"))
		wantErr(t, v.WriteFile("sub/new", []byte("new"), 0o444), nil, "")
		if got, err := v.ReadFile("data", 10); string(got) != "old" {
			t.Errorf("%q, %v", got, err)
		}
		if got := testutil.Tree(t, filepath.Join(dir, "outside")); strings.Count(got, "\n") != 2 {
			t.Error(got)
		}
	})
}

func tableMountOf(t *testing.T, f *os.File) uint64 {
	t.Helper()
	info, err := StatFD(f)
	if err != nil {
		t.Fatal(err)
	}
	return info.MountID
}

func TestOwnDir(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "real/", "run->real", "file=", "open/", "theirs/", "dangling->nowhere")
		if err := os.Chmod(filepath.Join(dir, "open"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, "theirs"), 1, 1); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]error{
			"run/a/kvol": nil, "real": nil, "file": unix.ENOTDIR, "file/x": unix.ENOTDIR, "open": api.ErrRefused, "theirs": api.ErrRefused,
		} {
			r, err := OwnDir(filepath.Join(dir, name), opt)
			wantErr(t, err, want, filepath.Join(dir, name))
			if err == nil {
				r.Close()
			}
		}
		_, err := OwnDir(filepath.Join(dir, "dangling"), opt)
		wantErr(t, err, unix.ELOOP, filepath.Join(dir, "dangling"))
		if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
			t.Error("made what a link leads to")
		}
		_, err = OwnDir("kvol", opt)
		wantErr(t, err, api.ErrInput, "kvol")

		r := openOwn(t, filepath.Join(dir, "real/a/kvol"), opt)
		for _, d := range []string{".", "../"} {
			if info, err := os.Stat(filepath.Join(r.Path(), d)); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		}
		for range 2 {
			f, err := r.OpenFile("journal", unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("x\n"); err != nil {
				t.Error(err)
			}
			f.Close()
		}
		got, err := r.ReadFile("journal", 10)
		if string(got) != "x\nx\n" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, err = r.OpenFile("journal", unix.O_WRONLY|unix.O_TRUNC, 0)
		wantErr(t, err, api.ErrRefused, r.Path()+"/journal")
		if err := closing(r.OpenFile("journal", unix.O_RDONLY, 0o600)); err != nil {
			t.Error(err)
		}
		wantErr(t, r.UnlinkOwn("journal"), nil, "")
		wantErr(t, r.UnlinkOwn("journal"), os.ErrNotExist, r.Path()+"/journal")

		layout := openLayout(t, dir, opt)
		_, err = layout.OpenFile("file", unix.O_RDWR, 0)
		wantErr(t, err, api.ErrRefused, dir+"/file")
		wantErr(t, layout.UnlinkOwn("file"), api.ErrRefused, dir+"/file")
	})
}
