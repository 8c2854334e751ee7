package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/node/alive"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What the shell does beside what is offered: nothing, files where nothing is, only
// directories, only files whose endings are offered.
const (
	noFiles = cobra.ShellCompDirectiveNoFileComp
	anyFile = cobra.ShellCompDirectiveDefault
	onlyDir = cobra.ShellCompDirectiveFilterDirs
	ofKind  = cobra.ShellCompDirectiveFilterFileExt
)

// arguments are what the arguments of a command may be; of the others there are none.
var arguments = map[string]offers{
	"inspect": once(either(volumes, pods, places)), "wait": others(either(volumes, pods, places)),
	"paths": others(places), "recover": once(either(volumes, places)),
	"detach": once(either(volumes, places)), "unmount-device": once(either(staged, places)),
	"teardown": once(either(volumes, places)), "expand": once(either(volumes, places)),
	"unpublish": once(published),
	"help":      commandNames,
}

// values are what the values of a flag may be; nil is what nobody can tell.
var values = map[string]offers{
	"columns": list(columnNames), "sort-by": columnNames, "output": formats,
	"color": choice("auto", "always", "never"), "log-level": choice("debug", "info", "warn", "error"),
	"kind": list(choice(as[string](mountKinds)...)), "state": list(choice(as[string](mountStates)...)), "owner": list(choice(as[string](mountOwners)...)),
	"for":    choice(as[string](conditions)...),
	"volume": volumes, "pod": podsByName, "pod-uid": pods, "namespace": namespaces, "plugin": pluginNames,
	"device": deviceNames, "pods-from": list(sources), "csi-endpoint": driverSockets, "runtime-endpoint": runtimeSockets,
	"filename": ending("yaml", "yml", "json"), "from-plan": ending("json"), "config": ending("yaml", "yml"),
	"kubeconfig": file, "template": file,
	"root-dir": directory, "state-dir": directory, "run-dir": directory, "proc-root": directory, "sys-root": directory,
	"dev-root": directory, "quarantine": directory,

	"node-name": nil, "mount-namespace": nil, "timeout": nil, "probe-timeout": nil, "lock-timeout": nil, "interval": nil,
	"verbose": nil, "claim": nil, "size": nil, "publish-context": nil, "since": nil, "limit": nil, "max": nil, "min-age": nil,
}

func file(tab) ([]string, cobra.ShellCompDirective)      { return nil, anyFile }
func directory(tab) ([]string, cobra.ShellCompDirective) { return nil, onlyDir }

func ending(endings ...string) offers {
	return func(tab) ([]string, cobra.ShellCompDirective) { return endings, ofKind }
}

func choice(of ...string) offers {
	return func(tab) ([]string, cobra.ShellCompDirective) { return slices.Clone(of), noFiles }
}

// once is for a command that takes one argument.
func once(what offers) offers {
	return func(t tab) ([]string, cobra.ShellCompDirective) {
		if len(t.args) > 0 {
			return nil, noFiles
		}
		return what(t)
	}
}

// others is for a command that takes several arguments, each once.
func others(what offers) offers {
	return func(t tab) ([]string, cobra.ShellCompDirective) {
		out, directive := what(t)
		return slices.DeleteFunc(out, func(offer string) bool {
			word, _, _ := strings.Cut(offer, "\t")
			return slices.Contains(t.args, word)
		}), directive
	}
}

// either is a path where one is begun, and else a name.
func either(what ...offers) offers {
	last := len(what) - 1
	return func(t tab) (out []string, directive cobra.ShellCompDirective) {
		if strings.HasPrefix(t.word, "/") {
			return what[last](t)
		}
		for _, w := range what[:last] {
			more, _ := w(t)
			out = append(out, more...)
		}
		return out, noFiles
	}
}

// list is for words with commas between them, each of which may have a + in front.
func list(what offers) offers {
	return func(t tab) ([]string, cobra.ShellCompDirective) {
		begun := strings.LastIndexByte(t.word, ',') + 1
		if strings.HasPrefix(t.word[begun:], "+") {
			begun++
		}
		head := t.word[:begun]
		given := strings.FieldsFunc(head, func(r rune) bool { return r == ',' || r == '+' })
		t.word = t.word[begun:]
		out, directive := what(t)
		out = slices.DeleteFunc(out, func(s string) bool { return slices.Contains(given, s) })
		for i := range out {
			out[i] = head + out[i]
		}
		return out, directive
	}
}

