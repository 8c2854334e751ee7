package main

import (
	"context"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/all"
	"github.com/kvol/kvol/internal/plugins/documents"

	"github.com/spf13/pflag"
)

// volumeOptions are the ways to name a volume and a pod; a command has flags for
// those that it needs.
type volumeOptions struct {
	files  []string // -f
	volume string   // --volume, or the argument of a reverse verb
	all    bool     // every volume of the pods
	plugin string
	podUID string
	more   []string // further values of --pod-uid, which go with all
	// needsPod says that the documents or podUID have to name a pod.
	needsPod bool
}

func (o *volumeOptions) addSpecFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.files, "filename", "f", nil, "`FILE` with a PersistentVolume, PersistentVolumeClaim, Pod or List, YAML or JSON; - is standard input (repeatable)")
	f.StringVar(&o.volume, "volume", "", "`NAME` of the volume, when the files have several")
}

func (o *volumeOptions) addPodFlag(f *pflag.FlagSet) {
	f.Var((*uidFlag)(o), "pod-uid", "`UID` of the pod, when no file has one")
}

// uidFlag is --pod-uid: with --all there can be several, and of others none is
// forgotten silently.
type uidFlag volumeOptions

func (u *uidFlag) Set(uid string) error {
	if u.podUID == "" {
		u.podUID = uid
	} else {
		u.more = append(u.more, uid)
	}
	return nil
}

func (u *uidFlag) String() string { return u.podUID }
func (u *uidFlag) Type() string   { return "string" }

func (o *volumeOptions) addAll(f *pflag.FlagSet) {
	f.BoolVar(&o.all, "all", false, "every volume of the pods, each by itself; --pod-uid can be given several times")
}

// checkAll refuses what does not go with --all, or without it.
func (o *volumeOptions) checkAll() error {
	switch {
	case !o.all && len(o.more) > 0:
		return api.Errorf(api.ErrUsage, "--pod-uid is given %d times: one volume is of one pod", 1+len(o.more)).
			WithNext("give one, or --all for every volume of these pods")
	case o.all && o.volume != "":
		return api.Errorf(api.ErrUsage, "--all is every volume, and %q names one", o.volume).WithNext("give one of the two")
	}
	return nil
}

// uids are all values of --pod-uid.
func (o *volumeOptions) uids() []string {
	if o.podUID == "" {
		return slices.Clone(o.more)
	}
	return append([]string{o.podUID}, o.more...)
}

func (o *volumeOptions) addPluginFlag(f *pflag.FlagSet) {
	f.StringVar(&o.plugin, "plugin", "", "`NAME` of the only plugin to look in, as kvol plugins has it: kubernetes.io/csi, or csi")
}

// argument takes the VOLUME of a reverse verb.
func (o *volumeOptions) argument(args []string) error {
	switch {
	case o.all && len(args) > 0:
		o.volume = args[0] // which is refused
		return nil
	case o.all && len(o.files) == 0 && o.podUID == "":
		return api.Errorf(api.ErrUsage, "--all is every volume of a pod, and no pod is named").
			WithNext("give --pod-uid UID, or the documents of pods with -f")
	case o.all:
		return nil
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
	a.podUIDs = o.uids()
	req := ops.Request{Volume: o.volume, Plugin: o.plugin, Pod: plugins.PodRef{UID: o.podUID}}
	if len(o.files) == 0 {
		return req, nil
	}
	docs, err := o.documents(ctx, a)
	if err != nil {
		return req, err
	}
	word, path := o.volume, ""
	if strings.HasPrefix(word, "/") {
		// The documents make up for what is missing there.
		word, path = "", word
	}
	a.podUIDs = slices.DeleteFunc(a.podUIDs, docs.HasPod)
	selected, err := docs.Select(word, o.podUID)
	if err != nil {
		return req, err
	}
	if o.needsPod && !selected.HasPod {
		return req, selected.NoPod
	}
	// The name has done its work, and may have been the pod's own for the volume.
	req.Spec, req.Volume, req.Pod, req.Word = selected.Specs[0], path, selected.Pod, selected.Word
	return req, nil
}

// documents reads the -f files.
func (o *volumeOptions) documents(ctx context.Context, a *app) (*documents.Documents, error) {
	if slices.Contains(o.files, "") {
		return nil, api.Errorf(api.ErrUsage, "-f is empty").WithNext("name a file after -f, or - for standard input")
	}
	if n := len(slices.DeleteFunc(slices.Clone(o.files), func(f string) bool { return f != "-" })); n > 1 {
		return nil, api.Errorf(api.ErrUsage, "-f - is given %d times; standard input can be read once", n)
	}
	return documents.Read(a.inputs(ctx, o.files))
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
		return nil, api.Errorf(api.ErrTimeout, "%s: nothing came in time", name)
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
	if !a.anyRoot {
		if err := a.knowPods(h); err != nil {
			h.Close()
			return nil, nil, err
		}
	}
	return h, mgr, nil
}

// knowPods lists the pods of the node, from which those that are named have to be told.
func (a *app) knowPods(h *host.Host) error {
	a.nodePods = node.PodDirs(h)
	for _, uid := range a.podUIDs {
		if err := node.WholeUID(uid, a.nodePods); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) hostOptions() host.Options {
	return host.Options{
		RootDir: a.rootDir, StateDir: a.stateDir, RunDir: a.runDir,
		ProcRoot: a.procRoot, SysRoot: a.sysRoot, DevRoot: a.devRoot, NodeName: a.nodeName, OwnDirs: a.own,
		CSIEndpoint: a.csiEndpoint, RuntimeEndpoint: a.runtimeEndpoint, Kubeconfig: a.kubeconfig,
		LockTimeout:  max(a.lockTimeout, 1), // 0 would be its default, and is said for no wait
		ProbeTimeout: a.probeTimeout, Deadline: a.deadline.Add(-grace),
		Warn:     func(s string) { a.progress.end(); a.log.Warn(s) },
		Progress: a.busy,
	}
}
