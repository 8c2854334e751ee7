package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

var long = strings.Repeat("a", 300)

// badNodes are things that are odd about the node itself.
func badNodes() []bad {
	return append(append([]bad{
		{name: "root: missing", make: func(s *scene) []string { s.root = s.dir + "/nowhere"; return s.up() }, reason: "NotFound", want: []string{"/nowhere", "--root-dir"}},
		{name: "root: missing, for a list", make: func(s *scene) []string { s.root = s.dir + "/nowhere"; return []string{"list-mounts"} }, reason: "NotFound", want: []string{"/nowhere", "--root-dir"}},
		{name: "root: relative", make: func(s *scene) []string { s.root = "kubelet"; return s.up() }, reason: "Usage", want: []string{`"kubelet"`, "--root-dir", "absolute"}},
		{name: "root: a file", make: func(s *scene) []string { s.root = s.outside + "/data/keep"; return s.up() }, reason: "BadInput", want: []string{"data/keep", "directory", "--root-dir"}},
		{name: "root: below a file", make: func(s *scene) []string { s.root = s.outside + "/data/keep/x"; return s.up() }, reason: "BadInput", want: []string{"data/keep/x", "directory", "--root-dir"}},
		{name: "root: symlink to nothing", make: func(s *scene) []string { s.root = s.symlink("nothing", s.dir+"/link"); return s.up() }, reason: "NotFound", want: []string{"/link", "--root-dir"}},
		{name: "root: the root of all", make: func(s *scene) []string { s.root = "/"; return s.up() }, reason: "BadInput", want: []string{"--root-dir", `"/"`}},
		{name: "root: with a newline", make: func(s *scene) []string { s.root = s.mkdir(s.dir + "/a\nb"); return s.up() }, reason: "BadInput", want: []string{`a\nb`, "--root-dir"}},
		{name: "root: read-only", make: func(s *scene) []string { testutil.Bind(s.t, s.root, s.root, true); return s.up() }, reason: "Failed", want: []string{"/kubelet", "read-only"}, began: true},
		{name: "root: full", make: func(s *scene) []string {
			s.fill(s.tmpfs(s.root))
			return s.up()
		}, reason: "Failed", want: []string{"/kubelet/pods", "no space left"}, began: true},

		{name: "run: full", make: func(s *scene) []string { s.fill(s.tmpfs(s.run)); return s.up() }, reason: "Refused", want: []string{"/run", "no space left", "--run-dir"}},
		{name: "run: read-only", make: func(s *scene) []string { s.readOnly(s.run); return s.up() }, reason: "Refused", want: []string{"/run", "read-only", "--run-dir"}},
		{name: "run: another user's", make: func(s *scene) []string { s.owned(s.run, 12345, 0o700); return s.up() }, reason: "Refused", want: []string{"/run", "12345"}},
		{name: "run: anybody's", make: func(s *scene) []string { s.owned(s.run, 0, 0o777); return s.up() }, reason: "Refused", want: []string{"/run", "0777", "chmod"}},
		{name: "run: a file", make: func(s *scene) []string { s.file("run", ""); return s.up() }, reason: "Refused", want: []string{"/run", "directory", "--run-dir"}},
		{name: "run: symlink to nothing", make: func(s *scene) []string { s.symlink("nothing", s.run); return s.up() }, reason: "Refused", want: []string{"/run", "--run-dir"}},
		{name: "run: relative", make: func(s *scene) []string { s.run = "run"; return s.up() }, reason: "Usage", want: []string{`"run"`, "--run-dir", "absolute"}},
		{name: "run: a lock that is a directory", make: func(s *scene) []string {
			s.must(0, s.down()...)
			locks, err := filepath.Glob(s.run + "/*.lock")
			if err != nil || len(locks) == 0 {
				s.t.Fatal("no locks: ", err)
			}
			for _, l := range locks {
				s.t.Log(errors.Join(os.Remove(l), os.Mkdir(l, 0o700)))
			}
			return s.up()
		}, reason: "Refused", want: []string{"lock", "directory"}},
		{name: "state: relative", make: func(s *scene) []string { s.state = "state"; return s.up() }, reason: "Usage", want: []string{`"state"`, "--state-dir", "absolute"}},
		{name: "state: full, and a disk to format", make: func(s *scene) []string { s.fill(s.tmpfs(s.state)); return s.blank() }, reason: "Refused", want: []string{"--state-dir", "/dev/loop"}, began: true},
		{name: "state: read-only, and a disk to format", make: func(s *scene) []string { s.readOnly(s.state); return s.blank() }, reason: "Refused", want: []string{"--state-dir", "/dev/loop"}, began: true},
		{name: "state: anybody's, and a disk to format", make: func(s *scene) []string { s.owned(s.state, 0, 0o777); return s.blank() }, reason: "Refused", want: []string{"--state-dir", "/dev/loop"}, began: true},
		{name: "state: a file, for the history", make: func(s *scene) []string { s.file("state", ""); return []string{"history"} }, reason: "Refused", want: []string{"/state", "directory"}},
		{name: "state: anybody's, for the history", make: func(s *scene) []string { s.owned(s.state, 0, 0o777); return []string{"history"} }, reason: "Refused", want: []string{"/state", "0777", "chmod"}},
	}, badLinks()...), badLeftovers()...)
}

