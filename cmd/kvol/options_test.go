package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asked is a command line, with the variables before it, and how it ends.
type asked struct {
	line string
	code int
	out  string // is in the result, "!x" is not
	err  string // is in what is said of it
}

func (c asked) try(t *testing.T) {
	t.Helper()
	var words []string
	for _, word := range strings.Fields(c.line) {
		if name, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "KVOL_") {
			t.Setenv(name, value)
			defer os.Unsetenv(name)
			continue
		}
		words = append(words, strings.ReplaceAll(word, "''", ""))
	}
	r := kvol(t, words...)
	is := strings.Contains(r.stdout, strings.TrimPrefix(c.out, "!"))
	if r.code != c.code || c.out != "" && is == strings.HasPrefix(c.out, "!") || !strings.Contains(r.stderr, c.err) || c.code == 2 && r.stdout != "" {
		t.Errorf("%s: %s", c.line, r)
	}
}

// What is asked for is done or refused, and nothing of it is forgotten.
func TestNothingIsIgnored(t *testing.T) {
	namingNode(t)
	quiet := writeText(t, "quiet.yaml", "quiet: true\n")
	json := writeText(t, "json.yaml", "output: json\n")
	both := writeText(t, "both.yaml", "output: json\nquiet: true\n")
	for _, c := range []asked{
		{"ls --columns +options,root", 0, "STATE", ""},
		{"ls --columns +options,root", 0, "  ROOT\n", ""},
		{"ls --columns +options --columns root", 0, "  ROOT\n", ""},
		{"ls --columns +options,+root", 0, "  ROOT\n", ""},
		{"ls --columns volume,+root", 2, "", "next: begin with a +"},
		{"ls --watch --columns volume,+root", 2, "", "--columns +volume,root"},
		{"ls --columns volume,root", 0, "!STATE", ""},
		{"ls --columns=''", 2, "", "--columns has an empty value"},
		{"ls --sort-by=''", 2, "", "--sort-by has an empty value"},
		{"ls --list-columns --watch", 2, "", "--watch goes on"},
		{"config view --show-origin --columns name,value", 0, "ORIGIN", ""},
		{"config view --show-origin --columns +value", 0, "ORIGIN", ""},
		{"completion bash -o json", 2, "", "--output is about results"},

		{"KVOL_QUIET=true ls -o json", 0, `"kind":"MountList"`, ""},
		{"KVOL_QUIET=true ls", 0, "!STATE", ""},
		{"KVOL_QUIET=true setup -f pv.yaml --pod-uid web-1 --dry-run -o json", 0, `"kind":"StepList"`, ""},
		{"KVOL_QUIET=true detach none -o json", 0, `"kind":"ResultList"`, ""},
		{"KVOL_OUTPUT=json ls -q", 0, "!{", ""},
		{"ls -q --config " + json, 0, "!{", ""},
		{"ls -o json --config " + quiet, 0, `"kind":"MountList"`, ""},
		{"KVOL_QUIET=true ls --config " + json, 0, "!{", ""},
		{"KVOL_OUTPUT=json ls --config " + quiet, 0, `"kind":"MountList"`, ""},
		{"KVOL_OUTPUT=yaml KVOL_QUIET=true ls", 2, "", "quiet comes from env KVOL_QUIET\n  output comes from env KVOL_OUTPUT"},
		{"ls --config " + both, 2, "", "comes from file " + both},
		{"ls -q -o yaml", 2, "", "--quiet prints names only"},

		{"--version", 0, "kvol ", ""},
		{"--version -o json", 0, `"kind": "VersionInfo"`, ""},
		{"lss", 2, "", "did you mean kvol ls?"},
		{"gc-orphans --dry-run", 4, "KIND", ""},
		{"gc-orphans --dry-run --apply", 2, "", "give one of the two"},

		{"ls --pod 9a8b7", 2, "", "8 characters"},
		{"history --pod 9a8b7", 2, "", "8 characters"},
		{"ls --pod 9a8b7c6d-5", 0, "data", ""},
	} {
		c.try(t)
	}
	for _, c := range []asked{
		{"ls --volume data --volume models -o jsonpath={.items[*].volume}", 0, "models data", ""},
		{"ls --volume data,models -o jsonpath=[{.items[*].volume}]", 0, "[]", ""},
		{"ls --pod 9a8b7c6d-1,e5f0a1b2 -o jsonpath={.items[*].volume}", 0, "models logs", ""},
		{"ls --pod " + alike1 + " --pod " + static + " --no-probe -o jsonpath={.items[*].volume}", 0, "models logs", ""},
		{"ls --plugin nfs,empty-dir --volume data --volume cache -o jsonpath={.items[*].volume}", 0, "cache data", ""},
		{"ls --plugin nfs,empty-dirr", 5, "", "did you mean --plugin kubernetes.io/empty-dir?"},
		{"ls --pod web,9a8b7c6d-1 --no-probe", 2, "", "--no-probe asks nobody"},
		{"history --volume a --volume b", 2, "", "--volume is given twice"},
		{"wait a --for mounted --plugin nfs --plugin csi", 2, "", "--plugin is given twice"},
		{"ls --pod-uid a --pod-uid b", 2, "", "--pod-uid is given twice"},
		{"setup -f pv.yaml --volume a --volume b", 2, "", "--volume is given twice"},
	} {
		c.try(t)
	}
	r := kvol(t, "wait", "none", "--for", "mounted", "--timeout", "100ms")
	if what := "no pod on this node has it"; r.code != 8 || strings.Count(r.stdout+r.stderr, what) != 1 {
		t.Error(r)
	}
	if r := kvol(t, "wait", "none", "--for", "mounted", "--timeout", "100ms", "-q"); r.code != 8 || !strings.Contains(r.stderr, "no pod on this node has it") {
		t.Error(r)
	}
	for a, want := range map[*app]string{{}: "run the same command again", {settings: settings{}, changes: true}: "the same command again goes on from here; kvol history tells what was done"} {
		if got := a.repeat(); got != want {
			t.Errorf("%q", got)
		}
	}
}

