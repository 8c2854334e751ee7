package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

// The secrets of a volume, by the reference that needs them. None of their text is
// anywhere else.
var planted = map[string]map[string]string{
	"controllerPublishSecretRef": {"username": "operator-of-the-array", "password": "correct horse battery"},
	"nodeStageSecretRef":         {"key": strings.Repeat("0123456789abcdef-stage-", 400), "word": "marmalade"},
	"nodePublishSecretRef":       {"pem": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQDHqVgy\n-----END PRIVATE KEY-----\n", "token": "\"quoted\"\\back'$(id)"},
	"nodeExpandSecretRef":        {"based": base64.StdEncoding.EncodeToString([]byte("an already encoded one")), "pass": "ünï-cödé-päss"},
}

// secretNode is a node with a volume that needs all of them.
type secretNode struct {
	*node
	docs []string // -f arguments
	// unattached is the document of the driver that lets one step be done alone.
	unattached string
	look       []needle
}

// needle is a piece of a secret in one of its forms.
type needle struct {
	of    string
	piece []byte
}

func newSecretNode(t *testing.T, secrets map[string]map[string]string) *secretNode {
	testutil.Tool(t, "strace")
	n := &secretNode{node: newNode(t)}
	t.Cleanup(n.sweep)
	must(t, os.Mkdir(n.dir+"/tmp", 0o755), os.Mkdir(n.dir+"/docs", 0o700))
	n.env = append(n.env, "TMPDIR="+n.dir+"/tmp", "KVOL_NODE_NAME=node1")
	pv := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec:\n  capacity: {storage: 1Mi}\n  accessModes: [ReadWriteOnce]\n" +
		"  csi:\n    driver: " + tattlerName + "\n    volumeHandle: h\n"
	for ref, data := range secrets {
		name := strings.ToLower(ref)
		pv += "    " + ref + ": {name: " + name + ", namespace: ns}\n"
		encoded := map[string]string{}
		for key, value := range data {
			encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
			n.look = append(n.look, needles(ref+"/"+key, value)...)
		}
		doc, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": "ns"}, "data": encoded})
		must(t, err)
		n.docs = append(n.docs, "-f", n.file("docs/"+name+".json", string(doc)))
	}
	n.docs = append(n.docs, "-f", n.file("docs/pv.yaml", pv))
	n.unattached = n.file("docs/driver.yaml", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: "+tattlerName+"}\nspec: {attachRequired: false}\n")
	return n
}

// needles are pieces of a secret, as long as what tells it and short enough to be in
// what was cut, in every form that a program makes of text.
func needles(of, secret string) []needle {
	all := map[string]string{
		"itself": secret, "base64": base64.StdEncoding.EncodeToString([]byte(secret)), "base64 of urls": base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"hex": hex.EncodeToString([]byte(secret)), "one line": strings.Join(strings.Fields(secret), " "),
		"Go": strings.Trim(fmt.Sprintf("%q", secret), `"`), "URL": url.QueryEscape(secret), "bytes": strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]"),
	}
	if quoted, err := json.Marshal(secret); err == nil {
		all["JSON"] = strings.Trim(string(quoted), `"`)
	}
	for i, line := range strings.Split(secret, "\n") {
		all[fmt.Sprint("line ", i)] = line
	}
	const piece, step = 24, 8
	var out []needle
	for form, text := range all {
		if len(text) < 6 {
			continue
		}
		for at := 0; at == 0 || at+piece <= len(text); at += step {
			// The frame of a key is no secret.
			if p := text[at:min(len(text), at+piece)]; !strings.Contains(p, "-----") {
				out = append(out, needle{of + " as " + form, []byte(p)})
			}
		}
	}
	return out
}

// hidden wants nothing of the secrets in a text.
func (n *secretNode) hidden(where string, text []byte) {
	n.t.Helper()
	told := map[string]bool{}
	for _, needle := range n.look {
		if at := bytes.Index(text, needle.piece); at >= 0 && !told[needle.of] {
			told[needle.of] = true
			n.t.Errorf("%s has the secret %s: …%q…", where, needle.of, text[max(0, at-80):min(len(text), at+60)])
		}
	}
}

