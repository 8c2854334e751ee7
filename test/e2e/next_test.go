package e2e

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kvol/kvol/internal/api"
)

// helps are the helps of the commands; "" of what is no command.
var helps sync.Map

func (n *node) help(command string) string {
	text, known := helps.Load(command)
	if !known {
		out, _ := exec.Command(n.kvolPath, command, "--help").Output()
		if !strings.Contains(string(out), "\n  kvol "+command+" ") {
			out = nil // of kvol itself: there is no such command
		}
		text, _ = helps.LoadOrStore(command, string(out))
	}
	return text.(string)
}

// exitCode is a line of a help's exit codes.
var exitCode = regexp.MustCompile(`(?m)^  (\d+) `)

// told wants the help of a command to have the exit code that it ended with, and
// every failure to say what to do next.
func (n *node) told(o out) {
	n.t.Helper()
	_, list, has := strings.Cut(n.help(o.args[0]), "\nExit codes:\n")
	if found := exitCode.FindAllString(list, -1); has && !slices.Contains(found, "  "+strconv.Itoa(o.code)+" ") {
		n.t.Errorf("the help of kvol %s does not tell of this exit code:\n%v", o.args[0], o)
	}
	n.advised(o)
}

// command is a command of kvol in a next step, with the flags that follow it.
var command = regexp.MustCompile(`(?:^|[^-\w./])kvol ([a-z][a-z-]*)((?: [^\s;(]+)*)`)

// advised wants a next step that can be done: the commands and flags of kvol that it
// names are there.
func (n *node) advised(o out) {
	n.t.Helper()
	if o.code <= 0 { // below: killed
		return
	}
	lines := strings.Split(strings.TrimSuffix(o.stderr, "\n"), "\n")
	next, ok := strings.CutPrefix(lines[len(lines)-1], "next: ")
	if doc := (api.ErrorDoc{}); !ok && json.Unmarshal([]byte(lines[len(lines)-1]), &doc) == nil {
		next = doc.Next
	}
	if strings.TrimSpace(next) == "" {
		n.t.Errorf("a failure without a next step:\n%v", o)
	}
	for _, m := range command.FindAllStringSubmatch(next, -1) {
		help := n.help(m[1])
		if help == "" {
			n.t.Errorf("there is no kvol %s, which this names:\n%v", m[1], o)
		}
		for _, word := range strings.Fields(m[2]) {
			flag, _, _ := strings.Cut(strings.Trim(word, "(),:"), "=")
			if strings.HasPrefix(flag, "-") && len(flag) > 1 && !strings.Contains(help, " "+flag+" ") && !strings.Contains(help, " "+flag+",") {
				n.t.Errorf("kvol %s has no %s, which this names:\n%v", m[1], flag, o)
			}
		}
	}
}
