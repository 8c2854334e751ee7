package host

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/kvol/kvol/internal/host/kubelet"
)

// Kubelet is the kubelet that works in this root directory; its PID is 0 where none
// runs, or of none it can be told.
func (h *Host) Kubelet(ctx context.Context) (kubelet.Process, error) {
	all, err := kubelet.Find(h.ProcRoot)
	if err != nil || len(all) == 0 {
		return kubelet.Process{}, err
	}
	if _, err := h.Root(); err != nil {
		return kubelet.Process{}, err
	}
	for _, k := range all {
		if owns, err := h.OwnedBy(ctx, k); owns && err == nil {
			return k, nil
		}
	}
	return kubelet.Process{}, nil
}

// OwnedBy says whether a kubelet works in this root directory, whatever it calls it.
// Where that cannot be told, as of one in a mount namespace that does not answer, it is
// an error.
func (h *Host) OwnedBy(ctx context.Context, k kubelet.Process) (bool, error) {
	if name := filepath.Clean(k.RootDir); !k.OtherNamespace && (name == h.Layout.Root || name == filepath.Clean(h.RootDir)) {
		return true, nil
	}
	root, err := h.Root()
	if err != nil {
		return false, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.ProbeTimeout)
	defer cancel()
	dir, err := kubelet.Resolve(ctx, h.Helper, filepath.Join(h.ProcRoot, strconv.Itoa(k.PID)), k.RootDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return dir == kubelet.Dir{Dev: info.Dev, Ino: info.Ino}, err
}