func commandNames(t tab) (out []string, directive cobra.ShellCompDirective) {
	at, rest, err := t.cmd.Root().Find(t.args)
	if err != nil || len(rest) > 0 {
		return nil, noFiles
	}
	for _, sub := range at.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, described(sub.Name(), sub.Short))
		}
	}
	return out, noFiles
}

// plain are the names that every shell takes as they are. bash inserts what several
// names have in common without quoting it, and its completion hands the line to eval:
// a name with $(…) in it would be run at the next press of the key. Whoever may make a
// pod chooses names on this node, so others are not offered.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./:@%+=,^~#-]*$`)

// described is what is offered, and what it is in words that a terminal can show.
func described(word, what string) string {
	const most = 60
	if what = render.Line(what); len([]rune(what)) > most {
		what = string([]rune(what)[:most-1]) + "…"
	}
	return strings.TrimSuffix(word+"\t"+what, "\t")
}

// given are the values of a flag; some may be there twice, as the library reads them twice.
func (t tab) given(name string) []string {
	f := t.cmd.Flags().Lookup(name)
	if f == nil || !f.Changed {
		return nil
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// names lists a directory; one that does not answer is empty.
func (t tab) names(dir string) []string {
	if !t.settled() {
		return nil
	}
	helper := probe.New("")
	defer helper.Close()
	h := host.Host{Options: host.Options{ProcRoot: t.procRoot}, Helper: helper}
	found, _ := h.Files().Names(t.ctx, dir)
	slices.Sort(found)
	return slices.DeleteFunc(found, func(name string) bool { return !plain.MatchString(name) })
}

func deviceNames(t tab) (out []string, directive cobra.ShellCompDirective) {
	if !t.settled() {
		return nil, anyFile
	}
	for _, name := range t.names(filepath.Join(t.sysRoot, "class/block")) {
		out = append(out, filepath.Join(t.devRoot, name))
	}
	return out, anyFile
}

// sources are those of --pods-from; after file: comes a path, which no shell sees as one.
func sources(t tab) (out []string, directive cobra.ShellCompDirective) {
	const scheme = "file:"
	path, ok := strings.CutPrefix(t.word, scheme)
	if !ok {
		return []string{"auto", "kubelet", "cri", "api", "static", scheme}, noFiles
	}
	dir, _ := filepath.Split(path)
	for _, name := range t.names(t.absolute(dir)) {
		out = append(out, scheme+dir+name)
	}
	return out, noFiles | cobra.ShellCompDirectiveNoSpace // it may be a directory
}

func driverSockets(t tab) (out []string, directive cobra.ShellCompDirective) {
	plugins := filepath.Join(t.look().root, "plugins")
	for _, driver := range t.names(plugins) {
		for _, name := range t.names(filepath.Join(plugins, driver)) {
			if strings.HasSuffix(name, ".sock") {
				out = append(out, filepath.Join(plugins, driver, name))
			}
		}
	}
	return out, anyFile
}

func runtimeSockets(t tab) (out []string, directive cobra.ShellCompDirective) {
	for _, path := range alive.RuntimeSockets {
		if slices.Contains(t.names(filepath.Dir(path)), filepath.Base(path)) {
			out = append(out, path)
		}
	}
	return out, anyFile
}

// columnNames are those of the list that the command shows.
func columnNames(t tab) (out []string, directive cobra.ShellCompDirective) {
	if view := listOf(t.cmd); view != nil {
		for _, c := range view.Columns() {
			out = append(out, c.Name)
		}
	}
	return out, noFiles
}

// formats are those that the command has. After an = comes a template, or a file of one.
func formats(t tab) (out []string, directive cobra.ShellCompDirective) {
	if format, _, begun := strings.Cut(t.word, "="); begun {
		if render.Format(format).InFile() {
			return nil, anyFile
		}
		return nil, noFiles
	}
	for _, f := range formatsOf(t.cmd) {
		if f.TakesTemplate() {
			f += "="
		}
		out = append(out, string(f))
	}
	return out, noFiles
}

// formatsOf are the formats of what a command shows with the flags that it has been given.
func formatsOf(cmd *cobra.Command) []render.Format {
	switch name := cmd.Name(); {
	case name == "inspect":
		return render.Inspection().Formats()
	case name == "version":
		return render.Version().Formats()
	case name == "paths" && cmd.Flags().Changed("filename"):
		return render.Paths().Formats()
	case name == "provision" && !cmd.Flags().Changed("dry-run"):
		return render.Object().Formats()
	}
	if view := listOf(cmd); view != nil {
		return view.Formats()
	}
	return nil
}
