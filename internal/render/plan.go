package render

import (
	"bufio"
	"io"
	"slices"
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
		after:   fileValues,
		tree:    func(items []api.Step, _ Options) []*branch { return stepBranches(items, planned()) },
		shell:   true,
	}}
}

func stepColumns([]api.Step, Format) []column[api.Step] {
	return []column[api.Step]{
		{name: "n", keep: true, cell: func(s api.Step) string { return number(s.N) }, less: by(func(s api.Step) int { return s.N })},
		{name: "action", keep: true, cell: func(s api.Step) string { return s.Action }},
		{name: "target", cell: func(s api.Step) string { return s.Target }},
		{name: "args", cell: func(s api.Step) string { return strings.Join(s.Args, " ") }},
		{name: "shell", wide: true, cell: func(s api.Step) string { return s.Shell }},
		{name: "reason", cell: func(s api.Step) string { return s.Reason }},
	}
}

// Recoveries shows the steps of kvol recover.
func Recoveries() PlanView {
	v := Plans()
	v.empty = "Nothing of the metadata is broken."
	return v
}

// fileValues lists below the steps what the files that are rebuilt will say, and who
// tells it.
func fileValues(w io.Writer, items []api.Step, o Options) error {
	var rows [][]string
	for _, s := range items {
		for _, v := range s.Values {
			rows = append(rows, []string{number(s.N), v.Key, cell(v.Value), cell(v.From)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return grid{tracks("N", "KEY", "VALUE", "TOLD BY"), rows}.write(w, o)
}

// Write shows the plan. As a script it is api.ErrNotSupported, with the step
// named and nothing written, when a step has no shell form and nothing stands for it.
func (v PlanView) Write(w io.Writer, p *api.Plan, o Options) error {
	switch {
	case o.Format == Tree && len(p.Parts) > 0:
		return writeTree(w, planTree(p), o)
	case o.Format != Shell:
		return v.View.Write(w, p.List, o)
	}
	if step := noShell(p); step != "" {
		return api.Errorf(api.ErrNotSupported, "this plan has no shell form, because of step %s", step).
			WithNext("run the command itself, or look at the steps with --dry-run -o table; --shell-with-kvol writes a line that runs such a step")
	}
	return script(w, p)
}

// noShell names the first step that the script cannot have.
func noShell(p *api.Plan) string {
	if p.Parts == nil {
		return p.NoShell
	}
	for _, part := range p.Parts {
		if i := slices.IndexFunc(part.Steps, hasNoShell); i >= 0 && part.Command == "" {
			return part.Steps[i].String()
		}
	}
	return ""
}

func hasNoShell(s api.Step) bool { return s.Shell == "" }

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
	parts := p.Parts
	if parts == nil {
		parts = []api.PlanPart{{Steps: p.Items}}
	}
	for i, part := range parts {
		if of := ofWhat(part); i == 0 && of != ofWhat(parts[len(parts)-1]) || i > 0 && of != ofWhat(parts[i-1]) {
			write("\n# ", Line(of), "\n")
		}
		instead := part.Command != "" && slices.ContainsFunc(part.Steps, hasNoShell)
		for j, s := range part.Steps {
			if !instead || j == 0 {
				write("\n")
			}
			write("# ", number(s.N), ". ", Line(s.Reason), "\n")
			for _, v := range s.Values {
				write("#    ", Line(v.Key+": "+v.From), "\n")
			}
			if !instead {
				write(s.Shell, "\n")
			}
		}
		if instead {
			write(part.Command, "\n")
		}
	}
	if len(p.Items) == 0 {
		write("\n# There is nothing to do.\n")
	}
	return b.Flush()
}

// ofWhat is the volume that a part of a plan is of.
func ofWhat(p api.PlanPart) string {
	if p.PodUID == "" {
		return "Volume " + p.Volume
	}
	return "Volume " + p.Volume + " of pod " + p.PodUID
}

// shellQuote makes one word of s, whatever is in it.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
