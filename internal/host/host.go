// Package host is the machine that kvol works on: a struct of narrow parts, one
// package below this one each. What only a kubelet has does not exist here.
//
// Plugins get a Host to look at the machine. They change nothing through it:
// that is what [act.Runner] is for.
package host

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/format"
	"github.com/kvol/kvol/internal/host/kubelet"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// Options say where things are. The zero value is this machine as it is.
type Options struct {
	RootDir  string // the kubelet's; /var/lib/kubelet
	StateDir string // kvol's own, kept; /var/lib/kvol
	RunDir   string // kvol's own, gone at boot; /run/kvol
	ProcRoot string // /proc
	SysRoot  string // /sys
	DevRoot  string // /dev
	NodeName string // the host name

	// OwnDirs are StateDir and RunDir, by path, where this process was started in
	// another mount namespace than the operator's: it opens none by its path.
	OwnDirs map[string]OwnDir

	CSIEndpoint     string // socket of the CSI driver; by its registration
	RuntimeEndpoint string // socket of the container runtime; the usual ones
	Kubeconfig      string // of the API server; the node's own

	LockTimeout  time.Duration // 10 s
	ProbeTimeout time.Duration // 1 s
	Deadline     time.Time     // when all has to be over; none

	Warn     func(string) // nil drops warnings
	Progress func(string) // is told what takes long; nil tells nobody
}

// Host is the machine.
type Host struct {
	Options
	Layout  paths.Layout
	Exec    exec.Runner
	Helper  *probe.Helper
	Devices *devices.Devices

	root       *safefs.Root
	state, run *safefs.Root
	runErr     error // the run directory does not answer
	recent     recent
}

// Main serves as the helper process if this process was started as one, and
// returns at once otherwise. It is the first call of main and of every TestMain.
func Main() { probe.Main(jobs(), act.Jobs(), devices.Jobs(), format.Jobs(), kubelet.Jobs()) }

// New looks at nothing but its options and changes nothing. A root directory that
// is a symlink is resolved once; one that is not there is told by [Host.Root].
func New(o Options) (*Host, error) {
	def(&o.RootDir, "/var/lib/kubelet")
	def(&o.StateDir, "/var/lib/kvol")
	def(&o.RunDir, "/run/kvol")
	def(&o.ProcRoot, "/proc")
	def(&o.SysRoot, "/sys")
	def(&o.DevRoot, "/dev")
	if o.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		o.NodeName = strings.ToLower(name) // as the kubelet does
	}
	defDuration(&o.LockTimeout, 10*time.Second)
	defDuration(&o.ProbeTimeout, time.Second)
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	for _, dir := range []struct{ flag, path string }{
		{"--root-dir", o.RootDir}, {"--state-dir", o.StateDir}, {"--run-dir", o.RunDir},
	} {
		if !filepath.IsAbs(dir.path) || strings.ContainsRune(dir.path, 0) {
			return nil, api.Errorf(api.ErrUsage, "%s %q is not an absolute path", dir.flag, dir.path).
				WithNext("give it from the root of the file system on: %s /…", dir.flag)
		}
	}
	helper := probe.New("")
	h := &Host{
		Options: o,
		Exec:    exec.New(exec.Options{}),
		Helper:  helper,
		Devices: devices.New(o.SysRoot, o.DevRoot, o.ProcRoot, helper),
	}
	h.remember()
	err := h.answers(o.RootDir, filepath.Join(o.RootDir, "pods"), filepath.Join(o.RootDir, "plugins"))
	if err != nil {
		h.Close()
		return nil, err
	}
	if h.root, err = safefs.OpenLayout(o.RootDir); err != nil {
		if !errors.Is(err, api.ErrNotFound) {
			h.Close()
			return nil, notRoot(o.RootDir, err)
		}
		h.root = nil
		h.Layout, err = paths.New(filepath.Clean(o.RootDir))
		return h, err
	}
	h.Layout, err = paths.New(h.root.Path())
	return h, err
}

// answers asks the helper whether directories that this process itself is going to
// work in answer: a file system that does not, below one of them, would keep the
// process for ever. One that is not there, or is broken in another way, shows when
// it is opened. Where there can be no helper nobody can be asked.
func (h *Host) answers(dirs ...string) error {
	if dirs = h.elsewhere(dirs); len(dirs) == 0 || h.Helper.Start() != nil {
		return nil
	}
	targets := make([]probe.Target, len(dirs))
	for i, dir := range dirs {
		targets[i] = probe.Target{Path: dir, Dev: "path " + dir}
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if !h.Deadline.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, h.Deadline)
	}
	defer cancel()
	for i, a := range h.Helper.Probe(ctx, targets, h.ProbeTimeout) {
		if !a.Answered {
			return api.Errorf(api.ErrTimeout, "its file system does not answer: %s", a.Reason).At(dirs[i]).
				WithNext("see what it is: findmnt --target %s; or name another directory, or give it more time with --probe-timeout", act.Quote(dirs[i]))
		}
	}
	return nil
}

// notRoot says what is wrong with the root directory that was named; what the
// kubelet keeps in it is another matter.
func notRoot(dir string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && errors.Is(err, unix.ENOTDIR) && e.Path == filepath.Clean(dir) {
		return api.Errorf(api.ErrInput, "--root-dir is no directory").At(dir).WithNext("name the kubelet's root: --root-dir DIR")
	}
	return err
}

func def(s *string, v string) {
	if *s == "" {
		*s = v
	}
}

func defDuration(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Close lets go of what the host keeps open, and of its helper.
func (h *Host) Close() {
	h.Helper.Close()
	h.recent.close()
	for _, r := range []*safefs.Root{h.root, h.state, h.run} {
		if r != nil {
			r.Close()
		}
	}
}

// Root is the kubelet's root directory, resolved and held by descriptor.
func (h *Host) Root() (*safefs.Root, error) {
	if h.root == nil {
		return nil, api.Errorf(api.ErrNotFound, "there is no kubelet root directory here").At(h.RootDir).
			WithNext("name the one of this node: --root-dir DIR")
	}
	return h.root, nil
}

// PathOf gives a path below the root directory as it was named, perhaps through a
// symlink, as the path below the root where it really is; every other one as it is.
func (h *Host) PathOf(path string) string {
	if rest, ok := strings.CutPrefix(filepath.Clean(path), filepath.Clean(h.RootDir)+"/"); ok {
		return h.Layout.Root + "/" + rest
	}
	return path
}

// OwnRun opens, and makes where it is missing, the directory of the locks.
func (h *Host) OwnRun() (*safefs.Root, error) {
	var err error
	if h.run == nil && h.runErr == nil {
		h.run, err = h.ownDir(h.RunDir, safefs.OwnDir)
	}
	return h.run, cmp.Or(h.runErr, err)
}

// OwnState opens, and makes where it is missing, the directory of the journal. It
// is asked for once there are locks: without them nothing is changed.
func (h *Host) OwnState() (*safefs.Root, error) {
	var err error
	if h.state == nil {
		h.state, err = h.ownDir(h.StateDir, safefs.OwnDir)
	}
	return h.state, err
}

// ReadOwn opens the state or the run directory for those who only read: it is not
// made. It is the caller's to close.
func (h *Host) ReadOwn(dir string) (*safefs.Root, error) {
	return h.ownDir(dir, safefs.OpenOwn)
}
