package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// Mkdir makes one directory below the root; its parent must be there.
type Mkdir struct {
	Path   string
	Perm   uint32
	Reason string
}

func (a Mkdir) step() api.Step {
	return api.Step{
		Action: "mkdir", Target: a.Path, Args: []string{fmt.Sprintf("%04o", a.Perm)}, Reason: a.Reason,
		Shell: fmt.Sprintf("[ -d %[1]s ] || mkdir -m %04[2]o %[1]s", Quote(a.Path), a.Perm),
	}
}

func (a Mkdir) done(_ context.Context, r *Runner) (bool, string, error) {
	return r.is(a.Path, safefs.Dir)
}

func (a Mkdir) do(_ context.Context, r *Runner) (string, error) {
	_, err := r.Root.Mkdir(a.Path, a.Perm)
	return "", err
}

func (a Mkdir) verify(_ context.Context, r *Runner, _ string) error {
	return r.expect(a.Path, Entry{Present: true, Type: safefs.Dir})
}

func (a Mkdir) settle(r *Runner, _ Value) { r.lay(a.Path, Entry{Present: true, Type: safefs.Dir}) }
func (a Mkdir) fact() string              { return "[ -d " + Quote(a.Path) + " ]" }

// Rmdir removes one empty directory below the root.
type Rmdir struct {
	Path   string
	Reason string
}

func (a Rmdir) step() api.Step {
	return api.Step{
		Action: "rmdir", Target: a.Path, Reason: a.Reason,
		Shell: fmt.Sprintf("[ ! -d %[1]s ] || rmdir %[1]s", Quote(a.Path)),
	}
}

// done refuses a directory that holds something: what is in it is somebody's
// data, and rmdir would only say so later.
func (a Rmdir) done(_ context.Context, r *Runner) (bool, string, error) {
	e, err := r.Entry(a.Path)
	if err != nil || !e.Present {
		return err == nil, "", err
	}
	if e.Type != safefs.Dir {
		return false, "", notDir(a.Path, e.Type)
	}
	if e.Mounted {
		return false, "", somethingMounted(a.Path)
	}
	if r.over[a.Path].Present {
		return false, "", nil
	}
	names, err := r.Names(a.Path)
	if err == nil && len(names) > 0 {
		err = notEmpty(a.Path, names)
	}
	if err == nil {
		err = r.notElsewhere(a.Path)
	}
	return false, "", err
}

// holdsNothing refuses a mount point in which there is something: a mount would
// hide what a pod wrote there while the volume was not mounted. What the layout
// itself keeps under a global mount (iscsi.json) is no data.
func (r *Runner) holdsNothing(dir string) error {
	e, err := r.Entry(dir)
	if err != nil || !e.Present || e.Type != safefs.Dir || e.Mounted {
		return err
	}
	names, err := r.Names(dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return r.Layout.Parse(filepath.Join(dir, name)).Kind == paths.GlobalMetadata
	})
	if len(names) > 0 {
		return notEmpty(dir, names)
	}
	return nil
}

func notDir(path string, is safefs.Type) error {
	return api.Errorf(api.ErrRefused, "is a %s where a directory belongs", is).At(path).
		WithNext("find out who made it (ls -ld %s) and move it away", Quote(path))
}

