package render

import (
	"bufio"
	"io"
	"strings"

	"github.com/kvol/kvol/internal/api"
)

// PlanView shows what a verb would do, also as a bash script.
type PlanView struct{ View[api.Step] }

// Plans shows the steps of --dry-run.
func Plans() PlanView {
	return PlanView{View[api.Step]{
		empty:   "Nothing to do.",
		columns: stepColumns,
		names:   func(s api.Step) []string { return []string{s.Target} },
		shell:   true,
	}}
}

func stepColumns([]api.Step, Format) []column[api.Step] {
	return []column[api.Step]{
		{name: "n", cell: func(s api.Step) string { return number(s.N) }, less: by(func(s api.Step) int { return s.N })},
		{name: "action", cell: func(s api.Step) string { return s.Action }},
		{name: "target", cell: func(s api.Step) string { return s.Target }},
		{name: "args", cell: func(s api.Step) string { return strings.Join(s.Args, " ") }},
		{name: "shell", wide: true, cell: func(s api.Step) string { return s.Shell }},
		{name: "reason", cell: func(s api.Step) string { return s.Reason }},
	}
}

// Write shows the plan. As a script it is api.ErrNotSupported, with the step
// named and nothing written, when a step has no shell form.
func (v PlanView) Write(w io.Writer, p *api.Plan, o Options) error {
	if o.Format != Shell {
		return v.View.Write(w, p.List, o)
	}
	if p.NoShell != "" {
		return api.Errorf(api.ErrNotSupported, "this plan has no shell form, because of step %s", p.NoShell).
			WithNext("run the command itself, or look at the steps with --dry-run -o table")
	}
	return script(w, p)
}

// script prints the facts that the plan rests on and then its steps. A fact that
// no longer holds ends the script with 4, the exit code of a refusal, before
// anything is changed.
func script(w io.Writer, p *api.Plan) error {
	b := bufio.NewWriter(w)
	write := func(parts ...string) {
		for _, s := range parts {
			_, _ = b.WriteString(s) // the first error stays and Flush returns it
		}
	}
	write("#!/usr/bin/env bash\nset -eu\n")
	if len(p.Facts) > 0 {
		write("\n# The facts that these steps rest on.\n")
	}
	for _, fact := range p.Facts {
		write("if ! { ", fact, "; }; then echo ", shellQuote("refused, this no longer holds: "+Line(fact)), " >&2; exit 4; fi\n")
	}
	for _, s := range p.Items {
		write("\n# ", number(s.N), ". ", Line(s.Reason), "\n", s.Shell, "\n")
	}
	if len(p.Items) == 0 {
		write("\n# There is nothing to do.\n")
	}
	return b.Flush()
}

// shellQuote makes one word of s, whatever is in it.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
