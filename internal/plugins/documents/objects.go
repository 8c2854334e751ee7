package documents

import (
	"slices"

	"github.com/kvol/kvol/internal/api"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The documents are what a plugin asks in place of the API server
// ([plugins.Objects]).

// Secret finds a Secret; one without a namespace is in "default".
func (d *Documents) Secret(ns, name string) (*v1.Secret, error) {
	return find(d.Secrets, "Secret", namespace(ns)+"/"+name, key, "kubectl get secret -n "+namespace(ns)+" "+name)
}

// CSIDriver finds a CSIDriver object.
func (d *Documents) CSIDriver(name string) (*storagev1.CSIDriver, error) {
	return find(d.CSIDrivers, "CSIDriver", name, metav1.Object.GetName, "kubectl get csidriver "+name)
}

// VolumeAttachment finds a VolumeAttachment by its name, which says of which volume
// on which node it is.
func (d *Documents) VolumeAttachment(name string) (*storagev1.VolumeAttachment, error) {
	return find(d.VolumeAttachments, "VolumeAttachment", name, metav1.Object.GetName, "kubectl get volumeattachment "+name)
}

func find[T metav1.Object](list []T, kind, id string, idOf func(metav1.Object) string, get string) (T, error) {
	i := slices.IndexFunc(list, func(obj T) bool { return idOf(obj) == id })
	if i < 0 {
		var none T
		return none, api.Errorf(api.ErrNotFound, "the %s %s is not in the input", kind, id).
			WithNext("give its document too: %s -o yaml > FILE, and -f FILE", get)
	}
	return list[i], nil
}
