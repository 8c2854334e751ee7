package e2e

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// source is the way up of a volume at a path.
func source(path func(s *scene) string, more ...string) func(*scene) []string {
	return func(s *scene) []string { return s.local(path(s), more...) }
}

func at(path string) func(*scene) string { return func(*scene) string { return path } }

// badSources are local volumes whose path is not what they say.
func badSources() []bad {
	return append([]bad{
		{name: "source: no path", make: source(at(`""`)), reason: "BadInput", want: []string{"spec.local.path", "empty", "absolute path"}},
		{name: "source: relative", make: source(at("data")), reason: "BadInput", want: []string{"spec.local.path", `"data"`, "absolute"}},
		{name: "source: dots", make: source(func(s *scene) string { return s.outside + "/../outside/data" }), reason: "BadInput", want: []string{"spec.local.path", ".."}},
		{name: "source: NUL", make: source(at(`"/mnt/a\0b"`)), reason: "BadInput", want: []string{"spec.local.path", `a\x00b`, "control"}},
		{name: "source: newline", make: source(at(`"/mnt/a\nb"`)), reason: "BadInput", want: []string{"spec.local.path", `a\nb`, "control"}},
		{name: "source: the root of all", make: source(at("/")), reason: "BadInput", want: []string{"spec.local.path", "root"}},
		{name: "source: the root of all, written oddly", make: source(at("//./")), reason: "BadInput", want: []string{"spec.local.path", "root"}},
		{name: "source: missing directory", make: source(func(s *scene) string { return s.dir + "/nowhere" }), reason: "NotFound", want: []string{"/nowhere", "not on this node", "ls -ld"}, began: true},
		{name: "source: missing device", make: source(at("/dev/nosuchdisk")), reason: "NotFound", want: []string{"/dev/nosuchdisk", "not on this node", "lsblk"}, began: true},
		{name: "source: below a file", make: source(func(s *scene) string { return s.outside + "/data/keep/x" }), reason: "NotFound", want: []string{"keep/x", "ls -ld"}, began: true},
		{name: "source: symlink to nothing", make: source(func(s *scene) string { return s.symlink("nothing", s.dir+"/dangling") }), reason: "NotFound", want: []string{"/dangling", "not on this node"}, began: true},
		{name: "source: symlinks in a loop", make: source(func(s *scene) string { return s.symlink("loop", s.dir+"/loop") }), reason: "BadInput", want: []string{"/loop", "symbolic links"}, began: true},
		{name: "source: name too long", make: source(at("/mnt/" + long)), reason: "BadInput", want: []string{"/mnt/aaa", "too long"}, began: true},
		{name: "source: file", make: source(func(s *scene) string { return s.outside + "/data/keep" }), reason: "BadInput", want: []string{"data/keep", "file", "spec.local.path"}, began: true},
		{name: "source: fifo", make: source(func(s *scene) string { return s.fifo("fifo") }), reason: "BadInput", want: []string{"/fifo", "spec.local.path"}, began: true},
		{name: "source: socket", make: source(func(s *scene) string { return s.socket("sock") }), reason: "BadInput", want: []string{"/sock", "socket", "spec.local.path"}, began: true},
		{name: "source: character device", make: source(at("/dev/null")), reason: "BadInput", want: []string{"/dev/null", "spec.local.path"}, began: true},
		{name: "source: block device that is none", make: source(func(s *scene) string { return s.nod("ghost", unix.S_IFBLK, unix.Mkdev(240, 77)) }), reason: "NotFound", want: []string{"/ghost", "lsblk"}, began: true},
		{name: "source: directory for raw block", make: source(func(s *scene) string { return s.outside + "/data" }, "volumeMode: Block"), reason: "BadInput", want: []string{"outside/data", "directory", "volumeMode"}, began: true},
		{name: "source: file for raw block", make: source(func(s *scene) string { return s.outside + "/data/keep" }, "volumeMode: Block"), reason: "BadInput", want: []string{"data/keep", "file", "spec.local.path"}, began: true},
		{name: "source: the kubelet's root", make: source(func(s *scene) string { return s.root }), reason: "Refused", want: []string{"/kubelet", "the kubelet's"}, began: true},
		{name: "source: pods of the kubelet", make: source(func(s *scene) string { return s.root + "/pods" }), reason: "Refused", want: []string{"/kubelet/pods", "the kubelet's own"}, began: true},
		{name: "source: another pod's volume", make: source(func(s *scene) string { return s.mkdir(s.podVolume(podB, "x")) }), reason: "Refused", want: []string{podB, "the kubelet's own"}, began: true},
		{name: "source: symlink into the kubelet's root", make: source(func(s *scene) string { return s.symlink(s.root+"/plugins", s.dir+"/in") }), reason: "Refused", want: []string{"/kubelet/plugins", "the kubelet's own"}, began: true},
		{name: "source: what the kubelet's root lies in", make: source(func(s *scene) string { return s.dir }), reason: "Refused", want: []string{"the kubelet's"}, began: true},
	}, badDisks()...)
}

