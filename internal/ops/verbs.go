package ops

import (
	"github.com/kvol/kvol/internal/plugins"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Verb is one of kvol's lifecycle commands.
type Verb string

// The verbs, each named as its command.
const (
	Attach        Verb = "attach"
	Detach        Verb = "detach"
	MountDevice   Verb = "mount-device"
	UnmountDevice Verb = "unmount-device"
	Publish       Verb = "publish"
	Unpublish     Verb = "unpublish"
	Setup         Verb = "setup"
	Teardown      Verb = "teardown"
	Expand        Verb = "expand"
	Provision     Verb = "provision"
	Recycle       Verb = "recycle"
	Delete        Verb = "delete"
)

// Request is what an operator asks of a verb.
type Request struct {
	// Spec comes from -f; nil when the volume is only named.
	Spec *plugins.Spec
	// Volume is the argument of the reverse verbs: a PV or spec name,
	// driver^handle, a device or a path.
	Volume string
	// Word is what selects Spec among the documents that it comes from.
	Word string
	// Plugin narrows Volume to one plugin; empty takes any.
	Plugin string
	Pod    plugins.PodRef
	// Format allows a file system to be made on a device proven blank.
	Format bool
	// MustExist makes "nothing there" not found instead of already.
	MustExist bool
	// Lazy and ForceUmount are risks that the operator named: MNT_DETACH and
	// MNT_FORCE.
	Lazy        bool
	ForceUmount bool
	// WithoutDriver takes a CSI volume down on the node without asking its driver.
	WithoutDriver bool
	// AllowActivePod takes a volume from a pod that lives.
	AllowActivePod bool
	// AllowUnmanagedPod publishes for a pod that the kubelet of this root does not
	// know.
	AllowUnmanagedPod bool
	// DiscardEphemeral loses what is in an emptyDir in memory, and moves what is in one
	// on disk to the directory Quarantine.
	DiscardEphemeral bool
	Quarantine       string
	// YesDeleteData allows recycle and delete to do what they are for.
	YesDeleteData bool
	// Size is what a volume is to have at least once it is expanded, 0 for what there is.
	Size int64
	// PVC is the claim that a volume is provisioned for, and Class its storage class.
	PVC   *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// PodsFrom are the sources of live pods, auto when empty.
	PodsFrom []string
}

// Risks lists the risk flags that were given, as the history keeps them.
func (r Request) Risks() []string {
	var out []string
	for _, risk := range []struct {
		taken bool
		flag  string
	}{
		{r.Lazy, "--lazy"},
		{r.ForceUmount, "--force-umount"},
		{r.WithoutDriver, "--without-driver"},
		{r.DiscardEphemeral, "--discard-ephemeral"},
		{r.YesDeleteData, "--yes-delete-data"},
		{r.AllowActivePod, "--allow-active-pod"},
		{r.AllowUnmanagedPod, "--allow-unmanaged-pod"},
	} {
		if risk.taken {
			out = append(out, risk.flag)
		}
	}
	return out
}
