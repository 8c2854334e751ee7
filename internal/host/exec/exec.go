// Package exec runs the tools of the node: the one place where kvol starts a
// foreign program. A tool is an argument vector, never a shell line; it runs in
// the C locale, in a session of its own without a terminal (so it fails instead
// of asking), with / as its directory, and not beyond the deadline of its
// context. Nothing a tool does can hang kvol: not a grandchild that keeps the
// pipes open, not output without end, not a process that SIGKILL does not end.
//
// Do not use it to look at a volume (package probe does that), nor for what a
// system call does as well.
package exec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
)

// Cmd is one run of a tool.
type Cmd struct {
	Name string   // found by [Runner.LookPath]; an absolute path is taken as it is
	Args []string // without the name; never a secret: [Runner.Run] refuses one that is also in Secret
	// Stdin is what the tool reads; nothing where it is empty.
	Stdin []byte
	// Secret goes to the tool's standard input after Stdin. It is replaced by
	// "***" in everything that the tool prints.
	Secret *Secret
	// Files are the tool's descriptors 3, 4, …
	Files []*os.File
	// Inherit are descriptors that only have to stay open as long as the tool
	// lives: the locks of the operation. Their numbers do not matter.
	Inherit []*os.File
	// NoKill is for mkfs and fsck, which destroy data when they are killed: at the
	// deadline the tool goes on, also when kvol ends.
	NoKill bool
	// MaxOutput is how many bytes of each stream are kept; 0 means 1 MiB.
	MaxOutput int
}

// String is the command as a log shows it. It is not for a shell.
func (c Cmd) String() string {
	words := make([]string, 0, 1+len(c.Args))
	for _, w := range append([]string{filepath.Base(c.Name)}, c.Args...) {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return r <= ' ' || r == '"' || r >= 0x7f }) {
			w = fmt.Sprintf("%q", w)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// Result is how a tool ended.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int  // -1 where it has not ended, or by a signal
	Truncated      bool // a stream was longer than Cmd.MaxOutput
}

// Check gives an [*ExitError] where the exit code is not 0.
func (r Result) Check(c Cmd) error {
	if r.ExitCode == 0 {
		return nil
	}
	return &ExitError{Cmd: c.String(), ExitCode: r.ExitCode, Output: lastWords(r)}
}

// ExitError is a tool that said no.
type ExitError struct {
	Cmd      string // [Cmd.String]
	ExitCode int
	Output   string // the end of what it printed, on one line
}

// Error names the tool, its exit code and its last words.
func (e *ExitError) Error() string {
	msg := fmt.Sprintf("%s: exit status %d", e.Cmd, e.ExitCode)
	if e.Output != "" {
		msg += ": " + e.Output
	}
	return msg
}

// lastWords is the end of standard error, or of standard output where that is
// empty, in one line.
func lastWords(r Result) string {
	const enough = 400
	text := strings.Join(strings.Fields(string(r.Stderr)), " ")
	if text == "" {
		text = strings.Join(strings.Fields(string(r.Stdout)), " ")
	}
	if len(text) > enough {
		text = "…" + strings.ToValidUTF8(text[len(text)-enough:], "")
	}
	return text
}

// Runner runs tools. [New] gives the real one, exectest.Script one for tests.
type Runner interface {
	// Run runs a tool and waits for it. That it exited with another code than 0
	// is no error here (see [Result.Check]). The errors:
	//   - api.ErrMissingTool: it is not on this node; Next names the Debian package
	//   - api.ErrTimeout: it was killed at the deadline, or could not be: it waits
	//     in the kernel and was left behind, its pid named
	//   - context.Canceled: the same, by interruption
	//   - api.ErrUncertain: a NoKill tool still runs, its pid named; or something
	//     else killed the tool
	//   - a context without a deadline, or a secret among the arguments: refused
	Run(ctx context.Context, c Cmd) (Result, error)
	// LookPath gives the absolute path of a tool, or api.ErrMissingTool.
	LookPath(name string) (string, error)
}

// Options of [New]. The zero value is right for kvol.
type Options struct {
	// Path are the directories of the tools; nil means the standard ones and then
	// those of $PATH.
	Path []string
	// Log gets a debug record of every run; nil means none.
	Log *slog.Logger
	// Grace is the time between SIGTERM and SIGKILL, and again between SIGKILL
	// and giving up; 0 means 1 s. Run thus ends at most 2*Grace after its deadline.
	Grace time.Duration
}

