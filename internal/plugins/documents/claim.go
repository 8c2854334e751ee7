package documents

import (
	"slices"

	"github.com/kvol/kvol/internal/api"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// defaultClass marks the class of claims that name none
// (storageutil.IsDefaultStorageClassAnnotation).
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// Claim finds the claim of that name, or with "" the only one there is, and its
// storage class.
func (d *Documents) Claim(name string) (*v1.PersistentVolumeClaim, *storagev1.StorageClass, error) {
	claims := slices.DeleteFunc(slices.Clone(d.PVCs), func(c *v1.PersistentVolumeClaim) bool { return name != "" && c.Name != name })
	switch {
	case len(claims) == 0 && name != "":
		return nil, nil, api.Errorf(api.ErrUsage, "--claim %s is none of the claims in the input", name)
	case len(claims) == 0:
		return nil, nil, api.Errorf(api.ErrUsage, "the input holds no PersistentVolumeClaim").
			WithNext("give it with -f: kubectl get pvc NAME -o yaml > pvc.yaml")
	case len(claims) > 1:
		e := api.Errorf(api.ErrUsage, "there are %d claims in the input", len(claims)).WithNext("say which with --claim NAME")
		for _, c := range claims {
			e.Details = append(e.Details, key(c))
		}
		return nil, nil, e
	}
	pvc := claims[0].DeepCopy()
	pvc.Namespace = namespace(pvc.Namespace)
	class, err := d.classOf(pvc)
	return pvc, class, err
}

func (d *Documents) classOf(pvc *v1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	named := pvc.Spec.StorageClassName
	if named != nil && *named == "" {
		return nil, api.Errorf(api.ErrInput, `claim %s has storageClassName "": nothing is to be provisioned for it`, key(pvc))
	}
	i := slices.IndexFunc(d.StorageClasses, func(c *storagev1.StorageClass) bool {
		return named == nil && c.Annotations[defaultClass] == "true" || named != nil && c.Name == *named
	})
	if i < 0 && named == nil && len(d.StorageClasses) == 1 {
		i = 0
	}
	switch {
	case i < 0 && named != nil:
		return nil, api.Errorf(api.ErrUsage, "StorageClass %q of claim %s is not in the input", *named, key(pvc)).
			WithNext("give it too: kubectl get storageclass %s -o yaml > class.yaml, and -f class.yaml", *named)
	case i < 0:
		return nil, api.Errorf(api.ErrUsage, "claim %s names no StorageClass, and which one is meant the input does not tell", key(pvc)).
			WithNext("give the default one too: kubectl get storageclass -o yaml > classes.yaml, and -f classes.yaml")
	}
	return d.StorageClasses[i], nil
}