// badLinks are symlinks inside the root that lead out of it.
func badLinks() []bad {
	to := func(path func(s *scene) string) func(*scene) []string {
		return func(s *scene) []string {
			s.mkdir(filepath.Dir(path(s)))
			if err := os.Remove(path(s)); err != nil && !errors.Is(err, os.ErrNotExist) {
				s.t.Fatal(err)
			}
			s.symlink(s.outside+"/pod", path(s))
			return s.up()
		}
	}
	down := func(path func(s *scene) string) func(*scene) []string {
		up := to(path)
		return func(s *scene) []string { up(s); return s.down() }
	}
	pods := func(s *scene) string { return s.root + "/pods" }
	pod := func(s *scene) string { return s.root + "/pods/" + podA }
	volumes := func(s *scene) string { return pod(s) + "/volumes" }
	target := func(s *scene) string { return s.podVolume(podA, "pv") }
	global := func(s *scene) string { return s.global("pv") }
	mounts := func(s *scene) string { return filepath.Dir(s.global("pv")) }
	disk := func(path func(s *scene) string) func(*scene) []string {
		up := to(path)
		return func(s *scene) []string { up(s); return s.local(s.ext4()) }
	}
	return []bad{
		{name: "link: pods", make: to(pods), reason: "Refused", want: []string{"/kubelet/pods", "symbolic link"}},
		{name: "link: the pod", make: to(pod), reason: "Refused", want: []string{podA, "symbolic link"}, began: true},
		{name: "link: volumes of the pod", make: to(volumes), reason: "Refused", want: []string{"/volumes", "symbolic link"}, began: true},
		{name: "link: the volume", make: to(target), reason: "Refused", want: []string{"/pv", "symbolic link"}, began: true},
		{name: "link: the pod, on the way down", make: down(pod), reason: "Refused", want: []string{podA, "symbolic link"}, began: true},
		{name: "link: the volume, on the way down", make: down(target), reason: "Refused", want: []string{"/pv", "symbolic link"}, began: true},
		{name: "link: the global mount", make: disk(global), reason: "Refused", want: []string{"/mounts/pv", "symbolic link"}, began: true},
		{name: "link: global mounts", make: disk(mounts), reason: "Refused", want: []string{"/mounts", "symbolic link"}, began: true},
		{name: "link: the pod, on the way down with a document", make: func(s *scene) []string {
			to(pod)(s)
			return []string{"teardown", "-f", s.pv("pv", s.outside+"/data"), "--pod-uid", podA}
		}, reason: "Refused", want: []string{podA, "symbolic link"}, began: true},
		{name: "link: the global mount, on the way down", make: func(s *scene) []string {
			to(global)(s)
			return []string{"unmount-device", "pv"}
		}, reason: "Refused", want: []string{"/mounts/pv", "symbolic link"}, began: true},
	}
}

