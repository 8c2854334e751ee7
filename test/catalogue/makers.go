package catalogue

import (
	"cmp"
	"go/ast"
	"slices"
)

// maker is a function that makes an error of words that it is given.
type maker struct {
	params []string // its parameters' names
	kind   string   // of what it makes, unless a parameter says it
	next   string
	cause  bool
}

// findMaker notes a function that makes an Error of a format and arguments. What has a
// next step among them is a fault that a document's reader gathers: bad input.
func (r *reader) findMaker(name string, typ *ast.FuncType, body *ast.BlockStmt) {
	m := &maker{kind: "Input"}
	for _, field := range typ.Params.List {
		for _, id := range field.Names {
			m.params = append(m.params, id.Name)
		}
	}
	is := slices.Contains(m.params, "next")
	if is && slices.Contains(m.params, "reason") {
		m.kind = Stays
	} else if !slices.Contains(m.params, "format") {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if p, ok := r.direct(e); ok && p.Message == "" && (!p.Cause || !is) {
				m.kind, m.next, m.cause, is = p.Kind, cmp.Or(r.nextOf(body, e), p.Next), p.Cause, true
			}
		}
		return true
	})
	if is {
		r.makers[name] = append(r.makers[name], m)
	}
}

// findLocalMakers notes those that a function makes for itself: bad := func(…) error.
func (r *reader) findLocalMakers(body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		as, ok := n.(*ast.AssignStmt)
		if !ok || len(as.Lhs) != 1 {
			return true
		}
		if lit, ok := as.Rhs[0].(*ast.FuncLit); ok {
			r.findMaker(text(as.Lhs[0]), lit.Type, lit.Body)
		}
		return true
	})
}
