package alive

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
)

// Sets is what all sources said.
type Sets struct {
	node    string
	reports []Report
	byUID   []map[string]*Pod // of each report, also by alias
	written time.Time         // the oldest of the files
	blind   []string          // sources of vetoes that could not look
	lost    string            // a manifest whose pod nobody names
	api     *apiServer
	proof   error // why no pod can be proven gone
}

// Reports is what each source said.
func (s *Sets) Reports() []Report { return s.reports }

// index makes the reports answer by uid, and finds the manifests of static pods
// that nobody names: what their directory is called only a source can tell, as the
// kubelet's hash of a manifest differs from release to release.
func (s *Sets) index() {
	s.byUID, s.lost = nil, ""
	named := map[[2]string]bool{}
	for _, r := range s.reports {
		byUID := map[string]*Pod{}
		for i := range r.Pods {
			p := &r.Pods[i]
			for _, uid := range append([]string{p.UID}, p.Aliases...) {
				if uid != "" && byUID[uid] == nil {
					byUID[uid] = p
				}
				named[[2]string{p.Namespace, p.Name}] = named[[2]string{p.Namespace, p.Name}] || !r.VetoOnly && hash.MatchString(uid)
			}
		}
		s.byUID = append(s.byUID, byUID)
	}
	for _, r := range s.reports {
		for _, p := range r.Pods {
			if r.Source == SourceStatic && p.UID == "" && !named[[2]string{p.Namespace, p.Name}] {
				s.lost = p.State
			}
		}
	}
	s.proof = s.prove()
}

// hash is what the kubelet calls a static pod whose manifest has no uid.
var hash = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Verdict says of the pod that a directory is named after whether it lives or is
// gone, and what each source said of it. born is the birth of the directory, zero
// where it is not known: a list in a file does not know a pod that is younger.
func (s *Sets) Verdict(uid string, born time.Time) (api.Verdict, []api.Evidence) {
	evidence := s.evidence(uid, born)
	says := func(e api.Evidence, what string) bool { return e.Says == what }
	switch {
	case slices.ContainsFunc(evidence, func(e api.Evidence) bool { return says(e, api.SaysAlive) }):
		return api.VerdictLive, evidence
	case uid == "", len(s.blind) > 0, s.proof != nil,
		slices.ContainsFunc(evidence, func(e api.Evidence) bool { return e.Source == SourceFile && says(e, api.SaysSilent) }):
		return api.VerdictUnknown, evidence
	}
	return api.VerdictOrphan, evidence
}

// Lives says whether a pod is proven to live; that nobody says so proves nothing. A
// manifest and a process that uses a directory do not prove it.
func (s *Sets) Lives(uid string) (bool, []api.Evidence) {
	evidence := s.evidence(uid, time.Time{})
	return slices.ContainsFunc(evidence, func(e api.Evidence) bool {
		return e.Says == api.SaysAlive && e.Source != SourceStatic && e.Source != SourceProcess
	}), evidence
}

// evidence is what each source says of a pod.
func (s *Sets) evidence(uid string, born time.Time) []api.Evidence {
	out := make([]api.Evidence, 0, len(s.reports))
	for i, r := range s.reports {
		e := api.Evidence{Source: r.Source, Says: api.SaysAbsent, Detail: r.Reason}
		p := s.byUID[i][uid]
		switch {
		case p != nil:
			e.Says, e.Detail = api.SaysAlive, p.describe(uid)
		case !r.Answered:
			e.Says = api.SaysSilent
		case r.Source == SourceStatic && s.lost != "" && hash.MatchString(uid):
			e.Says, e.Detail = api.SaysAlive, "it may be the pod of "+s.lost+", whose uid no source tells"
		case r.Source == SourceFile && born.IsZero():
			e.Says, e.Detail = api.SaysSilent, "not known whether the pod is younger than the list"
		case r.Source == SourceFile && !born.Before(s.written): // the clock of file systems ticks slowly
			e.Says, e.Detail = api.SaysSilent, "the pod's directory is younger than the list"
		}
		out = append(out, e)
	}
	return out
}

