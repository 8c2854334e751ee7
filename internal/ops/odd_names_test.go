package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/testutil"
)

// oddPod is a pod that is gone, with volumes in memory of these names. The kernel takes
// any byte in a name: "bad\xff" is no text.
func oddPod(t *testing.T, names ...string) (*orphans, string) {
	t.Helper()
	n := newOrphans(t)
	dir := n.pod(podGone) + "/volumes/kubernetes.io~empty-dir/"
	for _, name := range names {
		n.must(os.MkdirAll(dir+name, 0o750))
		testutil.Tmpfs(t, dir+name)
	}
	n.list(podLive)
	return n, dir
}

func (n *orphans) mounted(at string) {
	n.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		n.t.Errorf("%q is not mounted any more: %v", at, err)
	}
}

// byPlan makes a plan, as a file has it.
func (n *orphans) byPlan() ops.OrphanRequest {
	n.t.Helper()
	req := ops.OrphanRequest{Pods: alive.Options{From: []string{"file:" + n.dir + "/pods.txt"}}}
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	plan, err := n.PlanOrphans(ctx, req)
	n.must(err)
	var file bytes.Buffer
	var read api.List[api.Orphan]
	n.must(api.AppendJSON(&file, plan), json.Unmarshal(file.Bytes(), &read))
	return ops.OrphanRequest{Plan: read.Items}
}

// What carries text only writes U+FFFD for each byte that is none, and that may be the
// name of another volume, which stays.
func TestOrphansWhoseNameIsNoText(t *testing.T) {
	for _, by := range []func(*orphans) ops.OrphanRequest{
		func(*orphans) ops.OrphanRequest { return ops.OrphanRequest{} }, (*orphans).byPlan,
	} {
		n, dir := oddPod(t, "bad\xff", "bad\ufffd", `bad\xff`)
		n.write(dir + "bad\ufffd/file")
		n.write(dir + `bad\xff/file`)
		global := n.root + "/plugins/kubernetes.io/local-volume/mounts/pv\xff"
		n.must(os.MkdirAll(global, 0o750))
		testutil.Tmpfs(t, global)
		n.list(podLive)
		done := n.gc(api.ErrPartly, by(n))[podGone]
		if !slices.ContainsFunc(done.Steps, func(s api.Step) bool { return s.Action == "unmount" && s.Target == dir+"bad\xff" }) {
			t.Errorf("%+v", done)
		}
		n.there(false, dir+"bad\xff")
		n.there(false, global)
		for _, twin := range []string{"bad\ufffd", `bad\xff`} {
			n.there(true, dir+twin+"/file")
			n.mounted(dir + twin)
		}
	}
}

// A plan is of the very name: another that the file shows in the same way is not taken
// for it.
func TestPlanOfANameThatIsNoText(t *testing.T) {
	n, dir := oddPod(t, "bad\xff")
	req := n.byPlan()
	n.must(unix.Unmount(dir+"bad\xff", 0), os.Rename(dir+"bad\xff", dir+`bad\xff`))
	testutil.Tmpfs(t, dir+`bad\xff`)
	n.list(podLive)
	if o := n.gc(api.ErrPartly, req)[podGone]; o.Outcome != string(api.OutcomeRefused) || !strings.Contains(o.Reason, "of which the plan says nothing") {
		t.Errorf("%+v", o)
	}
	n.mounted(dir + `bad\xff`)
}
