package main

import (
	"errors"
	"io"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/render"
)

// options are the output flags of a command, checked against what it shows. It
// is called before the command does anything: what cannot be shown is not done.
func (a *app) options(c render.Checker) (render.Options, error) {
	o := render.Options{
		Format: render.Format(a.output), NoHeaders: a.noHeaders, Null: a.null,
		Columns: a.columns, SortBy: a.sortBy, Color: a.colorful(),
	}
	if err := c.Check(o); err != nil {
		if origin := a.origins["output"]; origin != "flag" && origin != "default" {
			err = &api.Error{Err: err, Details: []string{"--output comes from " + origin}}
		}
		return o, err
	}
	return o, nil
}

// quietly turns the output of a list into names.
func (a *app) quietly() error {
	if !a.quiet {
		return nil
	}
	switch f := render.Format(a.output); f {
	case render.Table, render.Wide, render.Name:
		a.output = string(render.Name)
		return nil
	default:
		return api.Errorf(api.ErrUsage, "--quiet prints names only and does not go with --output %s", f)
	}
}

// showList runs a command whose result is a list, which is shown also when it
// comes with an error.
func showList[T any](a *app, view render.View[T], get func() (*api.List[T], error)) error {
	if err := a.quietly(); err != nil {
		return err
	}
	o, err := a.options(view)
	if err != nil {
		return err
	}
	l, err := get()
	if l == nil {
		return err
	}
	return errors.Join(err, a.list(l.Warnings, len(l.Items), view.Empty(), err, o, func(w io.Writer) error {
		return view.Write(w, l, o)
	}))
}

// list writes a list, and for people beside it the warnings, and that it is empty.
func (a *app) list(warnings []string, n int, empty string, failed error, o render.Options, write func(io.Writer) error) error {
	if err := a.result(write); err != nil {
		return err
	}
	if o.Format != render.JSON && o.Format != render.YAML {
		for _, warning := range warnings {
			render.Note(a.stderr, "kvol: warning: %s", warning)
		}
	}
	if n == 0 && o.ForPeople() && failed == nil {
		render.Note(a.stderr, "%s", empty)
	}
	return nil
}

// showDocument runs a command whose result is one thing.
func showDocument[T any](a *app, doc render.Document[T], get func() (T, error)) error {
	if doc.HasNames() {
		if err := a.quietly(); err != nil {
			return err
		}
	}
	o, err := a.options(doc)
	if err != nil {
		return err
	}
	v, err := get()
	if err != nil {
		return err
	}
	return a.result(func(w io.Writer) error { return doc.Write(w, v, o) })
}
