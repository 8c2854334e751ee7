// Package alive knows which pods live on this node: it asks everybody who may know,
// all at once, and says what follows.
//
// Alive is the union of what they say. That a pod is gone is said only where two of
// them answered that had to know it, one of them the kubelet or the container
// runtime, or where the operator gave the whole list. Who fails, is slow or names
// nobody has not answered: a wrong socket and a kubelet that has just started both
// look like an empty node.
//
// It reads only. Do not decide here what is to be done about a pod that is gone.
package alive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/kubelet"
)

// Pod is a pod as a source names it.
type Pod struct {
	UID, Name, Namespace string
	// Aliases are further names of its directory: of a mirror pod the hash that the
	// kubelet calls the static pod by.
	Aliases []string
	State   string  // as the source calls it: READY, NOTREADY, Running, …; of a control group or process, which
	Object  *v1.Pod // nil where the source has none
}

// Report is what one source said.
type Report struct {
	Source   string // one of the constants below
	Answered bool
	Reason   string // why it did not, or what is worth knowing of the answer
	Pods     []Pod  // they live, also where the answer is not complete
	VetoOnly bool   // it proves nobody's death
}

// The sources.
const (
	SourceKubelet     = "kubelet"
	SourceRunningPods = "runningpods" // the kubelet's look at its runtime
	SourceCRI         = "cri"
	SourceAPI         = "api"
	SourceFile        = "file"
	SourceStatic      = "static"
	SourceCgroup      = "cgroup"
	SourceProcess     = "process"
)

// Options say whom to ask.
type Options struct {
	// From are the words of --pods-from: auto, kubelet, cri, api, static, file:PATH.
	// Empty, or nothing but files, is auto: everybody is asked.
	From []string
	// AssertNoPods is the operator's word that a source that names no pod is right.
	AssertNoPods bool
	// LifeOnly asks only those whose word proves life: no manifests and no processes,
	// so that nothing proves a pod gone.
	LifeOnly bool
	// Timeout is how long a source may take, 2 s when 0, and never more than a third of
	// what is left of the context. What the kernel tells of control groups and processes,
	// which a busy machine is slow at and which always ends, has that third, but for
	// LifeOnly.
	Timeout time.Duration
	// KubeletEndpoint and KubeletReadOnlyEndpoint are where the kubelet serves; by its
	// configuration, else 127.0.0.1:10250 and :10255.
	KubeletEndpoint, KubeletReadOnlyEndpoint string
}

// look is one asking: what the sources share.
type look struct {
	Options
	host   *host.Host
	files  *host.Files
	runs   kubelet.Process // the kubelet of this root, zero where none runs
	config kubeletConfig
}

// answer is what asking a source gave. The pods count also beside an error.
type answer struct {
	pods   []Pod
	note   string
	err    error
	server *apiServer // that was asked, of the API server
}

// source is one that is asked.
type source struct {
	name, word string // word is that of --pods-from, "" where it is always asked
	veto       bool
	ask        func(context.Context) answer
}

func (l *look) sources() []source {
	all := []source{
		{SourceKubelet, "kubelet", false, l.askKubelet},
		{SourceRunningPods, "kubelet", false, l.askRunningPods},
		{SourceCRI, "cri", false, l.askCRI},
		{SourceAPI, "api", false, l.askAPI},
		{SourceStatic, "static", true, l.askStatic},
		{SourceCgroup, "", true, l.askCgroups},
		{SourceProcess, "", true, l.askProcesses},
	}
	if l.LifeOnly {
		all = slices.DeleteFunc(all, func(s source) bool { return s.name == SourceStatic || s.name == SourceProcess })
	}
	return all
}

// Look asks all sources at once, each with its own deadline. An error is bad usage
// only: a word that is no source, a file that cannot be read or names no pod.
func Look(ctx context.Context, h *host.Host, o Options) (*Sets, error) {
	words, files, err := parseFrom(o.From)
	if err != nil {
		return nil, err
	}
	l := &look{Options: o, host: h, files: h.Files()}
	s := &Sets{node: h.NodeName}
	if o.LifeOnly {
		s.blind = []string{SourceStatic, SourceProcess}
	}
	for _, path := range files {
		if err := s.readFile(ctx, l, path); err != nil {
			return nil, err
		}
	}
	l.findKubelet(ctx)
	sources := l.sources()
	waits := make([]func() answer, len(sources))
	for i, src := range sources {
		if src.word != "" && len(words) > 0 && !slices.Contains(words, src.word) {
			continue
		}
		limit := l.limitOf(ctx, src)
		within, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		from := make(chan answer, 1)
		go func() {
			a := src.ask(within)
			if a.err != nil && within.Err() != nil {
				a.err = within.Err() // whatever its own library says
			}
			from <- a
		}()
		waits[i] = func() answer { return wait(within, from, limit) }
	}
	for i, src := range sources {
		r := Report{Source: src.name, VetoOnly: src.veto, Reason: "not asked (--pods-from)"}
		if waits[i] != nil {
			s.take(&r, waits[i](), o.AssertNoPods)
		}
		s.reports = append(s.reports, r)
	}
	s.index()
	return s, nil
}

