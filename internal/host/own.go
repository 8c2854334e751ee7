package host

import (
	"fmt"
	"os"

	"github.com/kvol/kvol/internal/host/probe"
	"github.com/kvol/kvol/internal/host/safefs"
)

// OwnDir is a directory of kvol's own that was opened before, or why it was not.
type OwnDir struct {
	Dir *os.File
	Err error
}

// OpenOwn opens the state and the run directory for a kvol that goes on in another
// mount namespace, and makes what is missing of them where that is asked for.
func OpenOwn(o Options, missing bool) map[string]OwnDir {
	h := &Host{Options: o, Helper: probe.New("")}
	defer h.Close()
	open := safefs.OpenOwn
	if missing {
		open = safefs.OwnDir
	}
	out := map[string]OwnDir{}
	for _, path := range []string{o.StateDir, o.RunDir} {
		var own OwnDir
		root, err := h.ownDir(path, open)
		if own.Err = err; err == nil {
			own.Dir, own.Err = root.Open(".")
			root.Close()
		}
		out[path] = own
	}
	return out
}

// ownDir takes the directory that was opened before, or else opens it if it answers.
func (h *Host) ownDir(path string, open func(string, ...safefs.Option) (*safefs.Root, error)) (*safefs.Root, error) {
	if own, ok := h.OwnDirs[path]; ok {
		if own.Err != nil {
			return nil, own.Err
		}
		return safefs.OwnDirAt(own.Dir, path)
	}
	if err := h.answers(path); err != nil {
		return nil, err
	}
	return open(path)
}

// remember tells the helper where what hangs is remembered, if that itself answers.
func (h *Host) remember() {
	if own, ok := h.OwnDirs[h.RunDir]; ok {
		if own.Err == nil {
			h.Helper.RememberIn(fmt.Sprintf("/proc/self/fd/%d", own.Dir.Fd()))
		}
		return
	}
	if h.runErr = h.answers(h.RunDir); h.runErr == nil {
		h.Helper.RememberIn(h.RunDir)
	}
}
