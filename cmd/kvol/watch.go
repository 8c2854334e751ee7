package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/render"

	"golang.org/x/sys/unix"
)

// endless is the limit of a command that goes on until it is told to end: a deadline
// like any other, that nobody lives to see.
const endless = 100 * 365 * 24 * time.Hour

// errUnread ends what nobody reads any more.
var errUnread = errors.New("nobody reads the output any more")

// follow shows what there is and then what changes, until the time is over or nobody
// reads it any more.
func (o *listMountsOptions) follow(ctx context.Context, a *app) error {
	if err := a.quietly(); err != nil {
		return err
	}
	events := &render.Events{}
	out, err := a.options(events)
	if err != nil {
		return err
	}
	h, _, err := a.open()
	if err != nil {
		return err
	}
	defer h.Close()
	out.Pods = a.nodePods
	o.filter.Pods = a.pods()
	w, err := node.NewWatcher(h, o.filter, o.interval)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.whenUnread(func() { cancel(errUnread) })
	err = a.eachLook(ctx, w, events, out)
	switch {
	case errors.Is(context.Cause(ctx), errUnread):
		// To write ends kvol as it does every program whose reader is gone.
		return a.result(func(w io.Writer) error { _, err := io.WriteString(w, "\n"); return err })
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil
	}
	return err
}

// eachLook shows what each look finds. The watchdog watches over each by itself.
func (a *app) eachLook(ctx context.Context, w *node.Watcher, events *render.Events, out render.Options) error {
	notes := out // a stream has no place for warnings
	switch out.Format {
	case render.JSON:
		notes.Format = render.JSONL
	case render.YAML:
		notes.Format = render.Name
	}
	told := []string{}
	for first := true; ; first = false {
		a.arm(readLimit)
		changed, warnings, err := w.Look(ctx)
		if err != nil {
			return err
		}
		warnings = slices.DeleteFunc(warnings, func(s string) bool { return slices.Contains(told, s) })
		told = append(told, warnings...)
		n := len(changed)
		if !first {
			n = 1 // that nothing changed is not to be told
		}
		err = a.list(warnings, n, render.Mounts().Empty(), nil, notes, func(w io.Writer) error { return events.Write(w, changed, out) })
		if err != nil {
			return err
		}
		a.arm(endless)
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}

// arm gives what comes next a limit of its own, within that of the command.
func (a *app) arm(limit time.Duration) {
	if a.watchdog.Stop() {
		a.watchdog.Reset(max(grace, min(limit+grace, time.Until(a.deadline))))
	}
}

// whenUnread calls f once nobody can read the output any more: who only waits would not
// notice. It ends with the process.
func (a *app) whenUnread(f func()) {
	out, ok := a.stdout.(*os.File)
	if !ok {
		return
	}
	go func() {
		p := []unix.PollFd{{Fd: int32(out.Fd())}} // of which errors are always told
		for {
			if _, err := unix.Poll(p, -1); errors.Is(err, unix.EINTR) {
				continue
			}
			f()
			return
		}
	}()
}
