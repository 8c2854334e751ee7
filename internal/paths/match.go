package paths

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// variable is a name that an element of a path can hold.
type variable struct {
	get   func(Path) string
	set   func(*Path, string) bool // false: this element is no such name
	valid func(string) error
}

// kubernetesIO is the first part of the in-tree plugins' names.
const kubernetesIO = "kubernetes.io"

var variables = map[string]variable{
	"uid":       {func(p Path) string { return p.PodUID }, func(p *Path, s string) bool { p.PodUID = s; return true }, ValidPodUID},
	"volume":    {func(p Path) string { return p.Volume }, func(p *Path, s string) bool { p.Volume = s; return true }, ValidVolumeName},
	"container": {func(p Path) string { return p.Container }, func(p *Path, s string) bool { p.Container = s; return true }, ValidContainerName},
	"driver":    {func(p Path) string { return p.Driver }, func(p *Path, s string) bool { p.Driver = s; return true }, ValidDriverName},
	"hash":      {func(p Path) string { return p.HandleHash }, func(p *Path, s string) bool { p.HandleHash = s; return true }, ValidHandleHash},
	"iface":     {func(p Path) string { return p.Iface }, func(p *Path, s string) bool { p.Iface = s; return true }, ValidIface},
	"id":        {func(p Path) string { return p.ID }, func(p *Path, s string) bool { p.ID = s; return true }, validID},
	"file":      {func(p Path) string { return p.File }, func(p *Path, s string) bool { p.File = s; return true }, validFile},
	"kubeletfile": {
		func(p Path) string { return p.File },
		func(p *Path, s string) bool { p.File = s; return kubeletFiles[s] },
		validFile,
	},
	"index": {
		func(p Path) string { return strconv.Itoa(p.Index) },
		func(p *Path, s string) bool {
			n, err := strconv.Atoi(s)
			p.Index = n
			return err == nil && n >= 0 && strconv.Itoa(n) == s
		},
		validIndex,
	},
	// The plugin's name: escaped as one element, ...
	"plugin": {
		func(p Path) string { return EscapePlugin(p.Plugin) },
		func(p *Path, s string) bool { p.Plugin = UnescapePlugin(s); return true },
		func(s string) error { return ValidPluginName(UnescapePlugin(s)) },
	},
	// ... the part after "kubernetes.io", ...
	"name": {
		func(p Path) string {
			name, _ := strings.CutPrefix(p.Plugin, kubernetesIO+"/")
			return name
		},
		func(p *Path, s string) bool { p.Plugin = kubernetesIO + "/" + s; return true },
		func(s string) error { return ValidPluginName(kubernetesIO + "/" + s) },
	},
	// ... or a FlexVolume driver's name, as two elements or one.
	"vendor": {
		func(p Path) string {
			vendor, _, _ := strings.Cut(p.Plugin, "/")
			return vendor
		},
		func(p *Path, s string) bool { p.Plugin = s; return s != kubernetesIO },
		ValidPluginName,
	},
	"flexdriver": {
		func(p Path) string {
			_, driver, _ := strings.Cut(p.Plugin, "/")
			return driver
		},
		func(p *Path, s string) bool { p.Plugin += "/" + s; return true },
		ValidPluginName,
	},
	"flexplugin": {func(p Path) string { return p.Plugin }, func(p *Path, s string) bool { p.Plugin = s; return true }, ValidPluginName},
}

// element is one element of a layout's path: text, or a variable after some text.
type element struct {
	text string
	v    *variable
	name string
	many bool
}

// row is a layout ready for use.
type row struct {
	layout
	elems []element
	flex  bool // serves plugins outside kubernetes.io only
	any   bool // serves every plugin of kubernetes.io that has no row of its own
}

// kindOf is what a plugin's own row and a row for any plugin compete for.
type kindOf struct {
	kind   Kind
	plugin string
	old    bool
}

// table is the layouts made ready, and which plugins have rows of their own. It
// is made when first needed: most commands start without it.
var table = sync.OnceValues(func() ([]row, map[kindOf]bool) { return compile(layouts) })

