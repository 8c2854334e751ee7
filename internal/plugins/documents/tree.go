package documents

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// pairs goes through the keys and values of a mapping. Keys that "<<" merges in
// come last and do not hide the mapping's own.
func (d *decoder) pairs(n *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if n.Kind != yaml.MappingNode {
			d.wants(n, "a mapping", `write its fields below it, as "name: value"`)
			return
		}
		d.pairsOf(n, map[string]bool{}, false, yield)
	}
}

func (d *decoder) pairsOf(n *yaml.Node, seen map[string]bool, merged bool, yield func(key, value *yaml.Node) bool) bool {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolved(n.Content[i]), resolved(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode:
			d.bad(key, "write a plain name", "%s where the name of a field is wanted", describe(key, d.hide))
		case key.ShortTag() == "!!merge":
			merges = append(merges, value)
		case seen[key.Value]:
			if !merged {
				d.add(key.Line, append(slices.Clone(d.path), key.Value), "leave one of them", "it is there twice")
			}
		default:
			seen[key.Value] = true
			if !yield(key, value) {
				return false
			}
		}
	}
	for _, m := range merges {
		from := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			from = m.Content
		}
		for _, m := range from {
			if m = resolved(m); m.Kind != yaml.MappingNode {
				d.wants(m, "a mapping to merge", "write the fields out")
			} else if !d.pairsOf(m, seen, true, yield) {
				return false
			}
		}
	}
	return true
}

// resolved is what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// lookup finds a field of a mapping, nil when it is not there.
func lookup(n *yaml.Node, path ...any) *yaml.Node {
	for _, step := range path {
		n = child(resolved(n), step)
		if n == nil {
			return nil
		}
	}
	return resolved(n)
}

func child(n *yaml.Node, step any) *yaml.Node {
	switch step := step.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && step < len(n.Content) {
			return n.Content[step]
		}
	case string:
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

// describe says what a value is; with hide, nothing that it holds.
func describe(n *yaml.Node, hide bool) string {
	kind := ""
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	switch tag := n.ShortTag(); tag {
	case "!!int", "!!float":
		kind = "the number"
	case "!!bool":
		kind = "the truth value"
	case "!!str":
		kind = "the text"
	default:
		if hide {
			return "a value with a tag" // which can be a secret that wants quotes
		}
		kind = "the " + printable(tag)
	}
	switch {
	case hide:
		return strings.Replace(kind, "the ", "a ", 1)
	case n.Value == "":
		return kind + ` ""`
	}
	return kind + " " + printable(n.Value)
}

// nearest is the known name that was probably meant, "" when none is near.
func nearest(name string, known map[string][]int) string {
	best, least := "", 3
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		far := distance(strings.ToLower(name), strings.ToLower(candidate))
		if far < least && far < len(candidate)/2+1 {
			best, least = candidate, far
		}
	}
	return best
}

// distance is Levenshtein's: how many letters to insert, take out or change.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