// badDisks are disks and what is asked of them.
func badDisks() []bad {
	disk := func(fsType string, more ...string) func(*scene) []string {
		return func(s *scene) []string { return s.local(s.ext4(), append([]string{fsType}, more...)...) }
	}
	return []bad{
		{name: "disk: blank", make: func(s *scene) []string {
			dev, _ := testutil.LoopImage(s.t, 8<<20)
			return s.local(dev)
		}, reason: "Refused", want: []string{"/dev/loop", "blank", "--format"}, began: true},
		{name: "disk: file system that is not there", make: func(s *scene) []string {
			dev, _ := testutil.LoopImage(s.t, 8<<20)
			return append(s.local(dev, "fsType: nosuchfs"), "--format")
		}, reason: "NotSupported", want: []string{"nosuchfs", "ext4", "make the file system yourself"}, began: true},
		{name: "disk: name of a file system with dots", make: func(s *scene) []string {
			dev, _ := testutil.LoopImage(s.t, 8<<20)
			return append(s.local(dev, "fsType: ../../tmp/x"), "--format")
		}, reason: "BadInput", want: []string{"../../tmp/x", "fsType"}},
		{name: "disk: name of a file system with a dash", make: disk("fsType: --help"), reason: "BadInput", want: []string{"--help", "fsType"}},
		{name: "disk: another file system", make: disk("fsType: xfs"), reason: "Refused", want: []string{"/dev/loop", "ext4", "xfs"}, began: true},
		{name: "disk: another file system, to be formatted", make: func(s *scene) []string {
			return append(s.local(s.ext4(), "fsType: xfs"), "--format")
		}, reason: "Refused", want: []string{"/dev/loop", "ext4", "xfs"}, began: true},
		{name: "disk: unknown mount option", make: disk("fsType: ext4", "mountOptions: [nosuchoption]"), reason: "Failed", want: []string{"/dev/loop", "nosuchoption"}, began: true},
		{name: "disk: mount option with a newline", make: disk("fsType: ext4", `mountOptions: ["ro\nrw"]`), reason: "BadInput", want: []string{`"ro\nrw"`, "mountOptions"}},
		{name: "disk: mount option with a NUL", make: disk("fsType: ext4", `mountOptions: ["ro\0rw"]`), reason: "BadInput", want: []string{`"ro\x00rw"`, "mountOptions"}},
		{name: "disk: mount option that is empty", make: disk("fsType: ext4", `mountOptions: [""]`), reason: "BadInput", want: []string{"mountOptions", "empty"}},
		{name: "disk: mount options that are no list", make: disk("fsType: ext4", `mountOptions: ro`), reason: "BadInput", want: []string{"mountOptions", "list"}},
		{name: "disk: damaged", make: func(s *scene) []string {
			dev := s.ext4()
			f, err := os.OpenFile(dev, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt(make([]byte, 4096), 1024)
				f.Close()
			}
			if err != nil {
				s.t.Fatal(err)
			}
			return append(s.local(dev), "--format")
		}, reason: "Refused", want: []string{"/dev/loop", "blkdiscard"}, began: true},
	}
}

// ext4 is a disk with a file system.
func (s *scene) ext4() string {
	s.t.Helper()
	dev, _ := testutil.LoopImage(s.t, 16<<20)
	testutil.Mkfs(s.t, dev, "ext4")
	return dev
}
