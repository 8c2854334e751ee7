package documents

import (
	"slices"
	"strings"
	"unicode"

	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mirrorAnnotation is on the API server's copy of a static pod and holds the UID
// that the kubelet knows the pod by, which names its directory
// (ConfigMirrorAnnotationKey of k8s.io/kubernetes/pkg/kubelet/types).
const mirrorAnnotation = "kubernetes.io/config.mirror"

// checker looks at what Kubernetes' types let pass and a volume cannot have.
// Fields that name nothing on this node are the API server's business.
type checker struct {
	faults
	root *yaml.Node
}

func check(o origin, root *yaml.Node, obj metav1.Object) error {
	c := checker{root: root}
	c.name(obj.GetName(), "metadata", "name")
	if ns := obj.GetNamespace(); ns != "" {
		c.name(ns, "metadata", "namespace")
	}
	switch x := obj.(type) {
	case *v1.PersistentVolume:
		c.volume(x)
	case *v1.PersistentVolumeClaim:
		c.claim(x)
	case *v1.Pod:
		c.pod(x)
	}
	return c.error(o)
}

// bad is a fault of a field; its line is that of the field, or of the nearest
// thing around it that is there.
func (c *checker) bad(path []any, next, format string, args ...any) {
	line := c.root.Line
	for i := range path {
		n := lookup(c.root, path[:i+1]...)
		if n == nil {
			break
		}
		line = n.Line
	}
	c.add(line, path, next, format, args...)
}

// name is of anything that Kubernetes names: it may get into paths and argument
// lists.
func (c *checker) name(name string, path ...any) {
	if name == "" {
		c.bad(path, "name it", "it is missing or empty")
		return
	}
	if err := paths.ValidVolumeName(name); err != nil {
		c.bad(path, "use the name that the cluster has", "%v", err)
	}
}

func (c *checker) uid(uid string, path ...any) {
	if err := paths.ValidPodUID(uid); uid != "" && err != nil {
		c.bad(path, "take metadata.uid of the pod, or the name of its directory under pods/", "%v", err)
	}
}

func (c *checker) volume(pv *v1.PersistentVolume) {
	switch sources := plugins.SourceFields(pv.Spec.PersistentVolumeSource); len(sources) {
	case 0:
		c.bad([]any{"spec"}, "add the source, such as local: {path: /mnt/disk}", "the volume has no source")
	case 1:
	default:
		c.bad([]any{"spec"}, "leave one of them", "the volume has %d sources, %s", len(sources), strings.Join(sources, " and "))
	}
	c.modes(pv.Spec.VolumeMode, pv.Spec.AccessModes)
	c.mounting(pv)
	if ref := pv.Spec.ClaimRef; ref != nil {
		c.name(ref.Name, "spec", "claimRef", "name")
		if ref.Kind != "" && ref.Kind != "PersistentVolumeClaim" {
			c.bad([]any{"spec", "claimRef", "kind"}, "write PersistentVolumeClaim", "%q cannot claim a volume", short(ref.Kind))
		}
	}
}

// mounting checks what becomes arguments of mount(8).
func (c *checker) mounting(pv *v1.PersistentVolume) {
	for i, o := range pv.Spec.MountOptions {
		at := []any{"spec", "mountOptions", i}
		switch {
		case o == "":
			c.bad(at, "take it out", "the option is empty")
		case o[0] == '-' || strings.ContainsFunc(o, func(r rune) bool { return !unicode.IsPrint(r) }):
			c.bad(at, "give one option as mount(8) has it after -o", "%q is no mount option", short(o))
		}
	}
	source := strings.Join(plugins.SourceFields(pv.Spec.PersistentVolumeSource), " and ")
	if n := lookup(c.root, "spec", source, "fsType"); n != nil && n.Value != "" && !fsType(n.Value) {
		c.bad([]any{"spec", source, "fsType"}, "give the name as mount(8) has it: ext4, xfs", "%q is no name of a file system", short(n.Value))
	}
}

// fsType says whether s can name a file system; what the kernel and mount(8) have
// are letters, digits and few others.
func fsType(s string) bool {
	return s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
	})
}

func (c *checker) claim(pvc *v1.PersistentVolumeClaim) {
	if pvc.Spec.VolumeName != "" {
		c.name(pvc.Spec.VolumeName, "spec", "volumeName")
	}
	c.modes(pvc.Spec.VolumeMode, pvc.Spec.AccessModes)
}

func (c *checker) modes(mode *v1.PersistentVolumeMode, access []v1.PersistentVolumeAccessMode) {
	if mode != nil && *mode != v1.PersistentVolumeFilesystem && *mode != v1.PersistentVolumeBlock {
		c.bad([]any{"spec", "volumeMode"}, "write Filesystem or Block", "there is no volume mode %q", short(string(*mode)))
	}
	known := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod}
	for i, m := range access {
		if !slices.Contains(known, m) {
			c.bad([]any{"spec", "accessModes", i}, "write ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod", "there is no access mode %q", short(string(m)))
		}
	}
}

func (c *checker) pod(pod *v1.Pod) {
	c.uid(string(pod.UID), "metadata", "uid")
	c.uid(pod.Annotations[mirrorAnnotation], "metadata", "annotations", mirrorAnnotation)
	first := map[string]int{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		at := []any{"spec", "volumes", i}
		c.name(v.Name, append(at, "name")...)
		if j, ok := first[v.Name]; ok {
			c.bad(append(at, "name"), "give each volume a name of its own", "spec.volumes[%d] has the name %q too", j, v.Name)
		}
		first[v.Name] = i
		switch sources := plugins.SourceFields(v.VolumeSource); {
		case len(sources) == 0:
			// The API server does so, and the kubelet for a static pod
			// (SetDefaults_Volume).
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		case len(sources) > 1:
			c.bad(at, "leave one of them", "the volume has %d sources, %s", len(sources), strings.Join(sources, " and "))
		case v.PersistentVolumeClaim != nil:
			c.name(v.PersistentVolumeClaim.ClaimName, append(at, "persistentVolumeClaim", "claimName")...)
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		c.securityContext(sc)
	}
}

func (c *checker) securityContext(sc *v1.PodSecurityContext) {
	at := []any{"spec", "securityContext"}
	if g := sc.FSGroup; g != nil && (*g < 0 || *g > 1<<31-1) {
		c.bad(append(at, "fsGroup"), "give a group id from 0 to 2147483647", "%d is not a group id", *g)
	}
	if p := sc.FSGroupChangePolicy; p != nil && *p != v1.FSGroupChangeAlways && *p != v1.FSGroupChangeOnRootMismatch {
		c.bad(append(at, "fsGroupChangePolicy"), "write Always or OnRootMismatch", "there is no policy %q", short(string(*p)))
	}
}
