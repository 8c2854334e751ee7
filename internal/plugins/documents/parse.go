package documents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of one input. Objects of etcd are at most 1.5 MiB; objects.yaml of a
// whole node has a value for about 12 bytes. At these bounds the worst input
// takes about 300 MB and a second.
const (
	// MaxInput is the size of the largest input that is read, in bytes.
	MaxInput = 4 << 20
	maxNodes = 400_000
	maxDocs  = 10_000
	maxDepth = 100
	// maxExpanded is the bytes of all values with their aliases written out;
	// maxNodes holds for them too.
	maxExpanded = 2 * MaxInput
)

// parse reads the documents of an input into trees, one each, also for those
// that hold nothing. JSON makes the same trees as YAML, so that everything after
// is the same for both and knows lines.
func parse(name string, data []byte) ([]*yaml.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if err := checkText(name, data); err != nil {
		return nil, err
	}
	var jsonErr error
	start := bytes.TrimSpace(data)
	if start[0] == '{' || start[0] == '[' {
		roots, err := parseJSON(name, data)
		if err == nil || errors.Is(err, errDeep) {
			return roots, err
		}
		jsonErr = err // it can still be YAML: {kind: Pod}
	}
	roots, err := parseYAML(name, data)
	switch {
	case err != nil && jsonErr != nil && bytes.HasPrefix(bytes.TrimSpace(start[1:]), []byte(`"`)):
		return nil, jsonErr
	case err != nil:
		return nil, err
	}
	for _, root := range roots {
		if !isNull(root) {
			return roots, nil
		}
	}
	return nil, badInput(name, kindsRead, "it holds no object, only comments or separators")
}

// checkText refuses what cannot be a document, before a parser sees it.
func checkText(name string, data []byte) error {
	switch {
	case len(data) > MaxInput:
		return badInput(name, "give only the volume, its claim and its pod", "it is larger than %d MiB", MaxInput>>20)
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		return badInput(name, "convert it: iconv -f UTF-16 -t UTF-8", "it is UTF-16 text, not UTF-8")
	case len(bytes.TrimSpace(data)) == 0:
		return badInput(name, "give a file with the volume's YAML or JSON", "it is empty")
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' {
			return badInput(name, "give YAML or JSON text in UTF-8", "it is not text: byte 0x%02x at offset %d, line %d",
				data[at], at, 1+bytes.Count(data[:at], []byte("\n")))
		}
		at += size
	}
	// Every value of YAML or JSON needs one of these of its own, but for the first.
	if strings.Count(string(data), "\n")+countAny(data, ",:[{") > maxNodes {
		return badInput(name, "give only the volume, its claim and its pod", "it has more than %d values", maxNodes)
	}
	// The library looks through all tag directives for each: minutes for 4 MiB.
	if bytes.HasPrefix(data, []byte("%TAG")) || bytes.Contains(data, []byte("\n%TAG")) {
		return badInput(name, "take it out", "it has a %%TAG directive, which Kubernetes' YAML does not need")
	}
	return nil
}

func countAny(data []byte, chars string) int {
	n := 0
	for i := range len(chars) {
		n += bytes.Count(data, []byte{chars[i]})
	}
	return n
}

func parseYAML(name string, data []byte) ([]*yaml.Node, error) {
	var roots []*yaml.Node
	var weigh weigher
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		o := origin{input: name, doc: len(roots) + 1}
		switch {
		case err != nil:
			return nil, o.bad("correct it: a wrong indentation or a missing quote is the usual cause", "it is not YAML: %s", yamlFault(err))
		case len(roots) == maxDocs:
			return nil, o.bad("give only the volume, its claim and its pod", "more than %d documents", maxDocs)
		}
		root := doc.Content[0]
		if err := weigh.check(root); err != nil {
			return nil, o.bad("write the values out, without aliases, as the API server gives them", "%w", err)
		}
		roots = append(roots, root)
	}
}

// yamlFault is the parser's message. It quotes nothing of the input but what it
// takes for the name of an alias, which can be a password that begins with "*".
func yamlFault(err error) string {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.HasPrefix(what, "unknown anchor") {
		return `an alias (*name) stands for nothing; text that begins with "*" needs quotes`
	}
	return what
}

// weigher finds what the trees of an input are with their aliases written out,
// without writing them out.
type weigher struct {
	total weight
	// anchors holds what was found for each; a zero while it is being looked at.
	anchors map[*yaml.Node]weight
}

type weight struct{ nodes, bytes, height int }

func (w *weigher) check(root *yaml.Node) error {
	w.anchors = map[*yaml.Node]weight{}
	got, err := w.weigh(root, 1)
	if err == nil {
		err = w.total.add(got, root.Line)
	}
	return err
}

func (w *weight) add(child weight, line int) error {
	w.nodes += child.nodes
	w.bytes += child.bytes
	w.height = max(w.height, child.height+1)
	if w.nodes > maxNodes || w.bytes > maxExpanded {
		return fmt.Errorf("line %d: with its aliases written out it has more than %d values or %d MiB", line, maxNodes, maxExpanded>>20)
	}
	return nil
}

func (w *weigher) weigh(n *yaml.Node, depth int) (weight, error) {
	if n.Kind == yaml.AliasNode {
		known := w.anchors[n.Alias]
		if known.nodes == 0 {
			return weight{}, fmt.Errorf("line %d: alias *%s is inside what it stands for", n.Line, n.Value)
		}
		return known, nil
	}
	if n.Anchor != "" {
		w.anchors[n] = weight{}
	}
	sum := weight{nodes: 1, bytes: len(n.Value), height: 1}
	for _, child := range n.Content {
		c, err := w.weigh(child, depth+1)
		if err == nil {
			err = sum.add(c, child.Line)
		}
		if err != nil {
			return weight{}, err
		}
	}
	if depth+sum.height > maxDepth {
		return weight{}, fmt.Errorf("line %d: it is nested deeper than %d", n.Line, maxDepth)
	}
	if n.Anchor != "" {
		w.anchors[n] = sum
	}
	return sum, nil
}

// parseJSON reads JSON values, one after another. YAML's parser would do for most
// JSON, but not for the surrogate pairs of its escapes.
func parseJSON(name string, data []byte) ([]*yaml.Node, error) {
	r := jsonReader{dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	r.dec.UseNumber()
	var roots []*yaml.Node
	for {
		root, err := r.value(1)
		if errors.Is(err, io.EOF) && len(roots) > 0 {
			return roots, nil
		}
		o := origin{input: name, doc: len(roots) + 1}
		switch {
		case errors.Is(err, errDeep):
			return nil, o.bad("give the object as the API server gives it", "line %d: %w", r.line, err)
		case err != nil:
			return nil, o.bad("correct it", "line %d: it is not JSON: %w", r.line, err)
		case len(roots) == maxDocs:
			return nil, o.bad("give only the volume, its claim and its pod", "more than %d documents", maxDocs)
		}
		roots = append(roots, root)
	}
}

var errDeep = fmt.Errorf("it is nested deeper than %d", maxDepth)

type jsonReader struct {
	dec  *json.Decoder
	data []byte
	at   int // up to where lines are counted
	line int
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errDeep
	}
	end := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.at:end], []byte("\n"))
	r.at = end
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch t := token.(type) {
	case json.Delim:
		return n, r.children(n, t, depth)
	case string:
		n.Tag, n.Style, n.Value = "!!str", yaml.DoubleQuotedStyle, t
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(t)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

func (r *jsonReader) children(n *yaml.Node, open json.Delim, depth int) error {
	n.Kind, n.Tag = yaml.MappingNode, "!!map"
	if open == '[' {
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	}
	for r.dec.More() {
		child, err := r.value(depth + 1)
		if err != nil {
			return unexpected(err)
		}
		n.Content = append(n.Content, child)
	}
	_, err := r.dec.Token()
	return unexpected(err)
}

// unexpected tells an end inside a value from one between values.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
