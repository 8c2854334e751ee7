package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// doors are the next steps that fit every failure of a kind, for one that brings none
// of its own. A kind that is not here says what is next wherever it is made
// (catalogue_test.go). The kind that decides about the exit code decides here too;
// nil is plain failure.
var doors = map[error]func(a *app) string{
	nil:                      (*app).again,
	api.ErrInterrupt:         (*app).repeat,
	context.Canceled:         (*app).repeat,
	api.ErrUncertain:         (*app).again,
	api.ErrTimeout:           (*app).longer,
	context.DeadlineExceeded: (*app).longer,
	api.ErrUsage:             func(a *app) string { return a.command + " --help" },
	api.ErrInput:             func(*app) string { return "correct what is named, then run the same command again" },
	api.ErrNotFound:          func(*app) string { return "see what there is: kvol list-mounts" },
	api.ErrNotMounted:        func(*app) string { return "see what is mounted: kvol list-mounts" },
}

// advise says what to do next, unless the error says something better.
func (a *app) advise(err error) error {
	next := api.NewErrorDoc(err).Next
	if door := doors[api.KindOf(err)]; next == "" && door != nil {
		next = door(a)
	}
	return &api.Error{Err: err, Next: a.placed(next)}
}

// where are the flags that say of what node a command is: one that is given with this
// command belongs to the next one too.
var where = []string{"config", "root-dir", "state-dir", "run-dir", "proc-root", "sys-root", "dev-root", "mount-namespace"}

// placed completes the commands of kvol in a next step.
func (a *app) placed(next string) string {
	if a.tree == nil || !strings.Contains(next, "kvol ") {
		return next
	}
	words := ""
	for _, name := range where {
		if f := a.tree.PersistentFlags().Lookup(name); f.Changed && !strings.Contains(next, "--"+name) {
			words += " " + strings.Join(a.flagWords(f), " ")
		}
	}
	call := regexp.MustCompile(`(^|[^-\w./])kvol ([a-z][a-z-]*)( --help)?`)
	return call.ReplaceAllStringFunc(next, func(call string) string {
		cmd, _, err := a.tree.Find([]string{call[strings.LastIndexByte(call, ' ')+1:]})
		if err != nil || cmd == a.tree || cmd.GroupID == about {
			return call
		}
		return call + words
	})
}

// again is for what did not come to its end.
func (a *app) again() string {
	if a.changes {
		return "the same command again goes on from here; kvol history tells what was done"
	}
	return "run the same command again, as root where it may not read something"
}

// repeat is for what was told to end.
func (a *app) repeat() string {
	if a.changes {
		return a.again()
	}
	return "run the same command again"
}

func (a *app) longer() string {
	if a.changes {
		return a.again() + "; --timeout gives it more time"
	}
	return "run the same command again; --timeout gives it more time"
}

// writing says what failed, unless it has words of its own.
func writing(err error) error {
	if err == nil || api.ExitCode(err) != api.ExitFailed || api.NewErrorDoc(err).Next != "" {
		return err
	}
	return api.Errorf(nil, "write the result: %w", err).WithNext("make room where the output goes; what was changed meanwhile, kvol history tells")
}
