// Package safefs is the only place where kvol opens, makes and removes things
// below a kubelet's root, inside a volume, or in its own directories. It is the
// one home of two rules:
//
//   - Data is never deleted. What can be removed is an empty directory ([Root.Rmdir])
//     and a file of the metadata list, in the place where the kubelet or kvol
//     writes it ([Root.Unlink]). A volume's directory with data in it can be moved
//     away whole ([Root.MoveOut]). The one recursive remove is [Scrub], of a volume
//     that is to be deleted.
//   - No mount, no symbolic link and no ".." is ever crossed. A name is resolved
//     beneath a descriptor that was opened once, and the mount, not the file system,
//     is the border: a bind of the same file system has the same st_dev, and
//     `rm --one-file-system` deletes through it.
//
// A [Root] is one of three: the layout root of a kubelet (whose pods and plugins
// directories may be mounts themselves), the root of a mounted volume, or a
// directory of kvol's own outside both.
//
// There are two ways to resolve a name, and the same tests run on both: openat2(2)
// with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV (Linux 5.6), and,
// where a kernel or a seccomp filter has none of it, a walk with O_PATH and O_NOFOLLOW
// that compares the mount id of every element. Mount ids come from statx(2)
// (STATX_MNT_ID, Linux 5.8) or /proc/self/fdinfo. An anchor's descriptor pins its
// mount, so its id, which the kernel reuses, cannot pass to another mount
// meanwhile.
//
// Nothing here blocks on a mount at the last element of a name, however dead its
// file system is: it is looked at with O_PATH and AT_STATX_DONT_SYNC only
// (measured with FUSE on Linux 6.18: at once, where lstat, statfs and readdir
// hang). What lies inside a volume may block all the same: do not use the root of a
// volume outside the helper process of host/probe.
//
// Who can write to a directory of the tree while kvol works there can make kvol fail or
// refuse, and can move a directory away with kvol's descriptor in it; nothing
// behind a link or a mount is touched for that. The tests race such attackers.
//
// Do not use this package for a source outside the root (the path of a local
// volume): such a path may pass through links, and is opened once, in the helper.
package safefs
