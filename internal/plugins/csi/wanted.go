package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// wanted is a volume as its documents want it: a PersistentVolume's source and that of
// a pod's inline volume, made one.
type wanted struct {
	volume
	spec       *plugins.Spec
	inline     bool
	block      bool
	readOnly   bool
	fsType     string
	flags      []string
	attributes map[string]string
	mode       v1.PersistentVolumeAccessMode
	object     *storagev1.CSIDriver // nil when it was not given

	controllerSecret, stageSecret, publishSecret, expandSecret *v1.SecretReference
}

// want reads a spec. An inline volume's handle is made of the pod and its name.
func (p *plugin) want(spec *plugins.Spec, podUID string) (*wanted, error) {
	if !p.CanSupport(spec) {
		return nil, api.Errorf(api.ErrInput, "%s is no CSI volume", spec)
	}
	w := &wanted{spec: spec, block: spec.IsBlock(), mode: v1.ReadWriteOnce, flags: spec.MountOptions()}
	if src := spec.Volume; src != nil {
		w.inline, w.driver, w.attributes = true, src.CSI.Driver, src.CSI.VolumeAttributes
		w.handle = paths.CSIInlineHandle(podUID, spec.Name())
		w.readOnly = spec.ReadOnly || src.CSI.ReadOnly != nil && *src.CSI.ReadOnly
		if src.CSI.FSType != nil {
			w.fsType = *src.CSI.FSType
		}
		if ref := src.CSI.NodePublishSecretRef; ref != nil {
			w.publishSecret = &v1.SecretReference{Name: ref.Name, Namespace: spec.Namespace}
		}
	} else {
		pv := spec.PersistentVolume.Spec
		w.volume = volume{pv.CSI.Driver, pv.CSI.VolumeHandle}
		w.readOnly, w.fsType, w.attributes = spec.ReadOnly || pv.CSI.ReadOnly, pv.CSI.FSType, pv.CSI.VolumeAttributes
		if len(pv.AccessModes) > 0 {
			w.mode = pv.AccessModes[0] // only the first is sent, as by the kubelet
		}
		w.controllerSecret, w.stageSecret = pv.CSI.ControllerPublishSecretRef, pv.CSI.NodeStageSecretRef
		w.publishSecret, w.expandSecret = pv.CSI.NodePublishSecretRef, pv.CSI.NodeExpandSecretRef
	}
	if err := w.valid(); err != nil {
		return nil, err
	}
	if spec.Objects != nil {
		object, err := spec.Objects.CSIDriver(w.driver)
		if err != nil && !errors.Is(err, api.ErrNotFound) {
			return nil, err
		}
		w.object = object
	}
	return w, nil
}

func (w *wanted) valid() error {
	if err := paths.ValidDriverName(w.driver); err != nil {
		return err
	}
	if w.handle == "" {
		return api.Errorf(api.ErrInput, "spec.csi.volumeHandle of %s is empty", w.spec.Name()).WithNext("give the handle that the driver knows the volume by")
	}
	return nil
}

// allowed checks the lifecycle modes: an inline volume needs a CSIDriver that lists it.
func (w *wanted) allowed() error {
	mode := storagev1.VolumeLifecyclePersistent
	if w.inline {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	switch {
	case w.object == nil && w.inline:
		return api.Errorf(api.ErrInput, "whether CSI driver %s takes inline volumes is in its CSIDriver object, which is not in the input", w.driver).
			WithNext("give its document too: kubectl get csidriver %s -o yaml > FILE, and -f FILE", w.driver)
	case w.object == nil:
		return nil
	}
	modes := w.object.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent} // the API's default
	}
	if !slices.Contains(modes, mode) {
		return api.Errorf(api.ErrNotSupported, "the CSIDriver of %s does not list %s in volumeLifecycleModes, but %s", w.driver, mode, api.Words(modes)).
			WithNext("use a driver that takes such volumes, or correct the CSIDriver")
	}
	return nil
}

// attachable says whether the volume is attached before it is staged: unless the
// CSIDriver says that it is not. A missing CSIDriver means that it is.
func (w *wanted) attachable() bool {
	return !w.inline && (w.object == nil || w.object.Spec.AttachRequired == nil || *w.object.Spec.AttachRequired)
}

// lifecycle is the volumeLifecycleMode of the metadata.
func (w *wanted) lifecycle() string {
	if w.inline {
		return voldata.Ephemeral
	}
	return voldata.Persistent
}

