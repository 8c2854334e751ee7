package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/safefs"
)

// FSGroup gives the files of a mounted volume to a group, as the kubelet's
// SetVolumeOwnership does: every entry's group is set, files become ug+rw,
// directories ug+rwx and setgid; links are changed themselves and not followed;
// a directory comes after what is in it, so that the root fits only when all
// does (which OnRootMismatch relies on).
type FSGroup struct {
	Path string // a mount point below the root
	GID  int64
	// OnRootMismatch is the policy that leaves a volume alone whose root fits.
	OnRootMismatch bool
}

func (a FSGroup) step() api.Step {
	p, g := Quote(a.Path), strconv.FormatInt(a.GID, 10)
	// chgrp takes setuid and setgid from a program, and chmod gives them back.
	shell := fmt.Sprintf("find %[1]s -depth -xdev "+
		`\( -type l -exec chgrp -h %[2]s {} + \) -o `+
		`\( -type d -exec chgrp %[2]s {} + -exec chmod ug+rwx,g+s {} + \) -o `+
		`\( -perm -6000 -exec chgrp %[2]s {} \; -exec chmod ug+rws {} \; \) -o `+
		`\( -perm -4000 -exec chgrp %[2]s {} \; -exec chmod ug+rw,u+s {} \; \) -o `+
		`\( -perm -2000 -exec chgrp %[2]s {} \; -exec chmod ug+rw,g+s {} \; \) -o `+
		`\( -exec chgrp %[2]s {} + -exec chmod ug+rw {} + \)`, p, g)
	policy := "Always"
	if a.OnRootMismatch {
		policy = "OnRootMismatch"
		shell = fmt.Sprintf("if [ -z \"$(find %[1]s -maxdepth 0 -gid %[2]s -perm -2770)\" ]; then\n%[3]s\nfi", p, g, shell)
	}
	return api.Step{
		Action: "chown", Target: a.Path, Args: []string{":" + g, policy}, Shell: shell,
		Reason: "the pod's fsGroup owns the volume",
	}
}

const fsGroupJob = "fsgroup"

type fsGroupArgs struct {
	GID      int
	RootOnly bool // look at the root alone
	Apply    bool // change what does not fit; else stop at the first
}

type fsGroupAnswer struct {
	Fits    bool
	Changed int
}

func (a FSGroup) call(ctx context.Context, r *Runner, apply bool) (fsGroupAnswer, error) {
	var out fsGroupAnswer
	root, err := r.openEntry(a.Path)
	if err != nil {
		return out, err
	}
	defer root.Close()
	args := fsGroupArgs{GID: int(a.GID), RootOnly: a.OnRootMismatch && !apply, Apply: apply}
	_, err = r.Helper.Call(ctx, fsGroupJob, args, append([]*os.File{root}, r.locks()...), &out)
	if errors.Is(err, api.ErrTimeout) && apply {
		err = api.Errorf(api.ErrUncertain, "the volume did not take its new group in time; some of its files have it").At(a.Path).
			WithNext("run the same command again, with a longer --timeout")
	}
	return out, err
}

func (a FSGroup) done(ctx context.Context, r *Runner) (bool, string, error) {
	if _, err := r.Root.Stat(a.Path); err != nil || r.pretended(a.Path) {
		return false, "", nil
	}
	out, err := a.call(ctx, r, false)
	return out.Fits, "", err
}

// pretended says that a dry run mounted or made something there that cannot be looked
// at.
func (r *Runner) pretended(path string) bool {
	top, ok := r.table.Top(path)
	_, made := r.over[path]
	return r.DryRun && (ok && top.ID < 0 || !ok && made)
}

func (a FSGroup) do(ctx context.Context, r *Runner) (string, error) {
	out, err := a.call(ctx, r, true)
	return strconv.Itoa(out.Changed), err
}

func (a FSGroup) verify(ctx context.Context, r *Runner, _ string) error {
	out, err := FSGroup{a.Path, a.GID, true}.call(ctx, r, false)
	if err == nil && !out.Fits {
		err = api.Errorf(api.ErrUncertain, "the group was set and the volume's root does not have it: its file system may not keep owners").At(a.Path)
	}
	return err
}

func (a FSGroup) settle(*Runner, Value) {}

// runFSGroup is the helper's side.
func runFSGroup(raw []byte, files []*os.File) (any, []*os.File, error) {
	w := fsGroupWalk{fits: true}
	if err := exact.Unmarshal(raw, &w.fsGroupArgs); err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, unix.EBADF
	}
	root, err := safefs.VolumeThing(files[0])
	if err != nil {
		return nil, nil, err
	}
	if w.RootOnly {
		err = w.visit(root)
	} else {
		err = root.Walk(w.visit)
	}
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return nil, nil, err
	}
	return fsGroupAnswer{Fits: w.fits, Changed: w.changed}, nil, nil
}

type fsGroupWalk struct {
	fsGroupArgs
	fits    bool
	changed int
}

func (w *fsGroupWalk) visit(t safefs.Thing) error {
	mode := t.Mode
	switch t.Type {
	case safefs.Symlink:
	case safefs.Dir:
		mode |= 0o2770
	default:
		mode |= 0o660
	}
	if int(t.GID) == w.GID && mode == t.Mode {
		return nil
	}
	if !w.Apply {
		w.fits = false
		return fs.SkipAll
	}
	w.changed++
	if int(t.GID) != w.GID {
		if err := t.Chgrp(w.GID); err != nil {
			return fmt.Errorf("%q: %w", t.Name, err)
		}
	}
	if t.Type == safefs.Symlink {
		return nil
	}
	// chown clears setuid and setgid, so the mode is set in either case.
	if err := t.Chmod(mode); err != nil {
		return fmt.Errorf("%q: %w", t.Name, err)
	}
	return nil
}
