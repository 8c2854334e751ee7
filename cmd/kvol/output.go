package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/render"
)

// shortForms are kubectl's own other words for two of its formats.
var shortForms = map[string]string{"template": string(render.GoTemplate), "templatefile": string(render.GoTemplateFile)}

// settleOutput takes --output FORMAT=TEMPLATE apart, as kubectl does, and reads the
// file of a format that names one.
func (a *app) settleOutput(ctx context.Context) error {
	format, text, given := strings.Cut(a.output, "=")
	if long, ok := shortForms[format]; ok {
		format = long
	}
	a.format, a.templateText = render.Format(format), text
	switch {
	case a.template != "" && a.origins["output"] != "flag":
		a.format, a.templateText = render.GoTemplate, a.template
	case a.template != "" && given:
		return api.Errorf(api.ErrUsage, "--template and --output %s= are two templates", format).WithNext("give one of the two")
	case a.template != "" && !a.format.TakesTemplate():
		return api.Errorf(api.ErrUsage, "--template does not go with --output %s, which takes none", format)
	case a.template != "":
		a.templateText = a.template
	case given && !a.format.TakesTemplate():
		a.format = render.Format(a.output) // there is no such format
	}
	if a.rank("output") > a.rank("quiet") && a.format != render.Name {
		a.quiet = false
	}
	if !a.format.InFile() || a.templateText == "" {
		return nil
	}
	path := a.templateText
	raw, err := within(ctx, path, func() ([]byte, error) {
		return a.files.read(path, func() ([]byte, error) { return readFile(path, maxConfig) })
	})
	if err == nil && len(raw) > maxConfig {
		err = fmt.Errorf("it is longer than %d bytes", maxConfig)
	}
	if err != nil {
		return &api.Error{Kind: api.ErrInput, Path: path, Err: fmt.Errorf("the template of --output %s: %w", format, err)}
	}
	a.templateText = string(raw)
	return nil
}

// options are the output flags of a command, checked against what it shows. It
// is called before the command does anything: what cannot be shown is not done.
func (a *app) options(c render.Checker) (render.Options, error) {
	o := render.Options{
		Format: a.format, Template: a.templateText, StrictKeys: !a.allowMissingKeys, NoHeaders: a.noHeaders, Null: a.null,
		Columns: a.columns, SortBy: a.sortBy, Color: a.colorful(), Width: a.width, Unicode: a.unicode(),
	}
	if err := c.Check(o); err != nil {
		if origin := a.origins["output"]; origin != "flag" && origin != "default" {
			err = &api.Error{Err: err, Details: []string{"--output comes from " + origin}}
		}
		return o, err
	}
	return o, nil
}

// showsAll says that the output has every field of an item, and none is cut.
func (a *app) showsAll() bool {
	return a.format != render.Name && !a.format.TakesTemplate() && (a.format != render.Table || a.width == 0 && len(a.columns) == 0)
}

// quietly turns the output of a list into names.
func (a *app) quietly() error {
	if !a.quiet {
		return nil
	}
	switch a.format {
	case render.Table, render.Wide, render.Name:
		a.format = render.Name
		return nil
	default:
		switch {
		case a.rank("quiet") > a.rank("output"):
			a.format = render.Name
			return nil
		case a.rank("output") == fromFlag:
			return api.Errorf(api.ErrUsage, "--quiet prints names only and does not go with --output %s", a.format)
		}
		err := api.Errorf(api.ErrUsage, "quiet prints names only and does not go with output %s", a.format)
		err.Details = []string{"quiet comes from " + a.origins["quiet"], "output comes from " + a.origins["output"]}
		return err.WithNext("say which: give -q or -o FORMAT")
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
	if err == nil && len(l.Items) == 0 {
		err = a.noPlugin
	}
	o.Pods = a.nodePods
	return errors.Join(err, a.list(l.Warnings, len(l.Items), view.Empty(), err, o, func(w io.Writer) error {
		return view.Write(w, l, o)
	}))
}

// list writes a list, and for people beside it the warnings, and that it is empty.
func (a *app) list(warnings []string, n int, empty string, failed error, o render.Options, write func(io.Writer) error) error {
	if err := a.result(write); err != nil {
		return err
	}
	for _, warning := range warnings {
		switch o.Format {
		case render.JSON, render.YAML: // it is in the document
		case render.JSONL:
			slog.New(slog.NewJSONHandler(a.stderr, nil)).Warn(warning)
		default:
			render.Note(a.stderr, columns(a.stderr), "kvol: warning: %s", warning)
		}
	}
	if n == 0 && o.ForPeople() && failed == nil {
		render.Note(a.stderr, columns(a.stderr), "%s", empty)
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
	o.Pods = a.nodePods
	return a.result(func(w io.Writer) error { return doc.Write(w, v, o) })
}
