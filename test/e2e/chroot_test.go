package e2e

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// maxSize is what the released program may have, in bytes.
const maxSize = 30 << 20

func TestProgramIsStaticAndSmall(t *testing.T) {
	path, err := testutil.Program("cmd/kvol")
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() > maxSize {
		t.Errorf("%d bytes, and at most %d are allowed", info.Size(), maxSize)
	}
	f, err := elf.Open(path)
	must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("has a segment %v: it is not static", p.Type)
		}
	}
	if f.Section(".symtab") != nil {
		t.Error("is not stripped")
	}
}

// The programs that kvol names for a local volume with ext4, each with its package.
var chrootTools = map[string]string{
	"mount": "mount", "blkid": "util-linux", "fsck.ext4": "e2fsprogs", "mkfs.ext4": "e2fsprogs",
}

// chroot makes the directory of a system that has nothing but kvol, /proc, /sys,
// /dev and some tools, and gives the node in it: its paths are those inside.
func (n *node) chroot(mounted bool, tools ...string) *jail {
	n.t.Helper()
	j := &jail{n, n.dir + "/jail"}
	must(n.t, os.Mkdir(j.dir, 0o755))
	if mounted {
		testutil.Mount(n.t, "jail", j.dir, "tmpfs", 0, "size=64m,mode=755")
	}
	for _, d := range []string{"/proc", "/sys", "/dev", "/tmp"} {
		must(n.t, os.Mkdir(j.dir+d, 0o755))
	}
	testutil.Mount(n.t, "proc", j.dir+"/proc", "proc", 0, "")
	testutil.Mount(n.t, "sysfs", j.dir+"/sys", "sysfs", unix.MS_RDONLY, "")
	testutil.Mount(n.t, "devtmpfs", j.dir+"/dev", "devtmpfs", 0, "")
	j.copy(n.kvolPath, "/kvol")
	for _, tool := range tools {
		j.tool(tool)
	}
	for _, d := range []string{"/var/lib/kubelet/pods", "/var/lib/kubelet/plugins"} {
		must(n.t, os.MkdirAll(j.dir+d, 0o750))
	}
	return j
}

// jail is a chroot on a node.
type jail struct {
	*node
	dir string
}

// copy puts a file into the jail.
func (j *jail) copy(from, to string) {
	j.t.Helper()
	data, err := os.ReadFile(from)
	must(j.t, err, os.MkdirAll(filepath.Dir(j.dir+to), 0o755), os.WriteFile(j.dir+to, data, 0o755))
}

// tool puts a program with the libraries that it is linked to into the jail.
func (j *jail) tool(name string) {
	j.t.Helper()
	testutil.Tool(j.t, name, "ldd")
	path, err := exec.LookPath(name)
	must(j.t, err)
	j.copy(path, "/usr/sbin/"+name)
	libs, err := exec.Command("ldd", path).Output()
	must(j.t, err)
	for _, word := range strings.Fields(string(libs)) {
		if filepath.IsAbs(word) {
			j.copy(word, word)
		}
	}
}

