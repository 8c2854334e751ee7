// Command kvol carries Kubernetes volumes up and down by hand on a node, and
// tells what is there.
//
// A file here is a command: its flags, its options and one call into ops or
// node. Nothing here knows of volumes or of the machine, and nothing but the
// render package formats a result.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
)

// grace is how long a command may take to end by itself once its time is up; the
// process ends then, whatever is stuck.
const grace = 400 * time.Millisecond

// app is one run of kvol.
type app struct {
	stdin    io.Reader
	stdout   io.Writer
	out      *bufio.Writer // results only; it keeps the first error of writing
	stderr   io.Writer
	args     []string
	terminal bool
	width    int // of the terminal; 0 is none
	settings
	log      *slog.Logger
	progress *progress

	// changes says that the command can change the node, acts that it will.
	changes, acts bool
	anyRoot       bool      // the command needs no root directory
	endless       bool      // the command ends when it is told to
	noPlugin      error     // the failure where nothing on the node is of --plugin
	handed        *handover // nil unless this process came from another mount namespace
	own           map[string]host.OwnDir
	podUIDs       []string // those that were given
	nodePods      []string // all of the node

	// intercept takes a command's options instead of running it; for tests.
	intercept func(context.Context, runner) error
	started   bool   // the words of the command line made sense
	command   string // its name, with that of its parents
	overdue   chan struct{}
	watchdog  *time.Timer
	told      chan struct{} // closed with the first signal
	stalled   chan struct{} // the result was not written soon after that
	deadline  time.Time
}

// runner is a command's options, parsed.
type runner interface {
	run(ctx context.Context, a *app) error
}

// Run is kvol without its process: the words after the name in, the exit code
// out. It returns in time even if a call that it made never does.
func Run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := newApp(args, stdin, stdout, stderr)
	if completing(args) {
		return a.complete()
	}
	return a.main()
}

func (a *app) main() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	again, stop := onSignal(func() { cancel(api.ErrInterrupt); close(a.told) })
	defer stop()

	done := make(chan error, 1)
	go func() { done <- a.execute(ctx, a.root()) }()
	select {
	case err := <-done:
		if err != nil && errors.Is(context.Cause(ctx), api.ErrInterrupt) {
			if a.endless && !a.wantsJSON() {
				return api.ExitInterrupted // the way to end it, and no failure
			}
			err = &api.Error{Kind: api.ErrInterrupt, Err: err}
		}
		return a.end(err)
	case <-a.overdue:
		return a.fail(api.Errorf(api.ErrTimeout, "did not end within its time-out, and something that it waits for does not answer"))
	case <-a.stalled:
		return a.fail(&api.Error{Kind: api.ErrInterrupt, Err: api.ErrInterrupt})
	case <-again:
		return a.fail(api.Errorf(api.ErrInterrupt, "interrupted twice, so what it was doing was not waited for and may still happen"))
	}
}

func newApp(args []string, stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{
		stdin: stdin, stdout: stdout, terminal: isTerminal(stdout), width: columns(stdout), out: bufio.NewWriterSize(stdout, 64<<10), stderr: stderr, args: args,
		log: slog.New(slog.DiscardHandler), progress: newProgress(stderr),
		overdue: make(chan struct{}), told: make(chan struct{}), stalled: make(chan struct{}, 1),
	}
}

// onSignal calls first at the first SIGINT or SIGTERM and closes the channel at
// the second. The function that it returns ends that.
func onSignal(first func()) (again <-chan struct{}, stop func()) {
	got := make(chan os.Signal, 2)
	second := make(chan struct{})
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		if _, ok := <-got; !ok {
			return
		}
		first()
		if _, ok := <-got; ok {
			close(second)
		}
	}()
	return second, func() { signal.Stop(got); close(got) }
}

// execute runs the command that the words name. A panic is a failure like
// others: its own exit code would say bad usage.
func (a *app) execute(ctx context.Context, root *cobra.Command) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &api.Error{Err: fmt.Errorf("a defect in kvol: %v", r), Details: strings.Split(string(debug.Stack()), "\n"),
				Next: "report it with the lines above; kvol history tells what was done"}
		}
	}()
	a.tree = root
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(a.args)
	root.SetOut(a.out)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started && api.ExitCode(err) == api.ExitFailed {
		err = api.Errorf(api.ErrUsage, "%w", err)
	}
	a.command = cmd.CommandPath()
	return err
}

