// Package repo tests the tree itself: its layers, what may not be written
// outside its home, and that nothing was left off a list.
package repo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kvol/kvol/"

// layers says, for the packages of a folder, which of kvol's packages they may
// import beside those below their own folder. "x" is that package, "x/..." also
// all below it, and "*" one path element. The first line that matches a package
// counts; a package without a line is refused, so that each new one is decided
// upon. The order is that of the layers, the lowest first.
var layers = []struct {
	pkg string
	may string
}{
	{"internal/testutil", ""},
	{"internal/api", ""},
	{"internal/paths", "internal/api"},

	{"internal/host/exact", ""},
	{"internal/host/mounts", below},
	{"internal/host/safefs", below + " internal/host/mounts"},
	{"internal/host/exec/exectest", below + " internal/host/exec"},
	{"internal/host/exec", below + " internal/host/mounts internal/host/safefs"},
	{"internal/host/probe", below + " internal/host/exact internal/host/mounts internal/host/safefs"},
	{"internal/host/devices", below + " internal/host/exact internal/host/mounts internal/host/safefs internal/host/exec internal/host/probe"},
	{"internal/host/kubelet", below + " internal/host/exact internal/host/mounts internal/host/safefs internal/host/probe"},
	{"internal/host/procs", below},
	{"internal/host/format", below + " internal/host/exact internal/host/mounts internal/host/safefs internal/host/exec internal/host/probe internal/host/devices"},
	{"internal/host/act", below + " internal/host/exact internal/host/mounts internal/host/safefs internal/host/exec internal/host/probe internal/host/devices internal/host/format"},
	{"internal/host", below + " internal/host/*"},

	{"internal/plugins/all", below + " internal/host/... internal/plugins internal/plugins/*"},
	{"internal/plugins/documents", below + " internal/host/... internal/plugins"},
	{"internal/plugins/plugintest", below + " internal/host/... internal/plugins internal/testutil"},
	{"internal/plugins/family/*/...", below + " internal/host/... internal/plugins"},
	{"internal/plugins/*/...", below + " internal/host/... internal/plugins internal/plugins/family/..."},
	{"internal/plugins", below + " internal/host/..."},

	{"internal/node/...", below + " internal/host/... internal/plugins/..."},
	{"internal/ops/...", below + " internal/host/... internal/plugins/... internal/node/..."},
	{"internal/render/...", "internal/api"},
	{"cmd/...", below + " internal/host/... internal/plugins/... internal/node/... internal/ops/... internal/render/..."},
	{"test/...", "internal/... cmd/..."},
}

const below = "internal/api internal/paths"

// testOnly are packages that only tests, and one another, may import.
var testOnly = []string{"internal/testutil", "internal/host/exec/exectest", "internal/plugins/plugintest"}

// libraries have one home: what else needs them goes through it.
var libraries = []struct{ lib, home string }{
	{"github.com/olekukonko/tablewriter", "internal/render"},
	{"github.com/spf13/viper", "cmd/kvol"},
	{"github.com/spf13/cobra", "cmd/kvol"},
	{"github.com/spf13/cobra/doc", "test"}, // makes manual pages, which kvol does not
	{"github.com/moby/sys/mountinfo", "internal/host/mounts"},
	{"k8s.io/mount-utils", "internal/host"},
	{"github.com/fxamacker/cbor", "internal/host/exact"},
	{"k8s.io/client-go", "internal/render"}, // for util/jsonpath; its clients would double the time of every start
	{"k8s.io/cli-runtime", "test"},
	{"k8s.io/kubectl", "test"},
	{"github.com/prometheus/procfs", "internal/host"},
	{"github.com/cyphar/filepath-securejoin", "internal/host"},
	{"github.com/rogpeppe/go-internal", "test"},
	{"github.com/google/go-cmp", "test"},
	{"github.com/hanwen/go-fuse", "internal/testutil"},
}

// refuse says why a package, named from the module's root, may not import what it
// imports; nil when it may.
func refuse(importer, imported string) error {
	own, ok := strings.CutPrefix(imported, module)
	if !ok {
		return refuseLibrary(importer, imported)
	}
	if slices.Contains(testOnly, own) && !slices.Contains(testOnly, importer) && !within(importer, "test") {
		return fmt.Errorf("%s is for tests only", own)
	}
	for _, l := range layers {
		if !match(l.pkg, importer) {
			continue
		}
		if slices.ContainsFunc(strings.Fields(l.may), func(p string) bool { return match(p, own) }) || sameFolder(importer, own) {
			return nil
		}
		return fmt.Errorf("the layer %s may import only %q", l.pkg, l.may)
	}
	return errors.New("is in no layer: give it a line in the table")
}

// sameFolder lets a plugin or command split itself into packages of its own.
func sameFolder(importer, imported string) bool {
	for _, folder := range []string{
		"internal/plugins/family/*/...", "internal/plugins/*/...", "cmd/*/...", "internal/node/...", "internal/ops/...", "internal/render/...",
	} {
		if match(folder, importer) {
			n := strings.Count(folder, "/")
			return match(folder, imported) && slices.Equal(strings.Split(importer, "/")[:n], strings.Split(imported, "/")[:n])
		}
	}
	return false
}

func refuseLibrary(importer, imported string) error {
	standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
	switch {
	case standard && importer == "internal/paths" && slices.Contains([]string{"os", "syscall", "io/ioutil", "os/exec"}, imported):
		return errors.New("paths are pure values, without I/O")
	case !standard && importer == "internal/api":
		return errors.New("api imports the standard library only")
	}
	for _, l := range libraries {
		if within(imported, l.lib) && !within(importer, l.home) && !within(importer, "internal/testutil") && !within(importer, "test") {
			return fmt.Errorf("its home is %s", l.home)
		}
	}
	return nil
}

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// match says whether a package is the one of a pattern of the table.
func match(pattern, pkg string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		n := strings.Count(dir, "/") + 1
		parts := strings.Split(pkg, "/")
		pattern, pkg = dir, strings.Join(parts[:min(n, len(parts))], "/")
	}
	ok, err := path.Match(pattern, pkg)
	return ok && err == nil
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// root is the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "go.mod"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLayers(t *testing.T) {
	all := listPackages(t)
	if !slices.ContainsFunc(all, func(p goPackage) bool { return p.ImportPath == module+"internal/api" }) {
		t.Fatalf("go list does not see the tree: %v", all)
	}
	for _, p := range all {
		importer := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			if err := refuse(importer, imported); err != nil {
				t.Errorf("%s may not import %s: %v", importer, strings.TrimPrefix(imported, module), err)
			}
		}
	}
}

// TestLayersRefuse holds the table to imports that it must refuse and must allow,
// one a line: "refuse|allow importer imported".
func TestLayersRefuse(t *testing.T) {
	b, err := os.ReadFile("testdata/layers.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		imported := f[2]
		if own, ok := strings.CutPrefix(imported, "kvol/"); ok {
			imported = module + own
		}
		if err := refuse(f[1], imported); (err != nil) != (f[0] == "refuse") {
			t.Errorf("%s: got %v", strings.TrimSpace(line), err)
		}
	}
}
