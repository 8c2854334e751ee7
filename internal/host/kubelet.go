package host

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/kvol/kvol/internal/host/kubelet"
)

// Kubelet is the kubelet that works in this root directory, whatever it calls it; its
// PID is 0 where none runs.
func (h *Host) Kubelet(ctx context.Context) (kubelet.Process, error) {
	all, err := kubelet.Find(h.ProcRoot)
	if err != nil || len(all) == 0 {
		return kubelet.Process{}, err
	}
	root, err := h.Root()
	if err != nil {
		return kubelet.Process{}, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return kubelet.Process{}, err
	}
	for _, k := range all {
		if !k.OtherNamespace && filepath.Clean(k.RootDir) == h.Layout.Root {
			return k, nil
		}
		// One that is not there, or does not answer, is not the one that is open here.
		dir, err := kubelet.Resolve(ctx, h.Helper, filepath.Join(h.ProcRoot, strconv.Itoa(k.PID)), k.RootDir)
		if err == nil && dir == (kubelet.Dir{Dev: info.Dev, Ino: info.Ino}) {
			return k, nil
		}
	}
	return kubelet.Process{}, nil
}