// traced runs kvol with every program that it starts told by strace, and looks at all
// that it said and started.
func (n *secretNode) traced(args ...string) out {
	n.t.Helper()
	path := n.kvolPath
	defer func() { n.kvolPath = path }()
	trace := n.dir + "/trace"
	n.kvolPath = "strace"
	words := []string{"-f", "-v", "-xx", "-s", "1000000", "-e", "trace=execve,execveat", "-o", trace, path}
	o := n.kvol(append(words, args...)...)
	n.hidden(fmt.Sprintf("the output of %v", args), []byte(o.stdout+o.stderr))
	text, err := os.ReadFile(trace)
	must(n.t, err, os.Remove(trace))
	if !bytes.Contains(text, []byte("execve")) {
		n.t.Fatalf("nothing was traced: %s\n%v", text, o)
	}
	n.hidden(fmt.Sprintf("what %v started", args), straced(text))
	return o
}

var escaped = regexp.MustCompile(`(\\x[0-9a-f]{2})+`)

// straced undoes strace -xx.
func straced(text []byte) []byte {
	return escaped.ReplaceAllFunc(text, func(b []byte) []byte {
		raw, _ := hex.DecodeString(strings.ReplaceAll(string(b), `\x`, "")) // it matched
		return raw
	})
}

// files wants nothing of the secrets in a file that the runs left, but the documents.
func (n *secretNode) files(since time.Time) {
	n.t.Helper()
	look := func(path string) {
		if text, err := os.ReadFile(path); err == nil {
			n.hidden(path, text)
		}
	}
	must(n.t, filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if path == n.dir+"/docs" {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			look(path)
		}
		return err
	}))
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run", "/"} {
		entries, err := os.ReadDir(dir)
		must(n.t, err)
		for _, d := range entries {
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() && !info.ModTime().Before(since) && info.Size() < 1<<20 {
				look(filepath.Join(dir, d.Name()))
			}
		}
	}
}

// lives are commands that take the volume through its life, in every way of telling.
var lives = [][]string{
	{"setup", "--dry-run"}, {"setup", "--dry-run", "-o", "json"}, {"setup", "--dry-run", "-o", "shell"},
	{"setup", "--dry-run", "-o", "shell", "--shell-with-kvol"}, {"mount-device", "--dry-run", "-o", "yaml"},
	{"attach", "-vv"}, {"mount-device", "-vv", "-o", "json"}, {"publish", "--log-level", "debug"}, {"setup", "-o", "json", "-vv"},
	{"expand", "-vv"}, {"inspect"}, {"unpublish", "-vv"}, {"setup", "-o", "wide"}, {"teardown", "-vv", "-o", "json"}, {"attach", "-o", "yaml"},
	{"detach", "-o", "json", "-vv"},
}

// life runs them, and the commands that tell what was done.
func (n *secretNode) life(commands [][]string, more ...string) (codes []int) {
	n.t.Helper()
	since := time.Now()
	for _, c := range commands {
		args := slices.Concat(c, n.docsFor(c[0]), more)
		if slices.Contains([]string{"setup", "publish", "unpublish", "teardown"}, c[0]) {
			args = append(args, "--pod-uid", podA)
		}
		if c[0] == "inspect" {
			args = []string{"inspect", "pv", "-o", "json"}
		}
		o := n.traced(args...)
		if strings.Contains(o.stderr, "unknown flag") || strings.Contains(o.stderr, "has no command") {
			n.t.Fatalf("%v", o)
		}
		if o.code != 0 {
			n.t.Logf("%v", o)
		}
		codes = append(codes, o.code)
	}
	for _, args := range [][]string{{"history", "-o", "json"}, {"history", "-o", "wide"}, {"list-mounts", "-o", "json"}} {
		n.hidden(args[0], []byte(n.must(0, args...).stdout))
	}
	n.files(since)
	return codes
}

// docsFor are the documents for a command.
func (n *secretNode) docsFor(verb string) []string {
	if slices.Contains([]string{"mount-device", "publish", "unpublish"}, verb) {
		return append(slices.Clone(n.docs), "-f", n.unattached)
	}
	return n.docs
}

