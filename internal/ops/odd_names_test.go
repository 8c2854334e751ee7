package ops_test

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/testutil"
)

// The kernel takes any byte in a name. One that is no text is written with U+FFFD by
// what carries text only, and that may be the name of another volume, which stays.
func TestOrphansWhoseNameIsNoText(t *testing.T) {
	n := newOrphans(t)
	dir := n.pod(podGone) + "/volumes/kubernetes.io~empty-dir/"
	odd, twin := dir+"bad\xff", dir+"bad\ufffd"
	for _, at := range []string{odd, twin} {
		n.must(os.MkdirAll(at, 0o750))
		testutil.Tmpfs(t, at)
	}
	n.write(twin + "/file")
	n.list(podLive)
	done := n.gc(api.ErrPartly, ops.OrphanRequest{})[podGone]
	if !slices.ContainsFunc(done.Steps, func(s api.Step) bool { return s.Action == "unmount" && s.Target == odd }) {
		t.Errorf("%+v", done)
	}
	n.there(false, odd)
	n.there(true, twin+"/file")
	var st unix.Statfs_t
	if err := unix.Statfs(twin, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("the other volume is not mounted any more: %v %x", err, st.Type)
	}
}
