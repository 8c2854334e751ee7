package main

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/testutil"

	"github.com/google/go-cmp/cmp"
)

// The pods of the node that is looked at.
const (
	podWeb  = "0a8e9c5e-3e0f-4bd5-8f4e-1c3ad3a0a1f2"
	podDB   = "7b1f04c4-9a53-4f4e-9a57-6a6a1b8a2d11"
	podGone = "c3d2e1f0-1111-4222-8333-944455566677"
	rootDir = "/mnt/kubelet/"
)

// nodeEnv is what a kvol has to be told of that node.
var nodeEnv = []string{"KVOL_ROOT_DIR=" + rootDir, "KVOL_STATE_DIR=/mnt/state", "KVOL_RUN_DIR=/mnt/run",
	"KVOL_PODS_FROM=file:/mnt/pods.yaml", "KVOL_PROBE_TIMEOUT=9s"}

// over is told below the command, when it is.
const over = "=the end="

// run runs a shell command in a terminal of its own.
func (s panes) run(columns int, command string) pane {
	s.t.Helper()
	return s.open(columns, "sh", "-c", command+"; echo '"+over+"'; read x")
}

// screen waits for the end of the command and gives what it left.
func (s pane) screen(how ...string) string {
	s.t.Helper()
	s.wait("it has run its command", func(screen string) bool { return strings.Contains("\n"+screen, "\n"+over) })
	out, _, _ := strings.Cut("\n"+s.shows(how...), "\n"+over)
	lines := strings.Split(out, "\n")[1:]
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// node makes what is looked at: with names and sizes that are the same everywhere.
func (s panes) node() {
	t := s.t
	testutil.Mount(t, "none", "/mnt", "tmpfs", 0, "")
	dir := func(path string) string {
		if err := os.MkdirAll(path, 0o750); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mount := func(source, at, size string) string {
		testutil.Mount(t, source, dir(rootDir+at), "tmpfs", 0, "size="+size)
		return rootDir + at
	}
	bind := func(source, at string) { testutil.Bind(t, source, dir(rootDir+at), false) }
	volume := func(pod, plugin, name string) string {
		return "pods/" + pod + "/volumes/kubernetes.io~" + plugin + "/" + name
	}

	data := mount("/dev/sdb1", "plugins/kubernetes.io/local-volume/mounts/data", "64m")
	if err := os.WriteFile(filepath.Join(dir(data+"/html"), "index"), make([]byte, 20<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	bind(data, volume(podWeb, "local-volume", "data"))
	bind(data+"/html", "pods/"+podWeb+"/volume-subpaths/data/nginx/0")
	bind(data, volume(podDB, "local-volume", "data"))
	staged := mount("/dev/nvme1n1", "plugins/kubernetes.io/csi/ebs.csi.aws.com/b0bb6ba8792755a9f8e02037c1df6abc349dff11a1f7e43a5b5d1b3bc96ba705/globalmount", "20m")
	bind(staged, volume(podDB, "csi", "pvc-5b1c2d3e-7f6a-4c1b-9a33-0d5d8a1b2c3d/mount"))
	mount("nfs.example.com:/export/shared", volume(podGone, "nfs", "shared"), "1g")
	mount("tmpfs", volume(podWeb, "projected", "kube-api-access-x2x9q"), "1m")
	mount("tmpfs", "stray", "1m")
	mount("tmpfs", "stray", "1m")
	dir(rootDir + volume(podGone, "nfs", "lost"))
	dir(rootDir + volume(podGone, "configmap", "settings"))
	testutil.FUSE(t, dir(rootDir+volume(podGone, "nfs", "dead")), testutil.FUSEDead)
	disks := filepath.Dir(dir("/mnt/disks/ssd/scratch"))
	testutil.Mount(t, "/dev/sda1", disks, "tmpfs", 0, "size=1m")
	dir(disks + "/scratch")
	for name, text := range map[string]string{
		"pods": `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop, uid: ` + podWeb + `}}
- {apiVersion: v1, kind: Pod, metadata: {name: db-6f5c9d7b4-x2x9q, namespace: shop-production, uid: ` + podDB + `}}
`,
		"pv": `apiVersion: v1
kind: PersistentVolume
metadata: {name: scratch}
spec: {capacity: {storage: 1Mi}, accessModes: [ReadWriteOnce], local: {path: ` + disks + `/scratch}}
`,
	} {
		if err := os.WriteFile("/mnt/"+name+".yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.run(80, "kvol setup -q -f /mnt/pv.yaml --pod-uid "+podWeb+"; kvol setup -q -f /mnt/pv.yaml --pod-uid "+podGone+
		"; kvol unpublish -q scratch --pod-uid "+podGone+"; kvol unpublish -q data --pod-uid "+podWeb).screen()
}

// moments is what is another each time, and as long.
var moments = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// What people see in a wide, in a usual and in a narrow terminal.
func TestScreens(t *testing.T) {
	s := newPanes(t, nodeEnv...)
	s.node()
	shown := map[string]pane{}
	for _, together := range [][2]string{
		{"history", "kvol history; kvol history -o tree"}, {"help", "kvol version --help"},
		{"inspect", "kvol inspect data; kvol inspect data -o tree"}, {"wide", "kvol list-mounts -o wide --columns kind,volume,podUID,capacityBytes,usedBytes,path"},
		{"error", "kvol unpublish data --pod-uid " + podWeb + " --dry-run"},
	} {
		for _, columns := range []int{200, 80, 40} {
			shown[together[0]+"."+strconv.Itoa(columns)] = s.run(columns, together[1])
		}
	}
	for _, term := range shown {
		term.screen()
	}
	// One after the other: another kvol that looks at a pod's directory is a sign of life.
	for _, columns := range []int{200, 80, 40} {
		for name, command := range map[string]string{
			"gc-orphans": "kvol gc-orphans --min-age 0; kvol gc-orphans --min-age 0 -o tree", "list-mounts": "kvol list-mounts; kvol list-mounts -o tree",
		} {
			term := s.run(columns, command)
			term.screen()
			shown[name+"."+strconv.Itoa(columns)] = term
		}
	}
	for name, term := range shown {
		t.Run(name, func(t *testing.T) {
			got := moments.ReplaceAllString(term.screen(), "2026-03-01T10:00:00Z")
			path := filepath.Join("testdata", "screens", name)
			kind, _, _ := strings.Cut(name, ".")
			// -J joins what the terminal broke. Wide is never cut, nor is a command.
			if whole := moments.ReplaceAllString(term.screen("-J"), "2026-03-01T10:00:00Z"); whole != got && kind != "wide" && kind != "error" {
				t.Errorf("the terminal had to break a line:\n%s", got)
			}
			if kind == "help" {
				return // its words are in docs/reference
			}
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Colours are for a terminal, and for who wants them; box lines for one that has them.
// COLUMNS has the first word on its width, and in a pipe nothing is cut.
func TestTerminals(t *testing.T) {
	s := newPanes(t, nodeEnv...)
	s.node()
	const red = "\x1b[31mdisconnected"
	coloured := map[string]bool{
		"kvol ls": true, "kvol ls -o tree": true, "NO_COLOR=1 kvol ls": false, "TERM=dumb kvol ls -o tree": false, "kvol ls --color never": false,
		"kvol ls | cat": false, "NO_COLOR=1 kvol ls --color always | cat": true,
	}
	boxes := map[string]bool{
		"kvol ls -o tree": true, "kvol ls -o tree --ascii": false, "kvol ls -o tree | cat": false, "LC_ALL=C kvol ls -o tree": false, "TERM=dumb kvol ls -o tree": false,
	}
	longest := map[string][2]int{"COLUMNS=90 kvol ls": {60, 90}, "COLUMNS=90 kvol ls | cat": {150, 400}, "kvol ls": {90, 120}}
	shown := map[string]pane{}
	for _, command := range slices.Concat(slices.Collect(maps.Keys(coloured)), slices.Collect(maps.Keys(boxes)), slices.Collect(maps.Keys(longest))) {
		if shown[command].id == "" {
			shown[command] = s.run(120, command)
		}
	}
	for command, want := range coloured {
		if got := shown[command].screen("-e"); strings.Contains(got, red) != want || !want && strings.Contains(got, "\x1b") {
			t.Errorf("%s:\n%q", command, got)
		}
	}
	for command, want := range boxes {
		if got := shown[command].screen(); strings.Contains(got, "└─ ") != want || strings.Contains(got, "`- ") == want {
			t.Errorf("%s:\n%s", command, got)
		}
	}
	for command, want := range longest {
		n := 0
		for line := range strings.Lines(shown[command].screen("-J")) {
			n = max(n, len([]rune(line))-1)
		}
		if n < want[0] || n > want[1] {
			t.Errorf("%s: %d columns, not %v", command, n, want)
		}
	}
}

// The progress line is there while something takes long, here a container runtime that
// does not answer, and gone afterwards.
func TestProgressIsGone(t *testing.T) {
	s := newPanes(t, append(slices.Clone(nodeEnv), "KVOL_PODS_FROM=cri", "KVOL_RUNTIME_ENDPOINT=/mnt/cri.sock")...)
	testutil.Mount(t, "none", "/mnt", "tmpfs", 0, "")
	silent, err := net.Listen("unix", "/mnt/cri.sock")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(rootDir+"pods/"+podGone, 0o750); err != nil {
		t.Fatal(err)
	}
	term := s.run(80, "kvol gc-orphans --min-age 0")
	const busy = "asking which pods live here …"
	term.wait("it says what it is busy with", func(screen string) bool { return strings.Contains(screen, busy) })
	silent.Close()
	if got := term.screen("-J"); strings.Contains(got, busy) || !strings.Contains(got, "\n\n1 pod directory: 1 unknown") {
		t.Errorf("the terminal shows:\n%s", got)
	}
}
