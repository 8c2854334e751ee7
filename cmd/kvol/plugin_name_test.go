package main

import (
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// A plugin goes by its name, or by what follows Kubernetes' vendor. A name that is none
// is refused with the one that is meant, or where nothing on the node has it.
func TestNameOfPlugin(t *testing.T) {
	for word, c := range map[string]struct {
		takes, says string
		unknown     bool
	}{
		"kubernetes.io/nfs":          {takes: "kubernetes.io/nfs"},
		"local-volume":               {takes: "kubernetes.io/local-volume"},
		"csi":                        {takes: "kubernetes.io/csi"},
		"example.com/flex":           {takes: "example.com/flex"},
		"flex":                       {takes: "flex", unknown: true},
		"localvolume":                {says: "did you mean --plugin kubernetes.io/local-volume?"},
		"kubernetes.io/local-volum":  {says: "did you mean --plugin kubernetes.io/local-volume?"},
		"kubernetes.oi/csi":          {says: "did you mean --plugin kubernetes.io/csi?"},
		"ebs.csi.aws.com":            {says: "did you mean --plugin kubernetes.io/csi?"},
		"kubernetes.io/nothing":      {says: "next: see which there are: kvol plugins"},
		"../../etc":                  {says: "see the names: kvol plugins"},
		"kubernetes.io~local-volume": {says: "see the names: kvol plugins"},
	} {
		for _, command := range []string{"ls --plugin ", "history --plugin ", "wait a --for unmounted --plugin ", "detach a --plugin "} {
			_, a, code, stderr := parse(t, command+word)
			if c.says != "" {
				if code != api.ExitNotFound && (code != api.ExitUsage || !strings.Contains(c.says, "the names")) || !strings.Contains(stderr, c.says) {
					t.Errorf("%s%s: exit code %d: %s", command, word, code, stderr)
				}
				continue
			}
			if code != 0 || (a.noPlugin != nil) != c.unknown {
				t.Errorf("%s%s: exit code %d: %s (%v)", command, word, code, stderr, a.noPlugin)
			}
			if f := a.tree; f != nil {
				cmd, _, _ := f.Find([]string{strings.Fields(command)[0]})
				if got := cmd.Flag("plugin").Value.String(); got != c.takes {
					t.Errorf("%s%s: %q", command, word, got)
				}
			}
		}
	}
}
