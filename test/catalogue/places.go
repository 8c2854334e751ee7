// Package catalogue reads from the source every place where kvol makes an error:
// its kind, its words and its next step. The reference page is made from that, and
// tests hold the places against the rules.
package catalogue

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Kinds of places that are not the name of a sentinel.
const (
	Plain  = "Failed" // of no special kind
	Passed = ""       // that of the error inside, or one that is found at run time
	Stays  = "Stays"  // no error, but a reason why one thing of many is left alone
)

// Place is where an error is made.
type Place struct {
	Package, Func string
	Kind          string // "ErrBusy" without its Err
	Message       string // with the verbs of fmt
	Next          string
	// Cause says that these are words for another error to hold, or plain failure.
	Cause bool
	// Late says that the kind is no constant: it is found at run time.
	Late bool
}

func (p Place) String() string {
	return fmt.Sprintf("%s.%s: %s %q", p.Package, p.Func, p.Kind, p.Message)
}

// Read gives the places of the packages below folders of the module, sorted.
func Read(root string, folders ...string) ([]Place, error) {
	packages := map[string][]*ast.File{}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil || skipped[filepath.Base(dir)] {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			packages[dir] = append(packages[dir], file)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var all []Place
	for dir, files := range packages {
		all = append(all, readPackage(dir, files)...)
	}
	slices.SortFunc(all, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Next, b.Next),
			cmp.Compare(a.Package, b.Package), cmp.Compare(a.Func, b.Func))
	})
	return slices.Compact(all), nil
}

// skipped are packages for tests only.
var skipped = map[string]bool{"testutil": true, "exectest": true, "plugintest": true}

func readPackage(dir string, files []*ast.File) []Place {
	pkg := &reader{dir: dir, makers: map[string][]*maker{}, consts: map[string]string{}}
	for _, file := range files {
		pkg.findConsts(file)
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				pkg.findMaker(f.Name.Name, f.Type, f.Body)
				pkg.findLocalMakers(f.Body)
			}
		}
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			name := "var"
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			pkg.read(name, decl)
		}
	}
	return pkg.places
}

type reader struct {
	dir    string
	makers map[string][]*maker
	consts map[string]string // texts of the package
	places []Place
}

// read finds the places of one declaration.
func (r *reader) read(name string, decl ast.Node) {
	var inside []ast.Node // causes that belong to a place already
	ast.Inspect(decl, func(n ast.Node) bool {
		if as, ok := n.(*ast.AssignStmt); ok {
			r.assigned(name, decl, as)
		}
		e, ok := n.(ast.Expr)
		if !ok || slices.Contains(inside, n) {
			return true
		}
		p, ok := r.direct(e)
		if !ok {
			p, ok = r.made(e)
		}
		if r.makers[name] != nil && p.Message == "" || !ok || p.Message == "" && !p.Late && (p.Kind == Passed || p.Kind == Plain) {
			return true
		}
		inside = append(inside, causes(e)...)
		p.Package, p.Func = r.dir, name
		p.Next = cmp.Or(r.nextOf(decl, e), p.Next)
		r.places = append(r.places, p)
		return true
	})
}

// assigned finds the places that give an error its kind after it was made: e.Kind = kind.
func (r *reader) assigned(name string, decl ast.Node, as *ast.AssignStmt) {
	for i, left := range as.Lhs {
		variable, ok := strings.CutSuffix(text(left), ".Kind")
		if of, ok := strings.CutSuffix(text(left), ".Next"); ok && len(as.Lhs) == len(as.Rhs) && !r.isError(decl, of) {
			if next := r.words(as.Rhs[i]); next != "" {
				r.places = append(r.places, Place{Package: r.dir, Func: name, Kind: Stays, Next: next})
			}
		}
		if !ok || i >= len(as.Rhs) || !r.isError(decl, variable) {
			continue
		}
		p := Place{Package: r.dir, Func: name, Kind: kind(as.Rhs[i]), Next: r.stepsOf(decl, variable, token.NoPos)}
		p.Late = p.Kind == Passed
		r.places = append(r.places, p)
	}
}

