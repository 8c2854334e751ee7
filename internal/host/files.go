package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
)

// Files reads the node's configuration, which lies outside of the kubelet's root
// (certificates, manifests), links followed: what a local file system has by this
// process itself, and what a daemon or a server answers for by the helper.
//
// Do not use it for what lies in a volume.
type Files struct {
	host  *Host
	table *mounts.Table // nil where it cannot be read: then nothing is local
}

// Files looks at the mount table once, for all that is read through it.
func (h *Host) Files() *Files {
	table, err := mounts.Read(filepath.Join(h.ProcRoot, "self/mountinfo"))
	if err != nil {
		table = nil
	}
	return h.FilesBy(table)
}

// FilesBy is for whoever has read the mount table of this process.
func (h *Host) FilesBy(table *mounts.Table) *Files { return &Files{h, table} }

// File is a regular file as it was read.
type File struct {
	Data    []byte
	ModTime time.Time
}

// maxFile is what fits into a message of the helper.
const maxFile = 32 << 20

// Read reads a regular file. api.ErrNotFound where it is not there, api.ErrInput
// where it is no file or a huge one.
func (f *Files) Read(ctx context.Context, path string) (File, error) {
	return ask(ctx, f, jobReadFile, readFile, path)
}

// Names lists a directory. api.ErrNotFound where there is none.
func (f *Files) Names(ctx context.Context, dir string) ([]string, error) {
	return ask(ctx, f, jobReadDir, readDir, dir)
}

// Exists says whether something is there; what does not answer is.
func (f *Files) Exists(ctx context.Context, path string) bool {
	_, err := ask(ctx, f, jobExists, exists, path)
	return !errors.Is(err, api.ErrNotFound)
}

const (
	jobReadFile = "host.readFile"
	jobReadDir  = "host.readDir"
	jobExists   = "host.exists"
)

func jobs() probe.Jobs {
	return probe.Jobs{jobReadFile: job(readFile), jobReadDir: job(readDir), jobExists: job(exists)}
}

func job[T any](do func(path string) (T, error)) probe.Job {
	return func(raw []byte, _ []*os.File) (any, []*os.File, error) {
		var path string
		if err := exact.Unmarshal(raw, &path); err != nil {
			return nil, nil, err
		}
		out, err := do(path)
		return out, nil, err
	}
}

func ask[T any](ctx context.Context, f *Files, job string, do func(string) (T, error), path string) (T, error) {
	var out T
	var err error
	if f.table != nil && local(f.table, path) {
		out, err = do(path)
	} else {
		_, err = f.host.Helper.Call(ctx, job, path, nil, &out)
	}
	if err == nil {
		return out, nil
	}
	e := &api.Error{Path: path, Err: err}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		e.Kind = api.ErrNotFound
	}
	return out, e
}

// readFile opens what it knows to be a file: opening a fifo waits, and opening a
// device can set something off.
func readFile(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, cause(err)
	}
	if !info.Mode().IsRegular() {
		return File{}, api.Errorf(api.ErrInput, "it is no regular file")
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return File{}, cause(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = api.Errorf(api.ErrInput, "it is longer than %d bytes", maxFile)
	}
	return File{Data: data, ModTime: info.ModTime()}, cause(err)
}

func readDir(dir string) ([]string, error) {
	file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer file.Close()
	names, err := file.Readdirnames(-1)
	return names, cause(err)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	return err == nil, cause(err)
}

// cause leaves the path away, which is said once.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}
