package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/pflag"
)

// work is what a command asks of the verbs: to do it, or to show the steps of it.
type work struct {
	dryRun bool
	run    func(context.Context, *ops.Ops) (*api.List[api.Result], error)
	// plan may give a plan beside an error: that of the volumes that have one.
	plan func(context.Context, *ops.Ops) (*api.Plan, error)
	// instead is the command that stands in a script for a part of the plan that has
	// no shell form; nil refuses such a script.
	instead func(api.PlanPart) (string, error)
	// view shows the plan.
	view render.PlanView
	// instruct is what to do for a script where the output is one and dryRun is off.
	instruct string
}

// carry does it, or shows the steps of it.
func (a *app) carry(ctx context.Context, w work) error {
	if w.dryRun {
		return a.plan(ctx, w)
	}
	o, err := a.options(render.Results())
	if err != nil && a.format == render.Shell && w.instruct != "" {
		err = (&api.Error{Err: err}).WithNext("the steps as a script: %s", w.instruct)
	}
	if err != nil {
		return err
	}
	h, mgr, err := a.open()
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := w.run(ctx, ops.New(h, mgr))
	a.progress.end()
	return a.results(l, err, o)
}

// results shows what a verb did, as far as it came.
func (a *app) results(l *api.List[api.Result], failed error, o render.Options) error {
	if l == nil {
		return failed
	}
	o.Pods = a.nodePods
	write := func(w io.Writer) error { return render.Results().Write(w, l, o) }
	if a.quiet {
		write = func(io.Writer) error { return nil }
	}
	return errors.Join(failed, a.list(l.Warnings, len(l.Items), render.Results().Empty(), failed, o, write))
}

func (a *app) plan(ctx context.Context, w work) error {
	view := w.view
	if err := a.quietly(); err != nil {
		return err
	}
	o, err := a.options(view)
	if err != nil {
		return err
	}
	h, mgr, err := a.open()
	if err != nil {
		return err
	}
	defer h.Close()
	p, err := w.plan(ctx, ops.New(h, mgr))
	a.progress.end()
	if p == nil || err != nil && o.Format == render.Shell {
		return err // half a script is none: nobody must run it
	}
	a.bind(p)
	if w.instead != nil {
		p.Parts = joined(p.Parts)
		for i := range p.Parts {
			command, ierr := w.instead(p.Parts[i])
			if ierr != nil {
				return ierr
			}
			p.Parts[i].Command = command
		}
	}
	return errors.Join(err, a.list(p.Warnings, len(p.Items), view.Empty(), err, o, func(w io.Writer) error { return view.Write(w, p, o) }))
}

// joined makes one of the parts of a volume that can only be done by one command.
func joined(parts []api.PlanPart) []api.PlanPart {
	var out []api.PlanPart
	for _, p := range parts {
		last := len(out) - 1
		if p.Verb == "" {
			out = append(out, p)
			continue
		}
		p.Rung = p.Verb
		if last >= 0 && out[last].Verb == p.Verb && out[last].Volume == p.Volume && out[last].PodUID == p.PodUID {
			out[last].Steps = append(out[last].Steps, p.Steps...)
		} else {
			out = append(out, p)
		}
	}
	return out
}

// notInScripts are the flags that say how kvol shows what it does, or which volume
// of several: a command in a script names its own.
var notInScripts = []string{
	"all", "dry-run", "shell-with-kvol", "must-exist", "check", "filename", "volume", "pod-uid",
	"output", "template", "columns", "list-columns", "sort-by", "no-headers", "null", "ascii", "color", "quiet", "log-level", "verbose", "config",
}

// always are the settings that a command in a script has in any case: it may run
// under another environment and another configuration.
var always = []string{"root-dir", "state-dir", "run-dir"}

// command is kvol's own command for one rung of a plan. It has every flag that was
// given, by whatever way, and that the rung's verb knows.
func (o *verbOptions) command(a *app, part api.PlanPart) (string, error) {
	words := []string{"kvol", part.Rung}
	root := newApp(nil, nil, io.Discard, io.Discard).root() // a has parsed its own flags already
	cmd, _, err := root.Find([]string{part.Rung})
	if err != nil {
		return "", err
	}
	known := cmd.Flags()
	known.AddFlagSet(root.PersistentFlags())
	if len(o.files) == 0 {
		words = append(words, act.Quote(part.Word))
	} else {
		words = append(words, "--volume", act.Quote(part.Word))
	}
	for _, file := range o.files {
		path, err := a.abs(file)
		if err != nil {
			return "", err
		}
		words = append(words, "-f", act.Quote(path))
	}
	if known.Lookup("pod-uid") != nil {
		words = append(words, "--pod-uid", part.PodUID)
	}
	o.flags.VisitAll(func(f *pflag.Flag) {
		given := f.Changed || a.origins[f.Name] != "" && a.given(f.Name) || slices.Contains(always, f.Name)
		if given && known.Lookup(f.Name) != nil && !slices.Contains(notInScripts, f.Name) {
			words = append(words, a.flagWords(f)...)
		}
	})
	return strings.Join(words, " "), nil
}

// flagWords are the words of a script that give a flag the value it has here.
func (a *app) flagWords(f *pflag.Flag) []string {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	var words []string
	for _, v := range values {
		switch source, path, _ := strings.Cut(v, ":"); {
		case f.Value.Type() == "bool" && v == "true":
			words = append(words, "--"+f.Name)
			continue
		case f.Name == "kubeconfig":
			v = a.absolute(v)
		case f.Name == "pods-from" && source == "file":
			v = source + ":" + a.absolute(path)
		}
		words = append(words, act.Quote("--"+f.Name+"="+v))
	}
	return words
}

func (a *app) absolute(path string) string {
	if abs, err := a.abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// checkScript refuses what a script with commands of kvol cannot be made of.
func (o *verbOptions) checkScript(a *app) error {
	if !o.dryRun || a.format != render.Shell {
		return api.Errorf(api.ErrUsage, "--shell-with-kvol is about the script of a plan").WithNext("give it with --dry-run -o shell")
	}
	for _, file := range o.files {
		if file == "-" || strings.HasPrefix(file, "/dev/") || strings.HasPrefix(file, "/proc/") {
			return api.Errorf(api.ErrUsage, "-f %s cannot be read again when the script runs", file).
				WithNext("write the documents to a file, and name that: -f FILE")
		}
	}
	return nil
}
