package states

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tags say what a file or a mount is, and so what may become of it.
const (
	tagUser   = "user's"   // never lost
	tagMeta   = "metadata" // of the list of what kvol may unlink
	tagVolume = "volume"   // a mount that taking the volume down takes off
	tagOther  = "other"    // a mount that nobody but who made it takes off
)

// disk is a loop device of the pool, with a known content.
type disk struct {
	dev, image string
	number     uint64
	raw        bool
}

// node is the scratch node of one state.
type node struct {
	dir     string // everything of it; a file system in memory
	root    string // the kubelet's
	view    *os.File
	disks   []disk
	tags    map[string]string // by path
	made    map[int]string    // tags of mounts, by mount id
	tmpfs   []tmpfs
	undo    []func()
	hung    []*os.File // the daemons' side of what hangs
	csi     *driver
	procs   map[int]bool // that are the worker's own
	podFile string
}

// tmpfs is a file system in memory of the state, and a way into it that no mount
// hides and that does not hold it mounted.
type tmpfs struct {
	path string
	dev  uint64
	view *os.File
}

// must panics: what cannot be made is a fault of the generator, said by its worker.
func must(errs ...error) {
	for _, err := range errs {
		if err != nil {
			panic(err)
		}
	}
}

// newNode mounts an empty node on dir.
func newNode(dir string, disks []disk) *node {
	n := &node{
		dir: dir, root: dir + "/kubelet", disks: disks, tags: map[string]string{}, made: map[int]string{}, procs: map[int]bool{},
		podFile: dir + "/pods.txt",
	}
	must(os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=64m"))
	n.view = clone(dir)
	n.undo = append(n.undo, func() { n.view.Close() })
	for _, d := range []string{n.root, n.root + "/pods", n.root + "/plugins", n.root + "/plugins_registry", dir + "/data", dir + "/stranger", dir + "/elsewhere", dir + "/quarantine"} {
		must(os.Mkdir(d, 0o750))
	}
	n.user(dir+"/stranger/file", "a stranger's")
	return n
}

// clone is the file system at a path as it is without anything mounted in it.
func clone(path string) *os.File {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	must(err)
	return os.NewFile(uintptr(fd), path)
}

// end takes the node away with all that is mounted there.
func (n *node) end() {
	for len(n.undo) > 0 {
		last := n.undo[len(n.undo)-1]
		n.undo = n.undo[:len(n.undo)-1]
		last()
	}
	for dev, backing := range loops() {
		if strings.HasPrefix(backing, n.dir+"/") {
			must(loopClear(dev))
		}
	}
	must(unix.Unmount(n.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// mkdir makes a directory and those above it. Who is in the way stays.
func (n *node) mkdir(path string) bool {
	return os.MkdirAll(path, 0o750) == nil
}

// user makes a file of somebody's, kept for ever.
func (n *node) user(path, content string) { n.file(path, content, tagUser) }

func (n *node) meta(path, content string) { n.file(path, content, tagMeta) }

// file makes a file, unless something is in the way.
func (n *node) file(path, content, tag string) {
	if !n.mkdir(filepath.Dir(path)) {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return
	}
	defer f.Close()
	_, err = f.WriteString(content)
	must(err)
	if n.onNode(path) {
		n.tags[path] = tag
	}
}

// onNode says that a path is on the node's own file system, not in a mount.
func (n *node) onNode(path string) bool {
	var st, own unix.Stat_t
	must(unix.Lstat(path, &st), unix.Fstat(int(n.view.Fd()), &own))
	return st.Dev == own.Dev
}

func (n *node) link(path, to, tag string) {
	if n.mkdir(filepath.Dir(path)) && os.Symlink(to, path) == nil {
		n.tags[path] = tag
	}
}

// bind binds what is at from on to; "" where something is in the way.
func (n *node) bind(from, to, tag string) bool {
	if unix.Mount(from, to, "", unix.MS_BIND, "") != nil {
		return false
	}
	n.mounted(to, tag)
	return true
}

// mounted notes a mount that was just made.
func (n *node) mounted(path, tag string) {
	n.made[mountID(path)] = tag
}

func mountID(path string) int {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	must(err)
	defer unix.Close(fd)
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	must(err)
	id := 0
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "mnt_id: %d", &id); err == nil {
			return id
		}
	}
	panic("no mnt_id")
}

// memory mounts a file system in memory.
func (n *node) memory(path, tag string) bool {
	if !n.mkdir(path) || unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m") != nil {
		return false
	}
	n.mounted(path, tag)
	var st unix.Stat_t
	must(unix.Lstat(path, &st))
	view := clone(path)
	n.tmpfs = append(n.tmpfs, tmpfs{path, st.Dev, view})
	n.undo = append(n.undo, func() { view.Close() })
	return true
}

// mountDisk mounts a disk of the pool.
func (n *node) mountDisk(v volume, path, tag string) bool {
	if !n.mkdir(path) || unix.Mount(n.disks[v.Disk].dev, path, "ext4", 0, "") != nil {
		return false
	}
	n.mounted(path, tag)
	return true
}

// fuse mounts a file system of a daemon that is dead, or answers nothing.
func (n *node) fuse(path, how string) {
	if !n.mkdir(path) {
		return
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must(err)
	must(unix.Mount("kvoltest", path, "fuse.kvoltest", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	n.mounted(path, tagVolume)
	if how == "hung" {
		file := os.NewFile(uintptr(fd), "fuse")
		swallow(file)
		n.hung = append(n.hung, file)
		n.undo = append(n.undo, n.release)
		return
	}
	unix.Close(fd)
}

// release ends what hangs, and frees all that wait for it.
func (n *node) release() {
	for _, f := range n.hung {
		_ = f.Close() // a second time is none
	}
}

// swallow takes every request of a FUSE mount and answers none but INIT: who waits for
// it cannot be killed.
func swallow(f *os.File) {
	buf := make([]byte, 1<<17)
	n, err := f.Read(buf)
	must(err)
	in := buf[:n]
	answer := make([]byte, 16+64) // fuse_out_header, fuse_init_out
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	copy(answer[8:16], in[8:16])                        // unique
	copy(answer[16:24], in[40:48])                      // major, minor
	binary.NativeEndian.PutUint32(answer[16+20:], 4096) // max_write
	_, err = f.Write(answer)
	must(err)
	go func() {
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
		}
	}()
}

// hold keeps something open.
func (n *node) hold(path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		n.undo = append(n.undo, func() { unix.Close(fd) })
	}
}

// namespace starts a process that keeps all mounts in a namespace of its own.
func (n *node) namespace() {
	cmd := exec.Command("sleep", "3600")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	must(cmd.Start())
	n.procs[cmd.Process.Pid] = true
	n.undo = append(n.undo, func() {
		must(cmd.Process.Kill())
		_ = cmd.Wait() // killed, as it must end
	})
}

// loopOver attaches a loop device to a file, as losetup -f does.
func loopOver(path string) (dev string, err error) {
	back, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer back.Close()
	control, err := os.Open("/dev/loop-control")
	if err != nil {
		return "", err
	}
	defer control.Close()
	if err := unix.Flock(int(control.Fd()), unix.LOCK_EX); err != nil { // as testutil.AttachLoop
		return "", err
	}
	for range 100 {
		i, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", err
		}
		dev = fmt.Sprintf("/dev/loop%d", i)
		loop, err := os.OpenFile(dev, os.O_RDWR, 0)
		if err != nil {
			continue // its node comes in a moment
		}
		config := unix.LoopConfig{Fd: uint32(back.Fd())}
		copy(config.Info.File_name[:], path)
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return dev, err
		}
	}
	return "", errors.New("no loop device is free")
}