// The name of a volume is what is given, with whatever is in it; of pods, namespaces and
// plugins there are lists, and nothing in either is left out.
func TestNamesAreTaken(t *testing.T) {
	root := namingNode(t)
	for volume, handle := range map[string]string{"a": "h", "b": "1", "a,b": "h,1", `a"b`: `h"q`} {
		text, _ := json.Marshal(map[string]string{"driverName": "csi.kvol.test", "volumeHandle": handle})
		writeText(t, root+"/pods/"+alike1+"/volumes/kubernetes.io~csi/"+volume+"/vol_data.json", string(text))
	}
	const volumes = " -o jsonpath=[{.items[*].volume}]"
	for _, c := range []asked{
		{"ls --volume a,b" + volumes, 0, "[a,b]", ""},
		{"ls --volume a --volume a,b" + volumes, 0, "[a a,b]", ""},
		{"ls --volume csi.kvol.test^h,1" + volumes, 0, "[a,b]", ""},
		{"ls --volume csi.kvol.test^h,1 --volume csi.kvol.test^1" + volumes, 0, "[a,b b]", ""},
		{`ls --volume csi.kvol.test^h"q` + volumes, 0, `[a"b]`, ""},
		{`ls --volume "a","b"` + volumes, 0, "[]", ""},
		{"ls --device /dev/none,8:1", 5, "", "/dev/none,8:1"},
		{`ls --pod "9a8b7c6d-1"` + volumes, 0, "[]", ""},
		{`ls --namespace "a,b` + volumes, 0, "[]", ""},
		{`ls --plugin "nfs,csi"`, 2, "", `plugin "\"nfs"`},
		{"history --volume a,b" + volumes, 0, "[]", ""},
	} {
		c.try(t)
	}
	for _, name := range []string{"volume", "device", "pod", "namespace", "plugin"} {
		for _, given := range []string{"--X=''", "--X=nfs --X=''", "--X='' --X=nfs"} {
			asked{"ls " + strings.ReplaceAll(given, "X", name), 2, "", "--" + name + " has an empty value"}.try(t)
		}
	}
	for _, name := range []string{"pod", "namespace", "plugin"} {
		for _, given := range []string{",", ",nfs", "nfs,", "nfs,,csi"} {
			asked{"ls --" + name + " " + given, 2, "", "--" + name + " has an empty value"}.try(t)
		}
	}
	for name, first := range map[string]string{"volume": "a", "namespace": "a", "pod": alike1} {
		if r := kvol(t, "ls", "--"+name, first+"\nb", "-o", "name"); r.code != 0 || r.stdout != "" {
			t.Error(r)
		}
	}
	w := start(t, "ls", "--watch", "--interval", "1h", "--volume", "a,b", "--columns", "volume", "--no-headers")
	if line := w.line(); strings.TrimSpace(line) != "a,b" {
		t.Errorf("--watch: %q", line)
	}
	w.end(unix.SIGTERM)
}