// secret reads a Secret that the volume refers to; no reference gives none.
func (w *wanted) secret(ref *v1.SecretReference) (map[string]exec.Secret, error) {
	if ref == nil {
		return nil, nil
	}
	if ref.Name == "" {
		return nil, api.Errorf(api.ErrInput, "a secret reference of the volume has no name").
			WithNext("correct it in the PersistentVolume: kubectl explain persistentvolume.spec.csi")
	}
	if w.spec.Objects == nil {
		return nil, api.Errorf(api.ErrInput, "the volume needs the Secret %s/%s, which is not in the input", ref.Namespace, ref.Name).
			WithNext("give its document too: kubectl get secret -n %s %s -o yaml > FILE, and -f FILE", ref.Namespace, ref.Name)
	}
	s, err := w.spec.Objects.Secret(ref.Namespace, ref.Name)
	if err != nil {
		return nil, &api.Error{Kind: api.ErrInput, Err: err}
	}
	out := map[string]exec.Secret{}
	for k, v := range s.Data {
		out[k] = exec.NewSecret(v)
	}
	for k, v := range s.StringData { // wins, as in the API
		out[k] = exec.NewSecret([]byte(v))
	}
	return out, nil
}

// revealed makes the map of a request, at the last moment.
func revealed(secrets map[string]exec.Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for k, s := range secrets {
		out[k] = string(s.Reveal())
	}
	return out
}

func values(secrets map[string]exec.Secret) []exec.Secret {
	return slices.Collect(maps.Values(secrets))
}

// capability is the volume's, as the driver's own capabilities allow it to be told.
func (w *wanted) capability(ctx context.Context, d *driver, group *int64) (*csipb.VolumeCapability, error) {
	many, err := d.can(ctx, csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return nil, err
	}
	c := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{Mode: accessMode(w.mode, many)}}
	if w.block {
		c.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
		return c, nil
	}
	m := &csipb.VolumeCapability_MountVolume{FsType: w.fsType, MountFlags: w.flags}
	gives, err := d.can(ctx, csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	if err != nil {
		return nil, err
	}
	if gives && group != nil {
		m.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	c.AccessType = &csipb.VolumeCapability_Mount{Mount: m}
	return c, nil
}

// accessMode is Kubernetes' mode in CSI's words; drivers that tell several writers on
// one node apart are given the newer ones (asCSIAccessModeV1 and
// asSingleNodeMultiWriterCapableCSIAccessModeV1 in pkg/volume/csi/csi_client.go).
func accessMode(mode v1.PersistentVolumeAccessMode, many bool) csipb.VolumeCapability_AccessMode_Mode {
	switch mode {
	case v1.ReadWriteOnce:
		if many {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if many {
			return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return csipb.VolumeCapability_AccessMode_UNKNOWN
}

// context is the volume's attributes as NodePublishVolume gets them, with the pod's
// where the CSIDriver asks for those.
func (w *wanted) context(pod plugins.PodRef) map[string]string {
	out := maps.Clone(w.attributes)
	if out == nil {
		out = map[string]string{}
	}
	if w.object == nil || w.object.Spec.PodInfoOnMount == nil || !*w.object.Spec.PodInfoOnMount {
		return out
	}
	maps.Copy(out, map[string]string{
		"csi.storage.k8s.io/pod.name": pod.Name, "csi.storage.k8s.io/pod.namespace": pod.Namespace, "csi.storage.k8s.io/pod.uid": pod.UID,
		"csi.storage.k8s.io/serviceAccount.name": pod.ServiceAccount, "csi.storage.k8s.io/ephemeral": strconv.FormatBool(w.inline),
	})
	return out
}

// groups says whether kvol gives the volume's files to the pod's group (supportsFSGroup
// in pkg/volume/csi/csi_mounter.go).
func (w *wanted) groups() bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if w.object != nil && w.object.Spec.FSGroupPolicy != nil {
		policy = *w.object.Spec.FSGroupPolicy
	}
	switch {
	case w.readOnly || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case w.fsType == "" || w.inline:
		return w.fsType != ""
	}
	modes := w.spec.PersistentVolume.Spec.AccessModes
	return slices.Contains(modes, v1.ReadWriteOnce) || slices.Contains(modes, v1.ReadWriteOncePod)
}

// unserved are the warnings of what the driver asks a kubelet for and kvol cannot give.
func (w *wanted) unserved(pod plugins.PodRef) (out []string) {
	if w.object == nil {
		return nil
	}
	if n := len(w.object.Spec.TokenRequests); n > 0 {
		out = append(out, fmt.Sprintf("CSI driver %s asks for %s, which only a kubelet can have made: it is called without", w.driver, api.Count(n, "service account token", "service account tokens")))
	}
	if is := w.object.Spec.SELinuxMount; is != nil && *is {
		out = append(out, fmt.Sprintf("CSI driver %s supports mounts with an SELinux context, and kvol gives none", w.driver))
	}
	if is := w.object.Spec.PodInfoOnMount; is != nil && *is && pod.Name == "" {
		out = append(out, fmt.Sprintf("CSI driver %s is told of the pod no more than its UID: no Pod document was given", w.driver))
	}
	return out
}
