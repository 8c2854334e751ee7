package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"

	"github.com/spf13/pflag"
)

// A slow machine is not what the tests are about: only what hangs takes that long.
func init() { glanceTime = 20 * time.Second }

var glanceForPeople = glanceTime // before that

// Every flag says what its value may be, or that nobody can tell.
func TestEveryFlagIsCompleted(t *testing.T) {
	used := map[string]bool{"help": true}
	for words, c := range every(t) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			used[f.Name] = true
			if _, ok := values[f.Name]; !ok && f.Value.Type() != "bool" {
				t.Errorf("kvol %s: --%s is not in the table of completion", words, f.Name)
			}
		})
	}
	for name := range values {
		if !used[name] {
			t.Errorf("no command has --%s", name)
		}
	}
}

// press is what a shell is told of the last of the words.
func press(t *testing.T, words ...string) (offers []string, directive string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Run(append([]string{"__complete"}, words...), nil, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("%q: exit code %d: %s", words, code, &errs)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

const (
	podA = "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2"
	podB = "7b1f04c4-9a53-4f4e-9a57-6a6a1b8a2d11"
)

// completionNode is a kubelet's root with two pods, names that hurt a shell, and two
// volumes that do not answer: of one the daemon is gone, the other hangs.
func completionNode(t *testing.T) string {
	t.Helper()
	testutil.Root(t)
	root := filepath.Join(testutil.TempDir(t), "kubelet")
	volume := func(uid, plugin, name string) string {
		dir := filepath.Join(root, "pods", uid, "volumes", plugin, name)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	volume(podA, "kubernetes.io~empty-dir", "data")
	volume(podB, "kubernetes.io~empty-dir", "data")
	volume(podB, "kubernetes.io~empty-dir", "cache")
	for _, name := range hostile {
		volume(podB, "kubernetes.io~empty-dir", name)
	}
	csi := volume(podA, "kubernetes.io~csi", "pvc-1")
	metadata := `{"driverName":"ebs.csi.aws.com","volumeHandle":"vol-7","specVolID":"pvc-1"}`
	if err := os.WriteFile(filepath.Join(csi, "vol_data.json"), []byte(metadata), 0o600); err != nil {
		t.Fatal(err)
	}
	staged := filepath.Join(root, "plugins/kubernetes.io/csi/ebs.csi.aws.com", paths.HandleHash("vol-8"), "globalmount")
	if err := os.MkdirAll(staged, 0o750); err != nil {
		t.Fatal(err)
	}
	metadata = strings.ReplaceAll(metadata, "vol-7", "vol-8")
	if err := os.WriteFile(filepath.Join(filepath.Dir(staged), "vol_data.json"), []byte(metadata), 0o600); err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(csi, "mount")
	if err := os.Mkdir(mount, 0o750); err != nil {
		t.Fatal(err)
	}
	testutil.FUSE(t, mount, testutil.FUSEDead)
	testutil.FUSE(t, volume(podA, "kubernetes.io~nfs", "hung"), testutil.FUSEHung)
	t.Setenv("KVOL_ROOT_DIR", root)
	run := filepath.Join(filepath.Dir(root), "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KVOL_RUN_DIR", run)
	t.Setenv("KVOL_STATE_DIR", filepath.Join(filepath.Dir(root), "state"))
	return root
}

// hostile are names that a shell would do something with. All begin alike: bash inserts
// what they have in common.
var hostile = []string{
	"evil $(touch HIT)1", "evil$(touch HIT)1", "evil$(touch HIT)2", "evil`touch HIT`1", "evil`touch HIT`2",
	"evil;touch HIT;1", "evil;touch HIT;2", "evil'1", `evil"1`, "evil\n1", "evil\\1", "evil*", "evil|1", "evil&1", "evil>HIT", "~evil", "-evil", "evil!1", "=evil",
}

func TestComplete(t *testing.T) {
	root := completionNode(t)
	hung := root + "/pods/" + podA + "/volumes/kubernetes.io~nfs/hung"
	for _, c := range []struct {
		words     []string
		want      []string
		directive string
	}{
		{[]string{"teardown", ""}, []string{"cache\tkubernetes.io/empty-dir, 1 pod", "data\tkubernetes.io/empty-dir, 2 pods",
			"ebs.csi.aws.com^vol-8\tkubernetes.io/csi", "hung\tkubernetes.io/nfs, 1 pod", "pvc-1\tebs.csi.aws.com^vol-7, 1 pod"}, ":4"},
		{[]string{"teardown", "data", ""}, nil, ":4"},
		{[]string{"unmount-device", ""}, []string{"ebs.csi.aws.com^vol-8\tkubernetes.io/csi", "pvc-1\tebs.csi.aws.com^vol-7, 1 pod"}, ":4"},
		{[]string{"ls", "--volume", "ebs"}, []string{"ebs.csi.aws.com^vol-7\tpvc-1, 1 pod", "ebs.csi.aws.com^vol-8\tkubernetes.io/csi"}, ":4"},
		{[]string{"wait", "data", "ca"}, []string{"cache\tkubernetes.io/empty-dir, 1 pod"}, ":4"},
		{[]string{"wait", "data", "da"}, nil, ":4"},
		{[]string{"paths", hung, hung}, nil, ":4"},
		{[]string{"teardown", "--pod-uid", podB, ""}, []string{"cache\tkubernetes.io/empty-dir, 1 pod", "data\tkubernetes.io/empty-dir, 1 pod"}, ":4"},
		{[]string{"unpublish", "ca"}, []string{"cache\tkubernetes.io/empty-dir, 1 pod"}, ":4"},
		{[]string{"teardown", "--plugin", "kubernetes.io/nfs", ""}, []string{"hung\tkubernetes.io/nfs, 1 pod"}, ":4"},
		{[]string{"teardown", "cache", "--pod-uid", ""}, []string{podB + "\tcache, data"}, ":4"},
		{[]string{"ls", "--volume", "cache", "--pod-uid", "7b"}, []string{podB + "\tcache, data"}, ":4"},
		{[]string{"ls", "--pod-uid="}, []string{podA + "\tdata, hung, pvc-1", podB + "\tcache, data"}, ":4"},
		{[]string{"ls", "--plugin", "kubernetes.io/n"}, []string{"kubernetes.io/nfs"}, ":4"},
		{[]string{"ls", "--plugin", "nf"}, []string{"nfs"}, ":4"},
		{[]string{"ls", "--plugin", "csi,nf"}, []string{"csi,nfs"}, ":4"},
		{[]string{"history", "--plugin", "csi,nf"}, nil, ":4"},
		{[]string{"ls", "--plugin", "csi,nfs", "--volume", "h"}, []string{"hung\tkubernetes.io/nfs, 1 pod"}, ":4"},
		{[]string{"ls", "--pod", podA + "," + podB[:4]}, []string{podA + "," + podB + "\tcache, data"}, ":4"},
		{[]string{"ls", "--volume", "data,ca"}, nil, ":4"},
		{[]string{"ls", "--volume", "cache", "--volume", "none", "--pod-uid", ""}, []string{podB + "\tcache, data"}, ":4"},
		{[]string{"teardown", "--plugin", "nfs", ""}, []string{"hung\tkubernetes.io/nfs, 1 pod"}, ":4"},
		{[]string{"ls", "--kind", "podV"}, []string{"podVolume"}, ":4"},
		{[]string{"ls", "--state", "ok,sta"}, []string{"ok,stale"}, ":4"},
		{[]string{"ls", "--state", "stale,sta"}, nil, ":4"},
		{[]string{"ls", "extra", ""}, nil, ":4"},
		{[]string{"ls", "--columns", "pod"}, []string{"podUID", "podName"}, ":4"},
		{[]string{"ls", "--columns", "podUID,+sta"}, []string{"podUID,+state", "podUID,+stateReason", "podUID,+stacked"}, ":4"},
		{[]string{"plugins", "--sort-by", "na"}, []string{"name"}, ":4"},
		{[]string{"inspect", "--columns", ""}, nil, ":4"},
		{[]string{"paths", "--columns", "po"}, []string{"podUID"}, ":4"},
		{[]string{"paths", "-f", "pv.yaml", "--columns", ""}, nil, ":4"},
		{[]string{"ls", "-o", "js"}, []string{"json", "jsonl", "jsonpath=", "jsonpath-as-json=", "jsonpath-file="}, ":4"},
		{[]string{"ls", "-o", "jsonpath"}, []string{"jsonpath=", "jsonpath-as-json=", "jsonpath-file="}, ":6"},
		{[]string{"ls", "-o", "jsonpath="}, nil, ":4"},
		{[]string{"ls", "-ojsonpath-file="}, nil, ":0"},
		{[]string{"version", "-o", "na"}, nil, ":4"},
		{[]string{"setup", "-o", "sh"}, nil, ":4"},
		{[]string{"setup", "--dry-run", "-o", "sh"}, []string{"shell"}, ":4"},
		{[]string{"paths", hung}, []string{hung + "\tpodVolume hung"}, ":4"},
		{[]string{"inspect", root + "/nothing"}, nil, ":4"},
		{[]string{"inspect", "/"}, nil, ":0"},
		{[]string{"setup", "--root-dir", ""}, nil, ":16"},
		{[]string{"setup", "-f", ""}, []string{"yaml", "yml", "json"}, ":8"},
		{[]string{"gc-orphans", "--pods-from", "kubelet,fi"}, []string{"kubelet,file:"}, ":6"},
		{[]string{"gc-orphans", "--pods-from", "file:" + root + "/"}, []string{"file:" + root + "/plugins", "file:" + root + "/pods"}, ":6"},
		{[]string{"gc-orphans", "--max", ""}, nil, ":4"},
		{[]string{"completion", "ba"}, []string{"bash"}, ":4"},
		{[]string{"help", "conf"}, []string{"config\tShow the configuration"}, ":4"},
		{[]string{"config", "vi"}, []string{"view\tShow every setting and where it comes from"}, ":4"},
		{[]string{"bogus", ""}, nil, ":4"},
		{[]string{"ls", "--bogus", ""}, nil, ":0"},
		{[]string{"ls", "--root-dir", "/nothing/here", "--pod-uid", ""}, nil, ":4"},
		{[]string{"ls", "--config", "/nothing/here", "--pod-uid", ""}, nil, ":4"},
		{[]string{"ls", "--root-dir", "relative", "--pod-uid", ""}, nil, ":4"},
	} {
		got, directive := press(t, c.words...)
		if !slices.Equal(got, c.want) || directive != c.directive {
			t.Errorf("kvol %q: %q %s, want %q %s", c.words, got, directive, c.want, c.directive)
		}
	}
	leavesNothing(t, root)
}

// leavesNothing: completion keeps no memo of what hangs, and takes no lock.
func leavesNothing(t *testing.T, root string) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Join(filepath.Dir(root), "run")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(root), "state")); err == nil {
		t.Error("completion made the directory of the journal")
	}
}

