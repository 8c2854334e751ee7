package docs

import (
	"regexp"
	"strconv"
	"strings"
)

// example is a command of a page or a help, and what is to come of it.
type example struct {
	line    int // where it is
	command string
	want    []string // what it prints; nil where nothing is said of that
	code    int
}

const askCode = "echo $?"

// examples reads a block of commands and their output. first is the number of its
// first line.
func examples(lines []string, first int) (all []example, complaint string) {
	for i, line := range lines {
		command, is := strings.CutPrefix(line, "# ")
		last := len(all) - 1
		switch {
		case last >= 0 && strings.HasSuffix(all[last].command, `\`):
			all[last].command += "\n" + line
		case is:
			all = append(all, example{line: first + i, command: command, want: []string{}})
		case last < 0:
			return nil, "the block begins with no command"
		default:
			all[last].want = append(all[last].want, line)
		}
	}
	var out []example
	for _, e := range all {
		if e.command != askCode {
			out = append(out, e)
			continue
		}
		code, err := strconv.Atoi(strings.Join(e.want, ""))
		if len(out) == 0 || err != nil {
			return nil, askCode + " follows a command and prints a number"
		}
		out[len(out)-1].code = code
	}
	return out, ""
}

// anything is written … in what a command prints.
const anything = "…"

var blanks = regexp.MustCompile(`[ \t]+`)

// matches says that what a command printed is what a page shows.
func matches(want []string, got string) bool {
	var expr strings.Builder
	for _, line := range want {
		if strings.TrimSpace(line) == anything {
			expr.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(normal(line), anything)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		expr.WriteString(strings.Join(parts, ".*") + `\n`)
	}
	lines := strings.Split(strings.TrimRight(got, "\n"), "\n")
	for i := range lines {
		lines[i] = normal(lines[i])
	}
	text := strings.TrimSuffix(strings.Join(lines, "\n")+"\n", "\n")
	if text != "" {
		text += "\n"
	}
	return regexp.MustCompile(`^` + expr.String() + `$`).MatchString(text)
}

func normal(line string) string {
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}
