package testutil

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mount is what this package needs of a line of mountinfo.
type mount struct {
	root, point, options, fstype, source, super string
}

// mountsBelow lists the mounts at or below dir in the kernel's order, which puts
// a mount after the one it stands on.
func mountsBelow(dir string) []mount {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		panic(err) // a machine without /proc runs none of these tests
	}
	var out []mount
	for line := range strings.Lines(string(b)) {
		head, tail, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Split(head, " "), strings.Split(tail, " ")
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		m := mount{
			root: unescape(f[3]), point: unescape(f[4]), options: f[5],
			fstype: g[0], source: unescape(g[1]), super: g[2],
		}
		if m.point == dir || strings.HasPrefix(m.point, strings.TrimSuffix(dir, "/")+"/") {
			out = append(out, m)
		}
	}
	return out
}

// unescape undoes the octal escapes of mountinfo, in one pass.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace

// MountTable is the mount table at and below a path as text, one mount a line:
// mount point, root, type, source, options, super options. There are no ids and
// no peer groups in it and under is written as ".", so that the tables of two
// moments or of two roots can be compared. Stacked mounts are listed lowest first.
func MountTable(t testing.TB, under string) string {
	t.Helper()
	all := mountsBelow(under)
	slices.SortStableFunc(all, func(a, b mount) int { return strings.Compare(a.point, b.point) })
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%q %q %s %q %s %s\n", dotted(m.point, under), dotted(m.root, under), m.fstype,
			dotted(m.source, under), m.options, m.super)
	}
	return b.String()
}

// dotted writes the path under, and what it is the start of, from ".".
func dotted(p, under string) string {
	if rest, ok := strings.CutPrefix(p, under); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return p
}

// Tree lists everything at and below root as text, sorted by path, one entry a
// line: mode and owner, size and digest of a regular file, target of a symlink,
// number of a device. A mount point below root is named and neither touched nor
// entered, so a dead mount does no harm.
func Tree(t testing.TB, root string) string {
	t.Helper()
	mounted := map[string]bool{}
	for _, m := range mountsBelow(root) {
		mounted[m.point] = m.point != root
	}
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if mounted[p] {
			fmt.Fprintf(&b, "%q mount\n", dotted(p, root))
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			return err
		}
		line, err := describe(p)
		fmt.Fprintf(&b, "%q %s\n", dotted(p, root), line)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func describe(p string) (string, error) {
	info, err := os.Lstat(p)
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	line := fmt.Sprintf("%v %d:%d", info.Mode(), st.Uid, st.Gid)
	switch info.Mode().Type() {
	case 0:
		sum, err := digest(p)
		return fmt.Sprintf("%s %d %s", line, info.Size(), sum), err
	case fs.ModeSymlink:
		target, err := os.Readlink(p)
		return fmt.Sprintf("%s -> %q", line, target), err
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return fmt.Sprintf("%s %d:%d", line, unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
	}
	return line, nil
}

// digest is the SHA-256 of a file.
func digest(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