func notEmpty(path string, names []string) error {
	e := api.Errorf(api.ErrNotEmpty, "nothing is mounted there and the directory holds %s: that is somebody's data, and kvol never deletes data", api.Count(len(names), "entry", "entries")).At(path)
	for i, n := range names {
		if i == 10 {
			e.Details = append(e.Details, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		e.Details = append(e.Details, fmt.Sprintf("holds %q", n))
	}
	return e.WithNext("look at it (ls -la %[1]s), move what is in it to a safe place, then run the same command again", Quote(path))
}

func (a Rmdir) do(_ context.Context, r *Runner) (string, error) {
	err := r.Root.Rmdir(a.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return "", err
}

func (a Rmdir) verify(_ context.Context, r *Runner, _ string) error {
	return r.expect(a.Path, Entry{})
}
func (a Rmdir) settle(r *Runner, _ Value) { r.lay(a.Path, Entry{}) }

// Unlink removes one entry of the metadata list; What says which kind, and
// safefs checks that it is one.
type Unlink struct {
	Path   string
	What   safefs.Meta
	Reason string
}

func (a Unlink) step() api.Step {
	test, shell := "-e", ""
	switch a.What {
	case safefs.DeviceLink:
		test = "-L"
	case safefs.AtomicWriterFile:
		test = "-e %[1]s ] && [ ! -L" // its links lead nowhere once its files are gone
	case safefs.BindTarget:
		// Empty now; when the script runs it may be somebody's data.
		shell = fmt.Sprintf("if [ -s %s ]; then echo %s >&2; exit 4; fi\n", Quote(a.Path), Quote("refused, it is not empty: "+a.Path))
	}
	return api.Step{
		Action: "unlink", Target: a.Path, Reason: a.Reason,
		Shell: shell + fmt.Sprintf("[ ! "+test+" %[1]s ] || rm -- %[1]s", Quote(a.Path)),
	}
}

func (a Unlink) done(_ context.Context, r *Runner) (bool, string, error) {
	e, err := r.Entry(a.Path)
	if err != nil {
		return false, "", err
	}
	if e.Mounted {
		return false, "", somethingMounted(a.Path)
	}
	if !e.Present {
		return true, "", nil
	}
	want := safefs.File
	if a.What == safefs.DeviceLink || a.What == safefs.AtomicWriterFile && e.Type == safefs.Symlink {
		want = safefs.Symlink // which of the writer's are links is told by safefs
	}
	if e.Type != want || a.What == safefs.BindTarget && e.Size != 0 {
		// As safefs would, before the steps that come ahead of it.
		return false, "", api.Errorf(api.ErrRefused, "is no %s: it is a %s of %d bytes", a.What, e.Type, e.Size).At(a.Path).
			WithNext("no data is deleted; look at it with: ls -l %s", Quote(a.Path))
	}
	if a.What == safefs.BindTarget {
		err = r.notElsewhere(a.Path)
	}
	return false, "", err
}

func (a Unlink) do(_ context.Context, r *Runner) (string, error) {
	err := r.Root.Unlink(a.Path, a.What)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return "", err
}

func (a Unlink) verify(_ context.Context, r *Runner, _ string) error {
	return r.expect(a.Path, Entry{})
}
func (a Unlink) settle(r *Runner, _ Value) { r.lay(a.Path, Entry{}) }

// CreateFile makes the empty file that a block device is bound on.
type CreateFile struct {
	Path   string
	Perm   uint32
	Reason string
}

func (a CreateFile) step() api.Step {
	return api.Step{
		Action: "write", Target: a.Path, Args: []string{fmt.Sprintf("%04o", a.Perm)}, Reason: a.Reason,
		Shell: fmt.Sprintf("[ -e %[1]s ] || install -T -m %04[2]o /dev/null %[1]s", Quote(a.Path), a.Perm),
	}
}

func (a CreateFile) done(_ context.Context, r *Runner) (bool, string, error) {
	e, err := r.Entry(a.Path)
	if err != nil || !e.Present || e.Mounted {
		return e.Mounted, "", err
	}
	if e.Type != safefs.File || e.Size != 0 {
		return false, "", api.Errorf(api.ErrRefused, "is a %s of %d bytes where the empty target of a device bind belongs", e.Type, e.Size).At(a.Path).
			WithNext("see what it is: stat %s", Quote(a.Path))
	}
	return true, "", nil
}

func (a CreateFile) do(_ context.Context, r *Runner) (string, error) {
	return "", r.Root.CreateEmpty(a.Path, a.Perm)
}

func (a CreateFile) verify(_ context.Context, r *Runner, _ string) error {
	return r.expect(a.Path, Entry{Present: true, Type: safefs.File})
}

func (a CreateFile) settle(r *Runner, _ Value) {
	r.lay(a.Path, Entry{Present: true, Type: safefs.File})
}
func (a CreateFile) fact() string { return "[ -e " + Quote(a.Path) + " ]" }

// Symlink makes a pod's link to its device.
type Symlink struct {
	Target Value
	Path   string
	Reason string
}

func (a Symlink) step() api.Step {
	return api.Step{
		Action: "symlink", Target: a.Path, Args: []string{a.Target.String()}, Reason: a.Reason,
		Shell: fmt.Sprintf(`[ "$(readlink -- %[1]s)" = %[2]s ] || ln -sfnT -- %[2]s %[1]s`, Quote(a.Path), a.Target.shell()),
	}
}

func (a Symlink) done(_ context.Context, r *Runner) (bool, string, error) {
	e, err := r.Entry(a.Path)
	if err != nil || !e.Present {
		return false, "", err
	}
	if e.Type != safefs.Symlink {
		return false, "", api.Errorf(api.ErrRefused, "is a %s where a symlink to the device belongs", e.Type).At(a.Path).
			WithNext("find out who made it (ls -ld %s) and move it away", Quote(a.Path))
	}
	text, known := a.Target.Text()
	if known && e.Link != text {
		return false, "", api.Errorf(api.ErrRefused, "points to %s, not to %s: another device is mapped there", e.Link, text).At(a.Path).
			WithNext("unpublish the volume from this pod first")
	}
	return known, "", nil
}

func (a Symlink) do(_ context.Context, r *Runner) (string, error) {
	text, _ := a.Target.Text()
	return "", r.Root.Symlink(text, a.Path)
}

func (a Symlink) verify(_ context.Context, r *Runner, _ string) error {
	text, _ := a.Target.Text()
	return r.expect(a.Path, Entry{Present: true, Type: safefs.Symlink, Link: text})
}

func (a Symlink) settle(r *Runner, _ Value) {
	text, _ := a.Target.Text()
	r.lay(a.Path, Entry{Present: true, Type: safefs.Symlink, Link: text})
}

func (a Symlink) fact() string {
	return fmt.Sprintf(`[ "$(readlink -- %s)" = %s ]`, Quote(a.Path), a.Target.shell())
}

// is answers done for an action that makes a thing of a type.
func (r *Runner) is(path string, want safefs.Type) (bool, string, error) {
	e, err := r.Entry(path)
	if err != nil || !e.Present {
		return false, "", err
	}
	if e.Type != want {
		return false, "", api.Errorf(api.ErrRefused, "is a %s where a %s belongs", e.Type, want).At(path).
			WithNext("see what it is: stat %s", Quote(path))
	}
	return true, "", nil
}

func somethingMounted(path string) error {
	return api.Errorf(api.ErrBusy, "something is mounted there").At(path).WithNext("find out whose it is: kvol inspect %s", Quote(path))
}

// expect verifies what is at a path now.
func (r *Runner) expect(path string, want Entry) error {
	got, err := r.Entry(path)
	if err != nil {
		return err
	}
	if got.Present != want.Present || want.Present && (got.Type != want.Type || got.Link != want.Link) {
		return api.Errorf(api.ErrUncertain, "the change was made, and now there is %s where %s was expected: somebody else works on this path", got, want).At(path)
	}
	return nil
}

// lay records what a dry run would have made; a live runner reads the disk.
func (r *Runner) lay(path string, e Entry) {
	if !r.DryRun {
		return
	}
	r.over[path] = e
	dir, name := filepath.Split(path)
	if dir = filepath.Clean(dir); r.laid[dir] == nil {
		r.laid[dir] = map[string]bool{}
	}
	r.laid[dir][name] = true
}
