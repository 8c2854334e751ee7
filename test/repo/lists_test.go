package repo

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// notPlugins are the folders of internal/plugins that hold no plugin.
var notPlugins = []string{"all", "documents", "family", "plugintest", "testdata"}

// unlisted gives the plugins that the one list does not import. all is the text of
// plugins/all/all.go.
func unlisted(plugins []string, all string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "all.go", all, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var listed []string
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser took it
		// A blank import puts nothing in the list.
		if name, ok := strings.CutPrefix(imported, module+"internal/plugins/"); ok && (spec.Name == nil || spec.Name.Name != "_") {
			listed = append(listed, name)
		}
	}
	return slices.DeleteFunc(slices.Clone(plugins), func(p string) bool { return slices.Contains(listed, p) }), nil
}

func TestEveryPluginIsListed(t *testing.T) {
	dir := filepath.Join(root(t), "internal/plugins")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var plugins []string
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(notPlugins, e.Name()) {
			plugins = append(plugins, e.Name())
		}
	}
	all, err := os.ReadFile(filepath.Join(dir, "all/all.go"))
	if err != nil {
		t.Fatal(err)
	}
	missing, err := unlisted(plugins, string(all))
	if err != nil || len(missing) > 0 {
		t.Errorf("plugins/all/all.go does not list %v (%v)", missing, err)
	}
}

func TestUnlistedPluginIsRefused(t *testing.T) {
	all := "package all\nimport (\n\"" + module + "internal/plugins/local\"\n_ \"" + module + "internal/plugins/iscsi\"\n)"
	got, err := unlisted([]string{"iscsi", "local", "nfs"}, all)
	if want := []string{"iscsi", "nfs"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("unlisted are %v (%v), want %v", got, err, want)
	}
}

// uninstalled gives the tools that a test asks for, by testutil.Tool, and that
// scripts/deps.sh does not install for it.
func uninstalled(file *ast.File, deps string) (missing []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Tool" {
			return true
		}
		for _, arg := range call.Args[1:] {
			lit, ok := arg.(*ast.BasicLit)
			if !ok {
				continue
			}
			name, _ := strconv.Unquote(lit.Value) // the parser took it
			line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` +\S+ +.*\btest\b`)
			if name != "make" && !line.MatchString(deps) {
				missing = append(missing, name)
			}
		}
		return true
	})
	return missing
}

// TestToolsAreInstalled: a tool that is not leaves its tests skipped.
func TestToolsAreInstalled(t *testing.T) {
	dir := root(t)
	deps, err := os.ReadFile(filepath.Join(dir, "scripts/deps.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range committed(t, dir) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		_, file := parse(t, filepath.Join(dir, name))
		for _, tool := range uninstalled(file, string(deps)) {
			t.Errorf("%s needs %s, and scripts/deps.sh does not install it", name, tool)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { testutil.Tool(t, \"a\", \"b\") }", 0)
	if got := uninstalled(file, "a pkg lint test\nb pkg lint\n"); err != nil || !slices.Equal(got, []string{"b"}) {
		t.Errorf("uninstalled are %v (%v), want b", got, err)
	}
}

// machineWords are what names the machine that the tree lies on: its checkout, the
// folder around that, and the hosts that its packages come from.
func machineWords(t *testing.T, dir string) []string {
	t.Helper()
	words := []string{dir + "/"}
	// A folder that every machine has says nothing about this one.
	everywhere := []string{"/", "/tmp", "/var/tmp", "/root", "/home", "/src", "/usr/src", "/opt", "/mnt", "/srv", "/data", "/build"}
	if parent := filepath.Dir(dir); !slices.Contains(everywhere, parent) {
		words = append(words, parent+"/")
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY", "GOSUMDB").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`https?://(?:[^/@\s]*@)?([^/,|\s]+)`).FindAllStringSubmatch(string(out), -1) {
		words = append(words, m[1])
	}
	return words
}

// namesMachine gives the words that a text holds. A path counts only where it
// starts, so "/x/" is not seen in "a/x/".
func namesMachine(text string, words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		for rest := text; ; {
			i := strings.Index(rest, w)
			if i < 0 {
				return true
			}
			if w[0] != '/' || i == 0 || !regexp.MustCompile(`[\w.)}~-]`).MatchString(rest[i-1:i]) {
				return false
			}
			rest = rest[i+1:]
		}
	})
}

// TestTreeNamesNoMachine: what is committed must mean the same on every machine.
func TestTreeNamesNoMachine(t *testing.T) {
	dir := root(t)
	words := machineWords(t, dir)
	for _, name := range committed(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed so
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range namesMachine(string(b), words) {
			t.Errorf("%s names this machine: %q", name, w)
		}
	}
}

func TestNamesMachine(t *testing.T) {
	words := []string{"/x/", "proxy.example:80"}
	for text, want := range map[string]int{
		"": 0, "a/x/b": 0, "${dir}/x/b": 0, "/x": 0, "../x/": 0, "/x/b": 1, "see '/x/b'": 1, "a/x/ /x/": 1,
		"http://proxy.example:80/y": 1, "-C /x/ proxy.example:80": 2,
	} {
		if got := namesMachine(text, words); len(got) != want {
			t.Errorf("%q: found %q, want %d", text, got, want)
		}
	}
}

// committed are the regular files that git tracks or would; all files where this
// is no git checkout.
func committed(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	// The checkout may belong to another user than the tests run as.
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory="+dir, "ls-files", "-z", "-co", "--exclude-standard")
	cmd.Dir = dir
	if out, err := cmd.Output(); err == nil {
		names = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	} else if err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p) // both are absolute
		names = append(names, rel)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool {
		info, err := os.Lstat(filepath.Join(dir, n))
		return err == nil && !info.Mode().IsRegular()
	})
}
