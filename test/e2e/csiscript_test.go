package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"
)

// A call of the driver has no shell form: the plan as a script is refused, exit 6,
// with the step's name; as a table and as JSON it is shown.
func TestCSIScriptIsRefused(t *testing.T) {
	n := newCSI(t)
	file := n.volume("pv", "vol-1")
	upwards := setUp(podA, n.unattached(), file)
	n.unchanged(func() {
		n.wants(6, []string{"NodeStageVolume"}, append(upwards, "--dry-run", "-o", "shell")...)
		n.wants(0, []string{"NodeStageVolume", "NodePublishVolume", n.target(podA, "pv")}, append(upwards, "--dry-run")...)
		n.wants(0, []string{`"call"`, "NodePublishVolume"}, append(upwards, "--dry-run", "-o", "json")...)
	})
	n.must(0, upwards...)
	n.unchanged(func() {
		n.wants(6, []string{"NodeUnpublishVolume"}, "teardown", "pv", "--pod-uid", podA, "--dry-run", "-o", "shell")
	})
	if got := n.csi.Methods(); got != upStaged {
		t.Errorf("a dry run called the driver: %s", got)
	}
}

// --shell-with-kvol puts a line of kvol in the place of each such step; the script
// does what the verb does, twice too.
func TestCSIScriptWithKvol(t *testing.T) {
	for _, m := range csiModes {
		if m.namespace || m.attach {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			n, words := m.make(t)
			script := func(args ...string) {
				t.Helper()
				o := n.must(0, append(args, "--dry-run", "-o", "shell", "--shell-with-kvol")...)
				path := n.file("plan.sh", o.stdout)
				for range 2 {
					cmd := exec.Command("bash", path)
					cmd.Env = append(append(os.Environ(), n.env...), "PATH="+strings.TrimSuffix(n.kvolPath, "/kvol")+":"+os.Getenv("PATH"))
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s\n%s", err, o.stdout, out)
					}
				}
			}
			script(append([]string{"setup"}, words...)...)
			twice(n.node, append([]string{"setup"}, words...))
			script("teardown", m.spec(), "--pod-uid", podA)
			n.cleared()
		})
	}
}

// No secret is in such a script: it is read from the documents.
func TestCSIScriptHasNoSecret(t *testing.T) {
	n := newCSI(t, func(c *testutil.CSIControl) {
		c.Secrets = map[string]map[string]string{"NodeStageVolume": {"s": "planted"}}
	})
	file := n.volume("pv", "vol-1", "csi.nodeStageSecretRef: {name: stage, namespace: ns}")
	o := n.must(0, append(setUp(podA, n.unattached(), file, n.secret("stage", "s", "planted")), "--dry-run", "-o", "shell", "--shell-with-kvol")...)
	if strings.Contains(o.String(), "planted") || !strings.Contains(o.stdout, "stage-secret.yaml") {
		t.Errorf("%v", o)
	}
}
