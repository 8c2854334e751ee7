package node

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/safefs"
)

// PodDirs are the UIDs of the pods that have a directory on this node.
func PodDirs(h *host.Host) []string {
	root, err := h.Root()
	if err != nil {
		return nil
	}
	entries, _ := root.ReadDir(filepath.Join(root.Path(), "pods")) // who needs it says what is wrong with it
	var uids []string
	for _, e := range entries {
		if e.Type == safefs.Dir {
			uids = append(uids, e.Name)
		}
	}
	return uids
}

// WholeUID refuses what is none of the pods, and looks as if it should be one of them:
// how a UID begins, as tables show it, or one that is written in another way. Nothing has
// such a UID, so that all of the pod would seem to be unmounted.
func WholeUID(word string, pods []string) error {
	if word == "" || slices.Contains(pods, word) {
		return nil
	}
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "-", "") }
	var meant []string
	for _, uid := range pods {
		// Two UIDs that are made by hand may be "pod-1" and "pod-10".
		begins := strings.HasPrefix(plain(uid), plain(word)) && (len(word) >= 8 || wholeUID.MatchString(uid))
		if !slices.Contains(meant, uid) && (begins || plain(uid) == plain(word)) {
			meant = append(meant, uid)
		}
	}
	switch len(meant) {
	case 0:
		return nil
	case 1:
		return api.Errorf(api.ErrUsage, "%q is not the UID of a pod, and looks like that of one", word).
			WithNext("name the pod by its whole UID: %s", meant[0])
	}
	err := api.Errorf(api.ErrUsage, "%q is not the UID of a pod, and could be any of %d pods", word, len(meant))
	err.Details = meant
	return err.WithNext("name one by its whole UID")
}
