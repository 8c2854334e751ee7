package main

import (
	"context"

	"github.com/kvol/kvol/internal/api"
)

// doors are the next steps that fit every failure of a kind, for one that brings none
// of its own. A kind that is not here says what is next wherever it is made
// (catalogue_test.go). The kind that decides about the exit code decides here too;
// nil is plain failure.
var doors = map[error]func(a *app) string{
	nil:                      (*app).again,
	api.ErrInterrupt:         (*app).again,
	context.Canceled:         (*app).again,
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
	door := doors[api.KindOf(err)]
	if door == nil || api.NewErrorDoc(err).Next != "" {
		return err
	}
	return &api.Error{Err: err, Next: door(a)}
}

// again is for what did not come to its end.
func (a *app) again() string {
	if a.changes {
		return "the same command again goes on from here; kvol history tells what was done"
	}
	return "run the same command again, as root where it may not read something"
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
