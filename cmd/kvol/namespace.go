package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/kubelet"
)

// envHanded has the number of the descriptor of the [handover]. It is no setting.
const envHanded = "KVOL_HANDED_OVER"

// handover is what a kvol that goes to another mount namespace tells itself there. The
// paths of the command line mean what they meant to the operator: what was read comes
// along, and kvol's own directories do by descriptor, so that all kvols of the machine
// share their locks.
type handover struct {
	PID     int
	MountNS string
	Kubelet bool // PID has to be a kubelet still
	Dir     string
	Until   time.Time

	RootDir, NodeName string
	Origins           map[string]string

	CSIEndpoint                 string
	Kubeconfig, RuntimeEndpoint string
	PodsFrom                    []string

	Files map[string][]byte // null: it was not there
	Own   map[string]handedDir
}

// handedDir is a directory that was opened, or why it was not.
type handedDir struct {
	FD         int
	Code       int
	Text, Next string
}

// files are those that were read, by name.
type files struct {
	mu     sync.Mutex
	got    map[string][]byte
	handed bool // they are all there are
}

// read gives a file, read now if it was not before.
func (f *files) read(name string, now func() ([]byte, error)) ([]byte, error) {
	f.mu.Lock()
	raw, known := f.got[name]
	f.mu.Unlock()
	switch {
	case known && raw == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	case known:
		return raw, nil
	case f.handed:
		return nil, fmt.Errorf("%s was not read before kvol went to another mount namespace", name)
	}
	raw, err := now()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got[name] = raw
	return raw, err
}

// receive takes what was handed over to this process, if anything was.
func (a *app) receive() error {
	number, ok := os.LookupEnv(envHanded)
	if !ok {
		return nil
	}
	fd, err := strconv.Atoi(number)
	if err != nil || os.Unsetenv(envHanded) != nil {
		return api.Errorf(api.ErrUsage, "%s is %q; kvol sets it for itself", envHanded, number)
	}
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	// Only of a memfd can that be asked; a pipe that somebody else left would be waited for.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil {
		return api.Errorf(api.ErrUsage, "%s is set to what kvol did not make: %w", envHanded, os.NewSyscallError("fcntl", err))
	}
	h := &handover{}
	raw, err := io.ReadAll(f)
	if err == nil {
		err = exact.Unmarshal(raw, h)
	}
	if err == nil && (h.MountNS == "" || h.Until.IsZero()) {
		err = errors.New("it does not say where to go on, or until when")
	}
	if err != nil {
		return api.Errorf(api.ErrUsage, "%s is set to what kvol did not make: %w", envHanded, err)
	}
	a.handed, a.files = h, &files{got: h.Files, handed: true}
	return nil
}

// resume takes over what was settled before, where anything was.
func (a *app) resume() {
	h := a.handed
	if h == nil {
		return
	}
	a.rootDir, a.nodeName, a.origins = h.RootDir, h.NodeName, h.Origins
	a.kubeconfig, a.runtimeEndpoint, a.podsFrom = h.Kubeconfig, h.RuntimeEndpoint, h.PodsFrom
	a.csiEndpoint = h.CSIEndpoint
	a.procRoot, a.sysRoot, a.devRoot = "/proc", "/sys", "/dev"
	a.own = map[string]host.OwnDir{}
	for path, own := range h.Own {
		if own.Text != "" {
			a.own[path] = host.OwnDir{Err: &api.Error{Kind: kindOf[own.Code], Err: errors.New(own.Text), Next: own.Next}}
			continue
		}
		a.own[path] = host.OwnDir{Dir: os.NewFile(uintptr(own.FD), path)}
	}
}

// kindOf is the kind of error that a directory of kvol's own was not opened with.
var kindOf = map[int]error{api.ExitNotFound: api.ErrNotFound, api.ExitRefused: api.ErrRefused, api.ExitUncertain: api.ErrTimeout}

// arrived checks that this process is where it wanted to be. It never goes anywhere
// from here.
func (a *app) arrived() error {
	h := a.handed
	ns, err := os.Readlink("/proc/self/ns/mnt")
	if err == nil && ns != h.MountNS {
		err = fmt.Errorf("kvol is in the mount namespace %s and not in %s", ns, h.MountNS)
	}
	if err != nil || !h.Kubelet {
		return err
	}
	// A namespace that is only ours ends with us, and what was mounted there too.
	all, err := kubelet.Find("/proc")
	if err == nil && !slices.ContainsFunc(all, func(k kubelet.Process) bool { return k.MountNS == ns }) {
		err = api.Errorf(api.ErrUncertain, "the kubelet (pid %d) has ended meanwhile", h.PID).WithNext("run the same command again")
	}
	return err
}