// compile splits the layouts and sorts them so that the first row that matches
// is the right one: at the first element that differs text comes before text that
// it begins with, and so before a variable, which has none or some before it; then
// the longer path before the one that it begins with.
func compile(layouts []layout) ([]row, map[kindOf]bool) {
	out := make([]row, 0, len(layouts))
	own := map[kindOf]bool{}
	for _, l := range layouts {
		r := row{layout: l}
		for text := range strings.SplitSeq(l.path, "/") {
			r.elems = append(r.elems, newElement(text))
		}
		r.any = strings.Contains(l.path, "{name}")
		r.flex = strings.Contains(l.path, "{flex")
		if l.plugin != "" {
			own[kindOf{l.kind, l.plugin, l.old}] = true
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b row) int {
		for i := range min(len(a.elems), len(b.elems)) {
			if c := cmp.Compare(b.elems[i].text, a.elems[i].text); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(b.elems), len(a.elems))
	})
	return out, own
}

func newElement(text string) element {
	open := strings.IndexByte(text, '{')
	if open < 0 {
		return element{text: text}
	}
	name, many := strings.CutSuffix(strings.TrimSuffix(text[open+1:], "}"), "...")
	v := variables[name]
	return element{text: text[:open], v: &v, name: name, many: many}
}

// fits tells whether the row's text is that of the path, and how many elements
// its {id...} takes. It decides for nearly all rows, so it makes nothing.
func (r *row) fits(elems []string) (many int, ok bool) {
	if len(elems) < len(r.elems) {
		return 0, false
	}
	for i := range r.elems {
		e := &r.elems[i]
		switch {
		case len(elems) == 0:
			return 0, false
		case e.many:
			if many = r.span(elems); many == 0 {
				return 0, false
			}
			elems = elems[many:]
			continue
		case e.v == nil && elems[0] != e.text, !strings.HasPrefix(elems[0], e.text):
			return 0, false
		}
		elems = elems[1:]
	}
	return many, true
}

// match reads the elements of a path below the root; what is left is the Rest.
func (r *row) match(elems []string, own map[kindOf]bool) (Path, bool) {
	many, ok := r.fits(elems)
	if !ok {
		return Path{}, false
	}
	p := Path{Kind: r.kind, Plugin: r.plugin, Old: r.old}
	for _, e := range r.elems {
		n := 1
		if e.many {
			n = many
		}
		value := strings.Join(elems[:n], "/")[len(e.text):]
		elems = elems[n:]
		if e.v == nil {
			continue
		}
		// After text ("iface-..") an element can hold what no element can be.
		if value == "" || value == "." || value == ".." || !e.v.set(&p, value) {
			return Path{}, false
		}
	}
	if r.any && own[kindOf{r.kind, p.Plugin, false}] {
		return Path{}, false
	}
	p.Rest = strings.Join(elems, "/")
	return p, true
}

// serves tells whether the row is the one that p can be built by.
func (r *row) serves(p Path, own map[kindOf]bool) bool {
	if r.kind != p.Kind || r.old != p.Old {
		return false
	}
	inTree := strings.HasPrefix(p.Plugin, kubernetesIO+"/")
	switch {
	case r.plugin != "":
		return r.plugin == p.Plugin
	case r.any:
		return inTree && !own[kindOf{p.Kind, p.Plugin, p.Old}]
	case r.flex:
		return !inTree && strings.Contains(p.Plugin, "/") == strings.Contains(r.path, "{vendor}")
	}
	return true
}

// render is the inverse of match, with every name validated.
func (r *row) render(p Path) (string, error) {
	out := make([]string, 0, len(r.elems)+1)
	for _, e := range r.elems {
		if e.v == nil {
			out = append(out, e.text)
			continue
		}
		value := e.v.get(p)
		if value == "" {
			return "", bad(string(p.Kind)+" path", r.path, "no "+e.name+" is given for it", "name it")
		}
		if err := e.v.valid(value); err != nil {
			return "", err
		}
		out = append(out, e.text+value)
	}
	if p.Rest != "" {
		if err := validID(p.Rest); err != nil {
			return "", err
		}
		out = append(out, p.Rest)
	}
	return strings.Join(out, "/"), nil
}
