package node

import (
	"path/filepath"
	"regexp"
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

// WholeUID refuses what is the UID of none of the pods, and is made of the UID of one: how
// it begins, as tables show it, or written in another way, as the names of cgroups have it.
// Nothing has such a UID, so that all of the pod would seem to be unmounted. UIDs that are
// made by hand tell nothing: "web-1" is another pod than "web-10".
func WholeUID(word string, pods []string) error {
	if slices.Contains(pods, word) {
		return nil
	}
	fold := func(s string) string {
		return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(strings.TrimSpace(s)))
	}
	begins, folded := uidBegins.MatchString(word), fold(word)
	var meant []string
	for _, uid := range pods {
		if !wholeUID.MatchString(strings.ToLower(uid)) || slices.Contains(meant, uid) {
			continue
		}
		if whole := fold(uid); begins && strings.HasPrefix(whole, folded) || strings.Contains(folded, whole) {
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
	err.Details = api.Few(meant)
	return err.WithNext("name one by its whole UID")
}

// uidBegins is what can be the beginning of a UID and is too long to be so by chance.
var uidBegins = regexp.MustCompile(`^\s*[0-9a-fA-F-]{4,}\s*$`)
