// Package kubelet finds the kubelets that run on this machine, and what each was
// started with: from /proc alone, so that it works when nothing else does.
//
// Do not use it to ask a kubelet anything.
package kubelet

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// DefaultRoot is a kubelet's root directory where it is not told another.
const DefaultRoot = "/var/lib/kubelet"

// Process is a running kubelet. Its paths are those that it itself sees.
type Process struct {
	PID           int
	Started       time.Time
	RootDir       string // --root-dir
	NodeName      string // --hostname-override; "" is the host name
	StaticPodPath string // staticPodPath of --config, or --pod-manifest-path; "" is none
	Kubeconfig    string // --kubeconfig
	MountNS       string // link text of /proc/PID/ns/mnt
	Args          []string
	// OtherNamespace says that it sees other mounts than this process: its mount
	// namespace or its root directory is another.
	OtherNamespace bool
}

// Find gives the kubelets that run, the oldest first. A process that ends while it is
// looked at is none.
//
// What it says decides which directory kvol works in, so a process is a kubelet only
// if nobody but the node's administrator can have made it: see [proc.privileged].
func Find(procRoot string) ([]Process, error) {
	dir, err := os.Open(procRoot)
	if err != nil {
		e := &api.Error{Err: err, Next: "name the directory where proc is mounted: --proc-root DIR"}
		if errors.Is(err, fs.ErrNotExist) {
			e.Kind = api.ErrNotFound
		}
		return nil, e
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var found []Process
	parents := map[int]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || !mayBe(int(dir.Fd()), name) {
			continue
		}
		if p, parent, ok := look(proc{filepath.Join(procRoot, name)}, proc{filepath.Join(procRoot, "self")}); ok {
			p.PID, parents[pid] = pid, parent
			found = append(found, p)
		}
	}
	// A kubelet that starts a program is two for a moment.
	found = slices.DeleteFunc(found, func(p Process) bool { _, child := parents[parents[p.PID]]; return child })
	slices.SortFunc(found, func(a, b Process) int { return cmp.Or(a.Started.Compare(b.Started), a.PID-b.PID) })
	return found, nil
}

// programs are the names of the executables that a kubelet is part of.
var programs = map[string]func(proc, []string) (settings, bool){
	"kubelet":   func(_ proc, args []string) (settings, bool) { return flags(args[1:]), true },
	"hyperkube": hyperkube,
	"k3s":       k3s,
	"kubelite":  kubelite,
}

// look reads one process, and who its parent is. The start time before and after tells
// that the number is still that of the same process.
func look(p, self proc) (found Process, parent int, ok bool) {
	if !p.privileged(self) {
		return found, 0, false
	}
	exe, err := os.Readlink(p.dir + "/exe")
	if err != nil {
		return found, 0, false
	}
	read := programs[strings.TrimSuffix(filepath.Base(exe), " (deleted)")]
	parent, began, err := p.stat()
	args := p.args()
	if read == nil || err != nil {
		return found, 0, false
	}
	s, ok := read(p, args)
	if !ok {
		return found, 0, false
	}
	found = Process{
		Started: began.time(), Args: args, NodeName: strings.ToLower(strings.TrimSpace(s.nodeName)),
		RootDir: p.abs(cmp.Or(s.rootDir, DefaultRoot)), Kubeconfig: p.abs(s.kubeconfig),
		StaticPodPath: p.abs(cmp.Or(p.staticPods(s.config), s.manifests)), OtherNamespace: p.elsewhere(self),
	}
	found.MountNS, err = p.link("ns/mnt")
	_, again, gone := p.stat()
	return found, parent, err == nil && gone == nil && again == began
}

// proc is the directory of a process in /proc.
type proc struct{ dir string }

