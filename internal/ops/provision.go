package ops

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/node"
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProvisionVolume makes a volume for a claim and gives its PersistentVolume, as the
// controller of Kubernetes would have made it.
func (o *Ops) ProvisionVolume(ctx context.Context, req Request) (*v1.PersistentVolume, error) {
	op, err := o.open(ctx, Provision, req, false)
	if err != nil {
		return nil, err
	}
	defer op.close()
	err = op.carryOut(ctx)
	op.end(err)
	return op.pv, err
}

// fromClaim finds the provisioner of the claim's class, and the volume's name: that
// of the controller, which follows from the claim, so that one claim gets one volume.
func (op *operation) fromClaim() error {
	pvc, class := op.req.PVC, op.req.Class
	var err error
	if op.plugin, err = op.mgr.FindPluginByName(class.Provisioner); err != nil {
		return err
	}
	if _, err := plugins.As[plugins.ProvisionableVolumePlugin](op.plugin); err != nil {
		return err
	}
	uid := string(pvc.UID)
	if uid == "" {
		uid = uuid.NewSHA1(uuid.NameSpaceURL, []byte(pvc.Namespace+"/"+pvc.Name)).String()
	}
	op.name = "pvc-" + uid
	bad := func(kind error, next, format string, args ...any) error {
		return api.Errorf(kind, "claim %s: %w", pvc.Name, fmt.Errorf(format, args...)).WithNext("%s", next)
	}
	switch size := pvc.Spec.Resources.Requests.Storage(); {
	case pvc.Spec.VolumeName != "":
		return bad(api.ErrInput, "set that volume up (kvol setup -f FILE), or give a claim that is not bound", "it is bound to volume %s already", pvc.Spec.VolumeName)
	case size.Sign() <= 0:
		return bad(api.ErrInput, "write how large the volume is to be: 1Gi", "spec.resources.requests.storage is missing, or is not above 0")
	case pvc.Spec.DataSource != nil || pvc.Spec.DataSourceRef != nil:
		return bad(api.ErrNotSupported, "take spec.dataSource and dataSourceRef out of the claim", "%s makes no volumes from a data source", class.Provisioner)
	case pvc.Spec.Selector != nil:
		return bad(api.ErrNotSupported, "take spec.selector out of the claim", "%s makes no volumes for a selector", class.Provisioner)
	case len(class.MountOptions) > 0 && !op.plugin.SupportsMountOption():
		return bad(api.ErrInput, "take mountOptions out of the class", "its class %s has mountOptions, and volumes of %s take none", class.Name, class.Provisioner)
	}
	if p, err := plugins.As[plugins.PersistentVolumePlugin](op.plugin); err == nil {
		for _, mode := range pvc.Spec.AccessModes {
			if !slices.Contains(p.GetAccessModes(), mode) {
				return bad(api.ErrNotSupported, "ask for an access mode that it has", "it asks for %s, and %s has %s", mode, class.Provisioner, api.Words(p.GetAccessModes()))
			}
		}
	}
	return nil
}

func (op *operation) provision(ctx context.Context) (string, error) {
	p, err := plugins.As[plugins.ProvisionableVolumePlugin](op.plugin)
	if err != nil {
		return "", err
	}
	maker, err := p.NewProvisioner(plugins.ProvisionOptions{PVC: op.req.PVC, PVName: op.name, Parameters: op.req.Class.Parameters})
	if err != nil {
		return "", err
	}
	pv, err := maker.Provision(ctx, op.run)
	if err != nil {
		return "", err
	}
	op.finish(pv)
	op.pv = pv
	return "", nil
}

// finish adds to a new volume what Kubernetes' controller adds.
func (op *operation) finish(pv *v1.PersistentVolume) {
	pvc, class := op.req.PVC, op.req.Class
	pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	if pv.Annotations == nil {
		pv.Annotations = map[string]string{}
	}
	pv.Annotations["pv.kubernetes.io/provisioned-by"] = class.Provisioner
	pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID}
	pv.Spec.StorageClassName = class.Name
	pv.Spec.MountOptions = class.MountOptions
	pv.Spec.VolumeMode = pvc.Spec.VolumeMode
	pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		pv.Spec.PersistentVolumeReclaimPolicy = *class.ReclaimPolicy
	}
}

// recycle empties the volume, so that it can be claimed again.
func (op *operation) recycle(ctx context.Context) (string, error) {
	p, err := plugins.As[plugins.RecyclableVolumePlugin](op.plugin)
	if err == nil {
		err = op.mayDelete()
	}
	if err != nil {
		return "", err
	}
	op.note = "all that was in " + op.volumeName + " is deleted"
	return "", p.Recycle(ctx, op.run, op.req.Spec)
}

// delete deletes the volume.
func (op *operation) delete(ctx context.Context) (string, error) {
	p, err := plugins.As[plugins.DeletableVolumePlugin](op.plugin)
	if err != nil {
		return "", err
	}
	d, err := p.NewDeleter(op.req.Spec)
	if err == nil {
		err = op.mayDelete()
	}
	if err != nil {
		return "", err
	}
	op.note = op.volumeName + " is deleted"
	return "", d.Delete(ctx, op.run)
}

// mayDelete refuses to delete data without the operator's word, and of a volume that
// anybody has. What uses it otherwise is found by who deletes.
func (op *operation) mayDelete() error {
	if pv := op.req.Spec.PersistentVolume; pv != nil && pv.Status.Phase == v1.VolumeBound {
		return api.Errorf(api.ErrRefused, "its document says that it is bound: a claim has it").
			WithNext("delete the claim, and take the document anew: kubectl get pv %s -o yaml", op.name)
	}
	find, err := node.NewFind(op.host)
	if err != nil {
		return err
	}
	op.find = find
	users := op.published()
	for _, ref := range op.mountedRefs() {
		users = append(users, op.consumers([]string{ref.Path})...)
	}
	if len(users) > 0 {
		_, err := op.inUse("", users)
		return err
	}
	if !op.run.DryRun && !op.req.YesDeleteData {
		return api.Errorf(api.ErrRefused, "%s deletes data for good, and that was not confirmed", op.verb).
			WithNext("see what it would do: the same command with --dry-run; then confirm it: --yes-delete-data")
	}
	return nil
}
