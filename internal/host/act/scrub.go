package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Scrub deletes the data of a volume that is a directory of this node: what recycle
// and delete are for, and nothing else does. Before, it is proven that the path is
// the volume's own and leads through no link, that nothing of the system or of the
// kubelet is in it, and that no mount namespace has any of it, or anything in it,
// mounted. It has no shell form: neither rm nor find sees a bind of the same file
// system.
type Scrub struct {
	Path string
	// Self deletes the directory too; without it only what is in it. A volume that is a
	// file is only deleted.
	Self   bool
	Reason string
}

func (a Scrub) step() api.Step {
	args := []string{"content"}
	if a.Self {
		args = append(args, "directory")
	}
	return api.Step{Action: "delete", Target: a.Path, Args: args, Reason: a.Reason}
}

func (a Scrub) irreversible() bool { return true }

func (a Scrub) done(ctx context.Context, r *Runner) (bool, string, error) {
	if o, touched := r.over[a.Path]; touched && !o.Present {
		return a.Self, "", nil
	}
	src, err := r.Source(ctx, a.Path)
	if errors.Is(err, api.ErrNotFound) && a.Self {
		return true, "", nil
	}
	if err != nil {
		return false, "", err
	}
	if err := a.allowed(r, src); err != nil {
		return false, "", err
	}
	if a.Self {
		return false, "", nil
	}
	var c safefs.Contents
	_, err = r.Helper.Call(ctx, contentsJob, false, []*os.File{src.file}, &c)
	return c.Entries == 0, "", err
}

func (a Scrub) allowed(r *Runner, src *Source) error {
	refuse := func(format string, args ...any) error {
		return api.Errorf(api.ErrRefused, format, args...).At(a.Path).
			WithNext("see what is there: ls -la %s; correct the path in the volume's document, if that is not what was meant to be deleted", Quote(a.Path))
	}
	switch t := src.Info.Type; {
	case src.Path != filepath.Clean(a.Path):
		return refuse("the path leads through a link to %s: only what the volume itself names is deleted", src.Path)
	case t != safefs.Dir && (t != safefs.File || !a.Self):
		return refuse("is a %s, not a directory whose content can be deleted", t)
	case within(r.Layout.Root, src.Path), within(src.Path, r.Layout.Root):
		return refuse("it holds the kubelet's root directory %s, or lies in it", r.Layout.Root)
	case r.State != nil && (within(r.State.Path(), src.Path) || within(src.Path, r.State.Path())):
		return refuse("it holds kvol's own journal in %s, or lies in it", r.State.Path())
	case isSystem(src.Path):
		return refuse("is a directory of the system")
	case r.boundFrom(src.Path) != "":
		return refuse("a bind leads from it to %s", r.boundFrom(src.Path))
	case a.Self && src.Info.MountRoot:
		return refuse("is a mount point, which cannot be deleted")
	}
	return r.unusedDirectory(src)
}

// system are the directories of the Filesystem Hierarchy Standard, and those of
// container runtimes, that no volume is: themselves, and with true all that is in them.
var system = map[string]bool{
	"/": false, "/home": false, "/media": false, "/mnt": false, "/opt": false, "/root": false, "/run": false, "/srv": false,
	"/tmp": false, "/var": false, "/var/cache": false, "/var/lib": false, "/var/local": false, "/var/log": false,
	"/var/mail": false, "/var/opt": false, "/var/run": false, "/var/spool": false, "/var/tmp": false,
	"/bin": true, "/boot": true, "/dev": true, "/etc": true, "/lib": true, "/lib32": true, "/lib64": true, "/libx32": true,
	"/proc": true, "/sbin": true, "/sys": true, "/usr": true,
	"/var/lib/containerd": true, "/var/lib/containers": true, "/var/lib/cri-dockerd": true, "/var/lib/crio": true,
	"/var/lib/docker": true, "/var/lib/dpkg": true, "/var/lib/etcd": true, "/var/lib/rancher": false, "/var/lib/rpm": true,
}

func isSystem(path string) bool {
	for dir, all := range system {
		if path == dir || all && within(path, dir) {
			return true
		}
	}
	return false
}

// boundFrom is what of the kubelet's, of kvol's or of the system lies where a path
// leads, which its name does not tell where a bind is on the way; "" for nothing.
func (r *Runner) boundFrom(path string) string {
	at, ok := r.locate(path)
	if !ok {
		return "" // which unusedDirectory refuses
	}
	own := []string{r.Layout.Root, r.Layout.Root + "/pods", r.Layout.Root + "/plugins"}
	if r.State != nil {
		own = append(own, r.State.Path())
	}
	for _, dir := range own {
		if is, ok := r.locate(dir); ok && is.sameFS(at) && (within(is.root, at.root) || within(at.root, is.root)) {
			return dir
		}
	}
	for dir, all := range system {
		if is, ok := r.locate(dir); ok && is.sameFS(at) && (is.root == at.root || all && within(at.root, is.root)) {
			return dir
		}
	}
	return ""
}