func loopClear(dev string) error {
	loop, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	return unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
}

// loops are the attached loop devices and what they are over.
func loops() map[string]string {
	all := map[string]string{}
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil {
			all["/dev/"+strings.Split(name, "/")[3]] = strings.TrimSpace(string(b))
		}
	}
	return all
}

// pool makes the disks of a worker.
func pool(dir string) []disk {
	var disks []disk
	for i := range fsDisks + rawDisks {
		d := disk{image: fmt.Sprintf("%s/disk%d", dir, i), raw: i >= fsDisks}
		must(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, 1<<20))
		var err error
		if !d.raw {
			out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", d.image).CombinedOutput()
			if err != nil {
				panic(fmt.Errorf("mkfs.ext4: %w: %s", err, out))
			}
		}
		d.dev, err = loopOver(d.image)
		must(err)
		info, err := os.Stat(d.dev)
		must(err)
		d.number = info.Sys().(*syscall.Stat_t).Rdev
		d.fill(dir + "/fill")
		disks = append(disks, d)
	}
	return disks
}

// content of the files of each disk.
const onDisk = "data on a disk\n"

func (d disk) fill(at string) {
	if d.raw {
		must(os.WriteFile(d.dev, []byte(onDisk), 0))
		return
	}
	must(os.MkdirAll(at, 0o755), unix.Mount(d.dev, at, "ext4", 0, ""), os.MkdirAll(at+"/dir", 0o755),
		os.WriteFile(at+"/file", []byte(onDisk), 0o600), os.WriteFile(at+"/dir/file", []byte(onDisk), 0o600), unix.Unmount(at, 0))
}

// lost says what is missing of what fill put there.
func (d disk) lost(at string) string {
	if d.raw {
		b, err := os.ReadFile(d.dev)
		if err != nil || !strings.HasPrefix(string(b), onDisk) {
			return fmt.Sprintf("the data of the raw disk %s: %.20q %v", d.dev, b, err)
		}
		return ""
	}
	if err := unix.Mount(d.dev, at, "ext4", unix.MS_RDONLY, ""); err != nil {
		must(unix.Mount(d.dev, at, "ext4", 0, "")) // it is mounted to be written elsewhere
	}
	defer func() { must(unix.Unmount(at, unix.MNT_DETACH)) }()
	for _, name := range []string{"/file", "/dir/file"} {
		if b, err := os.ReadFile(at + name); err != nil || string(b) != onDisk {
			return fmt.Sprintf("%s of disk %s: %q %v", name, d.dev, b, err)
		}
	}
	return ""
}

// entry is a file as it is kept.
type entry struct {
	mode  fs.FileMode
	inode uint64
	text  string // content, target or device
}

func devNumber(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }
