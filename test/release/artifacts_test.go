package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/testutil"
)

// TestPrograms: static, each for its machine, and they run and know their version.
func TestPrograms(t *testing.T) {
	for i, a := range artifacts(t, "Binary", "") {
		machine := []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64}[i]
		f, err := elf.Open(a.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		static := !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC })
		if f.Machine != machine || !static {
			t.Errorf("%s: %v, static %v", a.Path, f.Machine, static)
		}
		argv := [][]string{{a.Path, "version"}, {"qemu-aarch64-static", a.Path, "version"}}[i]
		if got, want := run(t, argv[0], argv[1:]...), "kvol v"+version(t)+"\n"; got != want {
			t.Errorf("%q: %q, want %q", argv, got, want)
		}
	}
}

// TestReproducible: another directory, an empty build cache and the Makefile give
// the same program.
func TestReproducible(t *testing.T) {
	t.Parallel()
	dir := testutil.TempDir(t)
	names := run(t, "git", "-C", "../..", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard",
		"go.mod", "go.sum", "Makefile", "cmd", "internal")
	for name := range strings.Lines(names) {
		name = strings.TrimSpace(name)
		b, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not yet committed so
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	program := artifacts(t, "Binary", "")[0].Path
	var v struct{ Version, Commit, Date string }
	if err := json.Unmarshal([]byte(run(t, program, "version", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339, v.Date); err != nil || v.Commit != metadata(t).Commit {
		t.Errorf("it was built from %+v: %v", v, err)
	}
	runIn(t, dir, []string{"GOCACHE=" + testutil.TempDir(t)}, "make", "build", "VERSION="+v.Version, "COMMIT="+v.Commit, "DATE="+v.Date)
	if got, want := sum(read(t, filepath.Join(dir, "bin/kvol"))), sum(read(t, program)); got != want {
		t.Errorf("the Makefile's program is %s, goreleaser's %s", got, want)
	}
}

// TestChecksums: every file to be published has its line, and it is right.
func TestChecksums(t *testing.T) {
	want := map[string]string{}
	entries, err := os.ReadDir(dist())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "kvol") && e.Type().IsRegular() {
			want[e.Name()] = sum(read(t, filepath.Join(dist(), e.Name())))
		}
	}
	got := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dist(), "checksums.txt")))) {
		digest, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got[name] = digest
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) != 10 {
		t.Errorf("%d checksums (-files +checksums.txt):\n%s", len(got), diff)
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// TestSBOM: the bill of materials names the program by its digest, and every module
// in it.
func TestSBOM(t *testing.T) {
	for _, a := range artifacts(t, "Binary", "") {
		var bom struct {
			BOMFormat  string
			Metadata   struct{ Component component }
			Components []component
		}
		readJSON(t, filepath.Join(dist(), "kvol_"+version(t)+"_linux_"+a.Goarch+".cdx.json"), &bom)
		info, err := buildinfo.ReadFile(a.Path)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"std " + strings.TrimPrefix(info.GoVersion, "go")}
		for _, m := range info.Deps {
			want = append(want, m.Path+" "+m.Version)
		}
		var got []string
		for _, c := range bom.Components {
			got = append(got, c.Name+" "+c.Version)
			if c.PURL != "pkg:golang/"+c.Name+"@"+strings.ReplaceAll(c.Version, "+", "%2B") {
				t.Errorf("%s has the purl %s", c.Name, c.PURL)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) < 20 {
			t.Errorf("%s: %d components (-linked +listed):\n%s", a.Goarch, len(got), diff)
		}
		self := bom.Metadata.Component
		if bom.BOMFormat != "CycloneDX" || self.Version != "v"+version(t) || len(self.Hashes) != 1 || self.Hashes[0].Content != sum(read(t, a.Path)) {
			t.Errorf("%s: %s of %+v", a.Goarch, bom.BOMFormat, self)
		}
	}
}

type component struct {
	Name, Version, PURL string
	Hashes              []struct{ Content string }
}

// TestArchives: the program and what belongs to it, in one directory.
func TestArchives(t *testing.T) {
	programs := artifacts(t, "Binary", "")
	for i, a := range artifacts(t, "Archive", "tar.gz") {
		top := "kvol_" + version(t) + "_linux_" + a.Goarch + "/"
		files := untar(t, gunzip(t, bytes.NewReader(read(t, a.Path))))
		want := map[string][]byte{top + "kvol": read(t, programs[i].Path), top + "copyright": read(t, "../../bin/release/copyright")}
		for _, page := range pages(t) {
			want[top+"docs/man/"+filepath.Base(page)] = read(t, page)
		}
		names := append(documents(t), "README.md", "deploy/config.yaml", "completions/kvol.bash", "completions/_kvol", "completions/kvol.fish")
		for _, name := range append(names, tree(t, "LICENSE*")...) {
			want[top+name] = read(t, filepath.Join("../..", name))
		}
		same(t, a.Name, files, want)
		eachLink(files, func(page, to string) {
			for name := range files {
				if name == to || strings.HasPrefix(name, to+"/") {
					return
				}
			}
			t.Errorf("%s: %s leads to %s, which is not there", a.Name, page, to)
		})
	}
}

// recovery is the script that recovers a node.
const recovery = "docs/tasks/recover-a-node.sh"

// documents are the pages of the tree that releases have, and what lies beside them.
func documents(t *testing.T) []string {
	t.Helper()
	return slices.Concat(tree(t, "docs/*.md"), tree(t, "docs/tasks/*"), tree(t, "docs/reference/*.md"), tree(t, "docs/schema/*"))
}

// tree are files of the tree.
func tree(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("../..", pattern))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = strings.TrimPrefix(found[i], "../../")
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^()\s#]+)(#[^()\s]*)?\)`)

// eachLink visits the links of pages to other files, as paths.
func eachLink(files map[string][]byte, visit func(page, to string)) {
	for name, text := range files {
		if filepath.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			if to := string(m[1]); !strings.Contains(to, "://") {
				visit(name, filepath.Join(filepath.Dir(name), to))
			}
		}
	}
}

