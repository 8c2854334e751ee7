package catalogue

import (
	"cmp"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// nextOf is the next step that is given to an error where it is made, or to the
// variable that holds it, in the same declaration.
func (r *reader) nextOf(decl ast.Node, e ast.Expr) string {
	next, variable := "", ""
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "WithNext" && chained(sel.X, e) {
				next = cmp.Or(r.given(n.Args), next)
			}
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if chained(right, e) && i < len(n.Lhs) {
					variable = text(n.Lhs[i])
				}
			}
		}
		return true
	})
	if next != "" || variable == "" || variable == "_" {
		return next
	}
	return r.stepsOf(decl, variable, e.Pos())
}

// stepsOf are the next steps that a variable is given after a place in the declaration;
// from its beginning they are also those that it is made with.
func (r *reader) stepsOf(decl ast.Node, variable string, after token.Pos) string {
	var steps []string
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && n.Pos() > after && sel.Sel.Name == "WithNext" && chained(sel.X, &ast.Ident{Name: variable}) {
				steps = append(steps, r.given(n.Args))
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if text(left) == variable+".Next" && i < len(n.Rhs) {
					steps = append(steps, cmp.Or(r.words(n.Rhs[i]), "…"))
				}
				made := n.Rhs[min(i, len(n.Rhs)-1)]
				if address, ok := made.(*ast.UnaryExpr); ok {
					made = address.X
				}
				if p, ok := r.direct(made); ok && after == token.NoPos && text(left) == variable && p.Next != "" {
					steps = append(steps, p.Next)
				}
			}
		}
		return true
	})
	return strings.Join(slices.Compact(steps), " | ")
}

// step is the next step that a maker is given; a text that is made before it is "…".
func (r *reader) step(e ast.Expr) string {
	if _, ok := e.(*ast.BasicLit); ok {
		return r.words(e)
	}
	return cmp.Or(r.words(e), "…")
}

// given is what WithNext is called with; a text that is made before it is "…".
func (r *reader) given(args []ast.Expr) string {
	if len(args) == 0 {
		return ""
	}
	words := r.words(args[0])
	if words == "%s" && len(args) == 2 {
		words = r.words(args[1])
	}
	return cmp.Or(words, "…")
}

// chained says that x is e, or calls of methods upon it: e.At(…).
func chained(x, e ast.Expr) bool {
	for {
		if x == e {
			return true
		}
		switch v := x.(type) {
		case *ast.CallExpr:
			sel, ok := v.Fun.(*ast.SelectorExpr)
			if !ok {
				return false
			}
			x = sel.X
		case *ast.ParenExpr:
			x = v.X
		case *ast.UnaryExpr:
			x = v.X
		case *ast.Ident:
			id, ok := e.(*ast.Ident)
			return ok && id.Name == v.Name
		default:
			return false
		}
	}
}
