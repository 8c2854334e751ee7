package main

import (
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// A next step is about the same node: what was said of it with this command is said
// again, where the step does not say it itself.
func TestNextStepIsOfTheSameNode(t *testing.T) {
	a := newApp([]string{"version", "--root-dir", "/data/my kubelet", "--proc-root=/p", "--node-name", "n"}, nil, nil, nil)
	root := a.root()
	if a.placed("kvol list-mounts") != "kvol list-mounts" {
		t.Error("before the words are read")
	}
	a.tree = root
	if err := root.PersistentFlags().Parse(a.args); err != nil {
		t.Fatal(err)
	}
	const flags = " '--root-dir=/data/my kubelet' --proc-root=/p"
	for next, want := range map[string]string{
		"see what there is: kvol list-mounts":          "see what there is: kvol list-mounts" + flags,
		"kvol inspect /a; or (kvol paths b) is better": "kvol inspect" + flags + " /a; or (kvol paths" + flags + " b) is better",
		"kvol list-mounts --help":                      "kvol list-mounts --help",
		"kvol detach x --root-dir /else":               "kvol detach --proc-root=/p x --root-dir /else",
		"kvol plugins lists them; run it as kvol does": "kvol plugins" + flags + " lists them; run it as kvol does",
		"did you mean --shell-with-kvol list-mounts?":  "did you mean --shell-with-kvol list-mounts?",
		"kvol config view --config /dev/null":          "kvol config view --config /dev/null",
		"kvol COMMAND":                                 "kvol COMMAND",
		"look at it with: ls -ld /usr/bin/kvol detach": "look at it with: ls -ld /usr/bin/kvol detach",
		"": "",
	} {
		if got := a.placed(next); got != want {
			t.Errorf("%q becomes %q", next, got)
		}
	}
}

// So is that of an item, and of each thing in it.
func TestNextStepOfItemIsOfTheSameNode(t *testing.T) {
	a := newApp([]string{"gc-orphans", "--root-dir", "/data"}, nil, nil, nil)
	a.tree = a.root()
	if err := a.tree.PersistentFlags().Parse(a.args); err != nil {
		t.Fatal(err)
	}
	items := []api.Orphan{{Next: "kvol inspect /a"}, {Stays: []api.Stay{{}, {Next: "kvol plugins tells; ls -la /a"}}}}
	a.placeSteps(items)
	if got := items[0].Next; got != "kvol inspect --root-dir=/data /a" {
		t.Error(got)
	}
	if got := items[1].Stays[1].Next; got != "kvol plugins --root-dir=/data tells; ls -la /a" {
		t.Error(got)
	}
}
