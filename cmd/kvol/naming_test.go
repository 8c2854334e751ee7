package main

import (
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
	for _, word := range []string{"9a8b7c6d-5", strings.ToUpper(alike2), strings.ReplaceAll(alike2, "-", ""), "e5f0a1b2", "E5F0A1B2C3D4E5F60718293A4B5C6D7E", "WEB-10"} {
		whole := alike2
		switch {
		case strings.EqualFold(word[:4], "e5f0"):
			whole = static
		case strings.EqualFold(word, byHand2):
			whole = byHand2
		}
		pod := "kind: Pod\napiVersion: v1\nmetadata: {name: web, namespace: shop, uid: " + word + "}\nspec:\n  volumes:\n  - {name: tmp, emptyDir: {}}\n"
		file := writeText(t, "pod.yaml", pod)
		for _, line := range []string{
			"wait data --for=unmounted --pod-uid UID", "unpublish data --pod-uid UID", "teardown data --pod-uid UID", "unpublish --all --pod-uid UID",
			"teardown data --pod-uid UID --dry-run", "ls --pod-uid UID", "ls --watch --timeout 1s --pod-uid UID", "setup -f pv.yaml --pod-uid UID", "publish -f pv.yaml --pod-uid UID",
			"paths -f pv.yaml --pod-uid UID", "expand data --size 1Gi --pod-uid UID", "setup -f " + file, "setup --all -f " + file, "wait -f " + file + " --for=mounted",
			"unpublish --all --pod-uid " + static + " --pod-uid UID",
		} {
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
	for _, uid := range []string{static, byHand, byHand2, alike2, podA} {
		if r := kvol(t, "setup", "-f", "pv.yaml", "--pod-uid", uid); r.code != 0 {
			t.Error(r)
		}
		if r := kvol(t, "teardown", "new", "--pod-uid", uid); r.code != 0 || !strings.Contains(r.stdout, "done") {
			t.Error(r)
		}
	}
	if r := kvol(t, "history", "--pod-uid", "0a8e9c5e"); r.code != 2 || !strings.Contains(r.stderr, podA) {
		t.Error(r) // of a pod that is gone
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