// pages are the manual pages, with a date.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../bin/release/man/*.8")
	if want := len(tree(t, "docs/man/*.8")); err != nil || want < 20 || len(all) != want {
		t.Fatalf("%d manual pages, not %d: %v", len(all), want, err)
	}
	return all
}

// TestPages: they are those of the tree but for the date, and nothing is wrong with them.
func TestPages(t *testing.T) {
	for _, page := range pages(t) {
		dated := regexp.MustCompile(`(?m)^(\.TH .* )"\d{4}-\d\d-\d\d"`).ReplaceAll(read(t, page), []byte(`$1""`))
		if !bytes.Equal(dated, read(t, "../../docs/man/"+filepath.Base(page))) {
			t.Errorf("%s is not what the tree has", page)
		}
	}
	run(t, "mandoc", append([]string{"-Tlint", "-Wwarning"}, pages(t)...)...)
}

// untar gives the content of all files of a tar, by name.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	eachFile(t, r, func(h *tar.Header, content []byte) { out[h.Name] = content })
	return out
}

func eachFile(t *testing.T, r io.Reader, visit func(*tar.Header, []byte)) {
	t.Helper()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d and has the mode %o", h.Name, h.Uid, h.Gid, h.Mode)
		}
		if filepath.Ext(h.Name) == ".sh" && h.Mode&0o111 == 0 {
			t.Errorf("%s has the mode %o", h.Name, h.Mode)
		}
		if h.Typeflag == tar.TypeReg {
			visit(h, content)
		}
	}
}

// gunzip unpacks one gzip stream, and leaves what comes after it.
func gunzip(t *testing.T, r *bytes.Reader) *bytes.Reader {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	z.Multistream(false)
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b)
}

// same holds files, by name, to those that are wanted.
func same(t *testing.T, what string, got, want map[string][]byte) {
	t.Helper()
	digests := func(files map[string][]byte) map[string]string {
		out := map[string]string{}
		for name, b := range files {
			out[name] = sum(b)
		}
		return out
	}
	if diff := cmp.Diff(digests(want), digests(got)); diff != "" {
		t.Errorf("%s (-wanted +there):\n%s", what, diff)
	}
}