// A secret comes to the driver, and to nobody else, where everything goes well.
func TestSecretsGoNowhere(t *testing.T) {
	for form, f := range forms {
		t.Run(strings.ReplaceAll(form, " ", "-"), func(t *testing.T) {
			n := newSecretNode(t, planted)
			d := tattle(t, n.root, "good", f)
			commands := lives
			if form != "plain" {
				commands = [][]string{{"attach", "-vv", "-o", "json"}, {"setup", "-o", "json", "-vv"}, {"teardown", "-o", "json"}}
			}
			for i, code := range n.life(commands) {
				if wants := !slices.Contains(commands[i], "shell") || slices.Contains(commands[i], "--shell-with-kvol"); wants && code != 0 {
					t.Errorf("%v ended with %d", commands[i], code)
				}
			}
			if d.told.Load() < 6 {
				t.Errorf("the driver was given %d secrets only", d.told.Load())
			}
		})
	}
}

// Where something fails, the driver may say what it was told, in whatever form.
func TestSecretsInFailures(t *testing.T) {
	for method, commands := range map[string][][]string{
		"ControllerPublishVolume": {{"attach", "-vv", "-o", "json"}},
		"NodeStageVolume":         {{"mount-device", "-vv"}},
		"NodePublishVolume":       {{"mount-device"}, {"publish", "-o", "json", "-vv"}},
		"NodeExpandVolume":        {{"mount-device"}, {"expand", "-vv", "-o", "yaml"}},
	} {
		for _, how := range []string{"fails", "dies"} {
			for form, f := range forms {
				if form != "plain" && (how == "dies" || method != "NodeStageVolume") {
					continue // the masking is the same for all
				}
				t.Run(method+"-"+how+"-"+strings.ReplaceAll(form, " ", "-"), func(t *testing.T) {
					n := newSecretNode(t, planted)
					d := tattle(t, n.root, how, f)
					d.where = method
					codes := n.life(commands, "--timeout", "3s")
					if last := codes[len(codes)-1]; last == 0 || d.told.Load() == 0 {
						t.Errorf("it ended with %d, and the driver was given %d secrets", last, d.told.Load())
					}
				})
			}
		}
	}
}

// A value that no gRPC message can carry is not told by the error either.
func TestSecretsThatAreBinary(t *testing.T) {
	raw := "\xff\xfe\x00binary-secret\x80\x81\xc3\x28-of-bytes"
	secrets := map[string]map[string]string{"nodeStageSecretRef": {"key": raw}, "controllerPublishSecretRef": {"key": raw}}
	n := newSecretNode(t, secrets)
	tattle(t, n.root, "good", forms["plain"])
	n.life([][]string{{"attach", "-vv", "-o", "json"}, {"mount-device", "-vv"}, {"setup", "-o", "json"}})
}

// kvol is killed while a driver has the secrets, or made to tell where it stands.
func TestSecretsWhenKilled(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGABRT} {
		for _, verb := range []string{"attach", "mount-device"} {
			t.Run(fmt.Sprint(sig, "-", verb), func(t *testing.T) {
				n := newSecretNode(t, planted)
				d := tattle(t, n.root, "hangs", forms["plain"])
				since := time.Now()
				args := slices.Concat([]string{verb, "-vv", "-o", "json"}, n.docsFor(verb), n.flags())
				cmd := exec.Command(n.kvolPath, args...)
				cmd.Env = append(append(os.Environ(), "KVOL_CONFIG=", "GOTRACEBACK=crash"), n.env...)
				cmd.Dir = n.dir + "/tmp" // where a core would be
				var said bytes.Buffer
				cmd.Stdout, cmd.Stderr = &said, &said
				must(t, cmd.Start())
				testutil.Poll(t, "the driver was called", func() bool { return len(d.called) > 0 })
				n.processes(cmd.Process.Pid)
				must(t, cmd.Process.Signal(sig))
				_ = cmd.Wait() // killed
				n.hidden("what it said", said.Bytes())
				n.hidden("history", []byte(n.must(0, "history", "-o", "json").stdout))
				n.files(since)
			})
		}
	}
}

// processes looks at what everybody may read of kvol and those that it started.
func (n *secretNode) processes(kvol int) {
	n.t.Helper()
	entries, err := os.ReadDir("/proc")
	must(n.t, err)
	for _, d := range entries {
		dir := "/proc/" + d.Name()
		if exe, err := os.Readlink(dir + "/exe"); err != nil || exe != n.kvolPath {
			continue
		}
		for _, name := range []string{"cmdline", "environ", "comm"} {
			if text, err := os.ReadFile(dir + "/" + name); err == nil {
				n.hidden(fmt.Sprintf("%s of process %s (kvol is %d)", name, d.Name(), kvol), text)
			}
		}
	}
}
