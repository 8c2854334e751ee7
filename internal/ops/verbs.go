package ops

import "github.com/kvol/kvol/internal/plugins"

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
)

// Request is what an operator asks of a verb.
type Request struct {
	// Spec comes from -f; nil when the volume is only named.
	Spec *plugins.Spec
	// Volume is the argument of the reverse verbs: a PV or spec name,
	// driver^handle, a device or a path.
	Volume string
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
}

// Risks lists the risk flags that were given, as the history keeps them.
func (r Request) Risks() []string {
	var out []string
	if r.Lazy {
		out = append(out, "--lazy")
	}
	if r.ForceUmount {
		out = append(out, "--force-umount")
	}
	return out
}