// kvol runs the program in the jail, with an environment of nothing and every flag
// at its default.
func (j *jail) kvol(args ...string) out {
	j.t.Helper()
	cmd := exec.Command("/kvol", args...)
	cmd.Dir, cmd.Env = "/", []string{"NO_COLOR=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.dir, Pdeathsig: syscall.SIGKILL}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		j.t.Fatal(err)
	}
	o := out{args: args, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	j.advised(o)
	return o
}

func (j *jail) must(code int, args ...string) out {
	j.t.Helper()
	o := j.kvol(args...)
	if o.code != code {
		j.t.Fatalf("in the chroot, wanted exit code %d:\n%v", code, o)
	}
	return o
}

// pv is a volume whose document is in the jail.
func (j *jail) pv(name, path string) string {
	j.t.Helper()
	j.copy(j.node.pv(name, path), "/"+name+".yaml")
	return "/" + name + ".yaml"
}

// outcomes are those of a verb's rungs, which all have to be the same.
func (j *jail) all(want []api.Outcome, args ...string) {
	j.t.Helper()
	for _, r := range decode[api.List[api.Result]](j.t, j.must(0, append(args, "-o", "json")...).stdout).Items {
		ok := false
		for _, w := range want {
			ok = ok || r.Outcome == w
		}
		if !ok {
			j.t.Errorf("%v: %s is %s (%s), none of %v", args, r.Op, r.Outcome, r.Reason, want)
		}
	}
}

var (
	changed   = []api.Outcome{api.OutcomeDone, api.OutcomeSkipped}
	unchanged = []api.Outcome{api.OutcomeAlready, api.OutcomeSkipped}
)

// kvol in a chroot with only the kernel's file systems and the tools that it names:
// once where the chroot is a mount of its own, and once where it is a directory, of
// which the mount table then says nothing.
func TestChroot(t *testing.T) {
	var tools []string
	for tool := range chrootTools {
		tools = append(tools, tool)
	}
	for name, mounted := range map[string]bool{"mount": true, "directory": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			dev, _ := testutil.LoopImage(t, 32<<20)
			t.Cleanup(n.sweep)
			j := n.chroot(mounted, tools...)
			must(t, os.MkdirAll(j.dir+"/data/dir", 0o755), write(j.dir+"/data/dir/file"))
			for _, file := range []string{j.pv("dirpv", "/data/dir"), j.pv("diskpv", dev)} {
				up := []string{"setup", "-f", file, "--pod-uid", podA, "--format"}
				down := []string{"teardown", "-f", file, "--pod-uid", podA}
				j.must(0, append(up, "--dry-run")...)
				j.all(changed, up...)
				j.all(unchanged, up...)
				items := decode[api.List[api.Mount]](t, j.must(0, "list-mounts", "-o", "json").stdout).Items
				if len(items) == 0 {
					t.Errorf("%s: nothing is listed", file)
				}
				for _, m := range items {
					if m.State != api.StateOK || !m.Mounted {
						t.Errorf("%s is %q (%s)", m.Path, m.State, m.StateReason)
					}
				}
				j.must(0, append(down, "--dry-run", "-o", "shell")...)
				j.all(changed, down...)
				j.all(unchanged, down...)
			}
			if !strings.Contains(j.must(0, "history").stdout, "diskpv") {
				t.Error("the history does not name the volume")
			}
		})
	}
}

// Where a tool is missing it is named with its package, and nothing has been done.
func TestChrootWithoutTools(t *testing.T) {
	for missing, pkg := range chrootTools {
		t.Run(missing, func(t *testing.T) {
			n := newNode(t)
			dev, _ := testutil.LoopImage(t, 32<<20)
			t.Cleanup(n.sweep)
			var tools []string
			for tool := range chrootTools {
				if tool != missing {
					tools = append(tools, tool)
				}
			}
			j := n.chroot(true, tools...)
			file := j.pv("pv", dev)
			tree := testutil.Tree(t, j.dir+"/var/lib/kubelet")
			if missing == "fsck.ext4" { // as the kubelet: the file system is mounted without a check
				testutil.Mkfs(t, dev, "ext4")
				o := j.must(0, "setup", "-f", file, "--pod-uid", podA)
				if !strings.Contains(o.stderr, missing) {
					t.Errorf("nothing warns of the missing %s:\n%v", missing, o)
				}
				j.must(0, "teardown", "pv", "--pod-uid", podA)
				return
			}
			o := j.must(7, "setup", "-f", file, "--pod-uid", podA, "--format")
			if !strings.Contains(o.stderr, missing+" is not installed") || !strings.Contains(o.stderr, pkg) {
				t.Errorf("does not name %s of %s:\n%v", missing, pkg, o)
			}
			if after := testutil.Tree(t, j.dir+"/var/lib/kubelet"); after != tree {
				t.Errorf("the tree changed from\n%s\nto\n%s", tree, after)
			}
			if first := first(os.ReadFile(dev)); bytes.Count(first, []byte{0}) != len(first) {
				t.Error("the disk is not blank any more")
			}
			if !strings.Contains(j.must(0, "plugins", "-o", "json").stdout, missing) {
				t.Errorf("plugins does not name %s", missing)
			}
		})
	}
}
