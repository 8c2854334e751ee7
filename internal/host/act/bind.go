package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/mounts"
)

// Bind mounts what a path shows at another path below the root: a global mount
// or a directory in a pod, or a device node at its map path. It never shows a
// writable mount where a read-only one was asked for.
type Bind struct {
	Source string
	Target string
	// ReadOnly and Options are of this mount alone. Options that are none of a
	// mount but of a file system change nothing here, as with mount(8).
	ReadOnly bool
	Options  []string
	Reason   string
}

func (a Bind) step() api.Step {
	opts := a.shellOptions()
	return api.Step{
		Action: "bind", Target: a.Target, Args: append([]string{a.Source}, strings.Split(opts, ",")...), Reason: a.Reason,
		Shell: mountShell(a.Target, a.shown(), "ls -A", "mount -o "+Quote(opts)+" -- "+Quote(a.Source)),
	}
}

// shellOptions are those that mount(8) needs to do the same.
func (a Bind) shellOptions() string {
	opts := []string{"bind"}
	for _, o := range a.Options {
		if _, ok := mountAttrs[o]; ok && o != "ro" && o != "rw" {
			opts = append(opts, o)
		}
	}
	if a.ReadOnly {
		opts = append(opts, "ro")
	}
	return strings.Join(opts, ",")
}

func (a Bind) done(ctx context.Context, r *Runner) (bool, string, error) {
	top, mounted := r.table.Top(a.Target)
	if !mounted {
		return false, "", r.holdsNothing(a.Target)
	}
	source := a.Source
	if !within(source, r.Layout.Root) {
		s, err := r.Source(ctx, source)
		if err != nil {
			return false, "", err
		}
		source = s.Path
	}
	same, err := a.shows(r, top, source)
	if err != nil {
		return false, "", err
	}
	if !same {
		return false, "", api.Errorf(api.ErrRefused, "something else is mounted there: %s of %s (%s), not %s", top.Root, top.Source, top.FSType, a.Source).At(a.Target).
			WithNext("find out whose it is: kvol inspect %s", Quote(a.Target))
	}
	if top.ReadOnly() != (a.ReadOnly || a.sourceReadOnly(r, source)) {
		return false, "", api.Errorf(api.ErrRefused, "it is mounted there %s already, and %s was asked for", rw(top.ReadOnly()), rw(a.ReadOnly)).At(a.Target).
			WithNext("unpublish the volume from this pod first, then publish it again")
	}
	return true, "", nil
}

// shows says whether a mount on the target is of what lies at source. In a chroot
// that is no mount point the table does not tell what source lies on; there the
// inodes are compared.
func (a Bind) shows(r *Runner, top mounts.Mount, source string) (bool, error) {
	if want, ok := r.locate(source); ok {
		return want == place{top.Major, top.Minor, top.Root}, nil
	}
	there, err := r.Root.Stat(a.Target)
	if err != nil {
		return false, err
	}
	s, outside := r.sources[a.Source]
	if !outside {
		info, err := r.Root.Stat(source)
		return err == nil && info.Dev == there.Dev && info.Ino == there.Ino, err
	}
	return s.Info.Dev == there.Dev && s.Info.Ino == there.Ino, nil
}

// sourceReadOnly says that the mount that is bound from is read-only itself; a
// bind inherits that.
func (a Bind) sourceReadOnly(r *Runner, source string) bool {
	on, ok := r.covering(source)
	return ok && on.ReadOnly()
}

func rw(ro bool) string {
	if ro {
		return "read-only"
	}
	return "read-write"
}

func (a Bind) do(ctx context.Context, r *Runner) (string, error) {
	src, info, err := r.openSource(ctx, a.Source)
	if err != nil {
		return "", err
	}
	defer src.Close()
	target, err := r.Root.Open(a.Target)
	if err != nil {
		return "", err
	}
	defer target.Close()
	if err := bindAt(src, target, a.attrs()|r.guards(a.Source)); err != nil {
		return "", err
	}
	return strconv.FormatUint(info.Ino, 10), nil
}

func (a Bind) attrs() (attrs uint64) {
	for _, o := range a.Options {
		attrs |= mountAttrs[o]
	}
	if a.ReadOnly {
		attrs |= unix.MOUNT_ATTR_RDONLY
	}
	return attrs
}

// guards are what the mount that is bound from does not allow: a bind inherits
// it, and a remount by the older calls would drop it.
func (r *Runner) guards(source string) (attrs uint64) {
	if s, ok := r.sources[source]; ok {
		source = s.Path
	}
	on, _ := r.covering(source)
	for _, o := range on.Options {
		attrs |= mountAttrs[o] & (unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW)
	}
	return attrs
}

