// Package release tries what goreleaser made of this tree: archives and packages,
// which are installed, used and removed in a throw-away Debian. "make release-check"
// makes and tries them; without KVOL_DIST, the directory where they are, there is
// nothing to try.
package release

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) {
	if os.Getenv("KVOL_DIST") != "" {
		testutil.Main(m)
	}
}

// artifact is an entry of goreleaser's artifacts.json.
type artifact struct {
	Name, Path, Goarch, Type string
	Extra                    struct{ Format string }
}

// artifacts are those of a type and format, both architectures, amd64 first.
func artifacts(t *testing.T, kind, format string) []artifact {
	t.Helper()
	var all []artifact
	readJSON(t, filepath.Join(dist(), "artifacts.json"), &all)
	all = slices.DeleteFunc(all, func(a artifact) bool { return a.Type != kind || a.Extra.Format != format })
	slices.SortFunc(all, func(a, b artifact) int { return strings.Compare(a.Goarch, b.Goarch) })
	if len(all) != 2 || all[0].Goarch != "amd64" || all[1].Goarch != "arm64" {
		t.Fatalf("%s %s: %+v, want one for amd64 and one for arm64", kind, format, all)
	}
	for i := range all {
		all[i].Path = filepath.Join(dist(), "..", all[i].Path)
	}
	return all
}

// metadata is what all was built from.
func metadata(t *testing.T) (meta struct{ Version, Commit string }) {
	t.Helper()
	readJSON(t, filepath.Join(dist(), "metadata.json"), &meta)
	if meta.Version == "" || meta.Commit == "" {
		t.Fatal("metadata.json has no version, or no commit")
	}
	return meta
}

func version(t *testing.T) string { return metadata(t).Version }

func dist() string { return os.Getenv("KVOL_DIST") }

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(read(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run gives what a program prints, and fails the test when it fails.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return runIn(t, "", nil, name, args...)
}

func runIn(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, &out, &errs)
	}
	return out.String()
}
