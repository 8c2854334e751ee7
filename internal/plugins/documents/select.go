package documents

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Selection is what a verb acts on.
type Selection struct {
	Specs []*plugins.Spec
	// Pod is what the documents tell of the pod, and its UID as it is on disk:
	// of a static pod the hash, not the UID of the API server's mirror of it.
	Pod    plugins.PodRef
	HasPod bool
	// NoPod says, where HasPod is false, why and what to do: the error of a verb
	// that needs the pod.
	NoPod error
	// Word selects the volume again among the same documents.
	Word string
}

// candidate is a volume that could be meant, or one that could be if more were
// known.
type candidate struct {
	spec *plugins.Spec
	// alias is the pod's own name for a volume that has another on disk.
	alias  string
	err    error // why it cannot be taken
	hidden bool  // meant only when it is named
}

// name is what the volume is called on disk; "" as long as that is not known.
func (c candidate) name() string { return c.spec.Name() }

func (c candidate) label() string {
	switch {
	case c.spec == nil:
		return c.alias + " (not resolved)"
	case c.alias != "" && c.alias != c.name():
		return c.name() + " (" + c.alias + " of the pod)"
	}
	return c.name()
}

// Select finds the volume of that name, or with "" the only one there is, and the
// pod of that UID, or with "" the only one there is. The name is a
// PersistentVolume's, or the pod's own name for a volume.
//
// With a pod's document, its volumes can be meant, its claims resolved to
// PersistentVolumes by claim documents or by claimRef, and PersistentVolumes that
// nobody has claimed. Without one, every PersistentVolume can. A volume, its
// claim and the pod that disagree are [api.ErrInput]; more volumes than one and
// no name, or a name that none has, is [api.ErrUsage].
func (d *Documents) Select(volume, podUID string) (*Selection, error) {
	if volume != "" {
		if err := paths.ValidVolumeName(volume); err != nil {
			return nil, err
		}
	}
	sel := &Selection{}
	pod, err := d.selectPod(podUID, sel)
	if err != nil {
		return nil, err
	}
	ix := d.index()
	if pod == nil && volume == "" {
		if err := ix.checkClaims(); err != nil {
			return nil, err
		}
	}
	all := ix.candidates(pod, sel.NoPod)
	chosen, err := choose(all, volume)
	if err != nil {
		return nil, err
	}
	if chosen.err != nil {
		return nil, chosen.err
	}
	if pv := chosen.spec.PersistentVolume; pv != nil {
		if err := d.checkAgree(pv); err != nil {
			return nil, err
		}
	}
	chosen.spec.Objects = d
	if pod != nil {
		chosen.spec.Namespace = namespace(pod.Namespace)
	}
	sel.Specs, sel.Word = []*plugins.Spec{chosen.spec}, wordFor(all, chosen)
	return sel, nil
}

// selectPod finds the pod's document, nil when there is none or more than one and
// none is named, and fills in the pod of the selection.
func (d *Documents) selectPod(uid string, sel *Selection) (*v1.Pod, error) {
	if uid != "" {
		if err := paths.ValidPodUID(uid); err != nil {
			return nil, fmt.Errorf("--pod-uid: %w", err)
		}
	}
	var pod *v1.Pod
	for _, p := range d.Pods {
		if uid == "" && len(d.Pods) == 1 || uid != "" && hasUID(p, uid) ||
			p.UID == "" && len(d.Pods) == 1 {
			pod = p
		}
	}
	switch {
	case pod != nil:
		sel.Pod = podRef(pod)
		if sel.Pod.UID == "" {
			sel.Pod.UID = uid
		}
		if sel.Pod.UID == "" {
			e := d.origins[pod].bad("give --pod-uid: the name of its directory under pods/, for a static pod 32 hex digits",
				"metadata.uid: it is missing, and names the pod's directory")
			e.Kind = api.ErrUsage
			sel.NoPod = e
		}
	case len(d.Pods) == 0 && uid != "":
		sel.Pod.UID = uid
	case uid != "":
		e := api.Errorf(api.ErrUsage, "--pod-uid %s is none of the pods in the input", uid).
			WithNext("give the document of that pod, or the uid of one of these")
		e.Details = api.Few(d.podList())
		return nil, e
	case len(d.Pods) == 0:
		sel.NoPod = api.Errorf(api.ErrUsage, "no pod is given").WithNext("give its document with -f, or --pod-uid UID")
	default:
		e := api.Errorf(api.ErrUsage, "there are %d pods in the input: %s", len(d.Pods), some(d.podList())).
			WithNext("say which with --pod-uid UID")
		e.Details = d.podList()
		sel.NoPod = e
	}
	sel.HasPod = sel.NoPod == nil
	return pod, nil
}