// What does not answer is waited for until the time is up, and no longer.
func TestCompleteInTime(t *testing.T) {
	if glanceForPeople > 400*time.Millisecond {
		t.Errorf("who presses Tab waits for %s, and it may be half a second with the start of kvol", glanceForPeople)
	}
	defer func(long time.Duration) { glanceTime = long }(glanceTime)
	glanceTime = 50 * time.Millisecond
	root := completionNode(t)
	hung := root + "/pods/" + podA + "/volumes/kubernetes.io~nfs/hung"
	for _, words := range [][]string{
		{"ls", "--root-dir", hung, "--pod-uid", ""},
		{"ls", "--config", hung + "/config.yaml", "--pod-uid", ""},
		{"ls", "--pods-from", "file:" + hung + "/"},
		{"ls", "--sys-root", hung, "--device", ""},
		{"ls", "--run-dir", hung, "--pod-uid", "none"},
	} {
		if offers, _ := press(t, words...); len(offers) > 0 {
			t.Errorf("%q: %q", words, offers)
		}
	}
	leavesNothing(t, root)
}

// A thousand pods are offered, beside volumes that do not answer.
func TestCompleteManyPods(t *testing.T) {
	root := completionNode(t)
	for i := range 1000 {
		dir := filepath.Join(root, "pods", fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), "volumes/kubernetes.io~empty-dir", fmt.Sprint("v", i))
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if offers, _ := press(t, "ls", "--pod-uid", "000"); len(offers) != 1000 || offers[999] != "000003e7-0000-4000-8000-000000000000\tv999" {
		t.Errorf("%d pods are offered: %q", len(offers), offers)
	}
	if offers, _ := press(t, "teardown", ""); len(offers) != 1005 {
		t.Errorf("%d volumes are offered", len(offers))
	}
}
