package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
)

// Without a fault the same scene goes up and down: what the table of bad inputs is
// refused for is the fault.
func TestBadInputScenesAreGood(t *testing.T) {
	s := newScene(t)
	before := s.look(true)
	s.must(0, s.up()...)
	if after := s.look(true); after == before {
		t.Error("nothing was set up")
	}
	s.must(0, s.down()...)
	if !strings.Contains(s.look(true), `"./outside/data/keep"`) {
		t.Error("the data is gone")
	}
	s.must(0, append(s.doc(strings.Replace(goodPV, "/nowhere", s.outside+"/data", 1)+goodPVC+goodPod), "--volume", "pv")...)
	s.must(0, "list-mounts", "--config", s.file("config.yaml", "# mine\noutput: json\n"))
}

// What is broken in kvol's own directories keeps nobody from a mount that can be
// taken away again; it is said.
func TestStateDirInTrouble(t *testing.T) {
	for name, trouble := range map[string]func(s *scene){
		"full":           func(s *scene) { s.fill(s.tmpfs(s.state)) },
		"read-only":      func(s *scene) { s.readOnly(s.state) },
		"another user's": func(s *scene) { s.owned(s.state, 12345, 0o700) },
		"a file":         func(s *scene) { s.file("state", "") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			trouble(s)
			up := s.must(0, s.up()...)
			if !strings.Contains(up.stderr, "--state-dir cannot be written") {
				t.Errorf("it is not said: %v", up)
			}
			s.must(0, s.down()...)
			if m := s.mounts(); m != "" {
				t.Errorf("still mounted:\n%s", m)
			}
		})
	}
}

// Lines of the journal that cannot be read are counted, and the others told.
func TestCorruptJournal(t *testing.T) {
	s := newScene(t)
	s.must(0, s.up()...)
	f, err := os.OpenFile(s.state+"/journal-000001.jsonl", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, junk := range []string{"{\"time\":\n", "\x00\x00\x00\n", "[1,2]\n", strings.Repeat("x", 1<<20) + "\n", "null\n", `{"op":7}` + "\n", `{"time": "cut sho`} {
		if _, err := f.WriteString(junk); err != nil {
			t.Fatal(err)
		}
	}
	s.must(0, s.down()...)
	o := s.must(0, "history", "-o", "json")
	h := decode[api.List[api.Operation]](t, o.stdout)
	if len(h.Warnings) == 0 || !strings.Contains(h.Warnings[0], "cannot be read") {
		t.Errorf("what cannot be read is not told: %v", o)
	}
	verbs := map[string]string{}
	for _, op := range h.Items {
		verbs[op.Verb] = op.Outcome
	}
	if verbs["setup"] != "done" || verbs["teardown"] != "done" {
		t.Errorf("%v", o)
	}
}

// Odd lines of the mount table are told of, and what can be read is listed.
func TestOddMountTable(t *testing.T) {
	s := newScene(t)
	path := s.podVolume(podA, "pv")
	s.mkdir(s.dir + "/proc/self")
	s.file("proc/self/mountinfo", strings.Join([]string{
		"22 1 8:1 / / rw - ext4 /dev/sda1 rw",
		"not a line",
		"23 22 x:y / /mnt rw - ext4 /dev/sdb rw",
		"24 22 0:50 / " + path + ` rw,relatime - tmpfs  rw`, // an empty source
		"25 22 0:51 / " + s.root + `/pods/a\040b\012c rw - tmpfs ` + strings.Repeat("x", 100_000) + " rw",
		"26 22 0:52 / " + s.root + "/cut",
		"\x00\xff",
	}, "\n"))
	o := s.must(0, "list-mounts", "--no-probe", "--proc-root", s.dir+"/proc")
	if !strings.Contains(o.stdout, "pv") || strings.Count(o.stderr, "line") < 4 {
		t.Errorf("%v", o)
	}
	all := s.list("--no-probe", "--proc-root", s.dir+"/proc")
	if m := all[path]; !m.Mounted || m.Volume != "pv" {
		t.Errorf("the good line is told as %+v", m)
	}
	if _, ok := all[s.root+"/pods/a b\nc"]; !ok {
		t.Errorf("the odd path is not told: %v", all)
	}
}
