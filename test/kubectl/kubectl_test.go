// Package kubectl holds kvol's templates against kubectl's own printers: what people
// have in their fingers, and what they copy from its documentation, gives on kvol's
// JSON byte for byte what kubectl would print.
package kubectl

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/render"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/cmd/get"
)

// shown is a result of kvol with its view.
type shown func(o render.Options) (string, error)

func list[T any](v render.View[T], kind string, items ...T) shown {
	return func(o render.Options) (string, error) {
		var b bytes.Buffer
		err := v.Check(o)
		if err == nil {
			err = v.Write(&b, api.NewList(kind, items, []string{"<careful>"}), o)
		}
		return b.String(), err
	}
}

func document[T any](d render.Document[T], v T) shown {
	return func(o render.Options) (string, error) {
		var b bytes.Buffer
		err := d.Check(o)
		if err == nil {
			err = d.Write(&b, v, o)
		}
		return b.String(), err
	}
}

// documents have what the expressions look for: numbers of every size, empty and
// nested lists, and names that a shell, HTML or a terminal has other ideas of.
func documents() map[string]shown {
	step := func(n int, action, target, shell string) api.Step {
		return api.Step{N: n, Action: action, Target: target, Args: []string{"-o", "x y"}, Shell: shell}
	}
	set := api.PathSet{Plugin: "p", Volume: "data", PodVolumePath: "/r/a b", Metadata: []string{"/r/m"}}
	return map[string]shown{
		"empty": list(render.Mounts(), "MountList"),
		"mounts": list(render.Mounts(), "MountList",
			api.Mount{Kind: api.KindPodVolume, Path: "/r/a", Volume: "data", MountID: 231, Options: []string{"rw", "relatime"}, State: api.StateOK, Stacked: 1, CapacityBytes: 1 << 50},
			api.Mount{Kind: api.KindGlobalMount, Path: "/r/<b> & c", Volume: "web", MountID: 7, Options: []string{"ro"}, ReadOnly: true, State: api.StateStale, StateReason: "ESTALE", CapacityBytes: 4096},
			api.Mount{Kind: api.KindOther, Path: "/r/it's", Volume: "日本 é", MountID: 1000001, Options: []string{"rw", "a", "b"}},
			api.Mount{Kind: api.KindOther, Path: "/r/tab\tand\x1b[31m\r\u202e\x7f", Volume: "line\nend", Options: []string{"rw"}}),
		"operations": list(render.Operations(), "OperationList",
			api.Operation{Time: time.Unix(1e9, 0).UTC(), ID: "01", Verb: "setup", Volume: "data", Risks: []string{}, Steps: []api.Step{step(1, "mkdir", "/r/a", "mkdir /r/a"), step(2, "bind", "/r/b", "")}},
			api.Operation{Time: time.Unix(2e9, 5).UTC(), ID: "02", Verb: "teardown", Volume: "web", Risks: []string{"--lazy"}, Steps: []api.Step{}}),
		"results": list(render.Results(), "ResultList", api.Result{Op: "publish", Volume: "data", Paths: set, Outcome: api.OutcomeDone, Steps: []api.Step{}}),
		"version": document(render.Version(), &api.VersionInfo{APIVersion: api.Version, Kind: "VersionInfo", Version: "v1", Go: "go1.26"}),
		"inspection": document(render.Inspection(), &api.Inspection{
			APIVersion: api.Version, Kind: "Inspection", Subject: "data", Specs: []api.SpecInfo{{Fields: map[string]string{"only": "one"}}},
			Metadata: []api.Metadata{
				{Path: "/r/v", State: "ok", Data: map[string]string{"name.type": "n", "kubernetes.io/hostname": "h", "ca.crt": "<pem>", "key-name-with-dashes": "d"}},
				{Path: "/r/w", State: "ok", Data: map[string]string{"user": "YWRtaW4=", "password": "c2VjcmV0"}},
			}}),
	}
}

// kubectls is what kubectl prints of kvol's JSON.
func kubectls(doc string, e expression, strict, noHeaders bool) (out string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("kubectl panics: %v", r)
		}
	}()
	var p printers.ResourcePrinter
	switch e.format {
	case template:
		t, terr := printers.NewGoTemplatePrinter([]byte(e.text))
		if terr != nil {
			return "", terr
		}
		t.AllowMissingKeys(!strict)
		p = t
	case columns:
		p, err = get.NewCustomColumnsPrinterFromSpec(e.text, nil, noHeaders)
	case file:
		c, cerr := get.NewCustomColumnsPrinterFromTemplate(strings.NewReader(e.text), nil)
		if cerr != nil {
			return "", cerr
		}
		c.NoHeaders = noHeaders // which kubectl forgets
		p = c
	default:
		j, jerr := printers.NewJSONPathPrinter(e.text)
		if jerr != nil {
			return "", jerr
		}
		j.AllowMissingKeys(!strict)
		j.EnableJSONOutput(e.format == asJSON)
		p = j
	}
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = p.PrintObj(object(doc), &b)
	return b.String(), err
}

// object is the document as kubectl has what a server sends: a list, or one thing.
func object(doc string) runtime.Object {
	var all map[string]any
	if err := json.Unmarshal([]byte(doc), &all); err != nil {
		panic(err)
	}
	items, ok := all["items"].([]any)
	if !ok {
		return &unstructured.Unstructured{Object: all}
	}
	delete(all, "items")
	l := &unstructured.UnstructuredList{Object: all}
	for _, item := range items {
		l.Items = append(l.Items, unstructured.Unstructured{Object: item.(map[string]any)})
	}
	return l
}

func TestKubectlPrintsTheSame(t *testing.T) {
	docs := documents()
	tried := map[string]bool{}
	good := 0
	for _, e := range slices.Concat(reference, quick, pages, odd) {
		name := fmt.Sprintf("%s %s=%s", e.doc, e.format, e.text)
		if tried[name] {
			t.Errorf("%s is there twice", name)
		}
		tried[name] = true
		doc, err := docs[e.doc](render.Options{Format: render.JSON})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []render.Options{{}, {StrictKeys: true}, {NoHeaders: true}} {
			o.Format, o.Template = e.format, e.text
			want, wantErr := kubectls(doc, e, o.StrictKeys, o.NoHeaders)
			got, err := docs[e.doc](o)
			if (err == nil) != (wantErr == nil) {
				t.Errorf("%s (%+v)\nkvol:    %v\nkubectl: %v", name, o, err, wantErr)
			} else if diff := cmp.Diff(want, got); err == nil && diff != "" {
				t.Errorf("%s (-kubectl +kvol):\n%s", name, diff)
			}
			if err == nil && got != "" {
				good++
			}
		}
	}
	if good < 3*40 {
		t.Errorf("only %d of these print anything", good)
	}
	for doc := range maps.Keys(docs) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(tried)), func(name string) bool { return strings.HasPrefix(name, doc+" ") }) {
			t.Errorf("no expression looks at %s", doc)
		}
	}
}
