package documents

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kvol/kvol/internal/api"
)

// checkClaims refuses claims that no PersistentVolume of the input goes with:
// then a volume would be taken that the claim does not mean.
func (ix *index) checkClaims() error {
	for _, pvc := range ix.PVCs {
		name := pvc.Spec.VolumeName
		if ix.volumes[name] != nil || ix.claimed[key(pvc)] != nil {
			continue
		}
		if name != "" {
			return ix.origins[pvc].bad("give it: kubectl get pv "+name+" -o yaml", "spec.volumeName: PersistentVolume %q is not in the input", name)
		}
		return ix.origins[pvc].bad("give the PersistentVolume that is bound to it",
			"the claim names no PersistentVolume, and none in the input has it as claimRef")
	}
	return nil
}

func concerns(pv *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName == pv.Name || claimOf(pv) == key(pvc)
}

// checkAgree refuses a PersistentVolume that its claim, as far as there is one,
// is not bound to. It asks what the binder of Kubernetes asks and what stays true
// afterwards: sizes differ while a volume is expanded, classes may be edited.
func (d *Documents) checkAgree(pv *v1.PersistentVolume) error {
	for _, pvc := range d.PVCs {
		if !concerns(pv, pvc) {
			continue
		}
		if what := disagreement(pv, pvc); what != "" {
			e := d.origins[pvc].bad("take both anew from the cluster: kubectl get pvc -n "+namespace(pvc.Namespace)+" "+pvc.Name+
				" -o yaml; kubectl get pv "+pv.Name+" -o yaml", "it disagrees with PersistentVolume %q: %s", pv.Name, what)
			at := d.origins[pv]
			e.Details = []string{fmt.Sprintf("PersistentVolume %q is in %s, %s", pv.Name, at.input, at)}
			return e
		}
	}
	return nil
}

// disagreement says why a claim and a PersistentVolume that name each other, at
// least on one side, are not bound.
func disagreement(pv *v1.PersistentVolume, pvc *v1.PersistentVolumeClaim) string {
	ref := pv.Spec.ClaimRef
	switch {
	case pvc.Spec.VolumeName != "" && pvc.Spec.VolumeName != pv.Name:
		return fmt.Sprintf("spec.volumeName is %q, though spec.claimRef of the volume names the claim", pvc.Spec.VolumeName)
	case ref != nil && claimOf(pv) != key(pvc):
		return fmt.Sprintf("spec.claimRef of the volume names %s, not %s", claimOf(pv), key(pvc))
	case ref != nil && ref.UID != "" && pvc.UID != "" && ref.UID != pvc.UID:
		return fmt.Sprintf("spec.claimRef of the volume has uid %s, the claim %s: it was deleted and made anew", ref.UID, pvc.UID)
	case modeOf(pv.Spec.VolumeMode) != modeOf(pvc.Spec.VolumeMode):
		return fmt.Sprintf("spec.volumeMode of the volume is %s, of the claim %s", modeOf(pv.Spec.VolumeMode), modeOf(pvc.Spec.VolumeMode))
	}
	for _, m := range pvc.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, m) {
			return fmt.Sprintf("spec.accessModes: the claim asks for %s, the volume has %s", m, api.Words(pv.Spec.AccessModes))
		}
	}
	return ""
}

// modeOf is a volume mode with Kubernetes' default.
func modeOf(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if mode == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *mode
}
