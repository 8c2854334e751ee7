package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\[[^\]]+\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.+)$`)
	// notInAnchor is what GitHub takes out of a heading to make its anchor.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every link of every page leads to a file of this repository, and every anchor to a
// heading in it.
func TestLinks(t *testing.T) {
	for _, page := range append(pages(t), generatedPages(t)...) {
		text := prose(t, page)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := m[1]
			if strings.Contains(to, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(to, "#")
			path := page
			if file != "" {
				path = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(top, path)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, to)
			} else if anchor != "" && !anchors(t, path)[anchor] {
				t.Errorf("%s: %s has no heading for the link %s", page, path, to)
			}
		}
	}
}

// generatedPages repeat the helps' examples, but have links of their own.
func generatedPages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(top, "docs/reference/*.md"))
	must(t, err)
	for i := range found {
		found[i], _ = filepath.Rel(top, found[i]) // both are relative
	}
	return found
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, page))
	must(t, err)
	var out strings.Builder
	code := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "```") {
			code = !code
		} else if !code {
			out.WriteString(line)
		}
	}
	return out.String()
}

// anchors are those of a page's headings.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for line := range strings.Lines(prose(t, page)) {
		if m := heading.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			plain := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
			all[strings.ReplaceAll(plain, " ", "-")] = true
		}
	}
	return all
}
