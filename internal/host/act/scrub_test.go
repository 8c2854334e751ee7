package act

import (
	"errors"
	"os"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

func TestSystemDirectories(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/etc": true, "/etc/kubernetes/pki": true, "/usr/local/x": true, "/var": true, "/var/lib": true, "/var/lib/etcd/member": true,
		"/var/lib/containerd/x": true, "/tmp": true, "/home": true, "/proc/1": true, "/dev/shm": true,
		"/tmp/x": false, "/home/x": false, "/var/lib/x": false, "/mnt/disk": false, "/data": false, "/etcetera": false, "/var/tmp/x": false,
	} {
		if got := isSystem(path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

// A volume that is a mount point can be emptied and not deleted; kvol's own journal is
// in neither.
func TestScrubRefuses(t *testing.T) {
	dir, fresh, ctx := newRunner(t, true)
	write(t, dir+"/vol/f", "1")
	write(t, dir+"/root/pods/x/f", "1")
	if err := os.Symlink(dir+"/vol", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		dir + "/vol": nil, dir + "/vol/": nil, dir + "/link": api.ErrRefused, dir: api.ErrRefused, dir + "/root": api.ErrRefused,
		dir + "/root/pods/x": api.ErrRefused, dir + "/missing": api.ErrNotFound, dir + "/vol/f": api.ErrRefused,
	} {
		if _, err := fresh().Do(ctx, Scrub{Path: path}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	for path, want := range map[string]error{dir + "/vol/f": nil, dir + "/missing": nil, "/proc": api.ErrRefused} {
		if _, err := fresh().Do(ctx, Scrub{Path: path, Self: true}); !errors.Is(err, want) {
			t.Errorf("%s itself: %v, want %v", path, err, want)
		}
	}
}
