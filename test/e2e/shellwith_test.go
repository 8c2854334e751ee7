package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// kvolLine is a line of a script that is a command of kvol.
var kvolLine = regexp.MustCompile(`(?m)^kvol .*$`)

// goodWithKvol checks a script that has commands of kvol for some rungs: outside of
// these it speaks of it nowhere.
func goodWithKvol(rungs ...string) func(*testing.T, string) {
	return func(t *testing.T, plan string) {
		t.Helper()
		lines := kvolLine.FindAllString(plan, -1)
		var got []string
		for _, line := range lines {
			got = append(got, strings.Fields(line)[1])
		}
		if strings.Join(got, " ") != strings.Join(rungs, " ") {
			t.Errorf("it has kvol lines for %q and should for %q:\n%s", got, rungs, plan)
		}
		if !strings.HasPrefix(plan, "#!/usr/bin/env bash\nset -eu\n") {
			t.Errorf("it does not begin with set -eu:\n%s", plan)
		}
		if rest := kvolLine.ReplaceAllString(comment.ReplaceAllString(plan, ""), ""); wordKvol.MatchString(rest) {
			t.Errorf("it speaks of kvol elsewhere:\n%s", plan)
		}
		bashLikes(t, plan)
	}
}

const withKvol = "--shell-with-kvol"

// blank is a disk that nothing is on, on a node whose root may have an odd name.
func blank(root string, more ...string) func(*testing.T) (*node, string, string) {
	return func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		if root != "" {
			n.root = n.dir + root
			must(t, os.MkdirAll(n.root+"/pods", 0o750), os.MkdirAll(n.root+"/plugins", 0o750))
		}
		dev, _ := testutil.LoopImage(t, 32<<20)
		n.t.Cleanup(n.sweep)
		file := n.pv("pv", dev, more...)
		if strings.ContainsAny(root, "'$`") { // then the files are below an odd name too
			at := n.root + "/../files"
			must(t, os.Mkdir(at, 0o755), os.Rename(file, at+"/p v.yaml"))
			file = at + "/p v.yaml"
		}
		n.podFile("{fsGroup: 4321}")
		return n, file, dev
	}
}

// A step without a shell form is a kvol line in the script, which does what the verb
// does, and the second time nothing.
func TestScriptWithKvol(t *testing.T) {
	const format = up + " --format"
	only := goodWithKvol("mount-device")
	scenario{"format", "", format}.sameBy(t, blank(""), withKvol, only)
	scenario{"format with a type and options", "", format}.sameBy(t, blank("", "fsType: ext3", "mountOptions: [noatime]"), withKvol, only)
	scenario{"format on leftovers", `mkdir -p -m 0750 "$POD" "$GLOBAL"`, format}.sameBy(t, blank(""), withKvol, only)
	scenario{"mount-device alone", "", `mount-device -f "$FILE" --format`}.sameBy(t, blank(""), withKvol, only)
	scenario{"odd names", "", format}.sameBy(t, blank("/ku be'l\"et$(touch x)`touch y`;&*?[a]\\!~#é"), withKvol, only)
	scenario{"settings from elsewhere", `export KVOL_NODE_NAME="o d'd" KVOL_LOCK_TIMEOUT=7s`, format}.sameBy(t, blank(""), withKvol, func(t *testing.T, plan string) {
		only(t, plan)
		for _, want := range []string{`'--node-name=o d'\''d'`, "--lock-timeout=7s", "--root-dir=", "--state-dir=", "--run-dir=", "--format"} {
			if !strings.Contains(plan, want) {
				t.Errorf("it has no %s:\n%s", want, plan)
			}
		}
	})
	// What has a shell form keeps it.
	scenario{"nothing to format", "", up}.sameBy(t, diskVolume("ext4"), withKvol, goodScript)
	scenario{"down", "kvol " + up, down}.sameBy(t, diskVolume("ext4"), withKvol, goodScript)
	// Of all volumes each has its own.
	scenario{"all", "", `setup --all --format -f "$FILE"`}.sameBy(t, func(t *testing.T) (*node, string, string) {
		n := newNode(t)
		dev, _ := testutil.LoopImage(t, 32<<20)
		n.t.Cleanup(n.sweep)
		full, _ := n.dataDir("full", claim("full"))
		text := ""
		for _, f := range []string{n.pv("pv", dev, claim("pv")), full, n.podOf(podA, "a", "pv", "full"), n.podOf(podB, "b", "pv")} {
			b, err := os.ReadFile(f)
			must(t, err)
			text += "---\n" + string(b)
		}
		return n, n.file("all.yaml", text), dev
	}, withKvol, only)
}

// The facts are still checked: a disk that is not blank any more when the script runs
// is refused by the kvol line.
func TestScriptWithKvolOfOtherTimes(t *testing.T) {
	n, file, dev := blank("")(t)
	plan := n.must(0, "setup", "-f", file, "--pod-uid", podA, "--format", "--dry-run", "-o", "shell", withKvol).stdout
	must(t, exec.Command("bash", "-c", "printf data | dd of="+dev+" seek=5000000 bs=1 conv=notrunc status=none").Run())
	n.unchanged(func() {
		cmd := exec.Command("bash", n.file("plan", plan))
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(n.kvolPath)+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 4 {
			t.Errorf("exit code %d\n%s\n%s", code, out, plan)
		}
	})
}

// What the script cannot be made of is refused, before anything is looked at.
func TestScriptWithKvolRefused(t *testing.T) {
	n, file, _ := blank("")(t)
	n.unchanged(func() {
		pv, err := os.ReadFile(file)
		must(t, err)
		if o := n.kvolStdin(string(pv), "setup", "-f", "-", "--pod-uid", podA, "--format", "--dry-run", "-o", "shell", withKvol); o.code != 2 || o.stdout != "" {
			t.Errorf("%v", o)
		}
		n.wants(2, []string{"/dev/stdin", "file"}, "setup", "-f", "/dev/stdin", "--pod-uid", podA, "--dry-run", "-o", "shell", withKvol)
		n.wants(2, []string{"--dry-run -o shell"}, "setup", "-f", file, "--pod-uid", podA, "--format", withKvol)
		n.wants(2, []string{"--dry-run -o shell"}, "setup", "-f", file, "--pod-uid", podA, "--format", "--dry-run", withKvol)
		n.wants(6, []string{"format", withKvol}, "setup", "-f", file, "--pod-uid", podA, "--format", "--dry-run", "-o", "shell")
	})
}
