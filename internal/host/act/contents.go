package act

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/safefs"
)

const contentsJob = "contents"

// Contents counts what a directory of the layout holds, or the mount on it. writer
// leaves out what the atomic writer made. The helper looks, since it may not answer.
func (r *Runner) Contents(ctx context.Context, path string, writer bool) (safefs.Contents, error) {
	var out safefs.Contents
	if o, ok := r.over[path]; ok && len(r.table.At(path)) == 0 {
		return out, r.pretend(path, o, &out)
	}
	f, err := r.openEntry(path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	_, err = r.Helper.Call(ctx, contentsJob, writer, []*os.File{f}, &out)
	if errors.Is(err, api.ErrTimeout) {
		err = api.Errorf(api.ErrTimeout, "what is in it could not be counted in time").At(path)
	}
	return out, err
}

// pretend counts what a dry run has put into a directory of its own.
func (r *Runner) pretend(path string, o overlay, out *safefs.Contents) error {
	if !o.Present {
		return nil
	}
	names, err := r.Names(path)
	out.Entries, out.Names = len(names), names[:min(3, len(names))]
	return err
}

func runContents(raw []byte, files []*os.File) (any, []*os.File, error) {
	var writer bool
	if err := exact.Unmarshal(raw, &writer); err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, unix.EBADF
	}
	thing, err := safefs.VolumeThing(files[0])
	if err != nil {
		return nil, nil, err
	}
	c, err := thing.Contents(writer)
	return c, nil, err
}