// New gives the Runner of this node.
func New(o Options) Runner {
	if o.Path == nil {
		o.Path = toolDirs(os.Getenv("PATH"))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Grace == 0 {
		o.Grace = time.Second
	}
	return &runner{o}
}

// toolDirs is the standard directories and then those of path. A relative one is
// dropped: the tool found would depend on where kvol was started.
func toolDirs(path string) []string {
	dirs := []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	for _, d := range filepath.SplitList(path) {
		if filepath.IsAbs(d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

type runner struct{ Options }

func (r *runner) LookPath(name string) (string, error) {
	if filepath.IsAbs(name) {
		if executable(name) {
			return name, nil
		}
		return "", missing(name)
	}
	if name == "" || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("%q is not the name of a tool", name)
	}
	for _, d := range r.Path {
		if p := filepath.Join(d, name); executable(p) {
			return p, nil
		}
	}
	return "", missing(name)
}

func executable(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.Mode().IsRegular() && unix.Access(p, unix.X_OK) == nil
}

func (r *runner) Run(ctx context.Context, c Cmd) (Result, error) {
	none := Result{ExitCode: -1}
	if _, ok := ctx.Deadline(); !ok {
		return none, fmt.Errorf("%s: refused to run it without a deadline", c)
	}
	if c.Secret != nil && c.Secret.in(strings.Join(c.Args, "\n")) {
		return none, api.Errorf(api.ErrRefused, "%s: a secret among its arguments, where every user of the node can read it", filepath.Base(c.Name)).
			WithNext("take the secret out of the document's other fields, such as mountOptions")
	}
	path, err := r.LookPath(c.Name)
	if err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("%s: not started: %w", c, err)
	}
	began := time.Now()
	p, err := start(path, c, r.Path)
	if err != nil {
		return none, err
	}
	err = p.wait(ctx, r.Grace)
	res := p.result()
	p.close()
	r.Log.Debug("exec", "command", c.String(), "pid", p.pid, "exit", res.ExitCode, "took", time.Since(began), "error", err)
	return res, err
}

// process is one tool that was started.
type process struct {
	c        Cmd
	pid      int
	began    time.Time
	ended    chan struct{} // closed when it was waited for; state and waitErr are set before
	state    *os.ProcessState
	waitErr  error
	out, err output
}

// pipesAfter is how long a tool's output is still read after its end, where a
// child of it (a FUSE daemon) holds the pipes.
const pipesAfter = 250 * time.Millisecond

func start(path string, c Cmd, dirs []string) (*process, error) {
	p := &process{c: c, ended: make(chan struct{})}
	newOutput := newBuffer
	if c.NoKill {
		newOutput = newMemfd
	}
	limit := c.MaxOutput
	if limit <= 0 {
		limit = 1 << 20
	}
	var err error
	if p.out, err = newOutput(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	if p.err, err = newOutput(limit); err != nil {
		p.out.close()
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	cmd := exec.Command(path, c.Args...) //nolint:noctx // its end is decided in wait: a group is killed, not a process
	cmd.Args[0] = c.Name
	cmd.Env = environment(os.Environ(), dirs)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = p.out.forChild(), p.err.forChild()
	if in := c.input(); in != nil {
		cmd.Stdin = in
	}
	cmd.ExtraFiles = append(append([]*os.File{}, c.Files...), c.Inherit...)
	cmd.WaitDelay = pipesAfter
	// A session, not only a group: a tool that opens /dev/tty to ask for a
	// password fails; in a background group SIGTTIN would stop it for ever.
	// No Pdeathsig: it fires when the starting *thread* ends, and a half-done
	// login or mount is worse than one that comes to its end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.began = time.Now()
	if err := cmd.Start(); err != nil {
		p.close()
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	p.pid = cmd.Process.Pid
	go func() {
		p.waitErr = cmd.Wait()
		p.state = cmd.ProcessState
		close(p.ended)
	}()
	return p, nil
}

// wait waits for the end of the tool, or brings it about.
func (p *process) wait(ctx context.Context, grace time.Duration) error {
	select {
	case <-p.ended:
		return p.ending()
	case <-ctx.Done():
	}
	after := time.Since(p.began).Round(time.Millisecond)
	cause := api.ErrTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		cause = context.Canceled
	}
	if p.c.NoKill {
		return api.Errorf(api.ErrUncertain, "%s: still running after %s as pid %d; it is not killed, because that could destroy data", p.c, after, p.pid).
			WithNext("wait until process %d has ended, then run the same command again", p.pid)
	}
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
		_ = unix.Kill(-p.pid, sig)
		select {
		case <-p.ended:
			// The tool itself is gone; what it started may have ignored SIGTERM.
			_ = unix.Kill(-p.pid, unix.SIGKILL)
			return api.Errorf(cause, "%s: not finished after %s, killed%s", p.c, after, p.lastWords())
		case <-time.After(grace):
		}
	}
	return api.Errorf(cause, "%s: not finished after %s and cannot be killed: pid %d waits in the kernel and was left behind%s", p.c, after, p.pid, p.lastWords())
}

// ending judges a tool that ended by itself.
func (p *process) ending() error {
	if p.state == nil {
		return fmt.Errorf("%s: %w", p.c, p.waitErr)
	}
	if ws, ok := p.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return api.Errorf(api.ErrUncertain, "%s: ended by signal %d (%s) from outside%s", p.c, ws.Signal(), ws.Signal(), p.lastWords())
	}
	// What is left in waitErr is an exit code, a pipe held by a grandchild
	// (exec.ErrWaitDelay), or a tool that did not read all of its input.
	return nil
}

func (p *process) lastWords() string {
	if w := lastWords(p.result()); w != "" {
		return ": " + w
	}
	return ""
}

// close frees kvol's side of the output. A tool that goes on has its own.
func (p *process) close() {
	p.out.close()
	p.err.close()
}

// result is what is known of the tool by now.
func (p *process) result() Result {
	r := Result{ExitCode: -1}
	var cutOut, cutErr bool
	r.Stdout, cutOut = p.out.bytes()
	r.Stderr, cutErr = p.err.bytes()
	r.Truncated = cutOut || cutErr
	if s := p.c.Secret; s != nil {
		r.Stdout, r.Stderr = s.redact(r.Stdout), s.redact(r.Stderr)
	}
	select {
	case <-p.ended:
		if p.state != nil {
			r.ExitCode = p.state.ExitCode()
		}
	default:
	}
	return r
}
