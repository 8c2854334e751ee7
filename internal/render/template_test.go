package render

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

func TestTemplates(t *testing.T) {
	version := document(Version(), &api.VersionInfo{APIVersion: api.Version, Kind: "VersionInfo", Version: "v1", Go: "go1.26"})
	pathset := document(Paths(), &results().Items[0].Paths)
	none := list(Mounts(), api.NewList[api.Mount]("MountList", nil, []string{"careful"}))
	for _, c := range []struct {
		w    write
		o    Options
		want string
	}{
		{list(Mounts(), mounts()), Options{Format: JSONPath, Template: "{.items[*].mountID}"}, "231 231 0 7"},
		{list(Mounts(), mounts()), Options{Format: JSONPath, Template: "{.items[*].mountID}", SortBy: ".mountID"}, "0 7 231 231"},
		{list(Mounts(), mounts()), Options{Format: JSONPath, Template: "{.items[2].volume}"}, "a\nb\x1b[31m  \u202ec"}, // nothing is quoted
		{list(Mounts(), mounts()), Options{Format: JSONPathAsJSON, Template: "{.items[0].options}"}, "[\n    [\n        \"rw\",\n        \"relatime\"\n    ]\n]\n"},
		{list(Mounts(), mounts()), Options{Format: GoTemplate, Template: "{{len .items}} {{index .warnings 0}}"}, "4 line 7 of the mount table was skipped"},
		{list(Mounts(), mounts()), Options{Format: CustomColumns, Template: "ID:.mountID,K:kind", SortBy: "{.kind}"},
			"ID    K\n7     globalMount\n231   podVolume\n231   podVolume\n0     podVolume\n"},
		{list(Mounts(), mounts()), Options{Format: CustomColumnsFile, Template: "ID   NOPE\n{.mountID} .nope\n", NoHeaders: true}, "231   <none>\n231   <none>\n0     <none>\n7     <none>\n"},
		{none, Options{Format: JSONPath, Template: "{.items[*].path}"}, ""},
		{none, Options{Format: GoTemplateFile, Template: "{{.kind}}{{.nope}}"}, "MountList<no value>"},
		{none, Options{Format: CustomColumns, Template: "PATH:.path"}, "PATH\n"},
		{version, Options{Format: Wide}, "kvol v1\n"}, // what is not known has no line
		{version, Options{Format: JSONPathFile, Template: "{.kind} {.version}\n"}, "VersionInfo v1\n"},
		{version, Options{Format: CustomColumns, Template: "V:.version,GO:.go"}, "V     GO\nv1    go1.26\n"},
		{pathset, Options{Format: GoTemplate, Template: "{{.kind}} {{.apiVersion}} {{.volume}}"}, "PathSet kvol/v1 data"},
		{pathset, Options{Format: JSONPath, Template: "{.kind}{.nope}"}, "PathSet"},
	} {
		if err := c.w.check.Check(c.o); err != nil {
			t.Errorf("%+v: %v", c.o, err)
		}
		if got, err := c.w.to(c.o); err != nil || got != c.want {
			t.Errorf("%+v: %v\n%q, want\n%q", c.o, err, got, c.want)
		}
	}
}

// What is wrong with a template is told before anything is done, and where.
func TestBadTemplates(t *testing.T) {
	for _, c := range []struct {
		f              Format
		template, want string
	}{
		{JSONPath, "", "--output jsonpath has no template"},
		{CustomColumnsFile, "", "--output custom-columns-file has no template"},
		{JSONPath, "é{.items[*].path}{.b[}", "after character 17, {.b[}: unterminated array"},
		{JSONPathAsJSON, "{.items[?(@.a]}", "after character 0, {.items[?(@.a]}: "},
		{JSONPath, "{", "after character 0, {: "},
		{GoTemplate, "{{range .items}}\n{{.path}}", "line 2: unexpected EOF"},
		{GoTemplate, "\n{{nope .}}", `line 2: function "nope" not defined`},
		{CustomColumns, "A:.a,B", `column 2 is "B" and not HEADING:PATH`},
		{CustomColumns, "A:.a,B:{.b}x", `the path of column 2 is "{.b}x"`},
		{CustomColumns, "A:.a[", `the path of column 1, ".a[": unterminated array`},
		{CustomColumnsFile, "A B", "not a line of headings and a line of as many paths"},
		{CustomColumnsFile, "A B\n.a\n", "line 1 has 2 headings, and line 2 1 path"},
	} {
		for _, checker := range []Checker{Mounts(), Version()} {
			err := checker.Check(Options{Format: c.f, Template: c.template})
			if !errors.Is(err, api.ErrUsage) || !strings.Contains(err.Error(), c.want) || api.NewErrorDoc(err).Next == "" {
				t.Errorf("%s %q: %v", c.f, c.template, err)
			}
		}
	}
}

// A template that fails half way writes nothing, and says of what.
func TestFailingTemplates(t *testing.T) {
	for _, c := range []struct {
		f              Format
		template, want string
	}{
		{JSONPath, "{.kind}{.nope}", "nope is not found"},
		{JSONPath, "{.kind}{.items[9]}", "index 9"},
		{JSONPathAsJSON, "{.items[*].nope}", "nope is not found"},
		{GoTemplate, "{{.kind}}{{.nope}}", `no entry for key "nope"`},
		{GoTemplate, "{{.kind}}{{index .items 9}}", "index out of range: 9"},
		{GoTemplate, `{{.kind}}{{base64decode "-"}}`, "illegal base64"},
		{JSONPath, "{.kind}{.nope[?(@.a==1)]}", "nope is not found"},
		{JSONPath, "{.kind}{.items[?(@.kind==1)]}", "incompatible types"},
		{CustomColumns, "K:.kind,P:.path[0]", "is not array or slice"},
	} {
		got, err := list(Mounts(), mounts()).to(Options{Format: c.f, Template: c.template, StrictKeys: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || api.ExitCode(err) != api.ExitFailed || got != "" {
			t.Errorf("%s %q: %q %v", c.f, c.template, got, err)
		}
	}
}
