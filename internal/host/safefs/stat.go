package safefs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Type is what a name stands for, in words for a message.
type Type string

// The types of inode(7). Unknown is a mount whose file system does not even
// tell the attributes that it has cached (a shut-down XFS answers EIO).
const (
	Unknown     Type = "thing of unknown type"
	Dir         Type = "directory"
	File        Type = "regular file"
	Symlink     Type = "symbolic link"
	BlockDevice Type = "block device"
	CharDevice  Type = "character device"
	Socket      Type = "socket"
	Fifo        Type = "fifo"
)

// Info is what is known of a thing without asking its file system's server.
type Info struct {
	Type Type
	Mode uint32 // permission bits with setuid, setgid and sticky (07777)
	UID  uint32
	GID  uint32
	Size int64
	Ino  uint64
	Dev  uint64 // of the file system, as unix.Mkdev makes it
	Rdev uint64 // of a device node, as unix.Mkdev makes it
	// MountID is the mount's id as /proc/self/mountinfo shows it, which the
	// kernel reuses after an unmount.
	MountID   uint64
	MountRoot bool      // it is the root of its mount
	Birth     time.Time // zero where the file system keeps none
	ModTime   time.Time
}

// StatFD tells what a descriptor, also an O_PATH one, refers to. It does not
// wait for a dead file system (AT_STATX_DONT_SYNC).
func StatFD(f *os.File) (Info, error) {
	info, err := kernel{mountIDs: true}.stat(int(f.Fd()))
	if err != nil {
		return Info{}, fail("stat", f.Name(), err)
	}
	return info, nil
}

// kernel says which of the newer ways are used; what the running kernel lacks
// is found out besides. Tests take them away one by one.
type kernel struct {
	openat2  bool // Linux 5.6
	mountIDs bool // statx tells mount ids and mount roots: Linux 5.8
}

const statxMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

const statxFlags = unix.AT_STATX_DONT_SYNC | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT

// statAt is stat of a name in a directory, and of the mount on it if it is a
// mount point.
func (k kernel) statAt(dir int, name string) (Info, error) {
	if k.mountIDs {
		info, whole, err := statx(dir, name, statxFlags)
		if whole || lookupFailed(err) {
			return info, err
		}
	}
	fd, err := openPath(dir, name)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	info, _, serr := statx(fd, "", statxFlags|unix.AT_EMPTY_PATH)
	if info.MountID, err = fdMountID(fd); err != nil {
		return Info{}, err
	}
	outer, err := fdMountID(dir)
	if err != nil {
		return Info{}, err
	}
	info.MountRoot = info.MountID != outer
	return known(info, serr)
}

// stat is statAt of a descriptor itself.
func (k kernel) stat(fd int) (Info, error) {
	info, whole, serr := statx(fd, "", statxFlags|unix.AT_EMPTY_PATH)
	if k.mountIDs && whole {
		return info, nil
	}
	id, err := fdMountID(fd)
	if err != nil {
		return Info{}, err
	}
	info.MountID = id
	// The parent of a mount's root is in another mount; a thing that is not a directory
	// has no "..", and only statAt can tell whether it is a mount's root.
	if up, err := openPath(fd, ".."); err == nil {
		outer, err := fdMountID(up)
		unix.Close(up)
		if err != nil {
			return Info{}, err
		}
		info.MountRoot = outer != id
	}
	return known(info, serr)
}

// known lets a mount be shown although its file system does not give its
// attributes: EACCES (another user's FUSE mount), EIO, ENOTCONN, ESTALE.
func known(info Info, statErr error) (Info, error) {
	if statErr == nil || info.MountRoot {
		return info, nil
	}
	return Info{}, statErr
}

// lookupFailed tells that the name, not the file system behind it, was the fault.
func lookupFailed(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG)
}

// statx fills what one statx(2) call tells; whole means that mount id and
// mount root are in it.
func statx(dir int, name string, flags int) (info Info, whole bool, err error) {
	var st unix.Statx_t
	err = retry(func() error { return unix.Statx(dir, name, flags, statxMask, &st) })
	if err != nil {
		return Info{Type: Unknown}, false, err
	}
	info = Info{
		Type: typeOf(uint32(st.Mode)), Mode: uint32(st.Mode) & 0o7777, UID: st.Uid, GID: st.Gid,
		Size: int64(st.Size), Ino: st.Ino,
		Dev:     unix.Mkdev(st.Dev_major, st.Dev_minor),
		Rdev:    unix.Mkdev(st.Rdev_major, st.Rdev_minor),
		MountID: st.Mnt_id, MountRoot: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		ModTime: time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)),
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		info.Birth = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	whole = st.Mask&unix.STATX_MNT_ID != 0 && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0
	return info, whole, nil
}

func typeOf(mode uint32) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFREG:
		return File
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFBLK:
		return BlockDevice
	case unix.S_IFCHR:
		return CharDevice
	case unix.S_IFSOCK:
		return Socket
	case unix.S_IFIFO:
		return Fifo
	}
	return Unknown
}

// fdMountID reads a descriptor's mount id (proc_pid_fdinfo(5), Linux 3.15).
func fdMountID(fd int) (uint64, error) {
	path := fmt.Sprintf("/proc/self/fdinfo/%d", fd)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.ParseUint(strings.TrimSpace(id), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no mnt_id", path)
}

// openPath is the one way in which a single name is opened: the thing itself, without
// asking its file system, neither following a link nor starting an automount.
// It does enter a mount on that name: the caller looks at the mount id.
func openPath(dir int, name string) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// fdPath is the name of an open descriptor that every call takes, and that
// leads to that very inode on that very mount.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// tries is how often a call is repeated that others' renames and mounts keep
// disturbing. It ends, so that an attacker cannot hold kvol for ever.
const tries = 1000

// retry repeats a system call while it was interrupted (EINTR) or has seen the
// tree change under it (EAGAIN of openat2).
func retry(call func() error) error {
	var err error
	for range tries {
		if err = call(); !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return err
}

// FileSystemSize is how many bytes the file system has that a descriptor (O_PATH will
// do) is on. It asks the file system, and so may hang: this is for the helper process.
func FileSystemSize(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(f.Fd()), &st) }); err != nil {
		return 0, fail("statfs", f.Name(), err)
	}
	return int64(st.Blocks) * st.Bsize, nil
}
