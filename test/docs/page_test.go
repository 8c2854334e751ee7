package docs

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayNotRun bounds the blocks that are shown and not run.
const mayNotRun = 3

// top is the repository.
const top = "../.."

// block is a console block of a page.
type block struct {
	scene    string
	fresh    bool   // the scene is made anew for it
	reason   string // why it is not run
	examples []example
}

// pages are the pages written by hand; what is generated repeats the helps.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(top, "docs"), func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == "reference" || d.Name() == "man") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			rel, _ := filepath.Rel(top, path) // both are relative
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	sceneComment  = regexp.MustCompile(`^<!-- scene: (\S+) -->$`)
	notRunComment = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	// strayExample is a command that is shown where nothing runs it.
	strayExample = regexp.MustCompile(`^\s*([#$] )?(kvol|kubectl|systemctl|make|umount) `)
)

// blocks reads a page.
func blocks(t *testing.T, page, text string) (all []block) {
	t.Helper()
	next, kind, first, body := block{}, "", 0, []string(nil)
	for i, line := range strings.Split(text, "\n") {
		fence, fenced := strings.CutPrefix(line, "```")
		switch {
		case kind != "" && line == "```":
			if kind == "console" {
				found, complaint := examples(body, first)
				if complaint != "" {
					t.Errorf("%s:%d: %s", page, first, complaint)
				}
				next.examples = found
				all = append(all, next)
				next.fresh, next.reason = false, ""
			}
			kind = ""
		case kind != "":
			body = append(body, line)
			if kind != "console" && strayExample.MatchString(line) {
				t.Errorf("%s:%d: an example that nothing runs: make it a console block", page, i+1)
			}
		case fenced:
			kind, first, body = cmp.Or(fence, "text"), i+2, nil
			if slices.Contains([]string{"sh", "bash", "shell"}, kind) {
				t.Errorf("%s:%d: examples that nothing runs: make it a console block", page, i+1)
			}
		case sceneComment.MatchString(line):
			next.scene, next.fresh = sceneComment.FindStringSubmatch(line)[1], true
		case notRunComment.MatchString(line):
			next.reason = notRunComment.FindStringSubmatch(line)[1]
		case strings.HasPrefix(line, "    ") && strayExample.MatchString(line):
			t.Errorf("%s:%d: an example that nothing runs: make it a console block", page, i+1)
		}
	}
	return all
}

// Every example of every page does what the page says.
func TestPages(t *testing.T) {
	notRun := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(top, page))
		if err != nil {
			t.Fatal(err)
		}
		all := blocks(t, page, string(text))
		for _, b := range all {
			if b.reason != "" {
				notRun++
				t.Logf("%s:%d: not run: %s", page, b.examples[0].line, b.reason)
			}
		}
		tryPage(t, page, all)
	}
	if notRun > mayNotRun {
		t.Errorf("%d blocks are not run, more than %d", notRun, mayNotRun)
	}
}

// tryPage runs the blocks of a page, each scene as a test of its own.
func tryPage(t *testing.T, page string, all []block) {
	t.Helper()
	for len(all) > 0 {
		n := 1
		for n < len(all) && !all[n].fresh {
			n++
		}
		here := all[:n]
		all = all[n:]
		if here[0].scene == "" {
			for _, b := range here {
				if b.reason == "" {
					t.Errorf("%s:%d: no scene is named", page, b.examples[0].line)
				}
			}
			continue
		}
		t.Run(strings.TrimSuffix(page, ".md")+"/"+here[0].scene, func(t *testing.T) {
			s := stage(t, here[0].scene)
			for _, b := range here {
				for _, e := range b.examples {
					if b.reason == "" {
						s.try(page, e)
					}
				}
			}
		})
	}
}
