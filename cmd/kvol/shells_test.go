package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// shell is one that somebody types into.
type shell struct {
	pane
	tabs []string // that make it list what there is
}

// until waits for what there is to read, in the shells' different ways to quote without need.
func (s shell) until(what string, ok func(screen string) bool) {
	s.t.Helper()
	s.wait(what, func(screen string) bool { return ok(strings.ReplaceAll(strings.TrimSpace(screen), `\`, "")) })
}

// typeLine begins with an empty line and types into it.
func (s shell) typeLine(line string, keys ...string) {
	s.t.Helper()
	s.keys("C-e", "C-u", "C-l")
	s.until("the line is empty", func(screen string) bool { return screen == "$" })
	s.keys("-l", line)
	s.keys(keys...)
}

// completes says that a line becomes another.
func (s shell) completes(line, want string) {
	s.t.Helper()
	s.typeLine(line, "Tab")
	s.until(fmt.Sprintf("%q becomes %q", line, want), func(screen string) bool { return screen == "$ "+want })
}

// lists says that these words are offered.
func (s shell) lists(line string, words ...string) {
	s.t.Helper()
	s.typeLine(line, s.tabs...)
	s.until(fmt.Sprintf("%q offers %q", line, words), func(screen string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(screen, w) })
	})
}

// runsNothing says that no command on a line is run to complete it.
func (s shell) runsNothing(dir string) {
	s.t.Helper()
	for i, line := range []string{
		`"$(touch %s)`, "\"`touch %s`", `"$(touch %s)" `, `$(touch %s) `, "`touch %s` ", `<(touch %s) `,
		`'(touch %s)' `, `';touch %s;' `, `"a;touch %s;`, `'--volume=;touch %s;=`, `> %s --sta`,
	} {
		line = fmt.Sprintf("kvol inspect "+line, fmt.Sprintf("%s/%d", dir, i))
		s.keys("C-e", "C-u")
		s.keys("-l", line)
		s.keys("Tab")
	}
	s.completes("kvol list-m", "kvol list-mounts")
	if run, err := os.ReadDir(dir); err != nil || len(run) > 0 {
		s.t.Errorf("lines that were run: %v, %v", run, err)
	}
}

// TestShells: what is on a node is completed in the shells themselves, while one of its
// volumes is dead and one hangs, and no name of a volume does harm.
func TestShells(t *testing.T) {
	root := completionNode(t)
	testutil.Tool(t, "zsh", "fish", "dh_bash-completion")
	dir := t.TempDir()
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
	link(completions+"/kvol.fish", dir+"/fish/fish/completions/kvol.fish")
	write("docs/pv.yaml", "")
	write("docs/pv.txt", "")
	write("data/fish/generated_completions/none", "") // else fish makes some of all manual pages
	write("fish/fish/config.fish", "set -g fish_autosuggestion_enabled 0\nfunction fish_prompt; echo -n '$ '; end\nfunction fish_greeting; end\n")
	write("zsh/.zshrc", "PS1='$ '\nfpath=("+completions+" $fpath)\nautoload -Uz compinit\ncompinit -u -D\n"+
		"bindkey '^I' complete-word\n") // else zsh itself runs what stands in the word before it completes
	bare := write("bare.bash", "PS1='$ '\nsource <(kvol completion bash)\n")
	full := write("full.bash", "PS1='$ '\n. /usr/share/bash-completion/bash_completion\n. "+completions+"/kvol.bash\n")
	terminals := newPanes(t, "D=data", "HOME="+dir, "ZDOTDIR="+dir+"/zsh", "XDG_CONFIG_HOME="+dir+"/fish", "XDG_DATA_HOME="+dir+"/data")
	terminals.open(80, "cat") // else tmux ends with the first of them
	for name, command := range map[string][]string{
		"bash": {"bash", "--noprofile", "--rcfile", bare, "-i"}, "bash-completion": {"bash", "--noprofile", "--rcfile", full, "-i"},
		"zsh": {"zsh", "-d", "-i"}, "fish": {"fish", "-i"},
	} {
		tabs := []string{"Tab"}
		if command[0] == "bash" {
			tabs = []string{"Tab", "Tab"}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			terminals := terminals
			terminals.t = t
			s := shell{terminals.open(200, command...), tabs}
			s.until("there is a prompt", func(screen string) bool { return screen == "$" })
			s.completes("kvol list-m", "kvol list-mounts")
			s.completes("kvol ls --no-he", "kvol ls --no-headers")
			s.completes("kvol ls -o wi", "kvol ls -o wide")
			s.lists("kvol ls -o json", "jsonl", "jsonpath=", "jsonpath-as-json=")
			s.completes("kvol ls --state ok,sta", "kvol ls --state ok,stale")
			s.completes("kvol ls --plugin kubernetes.io/em", "kvol ls --plugin kubernetes.io/empty-dir")
			s.completes("kvol ls --plugin=kubernetes.io/nf", "kvol ls --plugin=kubernetes.io/nfs")
			s.completes("kvol teardown da", "kvol teardown data")
			s.completes("kvol teardown data --pod-uid 7b", "kvol teardown data --pod-uid "+podB)
			s.completes(`kvol inspect "da`, `kvol inspect "data"`)
			s.completes("kvol inspect 'da", "kvol inspect 'data'")
			if name != "zsh" { // whose script knows of no quote after =
				s.completes(`kvol ls --volume="da`, `kvol ls --volume="data"`)
			}
			s.completes(`kvol teardown "cache" --pod-uid "7b`, `kvol teardown "cache" --pod-uid "`+podB+`"`)
			s.completes("kvol teardown $D --pod-uid 7b", "kvol teardown $D --pod-uid "+podB)
			s.completes(`kvol ls -o 'jsonpath={.items[?(@.state=="ok")]}' --no-he`, `kvol ls -o 'jsonpath={.items[?(@.state=="ok")]}' --no-headers`)
			s.lists("kvol teardown ", "cache", "data", "hung", "pvc-1", "kubernetes.io/empty-dir, 2 pods")
			s.completes("kvol paths "+root+"/pods/"+podA+"/volumes/kubernetes.io~c", "kvol paths "+root+"/pods/"+podA+"/volumes/kubernetes.io~csi/pvc-1/mount")
			if name == "fish" { // whose script knows nothing of endings, and which lists at once
				s.lists("kvol setup -f "+dir+"/docs/", "pv.yaml")
				s.lists("kvol inspect ebs.csi.aws.com^v", "^vol-7", "^vol-8")
			} else {
				s.completes("kvol setup -f "+dir+"/docs/p", "kvol setup -f "+dir+"/docs/pv.yaml")
				s.completes("kvol inspect ebs.csi.aws.com^v", "kvol inspect ebs.csi.aws.com^vol-")
			}
			s.completes("kvol setup --root-dir "+dir+"/doc", "kvol setup --root-dir "+dir+"/docs/")
			s.typeLine("kvol teardown evi", "Tab", "Tab", "Tab")
			s.until("no name that does harm is offered", func(screen string) bool { return screen == "$ kvol teardown evi" })
			s.completes("kvol teardown data --pod-uid "+podB+" --quara", "kvol teardown data --pod-uid "+podB+" --quarantine")
			if _, err := os.Lstat(filepath.Join(dir, "HIT")); err == nil {
				t.Error("a name was run")
			}
			s.runsNothing(t.TempDir())
		})
	}
}