// enter goes on where a process is, as the same process of kvol. It returns only when
// that cannot be done.
func (a *app) enter(pid int, isKubelet bool) error {
	proc := filepath.Join(a.procRoot, strconv.Itoa(pid))
	view, err := exec.OpenView(proc, filepath.Join(a.procRoot, "self"))
	if err != nil {
		return noView(pid, err)
	}
	defer view.Close()
	h := &handover{
		PID: pid, Kubelet: isKubelet, Until: a.deadline.Add(-grace), RootDir: a.rootDir, NodeName: a.nodeName,
		Origins: a.origins, Files: a.files.got,
	}
	dir, dirErr := os.Getwd()
	ns, nsErr := os.Readlink(proc + "/ns/mnt")
	if err := errors.Join(dirErr, nsErr); err != nil {
		return err
	}
	h.Dir, h.MountNS = dir, ns
	own, keep := a.openOwn()
	defer func() {
		for _, f := range keep {
			f.Close()
		}
	}()
	h.Own = own
	h.Kubeconfig, h.RuntimeEndpoint, h.PodsFrom = bring(&keep, a.kubeconfig), bring(&keep, a.runtimeEndpoint), slices.Clone(a.podsFrom)
	h.CSIEndpoint = bring(&keep, a.csiEndpoint)
	for i, source := range a.podsFrom {
		h.PodsFrom[i] = bring(&keep, source)
	}
	letter, err := write(h)
	if err != nil {
		return err
	}
	keep = append(keep, letter)
	a.progress.end()
	env := append(os.Environ(), fmt.Sprintf("%s=%d", envHanded, letter.Fd()))
	err = view.Become(append([]string{os.Args[0]}, a.args...), env, keep...)
	return api.Errorf(api.ErrRefused, "kvol cannot go to the mount namespace of process %d: %w", pid, err).
		WithNext("do it there yourself, with its files: %s", a.byHand(pid))
}

// byHand is the command that does the same by nsenter(1).
func (a *app) byHand(pid int) string {
	words := []string{"nsenter", "--target", strconv.Itoa(pid), "--mount", "--uts", "--pid", "--", "kvol"}
	for _, word := range a.args {
		words = append(words, act.Quote(word))
	}
	return strings.Join(words, " ")
}

// openOwn opens kvol's own directories, and makes them for a command that acts.
func (a *app) openOwn() (own map[string]handedDir, keep []*os.File) {
	own = map[string]handedDir{}
	for path, dir := range host.OpenOwn(a.hostOptions(), a.acts) {
		if err := dir.Err; err != nil {
			own[path] = handedDir{Code: api.ExitCode(err), Text: err.Error(), Next: api.NewErrorDoc(err).Next}
			continue
		}
		own[path], keep = handedDir{FD: int(dir.Dir.Fd())}, append(keep, dir.Dir)
	}
	return own, keep
}

// bring opens what a path of the operator's leads to, and gives the path of it by the
// descriptor. One that is not there is left as it is: it may be meant as the kubelet
// sees it.
func bring(keep *[]*os.File, word string) string {
	path, scheme := word, ""
	for _, s := range []string{"unix://", "file:"} {
		if rest, ok := strings.CutPrefix(word, s); ok {
			path, scheme = rest, s
		}
	}
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return word
	}
	*keep = append(*keep, f)
	return fmt.Sprintf("%s/proc/%d/fd/%d", scheme, os.Getpid(), f.Fd())
}

// write puts the handover where only this process and what it becomes can read it: it
// has what the files have, secrets too.
func write(h *handover) (*os.File, error) {
	fd, err := unix.MemfdCreate("kvol", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "handover")
	raw, err := exact.Marshal(h)
	if err == nil {
		_, err = f.Write(raw)
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// bind says where the steps of a plan belong, where that is not where it is read.
func (a *app) bind(p *api.Plan) {
	if a.handed == nil {
		return
	}
	p.Facts = slices.Insert(p.Facts, 0, fmt.Sprintf(`test "$(readlink /proc/self/ns/mnt)" = %s`, act.Quote(a.handed.MountNS)))
	p.Warnings = append(p.Warnings, fmt.Sprintf("these steps are for the mount namespace of process %d: nsenter --target %[1]d --mount", a.handed.PID))
}

// abs is a path as the operator meant it.
func (a *app) abs(path string) (string, error) {
	if a.handed != nil && !filepath.IsAbs(path) {
		return filepath.Join(a.handed.Dir, path), nil
	}
	return filepath.Abs(path)
}

// noView says that the process whose view of the machine is asked for is not there.
func noView(pid int, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return api.Errorf(api.ErrNotFound, "there is no process %d", pid).WithNext("look which there are: pgrep -a kubelet")
	}
	return api.Errorf(api.ErrRefused, "the mount namespace of process %d cannot be opened: %w", pid, err).WithNext("run it as root")
}
