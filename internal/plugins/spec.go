package plugins

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Spec names one volume as Kubernetes does: either an inline volume of a pod or
// a PersistentVolume, never both.
type Spec struct {
	Volume           *v1.Volume
	PersistentVolume *v1.PersistentVolume
	// ReadOnly is the pod's wish; the volume itself can be read-only beside it.
	ReadOnly bool
	// Objects are the other documents that the operator gave: what a kubelet asks
	// the API server for. Nil when there are none.
	Objects Objects
	// PublishContext is what attaching gave, or the operator in its stead.
	PublishContext map[string]string
	// Namespace is the pod's of an inline volume: its secrets are there. PodUID is the
	// pod's too, "" as long as it is not known: a CSI driver knows such a volume by it.
	Namespace, PodUID string
}

// Objects finds what a volume refers to. What was not given is ErrNotFound, and
// the error says what to give.
type Objects interface {
	Secret(namespace, name string) (*v1.Secret, error)
	CSIDriver(name string) (*storagev1.CSIDriver, error)
	VolumeAttachment(name string) (*storagev1.VolumeAttachment, error)
}

// NewSpecFromVolume makes the spec of a pod's inline volume.
func NewSpecFromVolume(v *v1.Volume) *Spec { return &Spec{Volume: v} }

// NewSpecFromPersistentVolume makes the spec of a PersistentVolume.
func NewSpecFromPersistentVolume(pv *v1.PersistentVolume, readOnly bool) *Spec {
	return &Spec{PersistentVolume: pv, ReadOnly: readOnly}
}

// Name is the inner spec name, which is the name of the directory on disk: the
// PV's name, or the pod's own name of an inline volume.
func (s *Spec) Name() string {
	switch {
	case s == nil:
		return ""
	case s.Volume != nil:
		return s.Volume.Name
	case s.PersistentVolume != nil:
		return s.PersistentVolume.Name
	}
	return ""
}

// IsBlock says that the volume goes to pods as a raw block device.
func (s *Spec) IsBlock() bool {
	return s != nil && s.PersistentVolume != nil && s.PersistentVolume.Spec.VolumeMode != nil &&
		*s.PersistentVolume.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// MountOptions are the PersistentVolume's, each by itself: Kubernetes joins them
// with commas, so that "ro,noatime" is two. Inline volumes have none.
func (s *Spec) MountOptions() []string {
	if s == nil || s.PersistentVolume == nil {
		return nil
	}
	var out []string
	for _, o := range s.PersistentVolume.Spec.MountOptions {
		quoted := false
		out = append(out, strings.FieldsFunc(o, func(r rune) bool {
			quoted = quoted != (r == '"') // mount(8): a comma in quotes is of the option
			return r == ',' && !quoted
		})...)
	}
	return out
}

// Source is the kind of source that the spec has, by the name of its field in
// Kubernetes' types ("local", "nfs"); "" when it has none.
func (s *Spec) Source() string {
	switch {
	case s == nil:
		return ""
	case s.Volume != nil:
		return firstSource(s.Volume.VolumeSource)
	case s.PersistentVolume != nil:
		return firstSource(s.PersistentVolume.Spec.PersistentVolumeSource)
	}
	return ""
}

// SourceFields names the sources that are set in a union of them (VolumeSource,
// PersistentVolumeSource), by their names in JSON.
func SourceFields(union any) []string {
	var set []string
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			set = append(set, name)
		}
	}
	return set
}

func firstSource(union any) string {
	if set := SourceFields(union); len(set) > 0 {
		return set[0]
	}
	return ""
}

// String is for messages: never a secret, since a spec holds only references.
func (s *Spec) String() string {
	switch {
	case s == nil:
		return "no volume"
	case s.Volume == nil && s.PersistentVolume == nil:
		return "an empty spec"
	case s.Source() == "":
		return fmt.Sprintf("volume %q without a source", s.Name())
	}
	return fmt.Sprintf("volume %q of source %s", s.Name(), s.Source())
}
