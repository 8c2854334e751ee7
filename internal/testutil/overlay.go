package testutil

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Edit replaces text that is in a file exactly once.
type Edit struct{ File, Old, New string }

// Overlay writes the edited files, which are named from root, and the list of them for
// go's -overlay, whose path it gives.
func Overlay(t testing.TB, root string, edits []Edit) string {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(filepath.Join(root, e.File))
		if err != nil {
			t.Fatal(err)
		}
		text, edited := texts[path]
		if !edited {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			t.Fatalf("%s has this %d times, and not once: it moved, so correct the edit\n%s", e.File, n, e.Old)
		}
		texts[path] = strings.Replace(text, e.Old, e.New, 1)
	}
	replace := map[string]string{}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, text := range texts {
		replace[path] = write(fmt.Sprintf("%d.go", len(replace)), text)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", string(list))
}
