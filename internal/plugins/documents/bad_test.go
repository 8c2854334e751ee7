package documents

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

const (
	pvHead  = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: data}\nspec:\n"
	goodPV  = pvHead + "  accessModes: [ReadWriteOnce]\n  local: {path: /mnt/disk}\n"
	podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: 0f5c1a52-0001}\nspec:\n"
	goodPVC = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: claim}\nspec: {accessModes: [ReadWriteOnce], volumeName: data}\n"
	goodPod = podHead + "  volumes:\n  - {name: vol, persistentVolumeClaim: {claimName: claim}}\n"
)

func input(text string) Input {
	return Input{Name: "in.yaml", Read: func() ([]byte, error) { return []byte(text), nil }}
}

func docs(parts ...string) string { return strings.Join(parts, "---\n") }

// pvNamed is a good PersistentVolume of another name.
func pvNamed(name string) string { return strings.Replace(goodPV, "name: data", "name: "+name, 1) }

// claimed is the good PersistentVolume with a claimRef.
func claimed(ref string) string { return goodPV + "  claimRef: {" + ref + "}\n" }

func podWith(volumes string) string { return podHead + "  volumes:\n" + volumes }

// bomb is the "billion laughs": each line is ten of the line before.
func bomb(lines int) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a0: &a0 [lol]\n")
	for i := range lines {
		fmt.Fprintf(&b, "  a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i)
	}
	return b.String()
}

