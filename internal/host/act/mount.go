package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/mounts"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
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
		Shell: fmt.Sprintf("findmnt -rnM %[1]s >/dev/null || mount -o %[2]s -- %[3]s %[1]s", Quote(a.Target), Quote(opts), Quote(a.Source)),
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
		return false, "", nil
	}
	source := a.Source
	if !within(source, r.Layout.Root) {
		s, err := r.Source(ctx, source)
		if err != nil {
			return false, "", err
		}
		source = s.Path
	}
	want, ok := r.locate(source)
	have := place{top.Major, top.Minor, top.Root}
	if !ok || want != have {
		return false, "", api.Errorf(api.ErrRefused, "something else is mounted there: %s of %s (%s), not %s", top.Root, top.Source, top.FSType, a.Source).At(a.Target).
			WithNext("find out whose it is: kvol inspect %s", Quote(a.Target))
	}
	if top.ReadOnly() != (a.ReadOnly || a.sourceReadOnly(r, source)) {
		return false, "", api.Errorf(api.ErrRefused, "it is mounted there %s already, and %s was asked for", rw(top.ReadOnly()), rw(a.ReadOnly)).At(a.Target).
			WithNext("unpublish the volume from this pod first, then publish it again")
	}
	return true, "", nil
}

// sourceReadOnly says that the mount that is bound from is read-only itself; a
// bind inherits that.
func (a Bind) sourceReadOnly(r *Runner, source string) bool {
	top, ok := r.table.Top(source)
	return ok && top.ReadOnly()
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
	if err := bindAt(src, target, a.attrs()); err != nil {
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

// verify looks at what now lies on the target: another mount than before, of
// the inode that was bound.
func (a Bind) verify(_ context.Context, r *Runner, ino string) error {
	info, err := r.Root.Stat(a.Target)
	if err != nil {
		return err
	}
	if !info.MountRoot || strconv.FormatUint(info.Ino, 10) != ino {
		return api.Errorf(api.ErrUncertain, "the bind was made and something else is there (inode %d, mount %d)", info.Ino, info.MountID).At(a.Target)
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

func (a Bind) fact() string { return mountedFact(a.Target) }

func mountedFact(target string) string { return "findmnt -rnM " + Quote(target) + " >/dev/null" }

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
	return os.NewSyscallError("move_mount",
		unix.MoveMount(tree, "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// noSuchCall says that the kernel, or a seccomp filter, does not have a call.
func noSuchCall(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// oldFlags are the same options for mount(2), for kernels before 5.12.
var oldFlags = map[uint64]uintptr{
	unix.MOUNT_ATTR_RDONLY: unix.MS_RDONLY, unix.MOUNT_ATTR_NOSUID: unix.MS_NOSUID, unix.MOUNT_ATTR_NODEV: unix.MS_NODEV,
	unix.MOUNT_ATTR_NOEXEC: unix.MS_NOEXEC, unix.MOUNT_ATTR_NOATIME: unix.MS_NOATIME,
	unix.MOUNT_ATTR_STRICTATIME: unix.MS_STRICTATIME, unix.MOUNT_ATTR_NODIRATIME: unix.MS_NODIRATIME,
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

// Mount mounts the file system of a device at a path below the root, through
// mount(8), which may be killed at the deadline.
type Mount struct {
	Device  Value
	Target  string
	FSType  string
	Options []string
	Reason  string
}

func (a Mount) step() api.Step {
	args := mountutils.MakeMountArgs("", "", a.FSType, a.Options)
	words := make([]string, len(args))
	for i, w := range args {
		words[i] = Quote(w)
	}
	// MakeMountArgs ends with the target, which is not known to it here.
	words, args = words[:len(words)-1], args[:len(args)-1]
	return api.Step{
		Action: "mount", Target: a.Target, Args: append(slices.Clone(args), a.Device.String()), Reason: a.Reason,
		Shell: fmt.Sprintf("findmnt -rnM %[1]s >/dev/null || mount %[2]s -- %[3]s %[1]s", Quote(a.Target), strings.Join(words, " "), a.Device.shell()),
	}
}

func (a Mount) done(ctx context.Context, r *Runner) (bool, string, error) {
	top, mounted := r.table.Top(a.Target)
	if !mounted {
		return false, "", nil
	}
	dev, known := a.Device.Text()
	if !known {
		return false, "", api.Errorf(api.ErrRefused, "%s is mounted there already, before its device is attached", top.Source).At(a.Target)
	}
	same, err := r.shows(ctx, top, dev)
	if err != nil {
		return false, "", err
	}
	if !same || top.Root != "/" {
		return false, "", api.Errorf(api.ErrRefused, "something else is mounted there: %s of %s (%s), not %s", top.Root, top.Source, top.FSType, dev).At(a.Target).
			WithNext("find out whose it is: kvol inspect %s", Quote(a.Target))
	}
	// A volume that one pod wants read-only is mounted read-write for another; it
	// is the pod's own bind that is read-only then.
	if top.ReadOnly() && !slices.Contains(a.Options, "ro") {
		return false, "", api.Errorf(api.ErrRefused, "it is mounted there read-only already, and read-write was asked for").At(a.Target).
			WithNext("unmount the device first: kvol unmount-device %s", Quote(a.Target))
	}
	return true, "", nil
}

// shows says whether a mount is of a device. btrfs mounts have an anonymous
// device number, so that only the source tells.
func (r *Runner) shows(ctx context.Context, m mounts.Mount, dev string) (bool, error) {
	s, err := r.Source(ctx, dev)
	if err != nil {
		return false, err
	}
	return m.Device() == s.Device() || m.Source == s.Path, nil
}

func (a Mount) do(ctx context.Context, r *Runner) (string, error) {
	dev, _ := a.Device.Text()
	target, err := r.Root.Open(a.Target)
	if err != nil {
		return "", err
	}
	defer target.Close()
	// The target is a descriptor, the third of the child: a directory that is
	// swapped now is not mounted on.
	args := append([]string{"--no-canonicalize"}, mountutils.MakeMountArgs(dev, "/proc/self/fd/3", a.FSType, a.Options)...)
	res, err := r.Exec.Run(ctx, exec.Cmd{Name: "mount", Args: args, Files: []*os.File{target}, Inherit: r.locks()})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", mountFailed(dev, a.FSType, res)
	}
	return "", nil
}

func (r *Runner) locks() []*os.File {
	if r.Locks == nil {
		return nil
	}
	return r.Locks()
}

func mountFailed(dev, fsType string, res exec.Result) error {
	return api.Errorf(nil, "mount of %s (%s) failed with exit code %d: %s", dev, fsType, res.ExitCode, strings.TrimSpace(string(res.Stderr))).
		WithNext("the kernel says why: dmesg | tail")
}

func (a Mount) verify(ctx context.Context, r *Runner, _ string) error {
	if err := r.Reload(); err != nil {
		return err
	}
	dev, _ := a.Device.Text()
	top, ok := r.table.Top(a.Target)
	if !ok {
		return api.Errorf(api.ErrUncertain, "mount ended well and nothing is mounted there").At(a.Target)
	}
	same, err := r.shows(ctx, top, dev)
	if err == nil && !same {
		err = api.Errorf(api.ErrUncertain, "%s was to be mounted and %s is there", dev, top.Source).At(a.Target)
	}
	return err
}

func (a Mount) settle(r *Runner, _ Value) {
	if !r.DryRun {
		return // verify has read the table anew
	}
	m := mounts.Mount{}
	m.Root, m.MountPoint, m.FSType, m.Source = "/", a.Target, a.FSType, a.Device.String()
	if s, ok := r.sources[m.Source]; ok {
		m.Major, m.Minor, m.Source = int(unix.Major(s.Info.Rdev)), int(unix.Minor(s.Info.Rdev)), s.Path
	}
	m.Options = []string{ro(slices.Contains(a.Options, "ro"))}
	r.added(m)
}

func (a Mount) fact() string { return mountedFact(a.Target) }

// Unmount pops one mount off a path of the layout.
type Unmount struct {
	Path   string
	Lazy   bool // MNT_DETACH, the operator's risk
	Force  bool // MNT_FORCE, the operator's risk
	Reason string
}

func (a Unmount) step() api.Step {
	var args []string
	if a.Lazy {
		args = append(args, "-l")
	}
	if a.Force {
		args = append(args, "-f")
	}
	words := append([]string{"umount"}, args...)
	return api.Step{
		Action: "unmount", Target: a.Path, Args: args, Reason: a.Reason,
		Shell: fmt.Sprintf("! findmnt -rnM %[1]s >/dev/null || %[2]s -- %[1]s", Quote(a.Path), strings.Join(words, " ")),
	}
}

func (a Unmount) done(_ context.Context, r *Runner) (bool, string, error) {
	if p := r.Layout.Parse(a.Path); p.Kind == paths.None || p.Rest != "" {
		return false, "", api.Errorf(api.ErrRefused, "it is no path that the kubelet's layout makes, so what is mounted there is not kvol's to unmount").At(a.Path)
	}
	_, mounted := r.table.Top(a.Path)
	return !mounted, "", nil
}

const unmountJob = "unmount"

type unmountArgs struct {
	Name  string
	Flags int
}

// Jobs are what this package lets the helper do: what may hang.
func Jobs() probe.Jobs {
	return probe.Jobs{unmountJob: runUnmount, fsGroupJob: runFSGroup}
}

func runUnmount(raw []byte, files []*os.File) (any, []*os.File, error) {
	var a unmountArgs
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, unix.EBADF
	}
	return nil, nil, unix.Unmount(fdPath(files[0])+"/"+a.Name, a.Flags|unix.UMOUNT_NOFOLLOW)
}

func (a Unmount) do(ctx context.Context, r *Runner) (string, error) {
	before, err := r.topID(a.Path)
	if err != nil {
		return "", err
	}
	parent, base, err := r.Root.Parent(a.Path)
	if err != nil {
		return "", err
	}
	defer parent.Close()
	r.Helper.Hold(r.locks()...)
	flags := 0
	if a.Lazy {
		flags |= unix.MNT_DETACH
	}
	if a.Force {
		flags |= unix.MNT_FORCE
	}
	_, err = r.Helper.Call(ctx, unmountJob, unmountArgs{base, flags}, []*os.File{parent}, nil)
	switch {
	case errors.Is(err, unix.EBUSY):
		return "", r.unmountBusy(a.Path)
	case errors.Is(err, api.ErrTimeout):
		return "", api.Errorf(api.ErrUncertain, "the kernel did not end the unmount in time; it may still happen").At(a.Path).
			WithNext("wait for the storage to answer and run the same command again; --force-umount and --lazy are there for storage that never will")
	case err != nil:
		return "", err
	}
	return strconv.FormatUint(before, 10), nil
}

// topID is the id of the mount that lies on a path, which must be the one that
// the table has: what appeared since is not ours to unmount.
func (r *Runner) topID(path string) (uint64, error) {
	info, err := r.Root.Stat(path)
	if err != nil {
		return 0, err
	}
	top, _ := r.table.Top(path)
	if info.MountID == uint64(top.ID) {
		return info.MountID, nil
	}
	if err := r.Reload(); err != nil {
		return 0, err
	}
	if top, _ = r.table.Top(path); info.MountID != uint64(top.ID) {
		return 0, api.Errorf(api.ErrUncertain, "the mounts on this path change while kvol looks at them").At(path).
			WithNext("see who does that: findmnt --poll --mountpoint %s", Quote(path))
	}
	return info.MountID, nil
}

func (r *Runner) unmountBusy(path string) error {
	e := api.Errorf(api.ErrBusy, "the mount is in use, so it was left as it is").At(path).
		WithNext("see who uses it: fuser -vm %s", Quote(path))
	for _, m := range r.table.Under(path) {
		if m.MountPoint != path {
			e.Details = append(e.Details, fmt.Sprintf("%s is mounted inside of it", m.MountPoint))
		}
	}
	return e
}

func (a Unmount) verify(_ context.Context, r *Runner, before string) error {
	info, err := r.Root.Stat(a.Path)
	if err != nil {
		return err
	}
	if info.MountRoot && strconv.FormatUint(info.MountID, 10) == before {
		return api.Errorf(api.ErrUncertain, "the unmount ended well and the mount is still there").At(a.Path)
	}
	return nil
}

func (a Unmount) settle(r *Runner, _ Value) {
	if top, ok := r.table.Top(a.Path); ok {
		r.removed(top)
	}
	if r.DryRun {
		// What the mount covers cannot be seen through it; a directory that was
		// mounted on is taken to be empty, and rmdir looks again.
		kind := safefs.Dir
		if info, err := r.Root.Stat(a.Path); err == nil && info.Type != safefs.Dir {
			kind = safefs.File
		}
		r.lay(a.Path, Entry{Present: true, Type: kind})
	}
}

func ro(is bool) string {
	if is {
		return "ro"
	}
	return "rw"
}
