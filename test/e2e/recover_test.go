package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

// volData writes a metadata file as a kubelet does, and gives its path. Its directory
// is made, and the place that the volume would be mounted at.
func (n *node) volData(path string, keysAndValues ...string) string {
	n.t.Helper()
	object := map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		object[keysAndValues[i]] = keysAndValues[i+1]
	}
	text, err := json.Marshal(object)
	must(n.t, err)
	return n.volFile(path, string(text)+"\n")
}

func (n *node) volFile(path, text string) string {
	n.t.Helper()
	path = n.root + path
	mount := map[bool]string{true: "/mount", false: "/globalmount"}[strings.Contains(path, "/pods/")]
	if strings.HasSuffix(path, "/data/vol_data.json") {
		mount = "/../dev"
	}
	must(n.t, os.MkdirAll(filepath.Dir(path)+mount, 0o750), os.WriteFile(path, []byte(text), 0o644))
	return path
}

// kubeletReads is the kubelet's own reader (loadVolumeData in pkg/volume/csi).
func kubeletReads(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	err = json.NewDecoder(bytes.NewReader(b)).Decode(&data)
	if err == nil && (data["driverName"] == "" || data["volumeHandle"] == "") {
		err = fmt.Errorf("%s: %v", path, data)
	}
	return data, err
}

// The places of a CSI volume below the root.
func podData(uid, volume string) string {
	return "/pods/" + uid + "/volumes/kubernetes.io~csi/" + volume + "/vol_data.json"
}

func stagingData(driver, handle string) string {
	return "/plugins/kubernetes.io/csi/" + driver + "/" + paths.HandleHash(handle) + "/vol_data.json"
}

func oldData(pv string) string { return "/plugins/kubernetes.io/csi/pv/" + pv + "/vol_data.json" }

func blockData(pv string) string {
	return "/plugins/kubernetes.io/csi/volumeDevices/" + pv + "/data/vol_data.json"
}

// damages are what crashes, full disks and people make of a file.
var damages = map[string]func(good string) *string{
	"missing":        func(string) *string { return nil },
	"empty":          func(string) *string { return new(string) },
	"one byte":       func(s string) *string { s = s[:1]; return &s },
	"cut in half":    func(s string) *string { s = s[:len(s)/2]; return &s },
	"cut at the end": func(s string) *string { s = s[:len(s)-3]; return &s },
	"zeroes":         func(s string) *string { s = strings.Repeat("\x00", len(s)); return &s },
	"no JSON":        func(string) *string { s := "driverName: x\n"; return &s },
	"a list":         func(s string) *string { s = "[" + s + "]"; return &s },
	"no text": func(s string) *string {
		s = regexp.MustCompile(`"driverName":"[^"]*"`).ReplaceAllString(s, `"driverName":7`)
		return &s
	},
	"wrong keys": func(string) *string { s := `{"driver":"x","handle":"y"}`; return &s },
	"without a key": func(s string) *string {
		s = regexp.MustCompile(`,"volumeHandle":"[^"]*"`).ReplaceAllString(s, "")
		return &s
	},
}

var (
	recorded = regexp.MustCompile(`(?m)^## /var/lib/kubelet(\S+)\n(.*)\n`)
	inPod    = regexp.MustCompile(`^/pods/([^/]+)/`)
)

// realVolData writes the metadata files that a kubelet left on a real node, and the
// documents of their volumes.
func (n *node) realVolData() (good map[string]string, docs []string) {
	n.t.Helper()
	b, err := os.ReadFile("../../testdata/real-node/vol_data.txt")
	must(n.t, err)
	good, seen := map[string]string{}, map[string]bool{}
	for _, m := range recorded.FindAllStringSubmatch(string(b), -1) {
		good[n.volFile(m[1], m[2]+"\n")] = m[2] + "\n"
		data := map[string]string{}
		must(n.t, json.Unmarshal([]byte(m[2]), &data))
		name := data["specVolID"]
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		doc := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec:\n  accessModes: [ReadWriteOnce]\n  capacity: {storage: 1Gi}\n  csi: {driver: %s, volumeHandle: %s}\n",
			name, data["driverName"], data["volumeHandle"])
		if data["volumeLifecycleMode"] == "Ephemeral" {
			doc = podDocument(inPod.FindStringSubmatch(m[1])[1], "p", "{}") + "  volumes:\n  - {name: " + name + ", csi: {driver: " + data["driverName"] + "}}\n"
		}
		docs = append(docs, "-f", n.file(name+".yaml", doc))
	}
	if len(good) < 11 {
		n.t.Fatalf("only %d files", len(good))
	}
	return good, docs
}

