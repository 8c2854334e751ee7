package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// interfere does in a walk what people and other programs do. What does not work then, as
// rmdir of a directory that is not empty, is not done.
func (w *walk) interfere() {
	v, pod := pick(w.rnd, w.vols...), pick(w.rnd, podA, podB)
	at := pick(w.rnd, w.podVolume(pod, v.name), w.global(v.name))
	if v.raw {
		at = w.mapDevice(pod, v.name)
	}
	bare := len(w.table().At(at)) == 0
	var err error
	deed := pick(w.rnd, "umount", "umount", "lazy", "rmdir", "losetup", "touch", "tidy", "tidy", "tidy", "bind", "again", "hold", "release", "release", "link", "unlink", "mkdir", "move")
	switch deed {
	case "umount":
		err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
	case "lazy":
		if !v.raw { // the loop device over a map that is gone has no path by which it is found
			err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
	case "rmdir":
		err = unix.Rmdir(at)
	case "losetup":
		for _, dev := range loopsBelow(w.root) {
			err = exec.Command("losetup", "-d", dev).Run()
		}
	case "touch":
		if bare && !v.raw {
			w.add(at+"/mine", fmt.Sprint("mine ", len(w.said)))
		} else if bare {
			w.add(at, fmt.Sprint("mine ", len(w.said)))
		}
	case "tidy":
		w.tidy()
	case "bind":
		if !v.raw {
			err = unix.Mount(w.stranger, at, "", unix.MS_BIND, "")
		}
	case "again": // the same once more, over itself
		if !bare {
			err = unix.Mount(at, at, "", unix.MS_BIND, "")
		}
	case "hold":
		w.release()
		w.held, err = os.Open(at)
	case "release":
		w.release()
	case "link":
		err = os.Symlink(w.stranger, at)
	case "unlink":
		if to, e := os.Readlink(w.podDevice(pod, "raw")); e == nil && v.raw {
			err = os.Remove(w.podDevice(pod, "raw"))
			at = "link to " + to
		} else if _, e := os.Readlink(at); e == nil {
			err = os.Remove(at)
		}
	case "mkdir":
		err = os.MkdirAll(filepath.Dir(at), 0o750)
		if err == nil && !v.raw {
			err = os.Mkdir(at, 0o750)
		}
	case "move":
		err = w.moved(at)
	}
	w.note("%s %s: %v", deed, strings.TrimPrefix(at, w.root), err)
}

// moved moves a volume's mount to a place of somebody's, as with mount --move.
func (w *walk) moved(at string) error {
	to := w.dir + "/moved"
	if len(w.table().At(to)) > 0 {
		return unix.Unmount(to, unix.UMOUNT_NOFOLLOW)
	}
	if st, err := os.Lstat(at); err != nil || !st.IsDir() {
		return err
	}
	must(w.t, os.MkdirAll(to, 0o755))
	return unix.Mount(at, to, "", unix.MS_MOVE, "")
}

// tidy takes away what people left, so that kvol can go on.
func (w *walk) tidy() {
	w.kept()
	for path := range w.files {
		if strings.HasPrefix(path, w.stranger) || len(w.table().At(filepath.Dir(path))) > 0 || len(w.table().At(path)) > 0 {
			continue
		}
		must(w.t, os.Remove(path))
		delete(w.files, path)
	}
	for _, m := range slices.Backward(w.table().Under(w.root)) {
		if info, err := os.ReadFile(m.MountPoint + "/file"); err == nil && bytes.HasPrefix(info, []byte("a stranger's")) {
			_ = unix.Unmount(m.MountPoint, unix.UMOUNT_NOFOLLOW)
		}
	}
}

// end tidies up and wants everything to come down, and each volume to have its data.
func (w *walk) end() {
	w.t.Helper()
	w.release()
	for len(w.table().At(w.dir+"/moved")) > 0 {
		must(w.t, unix.Unmount(w.dir+"/moved", 0))
	}
	for range 2 { // a file below a stranger's mount comes out when that is gone
		w.tidy()
	}
	for _, v := range w.vols {
		for _, pod := range []string{podA, podB} {
			for _, path := range []string{w.podVolume(pod, v.name), w.global(v.name), w.mapDevice(pod, v.name)} {
				if to, err := os.Readlink(path); err == nil && to == w.stranger {
					must(w.t, os.Remove(path))
				}
			}
			w.run(v, pod, []string{"teardown", "-f", v.file, "--pod-uid", pod})
		}
		w.must(0, "setup", "-f", v.file, "--pod-uid", podA)
		w.isUp(v, podA)
		w.must(0, "teardown", v.name, "--pod-uid", podA)
	}
	w.kept()
	if left := w.mounts(); left != "" || len(loopsBelow(w.root)) > 0 {
		w.t.Errorf("left: %s %v", left, loopsBelow(w.root))
	}
}
