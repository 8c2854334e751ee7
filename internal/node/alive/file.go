package alive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
)

// readFile takes a list of pods that the operator made: the whole truth by his word,
// so that it is taken word by word or not at all.
func (s *Sets) readFile(ctx context.Context, l *look, path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.limit(ctx))
	defer cancel()
	file, err := l.files.Read(ctx, abs)
	if errors.Is(err, api.ErrNotFound) {
		return api.Errorf(api.ErrInput, "--pods-from: there is no such file").At(path).WithNext("%s > %s", s.kubectl(), act.Quote(path))
	}
	if err != nil {
		return err
	}
	if time.Now().Before(file.ModTime) {
		return api.Errorf(api.ErrInput, "--pods-from: the file is from the future, %s, so that nobody can tell which pods are younger than it", file.ModTime.Format(time.RFC3339)).
			At(path).WithNext("make it anew: %s > %s", s.kubectl(), act.Quote(path))
	}
	pods, line, err := parsePods(file.Data)
	if err != nil {
		if line > 0 {
			err = fmt.Errorf("line %d: %w", line, err)
		}
		return (&api.Error{Kind: api.ErrInput, Path: path, Err: fmt.Errorf("--pods-from: %w", err)}).
			WithNext("make it anew: %s > %s", s.kubectl(), act.Quote(path))
	}
	if here(pods, s.node) == 0 && !l.AssertNoPods {
		found := "names no pod"
		if len(pods) > 0 {
			found = fmt.Sprintf("names %s, none of the node %s", api.Count(len(pods), "pod", "pods"), s.node)
		}
		return api.Errorf(api.ErrRefused, "the list of live pods %s, so that every pod of this node would be taken for gone", found).At(path).
			WithNext("make the list of this node (--node-name NAME), or say with --assert-no-pods that no pod lives here")
	}
	if s.written.IsZero() || file.ModTime.Before(s.written) {
		s.written = file.ModTime
	}
	s.reports = append(s.reports, Report{Source: SourceFile, Answered: true, Pods: pods, Reason: "not in " + path})
	return nil
}

// here counts the pods of a list that are, or may be, of this node.
func here(pods []Pod, node string) int {
	n := 0
	for _, p := range pods {
		if p.Object == nil || p.Object.Spec.NodeName == "" || p.Object.Spec.NodeName == node {
			n++
		}
	}
	return n
}

// parsePods reads a Pod, List or PodList (YAML, JSON), the output of crictl pods -o
// json, or a uid a line. line is where it is wrong, 0 where that is not known.
func parsePods(data []byte) (pods []Pod, line int, err error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // as some editors write
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return nil, 0, nil
	case text[0] == '{':
		return parseJSON(data)
	}
	for n, line := range lines(data) {
		if strings.ContainsAny(line, ": ") || line == "---" {
			return parseYAML(data)
		}
		if !uidLine.MatchString(line) {
			return nil, n, fmt.Errorf("%q is no pod uid: a UUID, or the 32 hex digits of a static pod", line)
		}
		pods = append(pods, Pod{UID: strings.ToLower(line)}) // as the kubelet has it from the API server
	}
	return pods, 0, nil
}

// uidLine is strict: a list of names, or of the ids that the runtime gives, would have
// every pod of the node taken for gone.
var uidLine = regexp.MustCompile(`^([0-9a-f]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// lines are those that are neither empty nor a comment, by their number.
func lines(data []byte) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for raw := range strings.Lines(string(data)) {
			n++
			line := strings.TrimSpace(raw)
			if line != "" && line[0] != '#' && !yield(n, line) {
				return
			}
		}
	}
}

// document is what the documents of all kinds have in common: no kind is crictl's.
type document struct {
	APIVersion, Kind string
	Metadata         struct{ Continue string }
	Items            *[]json.RawMessage
}

func parseJSON(data []byte) ([]Pod, int, error) {
	var pods []Pod
	lineAt := func(offset int64) int { return bytes.Count(data[:min(int(offset), len(data))], []byte("\n")) + 1 }
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
		switch {
		case errors.Is(err, io.EOF):
			return pods, 0, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, lineAt(int64(len(data))), errors.New("it breaks off")
		case isSyntax:
			return nil, lineAt(syntax.Offset), err
		case err != nil:
			return nil, 0, err
		}
		more, item, err := parseDocument(raw)
		if err != nil {
			begin := dec.InputOffset() - int64(len(raw))
			return nil, lineAt(begin + offsetOf(raw, item)), err
		}
		pods = append(pods, more...)
	}
}

// offsetOf says where in a list an item begins.
func offsetOf(raw []byte, item int) int64 {
	var doc document
	if json.Unmarshal(raw, &doc) != nil || doc.Items == nil {
		return 0
	}
	at := 0
	for i, text := range *doc.Items {
		at += max(bytes.Index(raw[at:], text), 0)
		if i >= item {
			break
		}
		at += len(text)
	}
	return int64(at)
}

// parseDocument reads one document; item is where in its list something is wrong.
func parseDocument(raw []byte) (pods []Pod, item int, err error) {
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, 0, err
	}
	if doc.Kind == "Pod" {
		p, err := parsePod(raw)
		return []Pod{p}, 0, err
	}
	parse := parsePod
	switch {
	case doc.Metadata.Continue != "":
		return nil, 0, errors.New("it is a part of a list (metadata.continue)")
	case doc.APIVersion != "" && doc.Kind == "": // kubectl's YAML has the kind at the end
		return nil, 0, errors.New("it breaks off: it has no kind")
	case doc.Items != nil && doc.Kind == "":
		parse = parseSandbox
	case doc.Items == nil && doc.Kind != "List" && doc.Kind != "PodList", doc.Kind != "" && doc.Kind != "List" && doc.Kind != "PodList":
		return nil, 0, fmt.Errorf("it is a %q, not a Pod, List or PodList, nor the output of crictl pods -o json", doc.Kind)
	case doc.Items == nil:
		return nil, 0, nil // an empty list may be null
	}
	for i, text := range *doc.Items {
		p, err := parse(text)
		if err != nil {
			return nil, i, fmt.Errorf("item %d: %w", i, err)
		}
		pods = append(pods, p)
	}
	return pods, 0, nil
}

func parsePod(raw []byte) (Pod, error) {
	var o v1.Pod
	if err := json.Unmarshal(raw, &o); err != nil {
		return Pod{}, err
	}
	switch {
	case o.Kind != "" && o.Kind != "Pod":
		return Pod{}, fmt.Errorf("it is a %s, not a Pod", o.Kind)
	case o.UID == "":
		return Pod{}, fmt.Errorf("the pod %q has no metadata.uid", o.Name)
	}
	return podOf(&o), nil
}

// parseSandbox reads a sandbox as crictl prints it.
func parseSandbox(raw []byte) (Pod, error) {
	var s struct {
		Metadata *cri.PodSandboxMetadata
		Labels   map[string]string
		State    string
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return Pod{}, err
	}
	p := sandbox(s.Metadata, s.Labels, strings.TrimPrefix(s.State, "SANDBOX_"))
	if p.UID == "" {
		return Pod{}, errors.New("the sandbox has no uid of a pod")
	}
	return p, nil
}

func parseYAML(data []byte) ([]Pod, int, error) {
	var pods []Pod
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return pods, 0, nil
		}
		if err != nil {
			return nil, 0, err // it names the line
		}
		var content any
		err = doc.Decode(&content)
		if err == nil && content == nil {
			continue
		}
		raw, errJSON := json.Marshal(content)
		more, item, errDoc := parseDocument(raw)
		if err := cmp.Or(err, errJSON, errDoc); err != nil {
			return nil, lineOf(&doc, item), err
		}
		pods = append(pods, more...)
	}
}

// lineOf is the line of an item of a list, or of the document.
func lineOf(doc *yaml.Node, item int) int {
	top := doc.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if list := top.Content[i+1]; top.Content[i].Value == "items" && item < len(list.Content) {
			return list.Content[item].Line
		}
	}
	return top.Line
}
