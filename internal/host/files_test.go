package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// TestFiles: this process and the helper read the same.
func TestFiles(t *testing.T) {
	testutil.Root(t)
	dir := testutil.TempDir(t)
	h, err := New(Options{RootDir: dir + "/root", StateDir: dir + "/state", RunDir: dir + "/run"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for _, err := range []error{
		os.WriteFile(dir+"/file", []byte("text"), 0o600), os.Symlink("file", dir+"/link"), os.Symlink("nowhere", dir+"/dangling"),
		unix.Mkfifo(dir+"/fifo", 0o600), os.WriteFile(dir+"/huge", nil, 0o600), os.Truncate(dir+"/huge", maxFile+1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	hung := testutil.FUSE(t, mkdir(t, dir+"/hung"), testutil.FUSEHung)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for by, files := range map[string]*Files{"this process": h.Files(), "the helper": h.FilesBy(nil)} {
		for _, name := range []string{"/file", "/link"} {
			f, err := files.Read(ctx, dir+name)
			if err != nil || string(f.Data) != "text" || time.Since(f.ModTime) > time.Hour {
				t.Errorf("%s: %s: %+v, %v", by, name, f, err)
			}
		}
		for name, want := range map[string]error{
			"/none": api.ErrNotFound, "/file/none": api.ErrNotFound, "/dangling": api.ErrNotFound,
			"/fifo": api.ErrInput, "": api.ErrInput, "/huge": api.ErrInput,
		} {
			if _, err := files.Read(ctx, dir+name); !errors.Is(err, want) {
				t.Errorf("%s: %s: %v, want %v", by, name, err, want)
			}
			if got := files.Exists(ctx, dir+name); got == errors.Is(want, api.ErrNotFound) {
				t.Errorf("%s: %s exists: %v", by, name, got)
			}
		}
		names, err := files.Names(ctx, dir)
		slices.Sort(names)
		if want := []string{"dangling", "fifo", "file", "huge", "hung", "link"}; err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: %q, %v", by, names, err)
		}
		if _, err := files.Names(ctx, dir+"/file"); err == nil {
			t.Errorf("%s: a file is listed", by)
		}
		short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		if _, err := files.Read(short, hung.Path+"/x"); !errors.Is(err, api.ErrTimeout) || short.Err() == nil {
			t.Errorf("%s: a file that does not answer: %v", by, err)
		}
		stop()
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