// describe says in a few words which pod it is.
func (p *Pod) describe(uid string) string {
	var words []string
	if p.Name != "" {
		words = append(words, p.Namespace+"/"+p.Name)
	}
	if p.UID != uid && p.Name != "" {
		words = append(words, "as mirror pod "+p.UID)
	}
	if p.State != "" {
		words = append(words, p.State)
	}
	return strings.Join(words, ", ")
}

// Pod gives the name and the namespace of the pod that a directory is named after.
func (s *Sets) Pod(uid string) (Pod, bool) {
	var found Pod
	for i, r := range s.reports {
		p := s.byUID[i][uid]
		if r.VetoOnly || p == nil || p.Name == "" || found.Name != "" && (found.Object != nil || p.Object == nil) {
			continue
		}
		found = *p
	}
	return found, found.Name != ""
}

// Proof is nil where a pod can be proven gone, and says otherwise why not and how
// the operator makes the list that is missing.
func (s *Sets) Proof() error { return s.proof }

// prove says whether death can be proven: two of kubelet, runtime and API server have
// to have answered, and to have a pod in common. The answer of a runtime that is not
// the kubelet's, or for another node's name, is no word on this node.
func (s *Sets) prove() error {
	var able []int
	var details []string
	for i, r := range s.reports {
		switch {
		case r.Source == SourceFile && r.Answered:
			return nil
		case r.VetoOnly, r.Source == SourceRunningPods:
		case r.Answered && s.whole(r):
			able = append(able, i)
			details = append(details, fmt.Sprintf("%s: answered, %s", r.Source, api.Count(len(r.Pods), "pod", "pods")))
		default:
			details = append(details, r.Source+": "+cmp.Or(r.Reason, "it names only static pods, as a kubelet does that has not heard from its API server"))
		}
	}
	why := "it takes two of kubelet, container runtime and API server to prove a pod gone, or a list"
	if len(able) > 1 {
		if s.agree(able) {
			return nil
		}
		why = "the sources have no pod in common, so that one of them is not of this node"
	}
	return &api.Error{
		Kind: api.ErrRefused, Err: fmt.Errorf("which pods are gone cannot be known: %s", why), Details: details,
		Next: fmt.Sprintf("where kubectl works: %s > pods.json; "+
			"or here, while the runtime has them all: crictl pods -o json > pods.json; then --pods-from file:pods.json", s.kubectl()),
	}
}

// kubectl is how the list is made that is missing.
func (s *Sets) kubectl() string {
	return "kubectl get pods -A --field-selector spec.nodeName=" + act.Quote(s.node) + " -o json"
}

// whole says whether an answer is all that its source knows. A kubelet that was just
// started has its static pods from their manifests at once and the others only from
// the API server, all of them in one go; it marks each with where it has it from.
// Where the API server answers itself nothing is missing.
func (s *Sets) whole(r Report) bool {
	if r.Source != SourceKubelet || len(r.Pods) == 0 || s.answered(SourceAPI) {
		return true
	}
	return slices.ContainsFunc(r.Pods, func(p Pod) bool { return p.Object.Annotations["kubernetes.io/config.source"] == "api" })
}

func (s *Sets) answered(source string) bool {
	return slices.ContainsFunc(s.reports, func(r Report) bool { return r.Source == source && r.Answered })
}

// agree says whether two of some reports have a pod in common, or one names none,
// which is an answer only by the operator's word.
func (s *Sets) agree(which []int) bool {
	for n, i := range which {
		for _, j := range which[n+1:] {
			if len(s.byUID[i]) == 0 || len(s.byUID[j]) == 0 {
				return true
			}
			for uid := range s.byUID[i] {
				if s.byUID[j][uid] != nil {
					return true
				}
			}
		}
	}
	return false
}
