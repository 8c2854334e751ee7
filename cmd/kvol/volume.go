package main

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/plugins/documents"
	"github.com/kvol/kvol/internal/render"

	"github.com/spf13/pflag"
)

// volumeOptions are the ways to name a volume and a pod; a command has flags for
// those that it needs.
type volumeOptions struct {
	files  []string // -f
	volume string   // --volume, or the argument of a reverse verb
	plugin string
	podUID string
	// needsPod says that the documents or podUID have to name a pod.
	needsPod bool
}

func (o *volumeOptions) addSpecFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.files, "filename", "f", nil, "`FILE` with a PersistentVolume, PersistentVolumeClaim, Pod or List, YAML or JSON; - is standard input (repeatable)")
	f.StringVar(&o.volume, "volume", "", "`NAME` of the volume, when the files have several")
}

func (o *volumeOptions) addPodFlag(f *pflag.FlagSet) {
	f.StringVar(&o.podUID, "pod-uid", "", "`UID` of the pod, when no file has one")
}

func (o *volumeOptions) addPluginFlag(f *pflag.FlagSet) {
	f.StringVar(&o.plugin, "plugin", "", "`NAME` of the only plugin to look in: kubernetes.io/local-volume")
}

// argument takes the VOLUME of a reverse verb.
func (o *volumeOptions) argument(args []string) error {
	switch {
	case len(args) == 0 && o.volume == "" && len(o.files) == 0:
		return api.Errorf(api.ErrUsage, "no volume is named").
			WithNext("give a VOLUME (a name, driver^handle, a device or a path) or its document with -f")
	case len(args) == 0:
		return nil
	case o.volume != "" && o.volume != args[0]:
		return api.Errorf(api.ErrUsage, "the argument names %q and --volume names %q", args[0], o.volume)
	}
	o.volume = args[0]
	return nil
}

// needsFiles refuses a command that has no document to read.
func (o *volumeOptions) needsFiles() error {
	if len(o.files) == 0 {
		return api.Errorf(api.ErrUsage, "no volume is given").
			WithNext("give its document with -f: kubectl get pv NAME -o yaml > pv.yaml")
	}
	return nil
}

// request reads the documents into what the volume's plugin is asked for.
func (o *volumeOptions) request(ctx context.Context, a *app) (ops.Request, error) {
	req := ops.Request{Volume: o.volume, Plugin: o.plugin, Pod: plugins.PodRef{UID: o.podUID}}
	if len(o.files) == 0 {
		return req, nil
	}
	if slices.Contains(o.files, "") {
		return req, api.Errorf(api.ErrUsage, "-f is empty").WithNext("name a file after -f, or - for standard input")
	}
	if n := len(slices.DeleteFunc(slices.Clone(o.files), func(f string) bool { return f != "-" })); n > 1 {
		return req, api.Errorf(api.ErrUsage, "-f - is given %d times; standard input can be read once", n)
	}
	docs, err := documents.Read(a.inputs(ctx, o.files))
	if err != nil {
		return req, err
	}
	selected, err := docs.Select(o.volume, o.podUID)
	if err != nil {
		return req, err
	}
	if o.needsPod && !selected.HasPod {
		return req, selected.NoPod
	}
	// The name has done its work, and may have been the pod's own for the volume.
	req.Spec, req.Volume, req.Pod = selected.Specs[0], "", selected.Pod
	return req, nil
}

// inputs are the -f files, not opened yet.
func (a *app) inputs(ctx context.Context, files []string) []documents.Input {
	in := make([]documents.Input, len(files))
	for i, name := range files {
		now := func() ([]byte, error) { return readFile(name, documents.MaxInput) }
		if name == "-" {
			name, now = "standard input", func() ([]byte, error) { return readAll(a.stdin, documents.MaxInput) }
		}
		read := func() ([]byte, error) { return a.files.read(name, now) }
		in[i] = documents.Input{Name: name, Read: func() ([]byte, error) { return within(ctx, name, read) }}
	}
	return in
}

// within gives up waiting when the time is over: a pipe need never be written to.
func within(ctx context.Context, name string, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		raw []byte
		err error
	}
	done := make(chan answer, 1)
	go func() {
		raw, err := read()
		done <- answer{raw, err}
	}()
	select {
	case got := <-done:
		return got.raw, got.err
	case <-ctx.Done():
		return nil, api.Errorf(api.ErrTimeout, "%s: nothing came in time: %w", name, ctx.Err())
	}
}

// open is the machine and the plugins that know it. Commands that only tell
// about kvol itself never come here.
func (a *app) open() (*host.Host, *plugins.VolumePluginMgr, error) {
	a.adoptLogs()
	if err := a.locate(); err != nil {
		return nil, nil, err
	}
	h, err := host.New(a.hostOptions())
	if err != nil {
		return nil, nil, err
	}
	mgr := plugins.NewManager()
	if err := mgr.InitPlugins(all.All(), nil, h); err != nil {
		h.Close()
		return nil, nil, err
	}
	return h, mgr, nil
}

func (a *app) hostOptions() host.Options {
	return host.Options{
		RootDir: a.rootDir, StateDir: a.stateDir, RunDir: a.runDir,
		ProcRoot: a.procRoot, SysRoot: a.sysRoot, DevRoot: a.devRoot, NodeName: a.nodeName, OwnDirs: a.ownDirs(),
		RuntimeEndpoint: a.runtimeEndpoint, Kubeconfig: a.kubeconfig,
		LockTimeout:  max(a.lockTimeout, 1), // 0 would be its default, and is said for no wait
		ProbeTimeout: a.probeTimeout, Deadline: a.deadline.Add(-grace),
		Warn:     func(s string) { a.progress.end(); a.log.Warn(s) },
		Progress: a.busy,
	}
}

// carry carries a volume up or down, or shows the steps of that.
func (a *app) carry(ctx context.Context, verb ops.Verb, req ops.Request, dryRun bool) error {
	if dryRun {
		return a.plan(ctx, verb, req)
	}
	o, err := a.options(render.Results())
	if err != nil && a.output == string(render.Shell) {
		err = (&api.Error{Err: err}).WithNext("the steps as a script: the same command with --dry-run")
	}
	if err != nil {
		return err
	}
	h, mgr, err := a.open()
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := ops.New(h, mgr).Run(ctx, verb, req)
	a.progress.end()
	return a.results(l, err, o)
}

// results shows what a verb did, as far as it came.
func (a *app) results(l *api.List[api.Result], failed error, o render.Options) error {
	if l == nil {
		return failed
	}
	write := func(w io.Writer) error { return render.Results().Write(w, l, o) }
	if a.quiet {
		write = func(io.Writer) error { return nil }
	}
	return errors.Join(failed, a.list(l.Warnings, len(l.Items), render.Results().Empty(), failed, o, write))
}

func (a *app) plan(ctx context.Context, verb ops.Verb, req ops.Request) error {
	view := render.Plans()
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
	p, err := ops.New(h, mgr).Plan(ctx, verb, req)
	a.progress.end()
	if err != nil {
		return err // half a plan is none: nobody must run it
	}
	return a.list(p.Warnings, len(p.Items), view.Empty(), nil, o, func(w io.Writer) error { return view.Write(w, p, o) })
}
