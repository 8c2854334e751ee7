package safefs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// TestModes: what is made has exactly the mode that was asked for, whatever the
// umask, and the umask stays what it was.
func TestModes(t *testing.T) {
	dir := testutil.TempDir(t)
	old := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(old) })
	eachWay(t, func(t *testing.T, opt Option) {
		r := openOwn(t, filepath.Join(dir, filepath.Base(t.Name())), opt)
		for _, perm := range []uint32{0o777, 0o750, 0o700, 0o1777, 0} {
			for op, make := range map[string]func(name string) error{
				"Mkdir":       func(n string) error { _, err := r.Mkdir(n, perm); return err },
				"MkdirAll":    func(n string) error { _, err := r.MkdirAll(n, perm); return err },
				"CreateEmpty": func(n string) error { return r.CreateEmpty(n, perm) },
				"WriteFile":   func(n string) error { return r.WriteFile(n, nil, perm) },
			} {
				name := fmt.Sprintf("%s-%o", op, perm)
				wantErr(t, make(name), nil, "")
				if info, err := r.Stat(name); err != nil || info.Mode != perm {
					t.Errorf("%s(%#o) made %#o, %v", op, perm, info.Mode, err)
				}
			}
		}
		_, err := r.Mkdir("setgid", 0o2750)
		wantErr(t, err, unix.EINVAL, r.Path()+"/setgid")
		if got := unix.Umask(0o077); got != 0o077 {
			t.Errorf("the umask is %#o now", got)
		}
	})
}

func TestRmdirNamesWhatIsThere(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "pods/u/v/a\n=1", "pods/u/v/b/", "pods/u/v/c->x", "pods/u/v/d=1", "pods/u/e/")
		r := openLayout(t, dir, opt)
		before := testutil.Tree(t, dir)
		for _, name := range []string{"pods/u/v", "pods/u"} {
			wantErr(t, r.Rmdir(name), api.ErrNotEmpty, filepath.Join(dir, name))
		}
		err := r.Rmdir("pods/u/v")
		if !strings.Contains(err.Error(), `is not empty, it holds "`) || !strings.HasSuffix(err.Error(), "…") {
			t.Errorf("%q", err)
		}
		wantErr(t, r.Rmdir(volDir), api.ErrNotFound, filepath.Join(dir, volDir))
		if after := testutil.Tree(t, dir); after != before {
			t.Errorf("changed:\n%s\nwas:\n%s", after, before)
		}
		wantErr(t, r.Rmdir("pods/u/e"), nil, "")
		wantErr(t, r.Rmdir("pods/u/e"), fs.ErrNotExist, filepath.Join(dir, "pods/u/e"))
	})
}

func TestWriteFile(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "root/"+leaf+"=old", "outside=x")
		r := openLayout(t, filepath.Join(dir, "root"), opt)
		temp := volDir + "/" + tempName("vol_data.json")
		want := func(content string) {
			t.Helper()
			got, err := r.ReadFile(leaf, 100)
			if err != nil || string(got) != content {
				t.Errorf("%q, %v", got, err)
			}
		}
		wantErr(t, r.WriteFile(leaf, []byte("new"), 0o600), nil, "")
		want("new")
		// What a killed kvol left is overwritten, a link in its place is not followed.
		plant(t, r.Path(), temp+"=half")
		wantErr(t, r.WriteFile(leaf, []byte("newer"), 0o600), nil, "")
		want("newer")
		plant(t, r.Path(), temp+"->"+filepath.Join(dir, "outside"))
		wantErr(t, r.WriteFile(leaf, []byte("newest"), 0o600), api.ErrRefused, filepath.Join(r.Path(), temp))
		want("newer")
		if b, err := os.ReadFile(filepath.Join(dir, "outside")); string(b) != "x" {
			t.Errorf("%q, %v", b, err)
		}
		entries, err := r.ReadDir(volDir)
		if err != nil || len(entries) != 2 {
			t.Errorf("%v, %v", entries, err)
		}
		// Data of a pod is not written to.
		name := "pods/u1/volumes/kubernetes.io~empty-dir/e/f"
		plant(t, r.Path(), filepath.Dir(name)+"/")
		wantErr(t, r.WriteFile(name, nil, 0o600), api.ErrRefused, filepath.Join(r.Path(), name))
	})
}

// TestNoRoom: on a full or a read-only file system nothing half written stays,
// and the message says what to do.
func TestNoRoom(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "pods/")
		at := filepath.Join(dir, "pods")
		testutil.Mount(t, "tmpfs", at, "tmpfs", 0, "size=64k,nr_inodes=64")
		plant(t, dir, leaf+"=old")
		r := openLayout(t, dir, opt)
		before := testutil.Tree(t, at)
		err := r.WriteFile(leaf, make([]byte, 1<<20), 0o600)
		wantErr(t, err, unix.ENOSPC, filepath.Join(dir, leaf))
		if doc := api.NewErrorDoc(err); !strings.Contains(doc.Next, "make room") {
			t.Errorf("%+v", doc)
		}
		if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=64k"); err != nil {
			t.Fatal(err)
		}
		for _, op := range []operation{
			{run: func(r *Root, _ string) error { return r.WriteFile(leaf, nil, 0o600) }},
			{run: func(r *Root, _ string) error { return r.Unlink(leaf, VolData) }},
		} {
			wantErr(t, op.run(r, leaf), unix.EROFS, filepath.Join(dir, leaf))
		}
		if made, err := r.Mkdir(volDir, 0o750); made || err != nil {
			t.Errorf("mkdir of what is there: %v, %v", made, err)
		}
		if after := testutil.Tree(t, at); after != before {
			t.Errorf("changed:\n%s\nwas:\n%s", after, before)
		}
	})
}

func TestReadFileLimit(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		plant(t, dir, "f=12345")
		r := openLayout(t, dir, opt)
		if got, err := r.ReadFile("f", 5); string(got) != "12345" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, err := r.ReadFile("f", 4)
		wantErr(t, err, api.ErrRefused, dir+"/f")
	})
}

// TestReadDirMany reads a directory that does not fit into one buffer.
func TestReadDirMany(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	testutil.Tmpfs(t, dir)
	for i := range 3000 {
		plant(t, dir, "pods/"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+"-"+strings.Repeat("y", i/50)+"/")
	}
	want, err := os.ReadDir(filepath.Join(dir, "pods"))
	if err != nil {
		t.Fatal(err)
	}
	eachWay(t, func(t *testing.T, opt Option) {
		got, err := openLayout(t, dir, opt).ReadDir("pods")
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d entries of %d, %v", len(got), len(want), err)
		}
		for i := range want {
			if got[i].Name != want[i].Name() || got[i].Type != Dir {
				t.Errorf("%v, want %v", got[i], want[i])
			}
		}
	})
}
