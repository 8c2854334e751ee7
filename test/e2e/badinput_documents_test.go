package e2e

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	goodPV = `apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec:
  accessModes: [ReadWriteOnce]
  local: {path: /nowhere}
`
	goodPVC = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], volumeName: pv}
`
	goodPod = `---
apiVersion: v1
kind: Pod
metadata: {name: web, uid: ` + podA + `}
spec:
  volumes:
  - {name: vol, persistentVolumeClaim: {claimName: claim}}
`
)

// replaced is the way up of good documents with one thing changed.
func replaced(docs, old, with string) func(*scene) []string {
	return func(s *scene) []string {
		s.t.Helper()
		if !strings.Contains(docs, old) {
			s.t.Fatalf("%q is not in the documents", old)
		}
		return s.doc(strings.Replace(docs, old, with, 1))
	}
}

// text is the way up of a document.
func text(doc string) func(*scene) []string {
	return func(s *scene) []string { return s.doc(doc) }
}

// yamlBomb is the "billion laughs".
func yamlBomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a0: &a0 [lol]\n")
	for i := range 12 {
		fmt.Fprintf(&b, "  a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i)
	}
	return b.String()
}

func badDocuments() []bad {
	const in = "in.yaml"
	return append([]bad{
		{name: "empty file", make: text(""), reason: "BadInput", want: []string{in, "empty"}},
		{name: "only comments", make: text("# a\n---\n# b\n"), reason: "BadInput", want: []string{in, "no object"}},
		{name: "binary junk", make: text("\x7fELF\x02\x01\x00\xff\xfe"), reason: "BadInput", want: []string{in, "not text"}},
		{name: "not UTF-8", make: text("kind: P\xf6d\n"), reason: "BadInput", want: []string{in, "0xf6"}},
		{name: "over-size", make: text(goodPV + strings.Repeat("# more\n", 700_000)), reason: "BadInput", want: []string{in, "larger than 4 MiB"}},
		{name: "YAML bomb", make: text(yamlBomb()), reason: "BadInput", want: []string{in, "aliases"}},
		{name: "alias of itself", make: text("a: &a\n  <<: *a\n"), reason: "BadInput", want: []string{in, "*a"}},
		{name: "deep YAML", make: text(strings.Repeat("[", 100_000)), reason: "BadInput", want: []string{in, "nested deeper"}},
		{name: "deep JSON", make: text(strings.Repeat(`{"a":`, 100_000)), reason: "BadInput", want: []string{in, "nested deeper"}},
		{name: "broken YAML", make: text("kind: [\n"), reason: "BadInput", want: []string{in, "not YAML", "line"}},
		{name: "broken JSON", make: text(`{"kind": "Pod",`), reason: "BadInput", want: []string{in, "not JSON"}},
		{name: "unknown field", make: replaced(goodPV, "path:", "pth:"), reason: "BadInput", want: []string{in, "line 6", "spec.local.pth", `"path"`}},
		{name: "field of the wrong type", make: replaced(goodPV, "/nowhere", "7"), reason: "BadInput", want: []string{in, "spec.local.path", "number 7"}},
		{name: "no source", make: replaced(goodPV, "  local: {path: /nowhere}\n", ""), reason: "BadInput", want: []string{in, "no source"}},
		{name: "two sources", make: text(goodPV + "  nfs: {server: a, path: /}\n"), reason: "BadInput", want: []string{in, "2 sources"}},

		{name: "document of another kind", make: text("apiVersion: apps/v1\nkind: Deployment\n"), reason: "BadInput", want: []string{in, "Deployment", "PersistentVolume"}},
		{name: "document without a volume", make: text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"), reason: "Usage", want: []string{"no volume", "PersistentVolume"}},
		{name: "claim without its volume", make: text(goodPVC), reason: "BadInput", want: []string{in, "pv", "kubectl get pv"}},
		{name: "volume of a plugin that is not there", make: replaced(goodPV, "local: {path: /nowhere}", "glusterfs: {endpoints: a, path: b}"), reason: "NoPlugin", want: []string{"pv", "kvol plugins"}},
		{name: "two volumes and no name", make: text(goodPV + "---\n" + strings.Replace(goodPV, "name: pv", "name: other", 1)), reason: "Usage", want: []string{"2 volumes", "other", "--volume"}},
		{name: "a volume twice", make: text(goodPV + "---\n" + goodPV), reason: "BadInput", want: []string{in, "twice"}},
		{name: "name that no document has", make: func(s *scene) []string { return append(s.doc(goodPV), "--volume", "data") }, reason: "Usage", want: []string{"--volume data", "pv"}},
		{name: "claim and volume disagree on the volume", make: replaced(goodPV+"  claimRef: {name: claim}\n"+goodPVC, "volumeName: pv", "volumeName: other"), reason: "BadInput", want: []string{in, "other", "claimRef", "kubectl get"}},
		{name: "claim and volume disagree on the claim", make: text(goodPV + "  claimRef: {name: someone}\n" + goodPVC), reason: "BadInput", want: []string{in, "default/someone", "kubectl get"}},
		{name: "claim and volume disagree on the mode", make: replaced(goodPV+goodPVC, "local:", "volumeMode: Block\n  local:"), reason: "BadInput", want: []string{in, "volumeMode", "Block", "kubectl get"}},
		{name: "claim and volume disagree on access", make: replaced(goodPV+goodPVC, "ReadWriteOnce", "ReadOnlyMany"), reason: "BadInput", want: []string{in, "accessModes", "kubectl get"}},
		{name: "pod of another uid", make: replaced(goodPV+goodPVC+goodPod, podA, podB), reason: "Usage", want: []string{"--pod-uid", podA, podB}},
		{name: "pod that does not have the volume", make: replaced(goodPV+goodPVC+goodPod, "claimName: claim", "claimName: other"), reason: "BadInput", want: []string{in, "default/other", "kubectl get"}},
	}, append(badDocumentNames(), badFiles()...)...)
}

// badDocumentNames are names that reach kvol in a document, where also a NUL can be.
func badDocumentNames() []bad {
	const in = "in.yaml"
	var out []bad
	for what, value := range map[string]string{
		"dots": `".."`, "a slash": "a/b", "a NUL": `"a\0b"`, "a newline": `"a\nb"`, "a leading dash": `"-rf"`,
		"300 bytes": strings.Repeat("a", 300), "an escape sequence": `"\e[31m"`, "a number": "12345",
	} {
		out = append(out,
			bad{name: "volume name of a document with " + what, make: replaced(goodPV, "name: pv", "name: "+value), reason: "BadInput", want: []string{in, "metadata.name"}},
			bad{name: "pod uid of a document with " + what, make: replaced(goodPV+goodPVC+goodPod, podA, value), reason: "BadInput", want: []string{in, "metadata.uid"}},
		)
	}
	return out
}

// badFiles are things to which -f can point.
func badFiles() []bad {
	up := func(file func(s *scene) string) func(*scene) []string {
		return func(s *scene) []string { return []string{"setup", "-f", file(s), "--pod-uid", podA} }
	}
	return []bad{
		{name: "-f: missing file", make: up(func(s *scene) string { return s.dir + "/missing.yaml" }), reason: "BadInput", want: []string{"missing.yaml", "no such file"}},
		{name: "-f: directory", make: up(func(s *scene) string { return s.outside }), reason: "BadInput", want: []string{"outside", "directory", "file"}},
		{name: "-f: fifo that nobody writes", make: func(s *scene) []string {
			return []string{"setup", "-f", s.fifo("in.fifo"), "--pod-uid", podA, "--timeout", "300ms"}
		}, reason: "Timeout", want: []string{"in.fifo", "in time"}},
		{name: "-f: device without an end", make: up(func(*scene) string { return "/dev/zero" }), reason: "BadInput", want: []string{"/dev/zero", "larger than 4 MiB"}},
		{name: "-f: nothing", make: up(func(*scene) string { return "" }), reason: "Usage", want: []string{"-f", "empty"}},
		{name: "-f: null device", make: up(func(*scene) string { return "/dev/null" }), reason: "BadInput", want: []string{"/dev/null", "empty"}},
		{name: "-f: socket", make: up(func(s *scene) string { return s.socket("in.sock") }), reason: "BadInput", want: []string{"in.sock", "cannot be read"}},
		{name: "-f: symlink to nothing", make: up(func(s *scene) string { return s.symlink("nothing", s.dir+"/in.link") }), reason: "BadInput", want: []string{"in.link", "no such file"}},
		{name: "-f: symlinks in a loop", make: up(func(s *scene) string { return s.symlink("in.loop", s.dir+"/in.loop") }), reason: "BadInput", want: []string{"in.loop", "symbolic links"}},
		{name: "-f: odd name", make: up(func(s *scene) string { return s.dir + "/a\x1b[31m\nb" }), reason: "BadInput", want: []string{`\x1b`, "no such file"}},
		{name: "standard input: empty", make: up(func(*scene) string { return "-" }), reason: "BadInput", want: []string{"standard input", "empty"}},
		{name: "standard input: not an object", make: up(func(s *scene) string { s.stdin = "hello\n"; return "-" }), reason: "BadInput", want: []string{"standard input", "line 1"}},
		{name: "standard input: twice", make: func(s *scene) []string {
			s.stdin = goodPV
			return []string{"setup", "-f", "-", "-f", "-", "--pod-uid", podA}
		}, reason: "Usage", want: []string{"-f -", "2 times", "once"}},
	}
}

func (s *scene) fifo(name string) string {
	s.t.Helper()
	path := s.dir + "/" + name
	if err := unix.Mkfifo(path, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// socket makes the node of one; nobody need listen.
func (s *scene) socket(name string) string { return s.nod(name, unix.S_IFSOCK, 0) }

func (s *scene) nod(name string, kind uint32, dev uint64) string {
	s.t.Helper()
	path := s.dir + "/" + name
	if err := unix.Mknod(path, kind|0o600, int(dev)); err != nil {
		s.t.Fatal(os.NewSyscallError("mknod", err))
	}
	return path
}