// HasPod says whether a UID is that of a pod's document.
func (d *Documents) HasPod(uid string) bool {
	return slices.ContainsFunc(d.Pods, func(p *v1.Pod) bool { return hasUID(p, uid) })
}

func hasUID(pod *v1.Pod, uid string) bool { return string(pod.UID) == uid || uidOnDisk(pod) == uid }

func (d *Documents) podList() []string {
	var list []string
	for _, p := range d.Pods {
		list = append(list, key(p)+" "+uidOnDisk(p))
	}
	return list
}

// some joins the first few of a long list.
func some(list []string) string {
	const most = 12
	if len(list) > most {
		return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
	}
	return strings.Join(list, ", ")
}

// uidOnDisk is the UID that the kubelet knows a pod by.
func uidOnDisk(pod *v1.Pod) string {
	if hash := pod.Annotations[mirrorAnnotation]; hash != "" {
		return hash
	}
	return string(pod.UID)
}

func podRef(pod *v1.Pod) plugins.PodRef {
	ref := plugins.PodRef{
		UID: uidOnDisk(pod), Name: pod.Name, Namespace: namespace(pod.Namespace), ServiceAccount: pod.Spec.ServiceAccountName,
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		ref.FSGroup = sc.FSGroup
		if sc.FSGroupChangePolicy != nil {
			ref.FSGroupChangePolicy = *sc.FSGroupChangePolicy
		}
	}
	ref.HugePages = hugePages(pod)
	return ref
}