// Anybody says whether there is anybody to ask who knows a pod by its name. It asks
// nobody: it looks at what a node has that has a kubelet, a runtime or an API server.
func Anybody(ctx context.Context, h *host.Host, files *host.Files, o Options) bool {
	_, lists, err := parseFrom(o.From)
	if err != nil || len(lists) > 0 || h.RuntimeEndpoint != "" || h.Kubeconfig != "" {
		return true // a word that is wrong is for Look to say
	}
	traces := append([]string{h.Layout.Root + "/config.yaml", h.Layout.Root + "/pki", "/etc/kubernetes", "/etc/crictl.yaml"}, RuntimeSockets...)
	return slices.ContainsFunc(traces, func(path string) bool { return files.Exists(ctx, path) })
}

// limitOf is how long one source may take.
func (l *look) limitOf(ctx context.Context, src source) time.Duration {
	if src.word != "" || l.LifeOnly {
		return l.limit(ctx)
	}
	if end, ok := ctx.Deadline(); ok {
		return time.Until(end) / 3
	}
	return time.Minute
}

// limit is how long who can be kept waiting may take.
func (l *look) limit(ctx context.Context) time.Duration {
	limit := cmp.Or(l.Timeout, 2*time.Second)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/3)
	}
	return limit
}

// wait takes an answer; one that does not come in time is left to itself.
func wait(ctx context.Context, from <-chan answer, limit time.Duration) answer {
	a := answer{err: api.ErrTimeout}
	select {
	case a = <-from:
	case <-ctx.Done():
		select {
		case a = <-from: // it was there before, and another one was waited for
		default:
		}
	}
	if errors.Is(a.err, context.DeadlineExceeded) || errors.Is(a.err, api.ErrTimeout) {
		a.err = api.Errorf(api.ErrTimeout, "no answer within %s", limit.Round(time.Millisecond))
	}
	return a
}

// take makes an answer into a report.
func (s *Sets) take(r *Report, a answer, assertNoPods bool) {
	r.Pods, r.Reason = a.pods, a.note
	if a.server != nil {
		s.api = a.server
	}
	switch {
	case a.err != nil:
		r.Reason = a.err.Error()
		if r.VetoOnly && !errors.Is(a.err, api.ErrNotFound) {
			s.blind = append(s.blind, r.Source)
		}
	case len(a.pods) == 0 && !r.VetoOnly && !assertNoPods:
		r.Reason = "it names no pod, which is no answer"
	default:
		r.Answered = true
	}
}

// parseFrom takes the words of --pods-from apart.
func parseFrom(from []string) (words, files []string, err error) {
	auto := false
	for _, word := range from {
		path, isFile := strings.CutPrefix(word, "file:")
		switch {
		case isFile && path != "":
			files = append(files, path)
		case word == "auto":
			auto = true
		case slices.Contains([]string{"kubelet", "cri", "api", "static"}, word):
			words = append(words, word)
		default:
			return nil, nil, api.Errorf(api.ErrUsage, "--pods-from %q is no source of pods; there are: auto, kubelet, cri, api, static, file:PATH", word)
		}
	}
	if auto {
		words = nil
	}
	return words, files, nil
}

// podOf is a pod that a source has as an object.
func podOf(o *v1.Pod) Pod {
	p := Pod{UID: string(o.UID), Name: o.Name, Namespace: o.Namespace, State: string(o.Status.Phase), Object: o}
	for _, key := range []string{"kubernetes.io/config.hash", "kubernetes.io/config.mirror"} {
		if hash := o.Annotations[key]; hash != "" && hash != p.UID && !slices.Contains(p.Aliases, hash) {
			p.Aliases = append(p.Aliases, hash)
		}
	}
	return p
}

// podsOf are the pods of a list, which has to be one.
func podsOf(list *v1.PodList) ([]Pod, error) {
	if list.Kind != "PodList" {
		return nil, fmt.Errorf("it answers with %q, not with a PodList", list.Kind)
	}
	var out []Pod
	for i := range list.Items {
		if list.Items[i].UID == "" {
			return out, fmt.Errorf("it answers with a pod without a uid (item %d)", i)
		}
		out = append(out, podOf(&list.Items[i]))
	}
	return out, nil
}
