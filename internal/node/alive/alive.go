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
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
)

// Pod is a pod as a source names it.
type Pod struct {
	UID, Name, Namespace string
	// Aliases are further names of its directory: of a mirror pod the hash that the
	// kubelet calls the static pod by.
	Aliases []string
	State   string  // as the source calls it: READY, NOTREADY, Running, …
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
	// KubeletEndpoint is where the kubelet serves, "127.0.0.1:10250" when empty.
	KubeletEndpoint string
	// Timeout is how long a source may take: 2 s when 0, and never more than a third
	// of what is left of the context.
	Timeout time.Duration
}

// Sets is what all sources said.
type Sets struct {
	reports []Report
}

// Look asks all sources at once, each with its own deadline. An error is bad usage
// only: a word that is no source, a file that cannot be read or names no pod.
func Look(_ context.Context, _ *host.Host, _ Options) (*Sets, error) {
	s := &Sets{}
	for _, source := range []string{SourceKubelet, SourceRunningPods, SourceCRI, SourceAPI} {
		s.reports = append(s.reports, Report{Source: source, Reason: "not asked"})
	}
	for _, source := range []string{SourceStatic, SourceCgroup, SourceProcess} {
		s.reports = append(s.reports, Report{Source: source, Reason: "not asked", VetoOnly: true})
	}
	return s, nil
}

// Reports is what each source said.
func (s *Sets) Reports() []Report { return s.reports }

// Verdict says of the pod that a directory is named after whether it lives or is
// gone, and what each source said of it. born is the birth of the directory, zero
// where it is not known: a list in a file does not know a pod that is younger.
func (s *Sets) Verdict(_ string, _ time.Time) (api.Verdict, []api.Evidence) {
	return api.VerdictUnknown, s.silent()
}

// Lives says whether a pod is proven to live; that nobody says so proves nothing.
func (s *Sets) Lives(_ string) (bool, []api.Evidence) { return false, s.silent() }

func (s *Sets) silent() []api.Evidence {
	var out []api.Evidence
	for _, r := range s.reports {
		out = append(out, api.Evidence{Source: r.Source, Says: api.SaysSilent, Detail: r.Reason})
	}
	return out
}

// Pod gives the name and the namespace of the pod that a directory is named after.
func (s *Sets) Pod(_ string) (Pod, bool) { return Pod{}, false }

// Proof is nil where a pod can be proven gone, and says otherwise why not and how
// the operator makes the list that is missing.
func (s *Sets) Proof() error {
	return api.Errorf(api.ErrRefused, "nobody was asked which pods live here").
		WithNext("give the list: --pods-from file:PATH")
}

// NodeVolumes is what the API server knows of this node's volumes.
type NodeVolumes struct {
	// InUse and Attached are unique volume names ("kubernetes.io/csi/DRIVER^HANDLE"),
	// from node.status.volumesInUse and volumesAttached.
	InUse, Attached []string
	// Claims are those of every live pod, also of a generic ephemeral volume.
	Claims []Claim
}

// Claim is a PersistentVolumeClaim that a live pod names.
type Claim struct {
	PodUID          string // what the pod's directory is named
	Namespace, Name string
	PV              string // "" while it is not bound
}

// NodeVolumes asks the API server. An error means not known.
func (s *Sets) NodeVolumes(_ context.Context) (NodeVolumes, error) {
	return NodeVolumes{}, api.Errorf(api.ErrUncertain, "the API server was not asked")
}