// do is what every command does once its words are parsed: read the
// configuration, set the time limit, run.
func (a *app) do(cmd *cobra.Command, limit time.Duration, r runner) error {
	a.started = true
	if err := a.receive(); err != nil {
		return err
	}
	a.changes, a.acts = changing(cmd.Flags())
	a.endless = limit == endless
	reading, stop := context.WithTimeout(cmd.Context(), a.watch(min(limit, slowLimit)))
	defer stop()
	defer a.watchdog.Stop()
	if err := a.load(reading, cmd.Root().PersistentFlags()); err != nil {
		return err
	}
	a.resume()
	if err := a.settleOutput(reading); err != nil {
		return err
	}
	a.log = a.logger()
	if a.handed == nil { // else it has been told
		for _, warning := range a.strangeVariables(cmd.Root().PersistentFlags()) {
			a.log.Warn(warning)
		}
	}
	if err := a.namePlugin(cmd.Flags()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.watch(limit))
	defer cancel()
	if a.intercept != nil {
		return a.intercept(ctx, r)
	}
	return r.run(ctx, a)
}

// watch starts the watchdog, or starts it again when more is known, and gives
// the time that the command has.
func (a *app) watch(limit time.Duration) time.Duration {
	if a.timeout > 0 {
		limit = a.timeout
	}
	if a.handed != nil {
		limit = time.Until(a.handed.Until) // what is left of it
	}
	a.deadline = time.Now().Add(limit + grace)
	if a.watchdog == nil {
		a.watchdog = time.AfterFunc(limit+grace, func() { close(a.overdue) })
	} else if a.watchdog.Stop() {
		a.watchdog.Reset(limit + grace)
	}
	return limit
}

// result holds the watchdog back while a result is written: who reads it slowly
// (a pager, a terminal that was stopped) is not what the time-out is about, but of a
// command that has no other end. Who is told to end does not wait for a reader.
func (a *app) result(write func(io.Writer) error) error {
	if !a.watchdog.Stop() {
		return api.ErrTimeout // it has been reported already
	}
	if a.endless {
		a.watchdog.Reset(max(grace, time.Until(a.deadline)))
	}
	written := make(chan struct{})
	defer close(written)
	go a.noLonger(written)
	err := write(a.out)
	if err == nil {
		err = a.out.Flush()
	}
	if a.endless && !a.watchdog.Stop() {
		return api.ErrTimeout
	}
	a.watchdog.Reset(max(grace, time.Until(a.deadline)))
	return writing(err)
}

// noLonger ends kvol where a result is not written soon after the first signal.
func (a *app) noLonger(written <-chan struct{}) {
	select {
	case <-written:
		return
	case <-a.told:
	}
	select {
	case <-written:
	case <-time.After(5 * grace):
		a.stalled <- struct{}{}
	}
}

// end writes what is left of the output and tells how the run ended.
func (a *app) end(err error) int {
	if flushErr := a.out.Flush(); flushErr != nil && err == nil {
		err = writing(flushErr)
	}
	if err == nil {
		return api.ExitOK
	}
	return a.fail(err)
}

func (a *app) fail(err error) int {
	a.progress.end()
	err = a.advise(err)
	if a.wantsJSON() {
		render.ErrorJSON(a.stderr, err)
	} else {
		render.Error(a.stderr, columns(a.stderr), err)
	}
	return api.ExitCode(err)
}

// wantsJSON also holds where the words could not be parsed to their end, or the
// configuration could not be read.
func (a *app) wantsJSON() bool {
	if a.origins["output"] != "" {
		return isJSON(a.output)
	}
	for i, word := range a.args {
		value, ok := strings.CutPrefix(word, "--output=")
		if !ok {
			value, ok = strings.CutPrefix(strings.Replace(word, "-o=", "-o", 1), "-o")
		}
		if i > 0 && (a.args[i-1] == "-o" || a.args[i-1] == "--output") {
			value, ok = word, true
		}
		if ok && isJSON(value) {
			return true
		}
	}
	return isJSON(os.Getenv(envName("output")))
}

// isJSON says that errors and logs are JSON too.
func isJSON(output string) bool {
	return output == string(render.JSON) || output == string(render.JSONL)
}
