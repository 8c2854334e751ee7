package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/safefs"
)

// MakeOutside makes the directory, or the empty file, at a path that a volume's
// document names, outside of the layout. The helper does it, as the path may hang.
type MakeOutside struct {
	safefs.Outside
	Reason string
}

func (a MakeOutside) step() api.Step {
	p, kind, action := Quote(a.Path), "d", "mkdir"
	shell := fmt.Sprintf("(umask %04o; mkdir -p -- %s)", 0o777&^a.Perm, p)
	if a.File {
		kind, action = "f", "write"
		shell = fmt.Sprintf("(umask %04o; set -C; : >%s)", 0o777&^a.Perm, p)
	}
	return api.Step{
		Action: action, Target: a.Path, Args: []string{fmt.Sprintf("%04o", a.Perm)}, Reason: a.Reason,
		Shell: fmt.Sprintf("[ -%s %s ] || %s", kind, p, shell),
	}
}

func (a MakeOutside) want() safefs.Type {
	if a.File {
		return safefs.File
	}
	return safefs.Dir
}

func (a MakeOutside) done(ctx context.Context, r *Runner) (bool, string, error) {
	if r.over[a.Path].Present {
		return true, "", nil
	}
	src, err := OpenSource(ctx, r.Helper, a.Path)
	if errors.Is(err, api.ErrNotFound) {
		return false, "", a.placed(ctx, r)
	}
	if err != nil {
		return false, "", err
	}
	defer src.Close()
	if src.Info.Type != a.want() {
		return false, "", api.Errorf(api.ErrRefused, "is a %s where a %s belongs", src.Info.Type, a.want()).At(a.Path).
			WithNext("correct the volume's document")
	}
	return true, "", nil
}

// placed wants the directory of a file to be there: as a kubelet, kvol makes none.
func (a MakeOutside) placed(ctx context.Context, r *Runner) error {
	if !a.File {
		return nil
	}
	dir, err := OpenSource(ctx, r.Helper, filepath.Dir(a.Path))
	if errors.Is(err, api.ErrNotFound) {
		return api.Errorf(api.ErrNotFound, "the directory that the file is to be made in is not there").At(a.Path).
			WithNext("make it: mkdir -p %s", Quote(filepath.Dir(a.Path)))
	}
	if err == nil {
		err = dir.Close()
	}
	return err
}

const outsideJob = "outside"

func runOutside(raw []byte, _ []*os.File) (any, []*os.File, error) {
	var o safefs.Outside
	if err := exact.Unmarshal(raw, &o); err != nil {
		return nil, nil, err
	}
	return nil, nil, o.Make()
}

func (a MakeOutside) do(ctx context.Context, r *Runner) (string, error) {
	_, err := r.Helper.Call(ctx, outsideJob, a.Outside, r.locks(), nil)
	if errors.Is(err, api.ErrTimeout) {
		err = api.Errorf(api.ErrUncertain, "it was not made in time; it may still come").At(a.Path).
			WithNext("see what the path lies on: findmnt --target %s; then run the same command again", Quote(a.Path))
	}
	return "", err
}

func (a MakeOutside) verify(ctx context.Context, r *Runner, _ string) error {
	is, _, err := a.done(ctx, r)
	if err == nil && !is {
		err = api.Errorf(api.ErrUncertain, "it was made and is not there: somebody else works on this path").At(a.Path)
	}
	return err
}

func (a MakeOutside) settle(r *Runner, _ Value) { r.lay(a.Path, Entry{Present: true, Type: a.want()}) }

func (a MakeOutside) fact() string {
	if a.File {
		return "[ -f " + Quote(a.Path) + " ]"
	}
	return "[ -d " + Quote(a.Path) + " ]"
}
