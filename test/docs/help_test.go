package docs

import (
	"regexp"
	"strings"
	"testing"
)

// played is how the examples of a command's help are run: on which node, but for those
// that are apart, each on another.
type played struct {
	scene string
	apart map[string]string
}

// helps are all commands that have examples.
var helps = map[string]played{
	"kvol":             {scene: "documents"},
	"kvol attach":      {scene: "documents"},
	"kvol completion":  {scene: "completions"},
	"kvol config":      {scene: "empty"},
	"kvol config view": {scene: "empty"},
	"kvol delete":      {scene: "host-path"},
	"kvol detach":      {scene: "free"},
	"kvol expand":      {scene: "grown"},
	"kvol gc-orphans":  {scene: "orphans"},
	"kvol help":        {scene: "empty"},
	"kvol history":     {scene: "mounted"},
	"kvol inspect":     {scene: "mounted"},
	"kvol limits":      {scene: "live"},
	"kvol list-mounts": {scene: "live"},
	"kvol mount-device": {scene: "documents", apart: map[string]string{
		"kvol mount-device -f pv.yaml --format": "new-disk",
	}},
	"kvol paths":     {scene: "documents"},
	"kvol plugins":   {scene: "empty"},
	"kvol provision": {scene: "claim"},
	"kvol publish":   {scene: "several"},
	"kvol recover":   {scene: "broken-metadata"},
	"kvol recycle":   {scene: "host-path"},
	"kvol setup": {scene: "documents", apart: map[string]string{
		"kvol setup -f pv.yaml -f pod.yaml --format":                                      "new-disk",
		"kvol setup --all -f pvs.yaml -f pvcs.yaml -f pods.yaml":                          "several",
		"kvol setup -f pv.yaml -f pod.yaml --format --dry-run -o shell --shell-with-kvol": "new-disk",
	}},
	"kvol teardown":       {scene: "mounted"},
	"kvol unmount-device": {scene: "staged"},
	"kvol unpublish":      {scene: "mounted"},
	"kvol version":        {scene: "empty"},
	"kvol wait": {scene: "free", apart: map[string]string{
		"kvol wait data logs --for=healthy -q": "several-mounted",
	}},
}

// commandLine is a command in a help's list of commands.
var commandLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]+) +[A-Z]`)

// Every example in the help of every command does what it is an example of.
func TestHelp(t *testing.T) {
	s := newScene(t)
	tried := map[string]bool{}
	for todo := []string{"kvol"}; len(todo) > 0; todo = todo[1:] {
		command := todo[0]
		help := s.must(command + " --help")
		list, _, _ := strings.Cut(help, "\nFlags:")
		_, list, _ = strings.Cut(list, "\nExamples:\n")
		shown, list, _ := strings.Cut(list, "\n\n")
		if _, apart, found := strings.Cut(help, "Available Commands:"); found {
			list, _, _ = strings.Cut(apart, "\nFlags:")
		}
		for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
			todo = append(todo, command+" "+m[1])
		}
		if all := helpExamples(shown); len(all) > 0 {
			tried[command] = true
			t.Run(command, func(t *testing.T) { tryHelp(t, command, all) })
		}
	}
	for command := range helps {
		if !tried[command] {
			t.Errorf("%s has no examples, or is not in the help", command)
		}
	}
}

func tryHelp(t *testing.T, command string, all []example) {
	t.Helper()
	how, known := helps[command]
	if !known {
		t.Fatalf("nothing runs the examples of %s", command)
	}
	s := stage(t, how.scene)
	for i, e := range all {
		if strings.Contains(e.command, " --watch") { // it ends only when it is interrupted
			all[i] = example{command: "timeout --preserve-status -s INT 0.5 " + e.command, code: 130}
		}
	}
	for _, e := range all {
		if how.apart[e.command] == "" {
			s.try(command+" --help", e)
		}
	}
	for _, e := range all {
		if scene := how.apart[e.command]; scene != "" {
			t.Run(scene, func(t *testing.T) { stage(t, scene).try(command+" --help", e) })
		}
	}
}

// helpExamples are the commands of a help; its comments are for the reader.
func helpExamples(text string) (all []example) {
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "  ")
		last := len(all) - 1
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case last >= 0 && strings.HasSuffix(all[last].command, `\`):
			all[last].command += "\n" + line
		default:
			all = append(all, example{command: line})
		}
	}
	return all
}