// isError says whether a variable is made of, or declared as, an Error in the declaration.
func (r *reader) isError(decl ast.Node, variable string) (is bool) {
	within := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			found = found || ok && (text(e) == "api.Error" || text(e) == "api.Errorf" || r.dir == "internal/api" && text(e) == "Error")
			return !found
		})
		return found
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			is = is || slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool { return text(e) == variable }) && slices.ContainsFunc(n.Rhs, func(e ast.Expr) bool { return within(e) })
		case *ast.Field:
			is = is || slices.ContainsFunc(n.Names, func(id *ast.Ident) bool { return id.Name == variable }) && within(n.Type)
		case *ast.ValueSpec:
			is = is || slices.ContainsFunc(n.Names, func(id *ast.Ident) bool { return id.Name == variable }) && n.Type != nil && within(n.Type)
		}
		return !is
	})
	return is
}

// direct reads the making of an error by api.Errorf, api.Error, fmt.Errorf or
// errors.New.
func (r *reader) direct(e ast.Expr) (Place, bool) {
	switch e := e.(type) {
	case *ast.CallExpr:
		switch called := text(e.Fun); {
		case (called == "api.Errorf" || called == "Errorf" && r.dir == "internal/api") && len(e.Args) > 1:
			return Place{Kind: kind(e.Args[0]), Message: r.words(e.Args[1]), Late: kind(e.Args[0]) == Passed}, true
		case called == "fmt.Errorf" || called == "errors.New":
			return Place{Kind: Plain, Message: r.words(e.Args[0]), Cause: true}, true
		}
	case *ast.CompositeLit:
		if t := text(e.Type); t != "api.Error" && (t != "Error" || r.dir != "internal/api") {
			return Place{}, false
		}
		p := Place{Kind: Passed}
		for _, el := range e.Elts {
			kv, ok := el.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch text(kv.Key) {
			case "Kind":
				p.Kind = kind(kv.Value)
				p.Late = p.Kind == Passed
			case "Next":
				p.Next = cmp.Or(r.words(kv.Value), "…")
			case "Err":
				if c, ok := r.direct(kv.Value); ok {
					p.Message = c.Message
				}
			}
		}
		return p, true
	}
	return Place{}, false
}

// made reads a call of one of the package's own makers. Of several of that name it is
// the one whose words are where the call has words.
func (r *reader) made(e ast.Expr) (best Place, ok bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return Place{}, false
	}
	name := text(call.Fun)
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		name = sel.Sel.Name
		if x := text(sel.X); x == "fmt" || x == "api" {
			return Place{}, false
		}
	}
	most := 0
	for _, m := range r.makers[name] {
		p, score := Place{Kind: m.kind, Next: m.next, Cause: m.cause}, 0
		for i, param := range m.params[:min(len(m.params), len(call.Args))] {
			switch param {
			case "format", "reason":
				p.Message = r.words(call.Args[i])
			case "next":
				p.Next = r.step(call.Args[i])
				if p.Next != "…" {
					score++
				}
			case "kind":
				p.Kind = kind(call.Args[i])
				p.Late = p.Kind == Passed
			}
		}
		if p.Message != "" && score+2 > most {
			best, most = p, score+2
		}
	}
	return best, most > 0
}

// causes are the expressions whose words a place has taken for its own.
func causes(e ast.Expr) []ast.Node {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var all []ast.Node
	for _, el := range lit.Elts {
		if kv, ok := el.(*ast.KeyValueExpr); ok && text(kv.Key) == "Err" {
			all = append(all, kv.Value)
		}
	}
	return all
}

func (r *reader) findConsts(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					if words := r.words(spec.Values[i]); words != "" {
						r.consts[name.Name] = words
					}
				}
			}
		}
		return true
	})
}

// words is the text of an expression as far as the source has it.
func (r *reader) words(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, _ := strconv.Unquote(e.Value)
			return s
		}
	case *ast.Ident:
		return r.consts[e.Name]
	case *ast.BinaryExpr:
		left, right := r.words(e.X), r.words(e.Y)
		if left+right != "" {
			return cmp.Or(left, "%s") + cmp.Or(right, "%s")
		}
	case *ast.CallExpr:
		if text(e.Fun) == "fmt.Sprintf" {
			return r.words(e.Args[0])
		}
	}
	return ""
}

// kind is the name of a sentinel, without Err.
func kind(e ast.Expr) string {
	name := text(e)
	if name == "nil" {
		return Plain
	}
	if _, sentinel, ok := strings.Cut(name, "Err"); ok && (name == "Err"+sentinel || name == "api.Err"+sentinel) {
		return sentinel
	}
	return Passed
}

// text is a name, or names with dots between.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	}
	return ""
}
