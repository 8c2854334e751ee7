package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// Pods of a node whose UIDs begin alike, of a static pod, and with one made by hand.
const (
	alike1  = "9a8b7c6d-1111-4bd5-8f4e-1c3ad3a0a1f2"
	alike2  = "9a8b7c6d-5e4f-4bd5-8f4e-1c3ad3a0a1f2"
	static  = "e5f0a1b2c3d4e5f60718293a4b5c6d7e"
	byHand  = "web-1"
	byHand2 = "web-10"
)

// namingNode has volumes of these pods; one is mounted.
func namingNode(t *testing.T) (root string) {
	t.Helper()
	testutil.Root(t)
	dir := testutil.TempDir(t)
	for name, value := range map[string]string{
		"KVOL_ROOT_DIR": dir + "/kubelet", "KVOL_STATE_DIR": dir + "/state", "KVOL_RUN_DIR": dir + "/run", "KVOL_CONFIG": "", "KVOL_NODE_NAME": "node1",
	} {
		t.Setenv(name, value)
	}
	root = dir + "/kubelet"
	for _, volume := range []string{
		alike1 + "/volumes/kubernetes.io~nfs/models", alike2 + "/volumes/kubernetes.io~nfs/data", static + "/volumes/kubernetes.io~nfs/logs",
		byHand2 + "/volumes/kubernetes.io~nfs/other", podB + "/volumes/kubernetes.io~empty-dir/cache",
	} {
		if err := os.MkdirAll(root+"/pods/"+volume, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Tmpfs(t, root+"/pods/"+alike2+"/volumes/kubernetes.io~nfs/data")
	writeText(t, dir+"/disk/file", "")
	writeText(t, dir+"/pv.yaml", "kind: PersistentVolume\napiVersion: v1\nmetadata: {name: new}\nspec:\n  capacity: {storage: 1Mi}\n  accessModes: [ReadWriteOnce]\n  local: {path: "+dir+"/disk}\n")
	t.Chdir(dir)
	return root
}

// A UID that is cut short, or is written in another way, is that of no pod: nothing may be
// said or done as if there were such a pod.
func TestWholeUID(t *testing.T) {
	root := namingNode(t)
	bare, under := strings.ReplaceAll(alike2, "-", ""), strings.ReplaceAll(alike2, "-", "_")
	for word, whole := range map[string]string{
		"9a8b7c6d-5": alike2, "9a8b7c6d5e": alike2, strings.ToUpper(alike2): alike2, bare: alike2, "7b1f": podB,
		"e5f0": static, strings.ToUpper(static): static, "e5f0a1b2-c3d4-e5f6-0718-293a4b5c6d7e": static,
		"pod" + alike2: alike2, "pod" + under: alike2, "POD" + strings.ToUpper(bare): alike2, alike2 + "x": alike2, "{" + alike2 + "}": alike2,
		"urn:uuid:" + alike2: alike2, alike2 + "_": alike2, under: alike2, "cri-" + static + ".scope": static,
	} {
		lines := []string{"unpublish data --pod-uid UID", "ls --pod-uid UID"}
		if word == "9a8b7c6d-5" || word == "pod"+under {
			lines = []string{
				"wait data --for=unmounted --pod-uid UID", "unpublish data --pod-uid UID", "teardown data --pod-uid UID", "unpublish --all --pod-uid UID",
				"ls --watch --timeout 1s --pod-uid UID", "setup -f pv.yaml --pod-uid UID", "setup --all -f pv.yaml --pod-uid UID",
				"paths -f pv.yaml --pod-uid UID", "expand data --size 1Gi --pod-uid UID", "history --pod-uid UID",
				"unpublish --all --pod-uid " + static + " --pod-uid UID",
			}
		}
		for _, line := range lines {
			r := kvol(t, strings.Fields(strings.ReplaceAll(line, "UID", word))...)
			if r.code != 2 || r.stdout != "" || !strings.HasSuffix(r.stderr, "next: name the pod by its whole UID: "+whole+"\n") {
				t.Error(r)
			}
		}
		if _, err := os.Stat(root + "/pods/" + word); err == nil {
			t.Errorf("%s was made", word)
		}
	}
	if r := kvol(t, "ls", "--pod-uid", "9a8b7c6d"); r.code != 2 || !strings.Contains(r.stderr, alike1) || !strings.Contains(r.stderr, alike2) {
		t.Error(r)
	}
	for _, uid := range []string{static, byHand, byHand2, alike2, podA, "WEB-10", "web-", "7b1", "7b1f-web", "pod7b1f04c4"} {
		if r := kvol(t, "setup", "-f", "pv.yaml", "--pod-uid", uid); r.code != 0 {
			t.Error(r)
		}
		if r := kvol(t, "teardown", "new", "--pod-uid", uid); r.code != 0 || !strings.Contains(r.stdout, "done") {
			t.Error(r)
		}
	}
	if r := kvol(t, "history", "--pod-uid", "e5f0"); r.code != 2 || !strings.Contains(r.stderr, static) {
		t.Error(r)
	}
	if r := kvol(t, "history", "--pod-uid", "0a8e9c5e"); r.code != 2 || !strings.Contains(r.stderr, podA) {
		t.Error(r) // of a pod that is gone
	}
}

// What the API server calls a pod is whole, also where it begins like another one.
func TestUIDOfDocument(t *testing.T) {
	namingNode(t)
	for _, uid := range []string{byHand, "e5f0a1b2", strings.ReplaceAll(alike2, "-", ""), alike2 + "-x"} {
		file := writeText(t, "pod.yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: web, namespace: shop, uid: "+uid+"}\nspec:\n  volumes:\n  - {name: tmp, emptyDir: {}}\n")
		for _, line := range []string{
			"setup -f FILE", "wait -f FILE --for=mounted", "teardown -f FILE --discard-ephemeral", "setup --all -f FILE", "teardown --all -f FILE --discard-ephemeral",
			"paths -f FILE --pod-uid UID", "setup --all -f FILE --dry-run --pod-uid UID",
		} {
			if r := kvol(t, strings.Fields(strings.NewReplacer("FILE", file, "UID", uid).Replace(line))...); r.code != 0 {
				t.Error(r)
			}
		}
	}
	file := writeText(t, "static.yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec:\n  volumes:\n  - {name: tmp, emptyDir: {}}\n")
	if r := kvol(t, "setup", "-f", file, "--pod-uid", "e5f0a1b2c3"); r.code != 2 || !strings.Contains(r.stderr, static) {
		t.Error(r) // it has none of its own
	}
}

// Of many pods that could be meant a few are named.
func TestManyPods(t *testing.T) {
	root := namingNode(t)
	docs := ""
	for i := range 40 {
		uid := fmt.Sprintf("abcdef01-%04d-4bd5-8f4e-1c3ad3a0a1f2", i)
		if err := os.MkdirAll(root+"/pods/"+uid+"/volumes/kubernetes.io~nfs/shared", 0o750); err != nil {
			t.Fatal(err)
		}
		docs += "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p" + uid + ", uid: " + uid + "}\n"
	}
	writeText(t, "pods.yaml", docs)
	for _, line := range []string{
		"ls --pod-uid abcdef01", "ls --pod abcdef01", "wait data --for=unmounted --pod-uid abcdef01", "unpublish data --pod-uid abcdef01", "history --pod-uid abcdef01",
		"setup -f pods.yaml --pod-uid abcdef01",
	} {
		r := kvol(t, strings.Fields(line)...)
		if r.code != 2 || strings.Count(r.stderr, "-4bd5-") != 3 && !strings.Contains(line, "-f") || !strings.Contains(r.stderr, "and 37 more") || strings.Count(r.stderr, "\n") > 6 {
			t.Error(r)
		}
	}
	if r := kvol(t, "unpublish", "shared", "--pod-uid", podA); r.code != 0 || !strings.Contains(r.stdout, "and 37 more") || strings.Count(r.stdout, "-4bd5-") > 4 {
		t.Error(r)
	}
}

// Nothing is said to be on no pod of the node that another pod has.
func TestVolumeOfAnotherPod(t *testing.T) {
	namingNode(t)
	for line, c := range map[string]struct {
		code int
		says string
	}{
		"unpublish data --pod-uid " + podA + " -o json": {0, `"pod ` + podA + ` has no volume of that name (pods that have one: ` + alike2 + `)"`},
		"unpublish data --must-exist --pod-uid " + podA: {5, "has no volume of that name (pods that have one: " + alike2 + "), and --must-exist was given"},
		"unpublish gone --pod-uid " + podA + " -o json": {0, `"nothing on this node has that name"`},
	} {
		if r := kvol(t, strings.Fields(line)...); r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.says) {
			t.Error(r)
		}
	}
}

// The short UID of a table is that of one pod of the node, also where a filter leaves out
// the others.
func TestShortUIDIsOfOnePod(t *testing.T) {
	namingNode(t)
	if r := kvol(t, "setup", "-f", "pv.yaml", "--pod-uid", alike1); r.code != 0 {
		t.Fatal(r)
	}
	for _, line := range []string{
		"ls --volume models", "ls --volume models -o tree", "ls --volume models --columns pod,path", "history", "history -o tree",
		"wait new --for mounted --pod-uid " + alike1 + " --columns pod", "setup -f pv.yaml --columns pod --pod-uid " + alike1, "inspect models", "inspect models -o tree",
	} {
		r := kvol(t, strings.Fields(line)...)
		if r.code != 0 || !strings.Contains(r.stdout, "9a8b7c6d-1") {
			t.Error(r)
		}
	}
}

// Of a plugin that is none nothing is ever mounted, and of one that has no such volume it
// is said that nothing has the name.
func TestWaitForPlugin(t *testing.T) {
	namingNode(t)
	for line, c := range map[string]struct {
		code int
		says string
	}{
		"wait data --for=unmounted --plugin kubernetes.io/bogus":       {5, "next: "},
		"wait data --for=unmounted --plugin local":                     {5, "did you mean --plugin kubernetes.io/local-volume?"},
		"wait data --for=unmounted --plugin example.com/bogus":         {5, `there is no volume plugin`},
		"wait data --for=unmounted --plugin bogus":                     {5, "next: "},
		"wait data --for=unmounted --plugin iscsi":                     {0, `nothing on this node is called "data"`},
		"wait gone --for=unmounted --plugin nfs":                       {0, `nothing on this node is called "gone"`},
		"wait data --for=mounted --plugin nfs":                         {0, ""},
		"ls --plugin kubernetes.io/bogus":                              {5, "next: "},
		"limits --plugin bogus":                                        {5, "next: "},
		"plugins --plugin kubernetes.io/bogus":                         {5, "next: "},
		"teardown data --plugin kubernetes.io/bogus":                   {5, "next: "},
		"teardown data --plugin example.com/bogus --pod-uid " + alike2: {5, "next: "},
		"paths -f pv.yaml --plugin kubernetes.io/bogus":                {5, "next: "},
	} {
		if r := kvol(t, strings.Fields(line)...); r.code != c.code || !strings.Contains(r.stderr, c.says) {
			t.Error(r)
		}
	}
}
