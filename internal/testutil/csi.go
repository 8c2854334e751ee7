package testutil

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// CSIOptions say how a driver is started.
type CSIOptions struct {
	Root   string // the kubelet's root directory
	Driver string // its name
	// Socket is where it serves; "" is plugins/DRIVER/csi.sock below the root.
	Socket string
	// NoRegistration leaves the registration socket out.
	NoRegistration bool
	// Namespace runs it in a mount namespace of its own, where the kubelet's root is
	// shared with the node's, as a driver in a container has it.
	Namespace bool
	// Control is what it starts with; nil is [CSIDefaults].
	Control *CSIControl
}

// CSIDefaults is a driver that stages, expands and attaches nothing.
func CSIDefaults() CSIControl {
	return CSIControl{NodeCaps: []string{"STAGE_UNSTAGE_VOLUME", "EXPAND_VOLUME", "GET_VOLUME_STATS"}, NodeID: "node1"}
}

// CSI is a CSI driver, a process of its own (test/cmd/csidriver), and the directory
// where it keeps its volumes.
type CSI struct {
	Root, Driver string
	Dir          string
	PID          int

	t      testing.TB
	o      CSIOptions
	socket string
	proc   *os.Process
	done   chan struct{} // closed when the process is gone and reaped
}

// StartCSI starts a driver and returns when it serves. At the end of the test it is
// killed, and every mount below the root taken off.
func StartCSI(t testing.TB, o CSIOptions) *CSI {
	t.Helper()
	Root(t)
	control := CSIDefaults()
	if o.Control != nil {
		control = *o.Control
	}
	c := &CSI{Root: o.Root, Driver: o.Driver, Dir: TempDir(t), t: t, o: o, socket: o.Socket}
	if c.socket == "" {
		c.socket = filepath.Join(o.Root, "plugins", o.Driver, "csi.sock")
	}
	if o.Namespace {
		share(t, o.Root)
	}
	c.write(control)
	c.start()
	t.Cleanup(func() {
		c.Kill()
		detachLoopsBelow(t, o.Root) // while their files have a path
		unmountBelow(o.Root)        // before the images and devices of c.Dir go
	})
	return c
}

// share makes dir the top of a mount that others can be in a peer group with.
func share(t testing.TB, dir string) {
	t.Helper()
	if !slices.ContainsFunc(mountsBelow(dir), func(m mount) bool { return m.point == dir }) {
		Bind(t, dir, dir, false)
	}
	if err := unix.Mount("", dir, "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		t.Fatalf("make %s shared: %v", dir, err)
	}
}

func (c *CSI) start() {
	c.t.Helper()
	path, err := Program("test/cmd/csidriver")
	if err != nil {
		c.t.Fatal(err)
	}
	args := []string{"-root", c.Root, "-driver", c.Driver, "-socket", c.socket, "-dir", c.Dir}
	if c.o.NoRegistration {
		args = append(args, "-no-registration")
	}
	cmd := exec.Command(path, args...)
	// As with the FUSE daemons: it must not outlive the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if c.o.Namespace {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	spawn(func() { err = cmd.Start() })
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	c.PID, c.proc, c.done = cmd.Process.Pid, cmd.Process, done
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = cmd.Wait() // killed, as it must end
		close(done)
	}()
	if line != "ready\n" {
		c.Kill()
		c.t.Fatalf("CSI driver %s: %q %v", c.Driver, line, err)
	}
}

// Endpoint is the path of its socket.
func (c *CSI) Endpoint() string { return c.socket }

// RegistrationSocket is where the kubelet's watcher would ask it.
func (c *CSI) RegistrationSocket() string {
	return filepath.Join(c.Root, "plugins_registry", c.Driver+"-reg.sock")
}

// Kill kills it and returns when it is gone: its sockets stay and nobody listens.
func (c *CSI) Kill() {
	_ = c.proc.Kill() // gone already is what is wanted
	<-c.done
}

// Stop ends it in order, which removes its sockets.
func (c *CSI) Stop() {
	_ = c.proc.Signal(syscall.SIGTERM) // gone already is what is wanted
	<-c.done
}

// Died waits until it has ended by itself.
func (c *CSI) Died() { <-c.done }

// Restart starts it again, killing it first if it runs.
func (c *CSI) Restart() {
	c.t.Helper()
	c.Kill()
	c.start()
}

// Freeze stops it (SIGSTOP): the kernel takes connections, nothing is answered.
func (c *CSI) Freeze() {
	c.t.Helper()
	if err := c.proc.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
}

// Thaw lets it go on after Freeze.
func (c *CSI) Thaw() {
	c.t.Helper()
	if err := c.proc.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}

// Set changes how it behaves, from the next call on.
func (c *CSI) Set(change func(*CSIControl)) {
	c.t.Helper()
	var control CSIControl
	if err := ReadJSON(filepath.Join(c.Dir, "control.json"), &control); err != nil {
		c.t.Fatal(err)
	}
	change(&control)
	c.write(control)
}

func (c *CSI) write(control CSIControl) {
	c.t.Helper()
	if err := WriteJSON(filepath.Join(c.Dir, "control.json"), control); err != nil {
		c.t.Fatal(err)
	}
}

// Fail has every later call of a method misbehave. From and Until of how count from
// now on: From 2 spares the next call.
func (c *CSI) Fail(method string, how CSIFault) {
	c.t.Helper()
	before := len(c.CallsTo(method))
	how.From += before
	if how.Until > 0 {
		how.Until += before
	}
	c.Set(func(control *CSIControl) {
		if control.Faults == nil {
			control.Faults = map[string][]CSIFault{}
		}
		control.Faults[method] = []CSIFault{how}
	})
}

// Heal ends all that Fail began.
func (c *CSI) Heal() {
	c.t.Helper()
	c.Set(func(control *CSIControl) { control.Faults = nil })
}

// Volume makes a volume that the driver knows by handle.
func (c *CSI) Volume(handle, fsType string, bytes int64) {
	c.t.Helper()
	dir := filepath.Join(c.Dir, "volumes", fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = WriteJSON(filepath.Join(dir, "volume.json"), CSIVolume{ID: handle, FSType: fsType, Bytes: bytes})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Calls are all calls of it since it was started first.
func (c *CSI) Calls() []CSICall {
	c.t.Helper()
	calls, err := ReadCalls(filepath.Join(c.Dir, "calls.jsonl"))
	if err != nil {
		c.t.Fatal(err)
	}
	return calls
}

// CallsTo are the calls of one method.
func (c *CSI) CallsTo(method string) []CSICall {
	c.t.Helper()
	return slices.DeleteFunc(c.Calls(), func(call CSICall) bool { return call.Method != method })
}

// Methods are the methods that changed something or were asked to, in order and
// one a word: what a test compares with "NodeStageVolume NodePublishVolume".
func (c *CSI) Methods() string {
	c.t.Helper()
	var names []string
	for _, call := range c.Calls() {
		if strings.HasSuffix(call.Method, "Volume") {
			names = append(names, call.Method)
		}
	}
	return strings.Join(names, " ")
}

// Reached waits until the n-th call of a method has begun.
func (c *CSI) Reached(method string, n int) {
	c.t.Helper()
	Poll(c.t, fmt.Sprintf("%s was called %d times", method, n), func() bool { return len(c.CallsTo(method)) >= n })
}
