package format

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/exec"
)

// HasFsck says whether a file system of that type is checked before it is mounted.
// xfs and btrfs are not: they replay their log at mount, and their fsck does nothing.
func HasFsck(fsType string) bool { return fsType != "xfs" && fsType != "btrfs" }

// Exit codes of fsck(8).
const (
	fsckCorrected   = 1
	fsckUncorrected = 4
)

// Fsck checks the file system on a device before it is mounted read-write, and
// corrects what can be corrected without asking, as the kubelet does with fsck -a.
// [api.ErrRefused] when errors are left. Everything else that keeps it from
// checking (no fsck for that type, the device in use) is a warning.
func Fsck(ctx context.Context, e Env, path, fsType string) (warning string, err error) {
	if !HasFsck(fsType) {
		return "", nil
	}
	dev, err := e.Devices.Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer dev.Close()
	if dev.ReadOnly {
		return "", nil
	}
	claim, err := dev.Exclusive(ctx, 0)
	if errors.Is(err, api.ErrBusy) {
		return dev.Path + " was not checked: it is in use, so probably mounted elsewhere", nil
	}
	if err != nil {
		return "", err
	}
	claim.Close() // the tool claims it itself
	// Not fsck(8), which looks for a device's type and disk by its name.
	cmd := exec.Cmd{Name: "fsck." + fsType, Args: []string{"-a", selfFD}, Files: []*os.File{dev.File}, Inherit: e.Locks, NoKill: true}
	res, err := e.Exec.Run(ctx, cmd)
	switch {
	case errors.Is(err, api.ErrMissingTool):
		return fmt.Sprintf("%s was not checked: there is no %s", dev.Path, cmd.Name), nil
	case err != nil:
		return "", err
	case res.ExitCode == fsckUncorrected:
		return "", refuse(dev.Device, "its %s has errors that need a decision: %v", fsType, res.Check(cmd)).
			WithNext("repair it by hand while it is mounted nowhere, and answer what it asks: fsck.%s %s", fsType, dev.Path)
	case !slices.Contains([]int{0, fsckCorrected}, res.ExitCode):
		return fmt.Sprintf("%s: %v", dev.Path, res.Check(cmd)), nil
	}
	return "", nil
}
