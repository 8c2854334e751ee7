package act

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
)

// WriteFile writes one of the small files that a kubelet keeps beside volumes, whole
// or not at all (safefs says which those are). What a killed writer left is replaced;
// a file that holds something else is replaced only where Replace says so.
type WriteFile struct {
	Path    string
	Content []byte // never a secret: it is shown
	Perm    uint32
	Replace bool
	Reason  string
}

// maxMetadata is what is read of a file before it is replaced; those of a kubelet
// have some hundred bytes.
const maxMetadata = 64 << 10

func (a WriteFile) step() api.Step {
	p := Quote(a.Path)
	return api.Step{
		Action: "write", Target: a.Path, Args: []string{fmt.Sprintf("%04o", a.Perm), string(a.Content)}, Reason: a.Reason,
		Shell: fmt.Sprintf("printf %%s %[1]s | cmp -s -- - %[2]s || { printf %%s %[1]s >%[3]s; chmod %04[4]o %[3]s; mv -fT -- %[3]s %[2]s; }",
			Quote(string(a.Content)), p, Quote(a.Path+".new"), a.Perm),
	}
}

func (a WriteFile) done(_ context.Context, r *Runner) (bool, string, error) {
	e, err := r.Entry(a.Path)
	if err != nil || !e.Present {
		return false, "", err
	}
	switch {
	case e.Mounted:
		return false, "", somethingMounted(a.Path)
	case e.Type != safefs.File:
		return false, "", api.Errorf(api.ErrRefused, "is a %s where a file of the volume's metadata belongs", e.Type).At(a.Path).
			WithNext("find out who made it (ls -ld %s) and move it away", Quote(a.Path))
	case r.over[a.Path].Present:
		return true, "", nil // a dry run has written it already
	}
	is, err := r.Root.ReadFile(a.Path, maxMetadata)
	if errors.Is(err, fs.ErrNotExist) {
		return false, "", nil
	}
	if err != nil {
		return false, "", err
	}
	if !bytes.Equal(is, a.Content) && len(is) > 0 && !a.Replace {
		return false, "", api.Errorf(api.ErrRefused, "it is there already and says something else").At(a.Path).
			WithNext("see whose it is: kvol inspect %s", Quote(a.Path))
	}
	return bytes.Equal(is, a.Content), "", nil
}

func (a WriteFile) do(_ context.Context, r *Runner) (string, error) {
	return "", r.Root.WriteFile(a.Path, a.Content, a.Perm)
}

func (a WriteFile) verify(_ context.Context, r *Runner, _ string) error {
	return r.expect(a.Path, Entry{Present: true, Type: safefs.File})
}

func (a WriteFile) settle(r *Runner, _ Value) {
	r.lay(a.Path, Entry{Present: true, Type: safefs.File, Size: int64(len(a.Content))})
}

// planned is a mount that a dry run only believes in: nothing is known of it but
// where it will be.
func planned(path string) mounts.Mount {
	m := mounts.Mount{}
	m.MountPoint, m.Root, m.Options = path, "/", []string{"rw"}
	m.Major, m.Minor = -1, -1
	return m
}
