package schema

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
)

const (
	draft    = "https://json-schema.org/draft/2020-12/schema"
	dateTime = "date-time"
)

// documents are the kinds of document that kvol prints.
var documents = map[string]any{
	"ColumnList":    api.List[api.Column]{},
	"Error":         api.ErrorDoc{},
	"Inspection":    api.Inspection{},
	"LimitList":     api.List[api.Limit]{},
	"MountEvent":    api.MountEvent{},
	"MountList":     api.List[api.Mount]{},
	"OperationList": api.List[api.Operation]{},
	"OrphanList":    api.List[api.Orphan]{},
	"PathInfoList":  api.List[api.PathInfo]{},
	"PathSet":       api.PathSet{},
	"PluginList":    api.List[api.Info]{},
	"ResultList":    api.List[api.Result]{},
	"SettingList":   api.List[api.Setting]{},
	"StepList":      api.List[api.Step]{},
	"VersionInfo":   api.VersionInfo{},
	"WaitList":      api.List[api.Wait]{},
}

// maker makes schemas of types, with what only their source tells.
type maker struct {
	comments map[string]string   // by "Type.Field": what the source says of it
	values   map[string][]string // by the name of a type: its constants
}

// newMaker reads the source of a package.
func newMaker(dir string) (*maker, error) {
	files, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		return nil, err
	}
	m := &maker{map[string]string{}, map[string][]string{}}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, m.note)
	}
	return m, nil
}

func (m *maker) note(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.TypeSpec:
		if s, ok := n.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					text := strings.TrimSpace(f.Doc.Text() + f.Comment.Text())
					m.comments[n.Name.Name+"."+name.Name] = strings.ReplaceAll(text, "\n", " ")
				}
			}
		}
	case *ast.ValueSpec:
		of, ok := n.Type.(*ast.Ident)
		if !ok {
			break
		}
		for _, v := range n.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value) // the parser took it
				m.values[of.Name] = append(m.values[of.Name], text)
			}
		}
	}
	return true
}

// document is the schema of a kind of document. It has an apiVersion and a kind,
// which render puts before a type that has none.
func (m *maker) document(kind string) *Schema {
	s := m.of(reflect.TypeOf(documents[kind]))
	s.Schema, s.Title = draft, kind
	for _, head := range [][2]string{{"apiVersion", api.Version}, {"kind", kind}} {
		s.Properties[head[0]] = &Schema{Type: "string", Const: head[1]}
		if !slices.Contains(s.Required, head[0]) {
			s.Required = append(s.Required, head[0])
		}
	}
	return s
}

// of is the schema of the JSON that a type becomes.
func (m *maker) of(t reflect.Type) *Schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &Schema{Type: "string", Format: dateTime}
	case t.Kind() == reflect.Pointer:
		return m.of(t.Elem())
	case t.Kind() == reflect.String:
		return &Schema{Type: "string", Enum: m.values[t.Name()]}
	case t.Kind() == reflect.Bool:
		return &Schema{Type: "boolean"}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return &Schema{Type: "integer"}
	case t.Kind() == reflect.Slice:
		return &Schema{Type: "array", Items: m.of(t.Elem())}
	case t.Kind() == reflect.Map:
		return &Schema{Type: "object", Additional: m.of(t.Elem())}
	case t.Kind() == reflect.Struct:
		return m.object(t)
	}
	panic(fmt.Sprintf("%v has no place in JSON that scripts rely on", t))
}

// object allows members that it does not name: they are those of later versions.
func (m *maker) object(t reflect.Type) *Schema {
	s := &Schema{Type: "object", Properties: map[string]*Schema{}, Additional: &Schema{}}
	of, _, _ := strings.Cut(t.Name(), "[")
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			panic(fmt.Sprintf("%v.%s has no name in JSON", t, f.Name))
		}
		field := m.of(f.Type)
		field.Description = m.comments[of+"."+f.Name]
		s.Properties[name] = field
		if !strings.Contains(rest, "omit") {
			s.Required = append(s.Required, name)
		}
	}
	return s
}