// hugePages are the sizes of huge pages that a pod's containers request, each once.
func hugePages(pod *v1.Pod) []string {
	var out []string
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for name := range c.Resources.Requests {
			if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
				out = append(out, size)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// index finds what belongs together among the documents.
type index struct {
	*Documents
	claims  map[string]*v1.PersistentVolumeClaim // by key
	volumes map[string]*v1.PersistentVolume      // by name
	claimed map[string][]*v1.PersistentVolume    // by the key of claimRef
	bound   map[string]bool                      // names that are volumeName of a claim
}

func (d *Documents) index() *index {
	ix := &index{
		Documents: d, claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{},
		claimed: map[string][]*v1.PersistentVolume{}, bound: map[string]bool{},
	}
	for _, pvc := range d.PVCs {
		ix.claims[key(pvc)] = pvc
		ix.bound[pvc.Spec.VolumeName] = true
	}
	for _, pv := range d.PVs {
		ix.volumes[pv.Name] = pv
		if claim := claimOf(pv); claim != "" {
			ix.claimed[claim] = append(ix.claimed[claim], pv)
		}
	}
	return ix
}

// candidates lists what can be meant. Without one pod, the inline volumes of all
// of them can only be named, to be told that the pod must be.
func (ix *index) candidates(pod *v1.Pod, noPod error) []candidate {
	var ofPods, others []candidate
	used := map[*v1.PersistentVolume]bool{}
	pods := ix.Pods
	if pod != nil {
		pods = []*v1.Pod{pod}
	}
	for _, p := range pods {
		for i := range p.Spec.Volumes {
			c := ix.podVolume(p, &p.Spec.Volumes[i])
			switch {
			case c.spec != nil && c.spec.Volume != nil:
				c.err = noPod
			case pod == nil:
				continue // it is one of all PersistentVolumes
			case c.spec != nil:
				used[c.spec.PersistentVolume] = true
			}
			ofPods = append(ofPods, c)
		}
	}
	for _, pv := range ix.PVs {
		if used[pv] {
			continue
		}
		c := candidate{spec: plugins.NewSpecFromPersistentVolume(pv, false)}
		if pod != nil && (pv.Spec.ClaimRef != nil || ix.bound[pv.Name]) {
			c.hidden = true
			c.err = ix.origins[pv].bad("give the pod whose claim it is, or the volume that this pod uses",
				"pod %s does not use this volume, which is claimed", key(pod))
		}
		others = append(others, c)
	}
	return append(others, ofPods...)
}

// podVolume makes the candidate of one volume of a pod.
func (ix *index) podVolume(pod *v1.Pod, v *v1.Volume) candidate {
	claim, readOnly := "", false
	switch {
	case v.PersistentVolumeClaim != nil:
		claim, readOnly = v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
	case v.Ephemeral != nil:
		// EphemeralVolume.VolumeClaimTemplate in k8s.io/api: "<pod name>-<volume name>".
		claim = pod.Name + "-" + v.Name
	default:
		return candidate{spec: plugins.NewSpecFromVolume(v)}
	}
	c := candidate{alias: v.Name}
	pv, err := ix.resolve(pod, claim, v.Ephemeral != nil)
	if err != nil {
		c.err = ix.origins[pod].bad(err.next, "volume %q: %s", v.Name, err.what)
		return c
	}
	c.spec = plugins.NewSpecFromPersistentVolume(pv, readOnly)
	return c
}

// resolve finds the PersistentVolume of a pod's claim: by the claim's document,
// else by the claimRef of the PersistentVolume.
func (ix *index) resolve(pod *v1.Pod, name string, ephemeral bool) (*v1.PersistentVolume, *fault) {
	ns := namespace(pod.Namespace)
	claim := ns + "/" + name
	found, want := ix.claimed[claim], ""
	if pvc := ix.claims[claim]; pvc != nil {
		if ephemeral && pod.UID != "" && !metav1.IsControlledBy(pvc, pod) {
			return nil, &fault{what: fmt.Sprintf("claim %s belongs to another pod", claim),
				next: "a claim that the pod does not own is never its ephemeral volume: look at ownerReferences of the claim"}
		}
		if want = pvc.Spec.VolumeName; want != "" {
			found = nil
			if pv := ix.volumes[want]; pv != nil {
				found = append(found, pv)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, &fault{what: fmt.Sprintf("%d PersistentVolumes have the claimRef %s", len(found), claim),
			next: "give the claim too: kubectl get pvc -n " + ns + " " + name + " -o yaml"}
	case want != "":
		return nil, &fault{what: fmt.Sprintf("claim %s is bound to PersistentVolume %q, which is not in the input", claim, want),
			next: "give it: kubectl get pv " + want + " -o yaml"}
	}
	return nil, &fault{what: fmt.Sprintf("claim %s names no PersistentVolume, or it is not in the input", claim),
		next: "give both: kubectl get pvc -n " + ns + " " + name + " -o yaml, and the PersistentVolume that its volumeName names"}
}

// claimOf is the namespace/name that a PersistentVolume is bound to, or "".
func claimOf(pv *v1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return namespace(pv.Spec.ClaimRef.Namespace) + "/" + pv.Spec.ClaimRef.Name
}

// choose takes the candidate of that name; the names on disk win over the pod's
// own.
func choose(candidates []candidate, volume string) (candidate, error) {
	matches := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.hidden })
	labels := make([]string, len(matches))
	for i, c := range matches {
		labels[i] = c.label()
	}
	if volume != "" {
		is := func(name func(candidate) string) []candidate {
			return slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return name(c) != volume })
		}
		if matches = is(candidate.name); len(matches) == 0 {
			matches = is(func(c candidate) string { return c.alias })
		}
	}
	if len(matches) > 1 && allSame(matches) {
		matches = matches[:1]
	}
	var e *api.Error
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(labels) == 0:
		return candidate{}, noVolume()
	case len(matches) == 0:
		e = api.Errorf(api.ErrUsage, "--volume %s is none of the volumes in the input: %s", volume, some(labels)).
			WithNext("name one of them, or give its document with -f")
	case volume != "":
		e = api.Errorf(api.ErrUsage, "--volume %s can be %d volumes of the input: %s", volume, len(matches), some(labels)).
			WithNext("use the pod's own name of the volume, or give fewer documents")
	default:
		e = api.Errorf(api.ErrUsage, "there are %d volumes in the input: %s", len(matches), some(labels)).
			WithNext("say which with --volume NAME")
	}
	e.Details = labels
	return candidate{}, e
}

// allSame says that a pod has one PersistentVolume under several names, with the
// same access.
func allSame(list []candidate) bool {
	for _, c := range list {
		if c.spec == nil || c.spec.PersistentVolume == nil ||
			c.spec.PersistentVolume != list[0].spec.PersistentVolume || c.spec.ReadOnly != list[0].spec.ReadOnly {
			return false
		}
	}
	return true
}
