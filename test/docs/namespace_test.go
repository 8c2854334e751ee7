// Package docs runs every example of the documentation and of each command's help as
// it is printed, with kvol's default paths, and checks what comes out.
//
// # Pages
//
// An example is a block of the kind "console": lines "# COMMAND", each followed by what
// it prints. In what is printed "…" stands for anything (alone in a line: for any
// lines), and a run of blanks for any other. A command ends with 0, unless "# echo $?"
// follows. Comments of the page say the rest:
//
//	<!-- scene: NAME -->        the node on which the blocks from here on run, made anew
//	<!-- not run: REASON -->    the next block is not run
//
// Everything runs in mount, PID and UTS namespaces of its own, so that no kubelet of
// this machine, nor of another test, is seen or touched.
package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// envStage is how far this process has got: nothing, inside, ready.
const envStage = "KVOL_DOCS_STAGE"

// own are the default paths of kvol, each a directory that only these tests see.
var own = []string{"/var/lib/kubelet", "/var/lib/kvol", "/run/kvol", "/etc/kvol"}

// others is what tells of this machine's own pods.
var others = []string{"/etc/kubernetes", "/run/containerd", "/run/crio", "/run/k3s"}

func TestMain(m *testing.M) { testutil.Main(m, apart) }

// apart starts this program again as the first process of its own namespaces.
func apart() {
	if os.Geteuid() != 0 || ready() {
		return
	}
	if os.Getenv(envStage) == "inside" {
		if err := arrange(); err != nil {
			fmt.Fprintln(os.Stderr, "docs: the namespaces:", err)
			os.Exit(1)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envStage+"=inside")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // the kernel sends the signal when this thread ends
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs: no namespaces, so that no example is run:", err)
		return
	}
	os.Exit(0)
}

// ready says that this process is where examples may be run: elsewhere they would be the
// machine's own volumes that they take down.
func ready() bool { return os.Getenv(envStage) == "ready" }

// arrange makes the namespaces what the examples need.
func arrange() error {
	err := errors.Join(
		os.Setenv(envStage, "ready"),
		unix.Sethostname([]byte("node1")),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		devices(),
		os.Mkdir(layers, 0o700),
		os.Setenv("TMPDIR", layers),
		overlay("/tmp"),                              // where kvol provision makes volumes
		overlay("/etc"), overlay("/usr/local/share"), // where completions are put
		overlay("/run"),
	)
	if !exists("/var/lib/kubelet") || !exists("/var/lib/kvol") {
		err = errors.Join(err, overlay("/var/lib"))
	}
	for _, dir := range own {
		err = errors.Join(err, os.MkdirAll(dir, 0o750))
	}
	for _, dir := range others {
		if exists(dir) {
			err = errors.Join(err, unix.Mount("none", dir, "tmpfs", 0, ""))
		}
	}
	return err
}

// devices puts a copy over /dev, so that a scene can call a disk /dev/sdb. The kernel
// makes the nodes of new loop devices in the machine's own, so they are here beforehand.
func devices() error {
	const stage = "/dev/shm"
	entries, err := os.ReadDir("/dev")
	err = errors.Join(err, unix.Mount("none", stage, "tmpfs", 0, "mode=755"))
	for _, e := range entries {
		var st unix.Stat_t
		if link, no := os.Readlink("/dev/" + e.Name()); no == nil {
			err = errors.Join(err, os.Symlink(link, stage+"/"+e.Name()))
		} else if e.Type()&fs.ModeDevice != 0 {
			err = errors.Join(err, unix.Stat("/dev/"+e.Name(), &st), unix.Mknod(stage+"/"+e.Name(), st.Mode, int(st.Rdev)))
		}
	}
	for n := range 256 {
		name := fmt.Sprintf("%s/loop%d", stage, n)
		if !exists(name) {
			err = errors.Join(err, unix.Mknod(name, unix.S_IFBLK|0o660, int(unix.Mkdev(7, uint32(n)))))
		}
	}
	return errors.Join(err, unix.Mount(stage, "/dev", "", unix.MS_MOVE, ""))
}

// layers is where all is kept that these tests write.
const layers = "/dev/layers"

// overlay has what is written to a directory stay in memory, in these namespaces.
func overlay(dir string) error {
	name := layers + strings.ReplaceAll(dir, "/", "-")
	upper, work := name+"-upper", name+"-work"
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("an overlay on %s: %w", dir, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