// mayBe tells that a process is none, by the name that the kernel keeps of it: that of
// the file which was executed (k3s runs itself as k3s-server). It is asked of every
// process of the node, hence the bare system calls (590 processes: 4.4 ms, and 6.7 with
// [os.ReadFile]).
func mayBe(procRoot int, pid string) bool {
	fd, err := unix.Openat(procRoot, pid+"/comm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var buf [32]byte // TASK_COMM_LEN is 16
	n, _ := unix.Read(fd, buf[:])
	name := string(bytes.TrimSpace(buf[:max(n, 0)]))
	return programs[name] != nil || name == "k3s-server" || name == "k3s-agent"
}

// privileged says that a process is the administrator's own. Everybody can run a
// program under the name kubelet, with whatever --root-dir, and what is believed of
// it decides where kvol mounts and unmounts:
//
//   - All four user ids are 0 as seen from here. Another user's set-uid program under
//     that name has his real id. Who owns the directory in /proc does not tell: it is
//     root's for every process that made itself undumpable.
//   - It has CAP_SYS_ADMIN, as who mounts needs: the root of an ordinary container is
//     uid 0 too and has it not.
//   - It is in our user namespace: the same root gets all capabilities in one of its own.
//
// Status is read before anything that lies in the memory of the process (its
// arguments): a process can make that reading wait for ever. And the program is told
// by its executable, not by its first argument or its name, which a user chooses who
// calls sudo by a link of his.
func (p proc) privileged(self proc) bool {
	raw, err := os.ReadFile(p.dir + "/status")
	if err != nil {
		return false
	}
	var root, admin bool
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Uid":
			root = slices.Equal(strings.Fields(value), []string{"0", "0", "0", "0"})
		case "CapEff":
			caps, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			admin = err == nil && caps&(1<<unix.CAP_SYS_ADMIN) != 0
		}
	}
	if !root || !admin {
		return false
	}
	theirs, err := p.link("ns/user")
	ours, _ := self.link("ns/user")
	return err == nil && theirs == ours
}

func (p proc) link(name string) (string, error) { return os.Readlink(p.dir + "/" + name) }

// args are the words of the command line.
func (p proc) args() []string {
	raw := p.read("cmdline")
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
}

// maxFile is how much is read of a file that somebody else wrote.
const maxFile = 1 << 20

func (p proc) read(name string) []byte {
	f, err := os.Open(p.dir + "/" + name)
	if err != nil {
		return nil
	}
	defer f.Close()
	raw, _ := io.ReadAll(io.LimitReader(f, maxFile))
	return raw
}

// ticks are hundredths of a second since the boot, as proc_pid_stat(5) counts.
type ticks int64

// stat gives the parent of the process and when it was started.
func (p proc) stat() (parent int, began ticks, err error) {
	raw, err := os.ReadFile(p.dir + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name, in brackets, may hold blanks and brackets.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	const ppid, startTime, afterName = 4, 22, 3
	if len(fields) <= startTime-afterName {
		return 0, 0, fs.ErrInvalid
	}
	parent, err = strconv.Atoi(fields[ppid-afterName])
	n, err2 := strconv.ParseInt(fields[startTime-afterName], 10, 64)
	return parent, ticks(n), errors.Join(err, err2)
}

// time is by the clock as it is set now.
func (t ticks) time() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(t)*10*time.Millisecond - time.Duration(up.Nano()))
}

// elsewhere says that the process sees other mounts than we do.
func (p proc) elsewhere(self proc) bool {
	theirs, err := p.link("ns/mnt")
	ours, err2 := self.link("ns/mnt")
	if err != nil || err2 != nil || theirs != ours {
		return true
	}
	a, errA := p.rootID()
	b, errB := self.rootID()
	return errA != nil || errB != nil || a != b
}

type thing struct{ mount, inode uint64 }

// rootID is what the process has as /: a chroot is another place in the same namespace.
func (p proc) rootID() (thing, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, p.dir+"/root", unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_MNT_ID, &st)
	return thing{st.Mnt_id, st.Ino}, err
}
