package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvol/kvol/internal/testutil"
)

// terminal is a shell that somebody types into.
type terminal struct {
	t            *testing.T
	socket, name string
	tabs         []string // that make the shell list what there is
}

func (s *terminal) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// wait is until the screen is as it has to be. A volume that does not answer would keep
// it from that for ever.
func (s *terminal) wait(what string, ok func(screen string) bool) {
	s.t.Helper()
	screen := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		// Shells differ in what they quote without need.
		screen = strings.ReplaceAll(strings.TrimSpace(s.tmux("capture-pane", "-p", "-J", "-t", s.name)), `\`, "")
		if ok(screen) {
			return
		}
	}
	s.t.Fatalf("%s: %s; the screen:\n%s", s.name, what, screen)
}

// typeLine begins with an empty line and types into it.
func (s *terminal) typeLine(line string, keys ...string) {
	s.t.Helper()
	s.tmux("send-keys", "-t", s.name, "C-e", "C-u", "C-l")
	s.wait("the line did not become empty", func(screen string) bool { return screen == "$" })
	s.tmux("send-keys", "-t", s.name, "-l", line)
	s.tmux(append([]string{"send-keys", "-t", s.name}, keys...)...)
}

// completes says that a line becomes another.
func (s *terminal) completes(line, want string) {
	s.t.Helper()
	s.typeLine(line, "Tab")
	s.wait(fmt.Sprintf("%q does not become %q", line, want), func(screen string) bool { return screen == "$ "+want })
}

// lists says that these words are offered.
func (s *terminal) lists(line string, words ...string) {
	s.t.Helper()
	s.typeLine(line, s.tabs...)
	s.wait(fmt.Sprintf("%q does not offer %q", line, words), func(screen string) bool {
		for _, w := range words {
			if !strings.Contains(screen, w) {
				return false
			}
		}
		return true
	})
}

// TestShells: what is on a node is completed in the shells themselves, while one of its
// volumes is dead and one hangs, and no name of a volume does harm.
func TestShells(t *testing.T) {
	root := completionNode(t)
	for _, tool := range []string{"tmux", "bash", "zsh", "fish", "dh_bash-completion"} {
		testutil.Tool(t, tool)
	}
	dir := t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	completions, err := filepath.Abs("../../completions")
	if err != nil {
		t.Fatal(err)
	}
	link := func(from, to string) {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link(self, dir+"/bin/kvol")
	link(completions+"/kvol.fish", dir+"/fish/fish/completions/kvol.fish")
	write("docs/pv.yaml", "")
	write("docs/pv.txt", "")
	write("fish/fish/config.fish", "set -g fish_autosuggestion_enabled 0\nfunction fish_prompt; echo -n '$ '; end\nfunction fish_greeting; end\n")
	write("zsh/.zshrc", "PS1='$ '\nfpath=("+completions+" $fpath)\nautoload -Uz compinit\ncompinit -u -D\n")
	bare := write("bare.bash", "PS1='$ '\nsource <(kvol completion bash)\n")
	full := write("full.bash", "PS1='$ '\n. /usr/share/bash-completion/bash_completion\n. "+completions+"/kvol.bash\n")
	env := []string{"env", "PATH=" + dir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir, "ZDOTDIR=" + dir + "/zsh",
		"XDG_CONFIG_HOME=" + dir + "/fish", "XDG_DATA_HOME=" + dir + "/data"}
	server := &terminal{t: t, socket: filepath.Join(testutil.TempDir(t), "tmux"), name: "server"}
	server.tmux("new-session", "-d", "-s", "server")
	t.Cleanup(func() { server.tmux("kill-server") })
	for name, command := range map[string][]string{
		"bash": {"bash", "--noprofile", "--rcfile", bare, "-i"}, "bash-completion": {"bash", "--noprofile", "--rcfile", full, "-i"},
		"zsh": {"zsh", "-d", "-i"}, "fish": {"fish", "-i"},
	} {
		s := &terminal{socket: server.socket, name: name, tabs: []string{"Tab"}}
		if command[0] == "bash" {
			s.tabs = []string{"Tab", "Tab"}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.t = t
			s.tmux(append(append([]string{"new-session", "-d", "-s", name, "-x", "200", "-y", "50", "-c", dir}, env...), command...)...)
			s.wait("no prompt", func(screen string) bool { return screen == "$" })
			s.completes("kvol list-m", "kvol list-mounts")
			s.completes("kvol ls --no-he", "kvol ls --no-headers")
			s.completes("kvol ls -o wi", "kvol ls -o wide")
			s.lists("kvol ls -o json", "jsonl", "jsonpath=", "jsonpath-as-json=")
			s.completes("kvol ls --state ok,sta", "kvol ls --state ok,stale")
			s.completes("kvol ls --plugin kubernetes.io/em", "kvol ls --plugin kubernetes.io/empty-dir")
			s.completes("kvol ls --plugin=kubernetes.io/nf", "kvol ls --plugin=kubernetes.io/nfs")
			s.completes("kvol teardown da", "kvol teardown data")
			s.completes("kvol teardown data --pod-uid 7b", "kvol teardown data --pod-uid "+podB)
			s.completes("kvol inspect ebs.csi.aws.com^", "kvol inspect ebs.csi.aws.com^vol-8")
			s.lists("kvol teardown ", "cache", "data", "hung", "pvc-1", "kubernetes.io/empty-dir, 2 pods")
			s.completes("kvol paths "+root+"/pods/"+podA+"/volumes/kubernetes.io~c", "kvol paths "+root+"/pods/"+podA+"/volumes/kubernetes.io~csi/pvc-1/mount")
			if name == "fish" { // whose script knows nothing of endings
				s.lists("kvol setup -f "+dir+"/docs/", "pv.yaml")
			} else {
				s.completes("kvol setup -f "+dir+"/docs/p", "kvol setup -f "+dir+"/docs/pv.yaml")
			}
			s.completes("kvol setup --root-dir "+dir+"/doc", "kvol setup --root-dir "+dir+"/docs/")
			s.typeLine("kvol teardown evi", "Tab", "Tab", "Tab")
			s.wait("a name that does harm is offered", func(screen string) bool { return screen == "$ kvol teardown evi" })
			s.completes("kvol teardown data --pod-uid "+podB+" --quara", "kvol teardown data --pod-uid "+podB+" --quarantine")
			if _, err := os.Lstat(filepath.Join(dir, "HIT")); err == nil {
				t.Error("a name was run")
			}
		})
	}
}
