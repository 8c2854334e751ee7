package safefs

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// Contents is what a directory holds, as far as it was counted.
type Contents struct {
	Entries int
	Bytes   int64    // of regular files
	Names   []string // the first few, as paths below the directory
	More    bool     // the count was given up: there is more than that
}

// String says how much that is.
func (c Contents) String() string {
	text := api.Count(c.Entries, "entry", "entries") + " with " + api.Count(c.Bytes, "byte", "bytes")
	if c.More {
		text = "more than " + text
	}
	return text
}

// maxCount is where counting ends: what it is for is a refusal that a person reads.
const maxCount = 100_000

// Contents counts what is in a directory, without what other mounts show there. With
// writer, what the atomic writer makes is not counted: its own files and links, and
// directories, which are its own or the mount points of other volumes.
func (t Thing) Contents(writer bool) (Contents, error) {
	var c Contents
	err := t.Walk(func(in Thing) error {
		if in.Rel == "" || writer && in.isWriters() {
			return nil
		}
		if c.Entries == maxCount {
			c.More = true
			return fs.SkipAll
		}
		c.Entries++
		if in.Type == File {
			c.Bytes += in.Size
		}
		if len(c.Names) < 3 {
			c.Names = append(c.Names, in.Rel)
		}
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return c, err
}

// isWriters says whether a thing in a volume is one that the atomic writer makes.
func (t Thing) isWriters() bool {
	first, _, deeper := strings.Cut(t.Rel, "/")
	switch t.Type {
	case Dir:
		return true
	case File:
		return deeper && IsWriterDir(first)
	case Symlink:
		return isWriterLink(t.Name, linkTarget(t.fd))
	}
	return false
}