// The files of a real node, damaged in all ways, come back byte for byte.
func TestRecoverRealNode(t *testing.T) {
	n := newNode(t)
	good, docs := n.realVolData()
	files := slices.Sorted(maps.Keys(good))
	ways := slices.Sorted(maps.Keys(damages))
	tree := n.tree()
	for round := 0; round < len(ways); round += 3 {
		for i, file := range files {
			must(t, os.Remove(file))
			if bad := damages[ways[(i+round)%len(ways)]](good[file]); bad != nil {
				must(t, os.WriteFile(file, []byte(*bad), 0o644))
			}
		}
		for i := 1; i < len(docs); i += 2 {
			args := append([]string{"recover", strings.TrimSuffix(filepath.Base(docs[i]), ".yaml"), "--node-name", "node1"}, docs...)
			if round == 0 {
				n.unchanged(func() { n.wants(0, []string{"volumeHandle", "TOLD BY"}, args...) })
			}
			n.must(0, append(args, "--apply")...)
		}
		for i, file := range files {
			if got, err := os.ReadFile(file); err != nil || string(got) != good[file] {
				t.Errorf("%s %s: %v\n%s\nnot\n%s", ways[(i+round)%len(ways)], file, err, got, good[file])
			}
			if _, err := kubeletReads(file); err != nil {
				t.Error(err)
			}
		}
		if got := n.tree(); got != tree {
			t.Errorf("the tree is\n%s\nnot\n%s", got, tree)
		}
	}
}

// csiMounts is a volume that is staged and in two pods, by hand: the mount table ties
// the places together.
func csiMounts(t *testing.T) (n *node, staging, a, b string) {
	n = newNode(t)
	attachment := paths.CSIAttachmentID("h/1", "d.example", "node1")
	own := []string{"attachmentID", attachment, "driverName", "d.example", "nodeName", "node1", "specVolID", "pv", "volumeHandle", "h/1", "volumeLifecycleMode", "Persistent"}
	staging = n.volData(stagingData("d.example", "h/1"), "driverName", "d.example", "volumeHandle", "h/1")
	a, b = n.volData(podData(podA, "pv"), own...), n.volData(podData(podB, "pv"), own...)
	global := filepath.Dir(staging) + "/globalmount"
	testutil.Tmpfs(t, global)
	testutil.Bind(t, global, filepath.Dir(a)+"/mount", false)
	testutil.Bind(t, global, filepath.Dir(b)+"/mount", false)
	return n, staging, a, b
}