// badLeftovers are other things in the way, inside the root.
func badLeftovers() []bad {
	return []bad{
		{name: "file: instead of the pod's directory", make: func(s *scene) []string {
			s.file("kubelet/pods/"+podA, "x")
			return s.up()
		}, reason: "Refused", want: []string{podA, "directory"}, began: true},
		{name: "file: instead of the volume's directory", make: func(s *scene) []string {
			s.mkdir(filepath.Dir(s.podVolume(podA, "pv")))
			s.put(s.podVolume(podA, "pv"), "x")
			return s.up()
		}, reason: "Refused", want: []string{"/pv", "directory"}, began: true},
		{name: "file: instead of the volume's directory, on the way down", make: func(s *scene) []string {
			s.mkdir(filepath.Dir(s.podVolume(podA, "pv")))
			s.put(s.podVolume(podA, "pv"), "data of somebody")
			return s.down()
		}, reason: "Refused", want: []string{"/pv"}, began: true},
		{name: "file: data in the volume's directory, on the way down", make: func(s *scene) []string {
			s.put(s.mkdir(s.podVolume(podA, "pv"))+"/data", "data of somebody")
			return s.down()
		}, reason: "NotEmpty", want: []string{"/pv", "somebody's data", "ls -la"}, began: true},
		{name: "mount: something else on the volume's directory", make: func(s *scene) []string {
			s.tmpfs(s.podVolume(podA, "pv"))
			return s.up()
		}, reason: "Refused", want: []string{"/pv", "tmpfs", "kvol inspect"}, began: true},
		{name: "mount: another disk on the global mount", make: func(s *scene) []string {
			s.tmpfs(s.global("pv"))
			return s.local(s.ext4())
		}, reason: "Refused", want: []string{"/mounts/pv", "tmpfs", "kvol inspect"}, began: true},
		{name: "mount: something on the pod's volumes", make: func(s *scene) []string {
			s.tmpfs(s.root + "/pods/" + podA + "/volumes")
			return s.up()
		}, reason: "Refused", want: []string{"/volumes", "mount"}, began: true},
		{name: "block: a file where the pod's link belongs", make: func(s *scene) []string {
			s.mkdir(filepath.Dir(s.podDevice(podA, "pv")))
			s.put(s.podDevice(podA, "pv"), "data of somebody")
			dev, _ := testutil.LoopImage(s.t, 8<<20)
			return s.local(dev, "volumeMode: Block")
		}, reason: "Refused", want: []string{"/pv", "volumeDevices"}, began: true},
		{name: "block: a link of the pod to another device", make: func(s *scene) []string {
			s.mkdir(filepath.Dir(s.podDevice(podA, "pv")))
			s.symlink("/dev/null", s.podDevice(podA, "pv"))
			dev, _ := testutil.LoopImage(s.t, 8<<20)
			return s.local(dev, "volumeMode: Block")
		}, reason: "Refused", want: []string{"/pv", "/dev/null"}, began: true},
		{name: "block: data where the device is mapped", make: func(s *scene) []string {
			s.mkdir(filepath.Dir(s.mapDevice(podA, "pv")))
			s.put(s.mapDevice(podA, "pv"), "data of somebody")
			dev, _ := testutil.LoopImage(s.t, 8<<20)
			return s.local(dev, "volumeMode: Block")
		}, reason: "Refused", want: []string{"/pv/" + podA}, began: true},
	}
}

func (s *scene) put(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// blank is the way up of a disk that has to be formatted first.
func (s *scene) blank() []string {
	dev, _ := testutil.LoopImage(s.t, 8<<20)
	return append(s.local(dev), "--format")
}

func (s *scene) readOnly(dir string) {
	s.t.Helper()
	s.owned(dir, 0, 0o700)
	testutil.Bind(s.t, dir, dir, true)
}

func (s *scene) owned(dir string, uid int, mode os.FileMode) {
	s.t.Helper()
	s.mkdir(dir)
	if err := errors.Join(os.Chown(dir, uid, 0), os.Chmod(dir, mode)); err != nil {
		s.t.Fatal(err)
	}
}

// fill takes the last byte and the last inode of a small file system.
func (s *scene) fill(dir string) {
	s.t.Helper()
	for _, d := range []string{dir + "/pods", dir + "/plugins"} {
		if strings.HasPrefix(d, s.root) {
			s.mkdir(d)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "nr_inodes=4,size=4k"); err != nil {
		s.t.Fatal(err)
	}
	for _, name := range []string{"/full", "/full2", "/full3", "/full4"} {
		err := os.WriteFile(dir+name, make([]byte, 64<<10), 0o600)
		if errors.Is(err, unix.ENOSPC) {
			continue
		}
		s.t.Fatalf("it is not full: %v", err)
	}
}
