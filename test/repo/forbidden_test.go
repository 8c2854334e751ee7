package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hit is one forbidden thing found.
type hit struct {
	line    int
	pattern string // of the rule, that matched
	text    string // as written
}

// find gives what a rule forbids in a file, whatever the file's folder is.
func find(r rule, fset *token.FileSet, file *ast.File) []hit {
	var hits []hit
	add := func(n ast.Node, pattern, text string) {
		hits = append(hits, hit{fset.Position(n.Pos()).Line, pattern, text})
	}
	imports := map[string]string{} // name in this file: import path
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser took it
		name := baseName(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = imported
		for _, p := range r.imports {
			if within(imported, p) {
				add(spec, p, "import "+imported)
			}
		}
		if name == "." {
			for _, p := range r.names {
				if strings.HasPrefix(p, imported+".") {
					add(spec, "", "import . "+imported)
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.SelectorExpr:
			for _, p := range r.names {
				if uses(n, imports, p) {
					add(n, p, p)
				}
			}
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			for _, p := range r.literals {
				if n.Kind == token.STRING && err == nil && p.MatchString(text) {
					add(n, p.String(), n.Value)
				}
			}
		}
		return true
	})
	return hits
}

// baseName is the name of a package that is imported without one.
func baseName(imported string) string {
	base := path.Base(imported)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(imported))
	}
	if base == "mount-utils" {
		return "mount"
	}
	return base
}

// uses says whether an expression x.Name is a use of "importpath.Name" or "*.Name".
func uses(sel *ast.SelectorExpr, imports map[string]string, pattern string) bool {
	dot := strings.LastIndexByte(pattern, '.')
	pkg, name := pattern[:dot], pattern[dot+1:]
	if ok, err := path.Match(name, sel.Sel.Name); !ok || err != nil {
		return false
	}
	if pkg == "*" {
		return true
	}
	// Obj is set for what the file itself declares: a variable may have the name of
	// a package.
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Obj == nil && imports[x.Name] == pkg
}

// applies says whether a rule holds in a file, named from the module's root.
func (r rule) applies(name string) bool {
	in := func(p string) bool { return within(name, p) }
	return (len(r.only) == 0 || slices.ContainsFunc(r.only, in)) && !slices.ContainsFunc(r.homes, in)
}

func parse(t *testing.T, name string) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file
}

// sources are the Go files that are compiled into kvol, from the module's root.
func sources(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || rel == "test" || rel != "." && d.Name()[0] == '.' || slices.Contains(testOnly, rel)):
			return fs.SkipDir
		case strings.HasSuffix(rel, ".go") && !strings.HasSuffix(rel, "_test.go"):
			out = append(out, rel)
		}
		return nil
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d files in %s: %v", len(out), dir, err)
	}
	return out
}

func TestForbidden(t *testing.T) {
	dir := root(t)
	for _, name := range sources(t, dir) {
		fset, file := parse(t, filepath.Join(dir, name))
		for _, r := range rules {
			if !r.applies(name) {
				continue
			}
			for _, h := range find(r, fset, file) {
				t.Errorf("%s:%d: %s is forbidden here (%s): %s", name, h.line, h.text, r.name, r.why)
			}
		}
	}
}

// TestForbiddenRefuses holds each rule to its fixture, testdata/forbidden/NAME.go:
// it must refuse the lines that end in "// refused" and no other, and each of its
// patterns must be needed by one of them.
func TestForbiddenRefuses(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			name := filepath.Join("testdata/forbidden", r.name+".go")
			fset, file := parse(t, name)
			var want []int
			for _, group := range file.Comments {
				for _, c := range group.List {
					if c.Text == "// refused" {
						want = append(want, fset.Position(c.Pos()).Line)
					}
				}
			}
			var got []int
			used := map[string]bool{}
			for _, h := range find(r, fset, file) {
				got = append(got, h.line)
				used[h.pattern] = true
			}
			slices.Sort(want)
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("%s: refused lines %v, want %v", name, got, want)
			}
			for _, p := range r.patterns() {
				if !used[p] {
					t.Errorf("nothing in %s needs the pattern %s", name, p)
				}
			}
		})
	}
}

// patterns are all that a rule forbids; a name of syscall that has its twin in
// x/sys/unix is left out.
func (r rule) patterns() []string {
	out := slices.Clone(r.imports)
	for _, n := range r.names {
		if !strings.HasPrefix(n, "syscall.") {
			out = append(out, n)
		}
	}
	for _, l := range r.literals {
		out = append(out, l.String())
	}
	return out
}

func TestEachFixtureHasARule(t *testing.T) {
	files, err := filepath.Glob("testdata/forbidden/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".go")
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == name }) {
			t.Errorf("%s is for no rule", f)
		}
	}
}

func TestRulesKnowTheirHomes(t *testing.T) {
	for _, c := range []struct {
		rule, file string
		want       bool
	}{
		{"delete", "internal/plugins/local/local.go", true},
		{"delete", "internal/host/safefs/root.go", false},
		{"delete", "internal/host/safefs/sub/x.go", false},
		{"delete", "internal/host/safefs2/x.go", true},
		{"path-by-string", "internal/node/node.go", true},
		{"path-by-string", "internal/host/devices/loop.go", false},
		{"os-create", "internal/host/safefs/root.go", true},
		{"mkfs", "internal/host/exec/tools.go", false},
		{"mkfs", "internal/host/exec/exec.go", true},
	} {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.name == c.rule })
		if got := rules[i].applies(c.file); got != c.want {
			t.Errorf("rule %s in %s: applies is %v", c.rule, c.file, got)
		}
	}
}

// TestViperHasOneFile: what is a flag, an environment variable or a line of the
// file is decided in one place.
func TestViperHasOneFile(t *testing.T) {
	dir := root(t)
	var found []string
	for _, name := range sources(t, dir) {
		if importsPath(t, filepath.Join(dir, name), "github.com/spf13/viper") {
			found = append(found, name)
		}
	}
	if len(found) > 1 {
		t.Errorf("viper is imported by %v; one file reads the settings", found)
	}
	if !importsPath(t, "testdata/forbidden/flag-library.go", "github.com/spf13/viper") {
		t.Error("the fixture's import of viper is not seen")
	}
}

func importsPath(t *testing.T, name, imported string) bool {
	t.Helper()
	_, file := parse(t, name)
	return slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == fmt.Sprintf("%q", imported) })
}

// TestSize holds the limits of a file: 400 lines, a function 60.
func TestSize(t *testing.T) {
	dir := root(t)
	for _, name := range sources(t, dir) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range tooLong(name, text) {
			t.Error(fault)
		}
	}
	long := "package x\n\nfunc f() {\n" + strings.Repeat("\tf()\n", 70) + "}\n" + strings.Repeat("\n", 400)
	if got := tooLong("x.go", []byte(long)); len(got) != 2 {
		t.Errorf("a long file with a long function has the faults %q", got)
	}
}

func tooLong(name string, text []byte) []string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, 0)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	if n := fset.File(file.Pos()).LineCount(); n > 400 {
		faults = append(faults, fmt.Sprintf("%s: %d lines, more than 400", name, n))
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			from, to := fset.Position(f.Pos()).Line, fset.Position(f.End()).Line
			if to-from+1 > 60 {
				faults = append(faults, fmt.Sprintf("%s:%d: %s has %d lines, more than 60", name, from, f.Name.Name, to-from+1))
			}
		}
	}
	return faults
}