// verify looks at what now lies on the target: another mount than before, of
// the inode that was bound.
func (a Bind) verify(_ context.Context, r *Runner, ino string) error {
	info, err := r.Root.Stat(a.Target)
	if err != nil {
		return err
	}
	if !info.MountRoot || strconv.FormatUint(info.Ino, 10) != ino {
		return api.Errorf(api.ErrUncertain, "the bind was made and something else is there (inode %d, mount %d)", info.Ino, info.MountID).At(a.Target).
			WithNext("see what it is: findmnt --mountpoint %s; then run the same command again", Quote(a.Target))
	}
	return nil
}

func (a Bind) settle(r *Runner, _ Value) {
	source := a.Source
	if s, ok := r.sources[source]; ok {
		source = s.Path
	}
	at, _ := r.locate(source)
	m := mounts.Mount{}
	m.Major, m.Minor, m.Root, m.MountPoint = at.major, at.minor, at.root, a.Target
	m.Options = []string{ro(a.ReadOnly)}
	r.added(m)
}

func (a Bind) fact() string { return "findmnt -rnM " + Quote(a.Target) + " >/dev/null && " + a.shown() }

// shown is a shell test that the source is what is there.
func (a Bind) shown() string { return "[ " + Quote(a.Source) + " -ef " + Quote(a.Target) + " ]" }

// mountAttrs are the options of one mount, as mount_setattr(2) names them.
var mountAttrs = map[string]uint64{
	"rw": 0, "ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
	"noexec": unix.MOUNT_ATTR_NOEXEC, "noatime": unix.MOUNT_ATTR_NOATIME, "strictatime": unix.MOUNT_ATTR_STRICTATIME,
	"nodiratime": unix.MOUNT_ATTR_NODIRATIME, "nosymfollow": unix.MOUNT_ATTR_NOSYMFOLLOW,
}

// bindAt binds what src shows onto target, both descriptors. The tree is cloned
// apart, gets its attributes there and is only then moved into place.
func bindAt(src, target *os.File, attrs uint64) error {
	tree, err := unix.OpenTree(int(src.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if noSuchCall(err) {
		return bindOld(src, target, attrs)
	}
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	if attrs != 0 {
		set := unix.MountAttr{Attr_set: attrs}
		if attrs&unix.MOUNT_ATTR__ATIME != 0 {
			set.Attr_clr = unix.MOUNT_ATTR__ATIME
		}
		err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &set)
		if noSuchCall(err) {
			return bindOld(src, target, attrs)
		}
		if err != nil {
			return os.NewSyscallError("mount_setattr", err)
		}
	}
	err = unix.MoveMount(tree, "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if noSuchCall(err) {
		return bindOld(src, target, attrs)
	}
	return os.NewSyscallError("move_mount", err)
}

// noSuchCall says that the kernel, or a seccomp filter, does not have a call.
func noSuchCall(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// oldFlags are the same options for mount(2), for kernels before 5.12.
var oldFlags = map[uint64]uintptr{
	unix.MOUNT_ATTR_RDONLY: unix.MS_RDONLY, unix.MOUNT_ATTR_NOSUID: unix.MS_NOSUID, unix.MOUNT_ATTR_NODEV: unix.MS_NODEV,
	unix.MOUNT_ATTR_NOEXEC: unix.MS_NOEXEC, unix.MOUNT_ATTR_NOATIME: unix.MS_NOATIME,
	unix.MOUNT_ATTR_STRICTATIME: unix.MS_STRICTATIME, unix.MOUNT_ATTR_NODIRATIME: unix.MS_NODIRATIME,
	unix.MOUNT_ATTR_NOSYMFOLLOW: unix.MS_NOSYMFOLLOW,
}

// bindOld is the way of kernels without the new calls: bind, then remount. The
// mount is writable for a moment, so nothing else may be published meanwhile.
func bindOld(src, target *os.File, attrs uint64) error {
	from, to := fdPath(src), fdPath(target)
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	flags := uintptr(0)
	for attr, ms := range oldFlags {
		if attrs&attr != 0 {
			flags |= ms
		}
	}
	if flags == 0 {
		return nil
	}
	// The descriptor is of the directory below the mount; the mount itself is
	// reached by opening the same path anew.
	err := remountTop(target, flags)
	if err != nil {
		err = errors.Join(err, os.NewSyscallError("umount2", unix.Unmount(to, unix.UMOUNT_NOFOLLOW)))
	}
	return err
}

func remountTop(target *os.File, flags uintptr) error {
	path, err := os.Readlink(fdPath(target))
	if err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""))
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func ro(is bool) string {
	if is {
		return "ro"
	}
	return "rw"
}
