package ops

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// unmount takes all mounts off a path, each only where nothing is lost with it: one that
// is empty can lie on one that is not.
func (c *cleaner) unmount(ctx context.Context, path, reason string) bool {
	for n := 0; len(c.run.Table().At(path)) > 0; n++ {
		hidden := n > 0 && !c.mayDiscard(path)
		if (!hidden || !c.run.DryRun) && !c.givenUp(ctx, path) {
			return false
		}
		if !c.do(ctx, path, act.Unmount{Path: path, Blind: hidden, Reason: reason}) {
			return false
		}
	}
	return true
}

// givenUp says whether what is mounted on a path may go with its content: it is no
// memory, or empty, or the operator said so. Of a container's part of a volume, and of
// volumes that are not the kubelet's own, it may as long as it is mounted elsewhere too.
func (c *cleaner) givenUp(ctx context.Context, path string) bool {
	top, _ := c.run.Table().Top(path)
	first, _, _ := strings.Cut(strings.TrimPrefix(top.Root, "/"), "/")
	if c.mayDiscard(path) || !act.IsMemory(top) || safefs.IsWriterDir(first) || !c.ephemeral(path) && c.run.ShownElsewhere(top) {
		return true
	}
	e, err := c.run.Entry(path)
	if err != nil {
		return c.did(path, err)
	}
	holds := safefs.Contents{Entries: 1, Bytes: e.Size, Names: []string{filepath.Base(path)}}
	if e.Type == safefs.Dir {
		writer := slices.Contains(safefs.AtomicWriters, c.host.Layout.Parse(path).Plugin)
		if holds, err = c.run.Contents(ctx, path, writer); err != nil {
			return c.did(path, err)
		}
	}
	return holds.Entries == 0 || c.data(path, holds)
}

// mayDiscard says that the operator gave up ephemeral content, and that a path is of
// that: of a container's part of a volume nothing tells any more what the volume was.
func (c *cleaner) mayDiscard(path string) bool {
	return c.req.DiscardEphemeral && (c.ephemeral(path) || c.host.Layout.Parse(path).Kind == paths.SubPath)
}
