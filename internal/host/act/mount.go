package act

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/host/mounts"
)

// Mount mounts the file system of a device at a path below the root, through
// mount(8), which may be killed at the deadline.
type Mount struct {
	Device  Value
	Target  string
	FSType  string
	Options []string
	Reason  string
}

func (a Mount) step() api.Step {
	args := mountutils.MakeMountArgs("", "", a.FSType, a.Options)
	words := make([]string, len(args))
	for i, w := range args {
		words[i] = Quote(w)
	}
	// MakeMountArgs ends with the target, which is not known to it here.
	words, args = words[:len(words)-1], args[:len(args)-1]
	return api.Step{
		Action: "mount", Target: a.Target, Args: append(slices.Clone(args), a.Device.String()), Reason: a.Reason,
		Shell: mountShell(a.Target, a.shown(), "ls -A -I vol_data.json -I iscsi.json",
			"mount "+strings.Join(words, " ")+" -- "+a.Device.shell()),
	}
}

func (a Mount) done(ctx context.Context, r *Runner) (bool, string, error) {
	top, mounted := r.table.Top(a.Target)
	if !mounted {
		return false, "", r.holdsNothing(a.Target)
	}
	dev, known := a.Device.Text()
	if !known {
		return false, "", api.Errorf(api.ErrRefused, "%s is mounted there already, before its device is attached", top.Source).At(a.Target).
			WithNext("find out whose it is: kvol inspect %s", Quote(a.Target))
	}
	same, err := r.Shows(ctx, top, dev)
	if err != nil {
		return false, "", err
	}
	// What a subvolume option of btrfs mounts is not the root either.
	if !same || top.Root != "/" && top.FSType != "btrfs" {
		return false, "", api.Errorf(api.ErrRefused, "something else is mounted there: %s of %s (%s), not %s", top.Root, top.Source, top.FSType, dev).At(a.Target).
			WithNext("find out whose it is: kvol inspect %s", Quote(a.Target))
	}
	// A volume that one pod wants read-only is mounted read-write for another; it
	// is the pod's own bind that is read-only then.
	if top.ReadOnly() && !slices.Contains(a.Options, "ro") {
		return false, "", api.Errorf(api.ErrRefused, "it is mounted there read-only already, and read-write was asked for").At(a.Target).
			WithNext("unmount the device first: kvol unmount-device %s", Quote(a.Target))
	}
	return true, "", nil
}

// Shows says whether a mount is of a device; see [devices.Devices.Shows].
func (r *Runner) Shows(ctx context.Context, m mounts.Mount, dev string) (bool, error) {
	s, err := r.Source(ctx, dev)
	if err != nil {
		return false, err
	}
	return r.Devices.Shows(m, s.Device(), s.Path), nil
}

func (a Mount) do(ctx context.Context, r *Runner) (string, error) {
	dev, _ := a.Device.Text()
	target, err := r.Root.Open(a.Target)
	if err != nil {
		return "", err
	}
	defer target.Close()
	// The target is a descriptor, the third of the child: a directory that is
	// swapped now is not mounted on.
	args := append([]string{"--no-canonicalize"}, mountutils.MakeMountArgs(dev, "/proc/self/fd/3", a.FSType, a.Options)...)
	res, err := r.Exec.Run(ctx, exec.Cmd{Name: "mount", Args: args, Files: []*os.File{target}, Inherit: r.locks()})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", a.failed(dev, res)
	}
	return "", nil
}

func (r *Runner) locks() []*os.File {
	if r.Locks == nil {
		return nil
	}
	return r.Locks()
}

// failed tells what mount(8) said, on one line; it knows the target as a descriptor.
func (a Mount) failed(dev string, res exec.Result) error {
	said := strings.Join(strings.Fields(strings.ReplaceAll(string(res.Stderr), "/proc/self/fd/3", a.Target)), " ")
	with := ""
	if len(a.Options) > 0 {
		with = " with the options " + strings.Join(a.Options, ",")
	}
	return api.Errorf(nil, "mount of %s (%s)%s failed with exit code %d: %s", dev, a.FSType, with, res.ExitCode, said).
		WithNext("the kernel says why: dmesg | tail")
}

func (a Mount) verify(ctx context.Context, r *Runner, _ string) error {
	if err := r.Reload(); err != nil {
		return err
	}
	dev, _ := a.Device.Text()
	top, ok := r.table.Top(a.Target)
	if !ok {
		return api.Errorf(api.ErrUncertain, "mount ended well and nothing is mounted there").At(a.Target)
	}
	same, err := r.Shows(ctx, top, dev)
	if err == nil && !same {
		err = api.Errorf(api.ErrUncertain, "%s was to be mounted and %s is there", dev, top.Source).At(a.Target)
	}
	if err == nil && top.ReadOnly() && !slices.Contains(a.Options, "ro") {
		err = api.Errorf(api.ErrRefused, "it was to be mounted read-write, and mount(8) made it read-only").At(a.Target).
			WithNext("the kernel says why (dmesg | tail); then: kvol unmount-device %s", Quote(a.Target))
	}
	return err
}

func (a Mount) settle(r *Runner, _ Value) {
	if !r.DryRun {
		return // verify has read the table anew
	}
	m := mounts.Mount{}
	m.Root, m.MountPoint, m.FSType, m.Source = "/", a.Target, a.FSType, a.Device.String()
	if s, ok := r.sources[m.Source]; ok {
		m.Major, m.Minor, m.Source = int(unix.Major(s.Info.Rdev)), int(unix.Minor(s.Info.Rdev)), s.Path
	}
	m.Options = []string{ro(slices.Contains(a.Options, "ro"))}
	r.added(m)
}

func (a Mount) fact() string { return a.shown() }

// shown is a shell test that the device is what is mounted.
func (a Mount) shown() string {
	return fmt.Sprintf("findmnt -rnM %s -S %s >/dev/null", Quote(a.Target), a.Device.shell())
}

// mountShell mounts on a target with nothing on it and nothing in it. When the
// script runs, either may have changed: what is in a directory would be hidden, and
// another mount be taken for the volume's.
func mountShell(target, shown, list, mount string) string {
	stop := func(why string) string { return "echo " + Quote("refused, "+why+": "+target) + " >&2; exit 4" }
	return fmt.Sprintf("if findmnt -rnM %[1]s >/dev/null; then %[2]s || { %[3]s; }\n"+
		"elif [ -d %[1]s ] && [ -n \"$(%[4]s -- %[1]s)\" ]; then %[5]s\n"+
		"else %[6]s %[1]s; fi",
		Quote(target), shown, stop("something else is mounted there"), list, stop("it is not empty"), mount)
}
