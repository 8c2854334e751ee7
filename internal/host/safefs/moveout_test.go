package safefs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

const podVolume = "pods/u1/volumes/kubernetes.io~empty-dir/cache"

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	fd, err := openAbs(path)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestMoveOut(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		root, away := dir+"/root", dir+"/away"
		mkdirs(t, away)
		wantErr(t, os.Chmod(away, 0o700), nil, "")
		r := openLayout(t, firstMade(t, root), opt)
		to := openDir(t, away)
		for _, want := range []string{"as", "as.1", "as.2"} {
			plant(t, root, podVolume+"/file="+want, podVolume+"/deep/er/file=x", podVolume+"/link->/etc")
			got, err := r.MoveOut(podVolume, to, "as")
			if err != nil || got != want {
				t.Fatalf("%q %v, want %q", got, err, want)
			}
			if raw, err := os.ReadFile(filepath.Join(away, want, "file")); err != nil || string(raw) != want {
				t.Errorf("%q %v", raw, err)
			}
		}
		_, err := r.MoveOut(podVolume, to, "as")
		wantErr(t, err, api.ErrNotFound, filepath.Join(root, podVolume))
	})
}

func firstMade(t *testing.T, dir string) string { mkdirs(t, dir+"/pods"); return dir }

func TestMoveOutRefuses(t *testing.T) {
	testutil.Root(t)
	eachWay(t, func(t *testing.T, opt Option) {
		for name, c := range map[string]struct {
			from string // podVolume when empty
			make func(t *testing.T, dir string) (to string)
		}{
			"a directory of the root": {make: func(t *testing.T, dir string) string {
				mkdirs(t, dir+"/root/away")
				return dir + "/root/away"
			}},
			"a link to the root": {make: func(t *testing.T, dir string) string {
				mkdirs(t, dir+"/root/away")
				wantErr(t, os.Symlink(dir+"/root/away", dir+"/link"), nil, "")
				return dir + "/link"
			}},
			"a bind of the same file system": {make: func(t *testing.T, dir string) string {
				mkdirs(t, dir+"/bound")
				testutil.Bind(t, dir+"/away", dir+"/bound", false)
				return dir + "/bound"
			}},
			"open to others": {make: func(t *testing.T, dir string) string {
				wantErr(t, os.Chmod(dir+"/away", 0o705), nil, "")
				return dir + "/away"
			}},
			"somebody else's": {make: func(t *testing.T, dir string) string {
				wantErr(t, os.Chown(dir+"/away", 1, 0), nil, "")
				return dir + "/away"
			}},
			"a mount": {make: func(t *testing.T, dir string) string {
				testutil.Tmpfs(t, filepath.Join(dir, "root", podVolume))
				return dir + "/away"
			}},
			"a bind in the volume's place": {make: func(t *testing.T, dir string) string {
				mkdirs(t, dir+"/other")
				testutil.Bind(t, dir+"/other", filepath.Join(dir, "root", podVolume), false)
				return dir + "/away"
			}},
			"a link in the volume's place": {from: filepath.Dir(podVolume) + "/link", make: func(t *testing.T, dir string) string {
				wantErr(t, os.Symlink(dir+"/away", filepath.Join(dir, "root", filepath.Dir(podVolume), "link")), nil, "")
				return dir + "/away"
			}},
			"a file": {from: filepath.Dir(podVolume) + "/file", make: func(t *testing.T, dir string) string {
				plant(t, dir+"/root", filepath.Dir(podVolume)+"/file=1")
				return dir + "/away"
			}},
			"the pod":           {from: "pods/u1", make: func(_ *testing.T, dir string) string { return dir + "/away" }},
			"part of a volume":  {from: podVolume + "/deep", make: func(_ *testing.T, dir string) string { return dir + "/away" }},
			"the pods":          {from: "pods", make: func(_ *testing.T, dir string) string { return dir + "/away" }},
			"a pod's volumes":   {from: "pods/u1/volumes", make: func(_ *testing.T, dir string) string { return dir + "/away" }},
			"something of .../": {from: "pods/../pods/u1", make: func(_ *testing.T, dir string) string { return dir + "/away" }},
		} {
			t.Run(name, func(t *testing.T) {
				dir := testutil.TempDir(t)
				mkdirs(t, dir+"/away")
				wantErr(t, os.Chmod(dir+"/away", 0o700), nil, "")
				plant(t, dir+"/root", podVolume+"/deep/file=1")
				to := c.make(t, dir)
				r := openLayout(t, dir+"/root", opt)
				before := testutil.Tree(t, dir)
				from := c.from
				if from == "" {
					from = podVolume
				}
				if _, err := r.MoveOut(from, openDir(t, to), "as"); !errors.Is(err, api.ErrRefused) {
					t.Errorf("%v", err)
				}
				if after := testutil.Tree(t, dir); after != before {
					t.Errorf("changed:\n%s", after)
				}
			})
		}
	})
}

// What somebody puts in the volume's place while it is looked at is not what a link
// leads to, and where it goes is said.
func TestMoveOutRaced(t *testing.T) {
	eachWay(t, func(t *testing.T, opt Option) {
		dir := testutil.TempDir(t)
		root, away, outside := firstMade(t, dir+"/root"), dir+"/away", dir+"/outside"
		mkdirs(t, away)
		wantErr(t, os.Chmod(away, 0o700), nil, "")
		plant(t, outside, "sentinel=1")
		parent := filepath.Join(root, filepath.Dir(podVolume))
		plant(t, root, podVolume+"/file=1")
		wantErr(t, os.Symlink(outside, parent+"/link"), nil, "")
		before := testutil.Tree(t, outside)
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				_ = unix.Renameat2(unix.AT_FDCWD, parent+"/cache", unix.AT_FDCWD, parent+"/link", unix.RENAME_EXCHANGE)
			}
		}()
		r, to := openLayout(t, root, opt), openDir(t, away)
		moved := 0
		for i := 0; i < 300 || moved == 0 && i < 100_000; i++ {
			name, err := r.MoveOut(podVolume, to, "as")
			if err == nil || errors.Is(err, api.ErrUncertain) {
				moved++
				// Back, whatever it is, for the next round.
				back := away + "/" + name
				for _, at := range []string{parent + "/cache", parent + "/link"} {
					if unix.Renameat2(unix.AT_FDCWD, back, unix.AT_FDCWD, at, unix.RENAME_NOREPLACE) == nil {
						break
					}
				}
			}
		}
		stop.Store(true)
		<-done
		if moved == 0 {
			t.Error("nothing was ever moved: the race says nothing")
		}
		if after := testutil.Tree(t, outside); after != before {
			t.Errorf("changed outside:\n%s", after)
		}
		if got := testutil.Tree(t, root) + testutil.Tree(t, away); strings.Count(got, "/file\"") != 1 {
			t.Errorf("the data is not there once:\n%s", got)
		}
	})
}