// badInputs must each be refused with exit code 2, in one line that names the
// input and has the words that are wanted, and with a next step.
var badInputs = []struct {
	name, text string
	want       []string
}{
	// Not documents at all.
	{"empty", "", []string{"empty"}},
	{"blanks", " \n\t\n", []string{"empty"}},
	{"only a BOM", "\xef\xbb\xbf", []string{"empty"}},
	{"only comments", "# a\n---\n# b\n", []string{"no object"}},
	{"only separators", "---\n---\n...\n", []string{"no object"}},
	{"NUL", "apiVersion: v1\nkind: \x00Pod\n", []string{"0x00", "offset 21", "line 2"}},
	{"ELF", "\x7fELF\x02\x01\x01\x00\x00", []string{"not text"}},
	{"gzip", "\x1f\x8b\x08\x00", []string{"not text", "0x1f", "line 1"}},
	{"escape sequence", "kind: \x1b[31mPod\n", []string{"0x1b"}},
	{"not UTF-8", "kind: P\xf6d\n", []string{"0xf6"}},
	{"UTF-16", "\xff\xfek\x00i\x00", []string{"UTF-16"}},
	{"too large", strings.Repeat("# comment\n", MaxInput/10+1), []string{"larger than 4 MiB"}},
	{"too many values", "kind: [" + strings.Repeat("a,", maxNodes) + "]", []string{"more than 400000 values"}},
	{"too many documents", strings.Repeat("---\n", maxDocs+2), []string{"more than 10000 documents"}},
	// Not YAML or JSON.
	{"tab", "kind:\n\tPod\n", []string{"document 1", "not YAML", "line"}},
	{"indentation", "kind: Pod\n  apiVersion: v1\n", []string{"not YAML", "line 2"}},
	{"open quote", "kind: \"Pod\n", []string{"not YAML"}},
	{"second document broken", goodPV + "---\nkind: [\n", []string{"document 2", "not YAML"}},
	{"JSON cut short", `{"kind": "Pod",`, []string{"not JSON", "unexpected EOF"}},
	{"JSON cut short in the second", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}} {"kind":`, []string{"document 2", "not JSON"}},
	{"JSON without a comma", "{\n\"kind\": \"Pod\"\n\"metadata\": {}\n}", []string{"not JSON", "line 2"}},
	{"unknown alias", "kind: *pod\n", []string{"alias"}},
	{"tag directives", "%TAG !a! b\n---\nkind: Pod\n", []string{"%TAG"}},
	// Bombs.
	{"bomb", bomb(9), []string{"document 1", "line 11", "aliases"}},
	{"bomb of one string", "kind: List\na: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 9) + "]\n", []string{"8 MiB"}},
	{"bombs in turn", strings.Repeat("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\nx: &x ["+strings.Repeat("a,", 999)+"]\ny: ["+strings.Repeat("*x,", 99)+"]\n---\n", 5), []string{"document 4", "aliases"}},
	{"alias in itself", "kind: &a [*a]\n", []string{"*a", "inside"}},
	{"merge in itself", "a: &a\n  <<: *a\n", []string{"*a", "inside"}},
	{"deep YAML", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), []string{"nested deeper"}},
	{"deep block", func() string {
		var b strings.Builder
		for i := range 200 {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}(), []string{"nested deeper"}},
	{"deep JSON", strings.Repeat(`{"a":`, 5000), []string{"nested deeper", "line 1"}},
	{"too deep for the library", strings.Repeat("- ", 20000), []string{"document 1", "max depth"}},
	// Not an object that is read.
	{"text", "hello\n", []string{"document 1", "line 1", "a text where an object"}},
	{"list of objects", "- kind: Pod\n", []string{"a list where an object"}},
	{"JSON array", "[{}]", []string{"a list where an object"}},
	{"no kind", "apiVersion: v1\nmetadata: {name: a}\n", []string{"document 1", "no kind"}},
	{"empty kind", "apiVersion: v1\nkind: \"\"\n", []string{"no kind"}},
	{"kind is a list", "kind: [Pod]\n", []string{"line 1", "kind", "a list"}},
	{"kind is a number", "kind: 1\n", []string{"kind", "number 1"}},
	{"other kind", goodPV + "---\napiVersion: apps/v1\nkind: Deployment\n", []string{"document 2", `"Deployment" is not read`}},
	{"kind in the wrong case", "apiVersion: v1\nkind: pod\n", []string{`"pod" is not read`}},
	{"other list", "apiVersion: v1\nkind: NodeList\nitems: []\n", []string{`"NodeList" is not read`}},
	{"wrong apiVersion", "apiVersion: v2\nkind: Pod\n", []string{`"v2"`, "Pod is v1"}},
	{"no apiVersion", "kind: Pod\n", []string{`apiVersion is ""`}},
	{"wrong group", "apiVersion: v1\nkind: StorageClass\n", []string{"storage.k8s.io/v1"}},
	{"wrong case of fields", "apiversion: v1\nKind: Pod\n", []string{"no kind"}},
	// Lists.
	{"items is a mapping", "apiVersion: v1\nkind: List\nitems: {}\n", []string{"line 3", "items", "a list is wanted"}},
	{"an item of another kind", "apiVersion: v1\nkind: PodList\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n", []string{"items[0]", "line 4", `"Secret"`, `"Pod"`}},
	{"an empty item", "apiVersion: v1\nkind: List\nitems:\n-\n", []string{"items[0]", "nothing where an object"}},
	{"a bad item", "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(goodPV), "\n", "\n  ") + "\n- {kind: Pod, apiVersion: v1, metadata: {nam: x}}\n", []string{"items[1], Pod", "metadata.nam", `"name"`}},
	{"a bad item of a nested list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: [{kind: Job}]}\n", []string{"items[0].items[0]", "Job"}},
	{"unknown field of a list", "apiVersion: v1\nkind: List\nitem: []\n", []string{"line 3: item", `"items"`}},
	// Fields.
	{"unknown field", pvHead + "  local: {pth: /mnt}\n", []string{"document 1", `PersistentVolume "data"`, "line 5", "spec.local.pth", `"path"`}},
	{"field of the wrong case", pvHead + "  local: {Path: /mnt}\n", []string{"spec.local.Path", `"path"`}},
	{"unknown field that is near nothing", pvHead + "  local: {path: /mnt, somethingElse: 1}\n", []string{"spec.local.somethingElse: unknown field"}},
	{"unknown field in a list", podWith("  - {name: a, emptyDir: {}}\n  - {name: b, emptyDr: {}}\n"), []string{"line 7", "spec.volumes[1].emptyDr", `"emptyDir"`}},
	{"unknown top field", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspecs: {}\n", []string{"line 4: specs", `"spec"`}},
	{"unknown field in JSON", "{\"apiVersion\":\"v1\",\n\"kind\":\"Pod\",\n\"metadata\":{\"name\":\"a\",\n\"labls\":{}}}", []string{"line 4", "metadata.labls", `"labels"`}},
	{"field twice", pvHead + "  local: {path: /a, path: /b}\n", []string{"spec.local.path", "twice"}},
	{"section twice", pvHead + "  local: {path: /a}\nspec: {}\n", []string{"line 6: spec", "twice"}},
	{"text for a number", podHead + "  securityContext: {fsGroup: \"2000\"}\n", []string{"spec.securityContext.fsGroup", "the text 2000", "number"}},
	{"fraction for a number", podHead + "  securityContext: {fsGroup: 1.5}\n", []string{"fsGroup", "1.5"}},
	{"number too large", podHead + "  securityContext: {fsGroup: 99999999999999999999}\n", []string{"fsGroup"}},
	{"negative group", podHead + "  securityContext: {fsGroup: -1}\n", []string{"fsGroup", "-1"}},
	{"number for text", pvHead + "  local: {path: 7}\n", []string{"line 5: spec.local.path", "the number 7", "text"}},
	{"truth for text", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {on: true}\n", []string{"data.on", "true", "text"}},
	{"text for truth", podWith("  - {name: a, persistentVolumeClaim: {claimName: c, readOnly: \"true\"}}\n"), []string{"spec.volumes[0].persistentVolumeClaim.readOnly", "true or false"}},
	{"mapping for text", pvHead + "  local: {path: {a: b}}\n", []string{"a mapping where text"}},
	{"text for a mapping", pvHead + "  local: /mnt/disk\n", []string{"spec.local", "the text /mnt/disk where a mapping"}},
	{"text for a list", pvHead + "  accessModes: ReadWriteOnce\n  local: {path: /a}\n", []string{"line 5: spec.accessModes", "a list is wanted"}},
	{"mapping as a key", "apiVersion: v1\nkind: Pod\nmetadata: {? {a: b} : c}\n", []string{"name of a field"}},
	{"bad quantity", pvHead + "  capacity: {storage: 10 gigs}\n", []string{"line 5: spec.capacity.storage", "10 gigs"}},
	{"endless quantity", pvHead + "  capacity: {storage: 9e-99999999}\n", []string{"spec.capacity.storage", "too long"}},
	{"quantity of a million digits", pvHead + "  capacity: {storage: " + strings.Repeat("9", 1<<20) + "}\n", []string{"spec.capacity.storage", "too long"}},
	{"bad time", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: yesterday}\n", []string{"metadata.creationTimestamp", "yesterday"}},
	{"not base64", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata:\n  k: hunter2!\n", []string{"line 5: data.k", "base64"}},
	{"odd tag", "apiVersion: v1\nkind: Pod\nmetadata: {name: !x a}\n", []string{"metadata.name", "!x"}},
	{"merge of text", "apiVersion: v1\nkind: Pod\nmetadata: {<<: a}\n", []string{"merge"}},
	// Names.
	{"no name", "apiVersion: v1\nkind: PersistentVolume\nspec: {local: {path: /a}}\n", []string{"metadata.name", "missing"}},
	{"name with slash", pvNamed("../../etc"), []string{"metadata.name", "slash"}},
	{"name is ..", pvNamed(".."), []string{"metadata.name", `".."`}},
	{"name with newline", pvNamed(`"a\nb"`), []string{"metadata.name", `a\nb`}},
	{"name with NUL", pvNamed(`"a\0b"`), []string{"metadata.name", `a\x00b`}},
	{"name with leading -", pvNamed(`"-rf"`), []string{"metadata.name", `"-rf"`}},
	{"long name", pvNamed(strings.Repeat("a", 256)), []string{"metadata.name", "255"}},
	{"uid with ..", strings.Replace(goodPod, "0f5c1a52-0001", "..", 1), []string{"metadata.uid", `".."`}},
	{"uid with slash", strings.Replace(goodPod, "0f5c1a52-0001", "a/b", 1), []string{"metadata.uid", "slash"}},
	{"uid with leading -", strings.Replace(goodPod, "0f5c1a52-0001", "-a", 1), []string{"metadata.uid"}},
	{"uid with newline", strings.Replace(goodPod, "0f5c1a52-0001", `"a\n"`, 1), []string{"metadata.uid"}},
	{"uid without quotes", strings.Replace(goodPod, "0f5c1a52-0001", "12345678901234567890123456789012", 1), []string{"metadata.uid", "number", "text"}},
	{"mirror of a bad uid", strings.Replace(goodPod, "name: web", `name: web, annotations: {kubernetes.io/config.mirror: ../x}`, 1), []string{"config.mirror"}},
	{"bad namespace", strings.Replace(goodPVC, "name: claim", "name: claim, namespace: a/b", 1), []string{"metadata.namespace"}},
	{"bad volumeName", strings.Replace(goodPVC, "volumeName: data", "volumeName: a/b", 1), []string{"spec.volumeName"}},
	{"bad claimName", podWith("  - {name: a, persistentVolumeClaim: {claimName: ../b}}\n"), []string{"spec.volumes[0].persistentVolumeClaim.claimName"}},
	{"no claimName", podWith("  - {name: a, persistentVolumeClaim: {}}\n"), []string{"line 6", "claimName", "missing"}},
	{"claimRef without name", claimed("namespace: a"), []string{"spec.claimRef.name"}},
	{"claimRef of a pod", claimed("name: a, kind: Pod"), []string{"spec.claimRef.kind", `"Pod"`}},
	// Volumes.
	{"no source", pvHead + "  capacity: {storage: 1Gi}\n", []string{"spec", "no source"}},
	{"null source", pvHead + "  local:\n", []string{"no source"}},
	{"two sources", goodPV + "  nfs: {server: a, path: /}\n", []string{"2 sources", "nfs and local"}},
	{"two sources in a pod", podWith("  - {name: a, emptyDir: {}, hostPath: {path: /a}}\n"), []string{"spec.volumes[0]", "hostPath and emptyDir"}},
	{"a name twice in a pod", podWith("  - {name: a, emptyDir: {}}\n  - {name: a, emptyDir: {}}\n"), []string{"line 7", "spec.volumes[1].name", "spec.volumes[0]"}},
	{"volume without a name", podWith("  - emptyDir: {}\n"), []string{"spec.volumes[0].name", "missing"}},
	{"volume is null", podWith("  -\n"), []string{"spec.volumes[0].name"}},
	{"unknown volume mode", goodPV + "  volumeMode: block\n", []string{"spec.volumeMode", `"block"`}},
	{"unknown access mode", strings.Replace(goodPV, "ReadWriteOnce", "RWO", 1), []string{"spec.accessModes[0]", `"RWO"`}},
	{"unknown policy", podHead + "  securityContext: {fsGroupChangePolicy: Never}\n", []string{"fsGroupChangePolicy", `"Never"`}},
	// Twice.
	{"a volume twice", docs(goodPV, goodPV), []string{"document 2", "twice", "in.yaml, document 1"}},
	{"a claim twice", docs(goodPVC, strings.Replace(goodPVC, "name: claim", "name: claim, namespace: default", 1)), []string{"default/claim", "twice"}},
	{"a pod twice", docs(goodPod, goodPod), []string{"uid 0f5c1a52-0001", "twice"}},
	{"long kind", "kind: " + strings.Repeat("a", 9999) + "\n", []string{"not read"}},
	{"long field", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, " + strings.Repeat("a", 999) + ": b}\n", []string{"unknown field"}},
	{"a secret twice", strings.Repeat("---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", 2), []string{"Secret default/s", "twice"}},
}

// checkRefusal holds a refusal to what every message must have.
func checkRefusal(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was taken")
	}
	if api.ExitCode(err) != api.ExitUsage {
		t.Errorf("exit code %d: %v", api.ExitCode(err), err)
	}
	doc := api.NewErrorDoc(err)
	if doc.Next == "" {
		t.Errorf("no next step: %v", err)
	}
	for _, text := range append([]string{err.Error(), doc.Next}, doc.Details...) {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(text) > 1500 {
			t.Errorf("not fit for a terminal (%d bytes): %.300q", len(text), text)
		}
	}
	mentions(t, err.Error()+"\n"+doc.Next, want...)
}

func TestBadInputs(t *testing.T) {
	if len(badInputs) < 60 {
		t.Errorf("only %d", len(badInputs))
	}
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read([]Input{input(c.text)})
			checkRefusal(t, err, append(c.want, "in.yaml")...)
			if testing.Verbose() {
				t.Log(err, "|", api.NewErrorDoc(err).Next)
			}
		})
	}
}

// The other inputs are good: which one is bad is said.
func TestBadInputIsNamed(t *testing.T) {
	good := Input{Name: "good.yaml", Read: func() ([]byte, error) { return []byte(goodPV), nil }}
	stdin := Input{Name: "-", Read: func() ([]byte, error) { return []byte("kind: Job\n"), nil }}
	_, err := Read([]Input{good, stdin})
	checkRefusal(t, err, "standard input", "document 1")

	_, err = Read([]Input{good, {Name: "again.yaml", Read: good.Read}})
	checkRefusal(t, err, "again.yaml", "good.yaml", "PersistentVolume data is there twice")
}

func TestUnreadableInput(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	_, err := Read([]Input{{Name: missing, Read: func() ([]byte, error) { return os.ReadFile(missing) }}})
	checkRefusal(t, err, missing, "no such file")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is lost: %v", err)
	}
	own := api.Errorf(api.ErrTimeout, "slow")
	if _, err := Read([]Input{{Name: "a", Read: func() ([]byte, error) { return nil, own }}}); !errors.Is(err, api.ErrTimeout) || errors.Is(err, api.ErrInput) {
		t.Errorf("an error that says its kind is changed: %v", err)
	}
}

func TestAllFaultsOfAnObjectAreTold(t *testing.T) {
	_, err := Read([]Input{input(pvHead + "  local: {pth: /a, fsTyp: x}\n  volumMode: Block\n")})
	checkRefusal(t, err, "spec.local.pth")
	details := strings.Join(api.NewErrorDoc(err).Details, "\n")
	mentions(t, details, "spec.local.fsTyp", "spec.volumMode", "line 6", `"volumeMode"`)
}

// Whatever is wrong with a Secret, what it holds is not told.
func TestSecretsAreNotTold(t *testing.T) {
	head := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
	for _, text := range []string{
		head + "data: {k: hunter2!}\n", head + "data: {k: [hunter2]}\n", head + "data: hunter2\n", head + "stringData: [hunter2]\n",
		head + "stringData: {k: {hunter2: 1}}\n", head + "stringData: {k: !hunter2 a}\n", head + "stringData: {k: *hunter2}\n", head + "immutable: hunter2\n",
		head + "stringData: hunter2: a\n", head + "stringData: {k: 'hunter2}\n", head + "type: {a: hunter2}\n",
		strings.NewReplacer("hunter2", "31337").Replace(head + "stringData: {k: hunter2}\n"),
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":31337}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":hunter2]}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"hunter2`,
	} {
		_, err := Read([]Input{input(text)})
		if err == nil {
			t.Errorf("%q is taken", text)
			continue
		}
		checkRefusal(t, err)
		doc := api.NewErrorDoc(err)
		for _, told := range append(doc.Details, doc.Message, doc.Next) {
			if strings.Contains(told, "hunter2") || strings.Contains(told, "31337") {
				t.Errorf("%q tells it: %s", text, told)
			}
		}
	}
}

func mentions(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not mention %q", text, word)
		}
	}
}