func TestRecoverFromTheNode(t *testing.T) {
	for _, c := range []struct {
		name   string
		broken func(staging, a, b string) []string
		word   func(staging, a, b string) string
		want   []string // who tells
	}{
		{"a pod's, by the staging copy", func(_, a, _ string) []string { return []string{a} }, func(_, a, _ string) string { return filepath.Dir(a) + "/mount" },
			[]string{"the mount table", "the name of the directory", "the handle, the driver and the node", "not that of an inline volume"}},
		{"the staging's, by a pod's copy", func(s, _, _ string) []string { return []string{s} }, func(s, _, _ string) string { return filepath.Dir(s) },
			[]string{"the name of the directory", podA}},
		{"both, by the other pod's copy", func(s, a, _ string) []string { return []string{s, a} }, func(string, string, string) string { return "pv" },
			[]string{"the mount table", podB}},
		{"by the handle", func(s, a, _ string) []string { return []string{s, a} }, func(string, string, string) string { return "d.example^h/1" }, nil},
		{"all, by the handle alone", func(s, a, b string) []string { return []string{s, a, b} }, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, staging, a, b := csiMounts(t)
			good := map[string]string{}
			for _, file := range []string{staging, a, b} {
				text, err := os.ReadFile(file)
				must(t, err)
				good[file] = string(text)
			}
			for _, file := range c.broken(staging, a, b) {
				must(t, os.Truncate(file, 0))
			}
			if c.word == nil { // nobody tells the handle
				n.unchanged(func() { n.wants(4, []string{"volumeHandle", "-f pv.yaml"}, "recover", "pv", "--apply") })
				pv := n.file("pv.yaml", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec:\n  accessModes: [ReadWriteOnce]\n  capacity: {storage: 1Gi}\n  csi: {driver: d.example, volumeHandle: h/1}\n")
				n.must(0, "recover", "-f", pv, "--apply", "--node-name", "node1")
			} else {
				args := []string{"recover", c.word(staging, a, b), "--node-name", "node1"}
				n.unchanged(func() { n.wants(0, c.want, args...) })
				script := n.file("plan.sh", n.must(0, append(args, "-o", "shell")...).stdout)
				n.must(0, append(args, "--apply")...)
				n.unchanged(func() { // the script tolerates that it is done
					if out, err := exec.Command("bash", script).CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
			for file, text := range good {
				if got, err := os.ReadFile(file); err != nil || string(got) != text {
					t.Errorf("%s: %v\n%s\nnot\n%s", file, err, got, text)
				}
			}
			// Now it is well, for kvol too.
			n.unchanged(func() { n.wants(0, []string{"already"}, "recover", "pv", "--apply") })
			if o := n.must(0, "recover", "pv"); o.stdout != "" || !strings.Contains(o.stderr, "Nothing of the metadata is broken") {
				t.Errorf("%v", o)
			}
			for _, m := range decode[api.Inspection](t, n.must(0, "inspect", "pv", "-o", "json").stdout).Metadata {
				if m.State != "ok" {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}

// The plan's script does what --apply does, and nothing when somebody wrote the file
// meanwhile.
func TestRecoverByScript(t *testing.T) {
	n, _, a, _ := csiMounts(t)
	good, err := os.ReadFile(a)
	must(t, err)
	must(t, os.WriteFile(a, good[:len(good)/2], 0o644))
	plan := n.must(0, "recover", a, "--node-name", "node1", "-o", "shell").stdout
	goodScript(t, plan)
	script := n.file("plan.sh", plan)
	must(t, os.WriteFile(a, []byte("somebody's"), 0o644))
	if out, err := exec.Command("bash", script).CombinedOutput(); err == nil {
		t.Errorf("it was carried out\n%s", out)
	}
	if got, _ := os.ReadFile(a); string(got) != "somebody's" {
		t.Errorf("%s", got)
	}
	must(t, os.WriteFile(a, good[:len(good)/2], 0o644))
	for range 2 {
		if out, err := exec.Command("bash", script).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, plan)
		}
		if got, _ := os.ReadFile(a); !bytes.Equal(got, good) {
			t.Errorf("%s", got)
		}
	}
}

// In JSON the plan has every value and who tells it.
func TestRecoverJSON(t *testing.T) {
	n, staging, a, _ := csiMounts(t)
	must(t, os.Remove(a), os.Truncate(staging, 0))
	steps := decode[api.List[api.Step]](t, n.must(0, "recover", "pv", "--node-name", "node1", "-o", "json").stdout).Items
	if len(steps) != 2 || steps[0].N != 1 || steps[1].N != 2 || steps[0].Target != staging || steps[1].Target != a {
		t.Fatalf("%+v", steps)
	}
	for i, want := range []int{2, 6} {
		if len(steps[i].Values) != want || steps[i].Action != "write" || steps[i].Shell == "" {
			t.Errorf("%+v", steps[i])
		}
		for _, v := range steps[i].Values {
			if v.Key == "" || v.Value == "" || v.From == "" {
				t.Errorf("%+v", v)
			}
		}
	}
	if steps[0].Reason != "it is empty" || steps[1].Reason != "it is missing" {
		t.Errorf("%+v", steps)
	}
	results := decode[api.List[api.Result]](t, n.must(0, "recover", "pv", "--apply", "-o", "json").stdout).Items
	outcomes := map[string]api.Outcome{}
	for _, r := range results {
		outcomes[r.Paths.Metadata[0]] = r.Outcome
	}
	if len(outcomes) != 3 || outcomes[staging] != api.OutcomeDone || outcomes[a] != api.OutcomeDone {
		t.Errorf("%+v", results)
	}
	if h := decode[api.List[api.Operation]](t, n.must(0, "history", "-o", "json").stdout).Items; len(h) != 3 || h[0].Verb != "recover" || h[0].Plugin != paths.CSIPlugin {
		t.Errorf("%+v", h)
	}
}
