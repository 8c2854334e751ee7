package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"

	"golang.org/x/sys/unix"
)

// listCase is a command that shows a list.
type listCase struct {
	words   []string
	code    int
	key     string     // the field and column that tells its items apart
	not     []string   // the items that are not the same in every format
	head    string     // its heading
	sort    string     // a column whose order is not that of the list
	filters [][]string // each leaves some of the items
	none    []string   // leaves nothing
	name    func(item) []string
	inTree  func(item) string
}

// named is how many words name the command.
func (c listCase) named() int {
	if c.words[0] == "config" {
		return 2
	}
	return 1
}

// noLists are the commands that show one thing, or nothing of a node.
var noLists = []string{"", "inspect", "version", "config", "completion", "help"}

// listNode is a node on which every list has something to show.
type listNode struct {
	dir, root string
	pv, claim string
	live      string
}

func writeText(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// long is a name that no table may cut.
var long = strings.Repeat("long", 50)

func newListNode(t *testing.T) *listNode {
	t.Helper()
	testutil.Root(t)
	dir := testutil.TempDir(t)
	n := &listNode{dir: dir, root: dir + "/kubelet"}
	for name, value := range map[string]string{
		"KVOL_ROOT_DIR": n.root, "KVOL_STATE_DIR": dir + "/state", "KVOL_RUN_DIR": dir + "/run", "KVOL_CONFIG": "", "KVOL_NODE_NAME": "node1",
	} {
		t.Setenv(name, value)
	}
	nfs := "/volumes/kubernetes.io~nfs/"
	for _, path := range []string{
		dir + "/data", n.root + "/pods/" + podA + nfs + "zeta", n.root + "/pods/" + podA + nfs + "a b", n.root + "/pods/" + podB + nfs + long,
	} {
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
		testutil.Tmpfs(t, path)
	}
	testutil.Tmpfs(t, n.root+"/pods/"+podB+nfs+long) // twice
	for volume, driver := range map[string]string{"one": "a.example.com", "two": "a.example.com", "other": "b.example.com"} {
		writeText(t, n.root+"/pods/"+podB+"/volumes/kubernetes.io~csi/"+volume+"/vol_data.json", `{"driverName":"`+driver+`","volumeHandle":"`+volume+`"}`)
	}
	n.pv = writeText(t, dir+"/pv.yaml", `apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  local: {path: `+dir+`/data}
`)
	n.claim = writeText(t, dir+"/claim.yaml", `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, uid: 6a0dd2a5-0000-4000-8000-00000000000b}
spec:
  storageClassName: test
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: test}
provisioner: kubernetes.io/host-path
`)
	n.live = "file:" + writeText(t, dir+"/pods.yaml", "kind: Pod\nmetadata: {uid: "+podB+", name: web, namespace: shop}\n")
	for _, words := range [][]string{
		{"setup", "-f", n.pv, "--pod-uid", podA}, {"unpublish", "other", "--pod-uid", podA}, {"setup", "-f", n.pv, "--pod-uid", podA},
	} {
		if r := kvol(t, words...); r.code != 0 {
			t.Fatal(r)
		}
	}
	return n
}

// device is the number of the file system that a pod's volume is on.
func (n *listNode) device(pod, volume string) string {
	var st unix.Stat_t
	if err := unix.Stat(n.root+"/pods/"+pod+"/volumes/kubernetes.io~nfs/"+volume, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
}

func fieldOf(name string) func(item) string { return func(i item) string { return asText(i[name]) } }

func namesOf(field string) func(item) []string {
	return func(i item) []string { return []string{asText(i[field])} }
}

func (n *listNode) cases() []listCase {
	return append([]listCase{
		{
			words: []string{"list-mounts"}, key: "path", head: "PATH", sort: "volume", name: namesOf("path"), inTree: fieldOf("path"),
			filters: [][]string{
				{"--pod", podB[:8], "--plugin", "kubernetes.io/nfs"}, {"--kind", "podVolume", "--state", "unmounted"}, {"--duplicates"},
				{"--volume", "zeta", "--volume", "a b", "--plugin", "csi,nfs"}, {"--device", n.device(podA, "zeta")}, {"--orphans", "--pods-from", n.live},
				{"--namespace", "shop", "--pods-from", n.live}, {"--pod", "shop/web", "--owner", "live", "--pods-from", n.live},
			},
			none: []string{"--volume", "nothing"},
		},
		{
			words: []string{"history"}, key: "id", head: "ID", sort: "verb", name: namesOf("id"),
			inTree: func(i item) string { return asText(i["verb"]) }, filters: [][]string{{"--volume", "data"}}, none: []string{"--volume", "nothing"},
		},
		{words: []string{"plugins"}, key: "name", head: "NAME", sort: "description", name: namesOf("name"), inTree: fieldOf("name"),
			filters: [][]string{{"--plugin", "kubernetes.io/csi"}}, none: []string{"--plugin", "vendor/nothing"}},
		{words: []string{"limits"}, key: "key", head: "KEY", sort: "attached", name: namesOf("key"), inTree: fieldOf("key"), none: []string{"--plugin", "vendor/nothing"}},
		{words: []string{"config", "view"}, key: "name", not: []string{"output", "no-headers"}, head: "NAME", sort: "value", name: namesOf("name"), inTree: fieldOf("name")},
		{words: []string{"paths", n.root + "/pods", n.root, "/etc"}, key: "path", head: "PATH", sort: "path", name: namesOf("path"), inTree: fieldOf("path")},
		{words: []string{"wait", "zeta", podA, "data", "--for", "mounted"}, key: "subject", head: "SUBJECT", sort: "subject", name: namesOf("subject"),
			inTree: func(i item) string { return asText(i["subjectKind"]) + " " + asText(i["subject"]) }},
		{
			words: []string{"gc-orphans", "--pods-from", n.live, "--assert-no-pods", "--min-age", "0"}, key: "path", head: "PATH", sort: "verdict", inTree: fieldOf("path"),
			name: func(i item) []string {
				if steps, _ := i["steps"].([]any); i["verdict"] != "orphan" || len(steps) == 0 || i["blockedBy"] != "" {
					return nil
				}
				return []string{asText(i["path"])}
			},
		},
		n.plan("action", "setup", "-f", n.pv, "--pod-uid", podB, "--dry-run"),
		n.plan("", "provision", "-f", n.claim, "--dry-run"),
	}, n.verbs()...)
}

func (n *listNode) plan(sort string, words ...string) listCase {
	return listCase{
		words: words, key: "n", head: "N", sort: sort, name: namesOf("target"),
		inTree: func(i item) string { return asText(i["n"]) + " " + asText(i["action"]) },
	}
}

// verbs are tried where all is done already: the same command again shows the same.
func (n *listNode) verbs() []listCase {
	var out []listCase
	for _, c := range []struct {
		code  int
		sort  string
		words []string
	}{
		{0, "", []string{"attach", "-f", n.pv}},
		{0, "", []string{"mount-device", "-f", n.pv}},
		{0, "", []string{"publish", "-f", n.pv, "--pod-uid", podA}},
		{0, "outcome", []string{"setup", "-f", n.pv, "--pod-uid", podA}},
		{0, "", []string{"unpublish", "nothing", "--pod-uid", podA}},
		{0, "op", []string{"teardown", "nothing", "--pod-uid", podA}},
		{0, "", []string{"unmount-device", "nothing"}},
		{0, "", []string{"detach", "nothing"}},
		{0, "", []string{"expand", "-f", n.pv}},
		{6, "", []string{"recycle", "-f", n.pv, "--yes-delete-data"}},
		{6, "", []string{"delete", "-f", n.pv, "--yes-delete-data"}},
		{0, "", []string{"recover", "one", "--apply"}},
	} {
		out = append(out, listCase{words: c.words, code: c.code, key: "op", head: "OP", sort: c.sort, name: resultNames, inTree: fieldOf("op")})
	}
	return out
}

// resultNames is the path that a rung is about.
func resultNames(i item) []string {
	paths := i["paths"].(map[string]any)
	fields := []string{"podVolumePath", "podDeviceMapPath", "globalMountPath", "globalMapPath"}
	switch asText(i["op"]) {
	case "attach", "detach":
		fields = nil
	case "mount-device", "unmount-device":
		fields = fields[2:]
	}
	for _, field := range fields {
		if path := asText(paths[field]); path != "" {
			return []string{path}
		}
	}
	if path := asText(i["devicePath"]); path != "" {
		return []string{path}
	}
	return nil
}