func (p place) sameFS(o place) bool { return p.major == o.major && p.minor == o.minor }

// unusedDirectory proves that no mount namespace has a mount of any part of a
// directory, as containers have, or on anything in it: what the kernel would take off
// with the directory under it.
func (r *Runner) unusedDirectory(src *Source) error {
	at, ok := r.locate(src.Path)
	if !ok {
		return api.Errorf(api.ErrUncertain, "the mount table does not tell what it lies on, so who uses it cannot be known").At(src.Path)
	}
	var users []string
	err := r.Devices.EachMountNamespace(func(pid int, ns string, t *mounts.Table) {
		byID := make(map[int]mounts.Mount, len(t.Mounts))
		for _, m := range t.Mounts {
			byID[m.ID] = m
		}
		for _, m := range t.Mounts {
			own := m.MountPoint == src.Path && m.Root == at.root // the volume is a mount of its own
			part := m.Major == at.major && m.Minor == at.minor && within(m.Root, at.root)
			on, under := byID[m.Parent]
			inside := under && on.Major == at.major && on.Minor == at.minor &&
				within(filepath.Join(on.Root, strings.TrimPrefix(m.MountPoint, on.MountPoint)), at.root)
			if part && !own || inside && !own {
				users = append(users, fmt.Sprintf("%s (%s) at %q in mount namespace %s, of process %d", m.Source, m.FSType, m.MountPoint, ns, pid))
			}
		}
	})
	if len(users) > 0 {
		slices.Sort(users)
		e := api.Errorf(api.ErrBusy, "it, or something in it, is mounted %s: somebody uses it", api.Count(len(users), "time", "times")).At(src.Path)
		e.Details = users
		return e.WithNext("end what uses it (kvol inspect %s), then run the same command again", Quote(src.Path))
	}
	if err != nil {
		return api.Errorf(api.ErrUncertain, "who uses it cannot be known: %w", err).At(src.Path)
	}
	return nil
}

const scrubJob = "scrub"

type scrubArgs struct {
	Path string
	Self bool
}

// runScrub is the helper's side: the first descriptor is the volume.
func runScrub(raw []byte, files []*os.File) (any, []*os.File, error) {
	var a scrubArgs
	if err := exact.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, unix.EBADF
	}
	info, err := safefs.StatFD(files[0])
	if err != nil {
		return nil, nil, err
	}
	var out safefs.Contents
	if info.Type == safefs.Dir {
		out, err = safefs.Scrub(files[0], a.Path)
	}
	if err != nil || !a.Self {
		return out, nil, err
	}
	fd, err := unix.Open(filepath.Dir(a.Path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: filepath.Dir(a.Path), Err: err}
	}
	parent := os.NewFile(uintptr(fd), filepath.Dir(a.Path))
	defer parent.Close()
	return out, nil, safefs.RemoveScrubbed(parent, filepath.Base(a.Path), files[0])
}

func (a Scrub) do(ctx context.Context, r *Runner) (string, error) {
	src, err := r.Source(ctx, a.Path)
	if err != nil {
		return "", err
	}
	var out safefs.Contents
	_, err = r.Helper.Call(ctx, scrubJob, scrubArgs{Path: src.Path, Self: a.Self}, append([]*os.File{src.file}, r.locks()...), &out)
	if errors.Is(err, api.ErrTimeout) {
		return "", api.Errorf(api.ErrUncertain, "not all of it was deleted in time").At(a.Path).
			WithNext("run the same command again, with a longer --timeout")
	}
	return out.String(), err
}

func (a Scrub) verify(ctx context.Context, r *Runner, _ string) error {
	src, err := r.Source(ctx, a.Path)
	if err != nil {
		return err
	}
	again, err := OpenSource(ctx, r.Helper, a.Path)
	if a.Self && errors.Is(err, api.ErrNotFound) {
		src.Close()
		delete(r.sources, a.Path)
		return nil
	}
	if err != nil {
		return err
	}
	defer again.Close()
	var c safefs.Contents
	if again.Info.Type == safefs.Dir {
		if _, err := r.Helper.Call(ctx, contentsJob, false, []*os.File{again.file}, &c); err != nil {
			return err
		}
	}
	if a.Self || c.Entries > 0 {
		return api.Errorf(api.ErrUncertain, "it was deleted, and something is there again: somebody else works on it").At(a.Path)
	}
	return nil
}

func (a Scrub) settle(r *Runner, _ Value) {
	if a.Self {
		r.lay(a.Path, Entry{})
	}
}
