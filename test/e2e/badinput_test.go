package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/testutil"
)

// bad is one thing that an operator, a document or a node can get wrong.
type bad struct {
	name string
	// make makes the fault, on a node that is well, and gives the command line.
	make func(s *scene) []string
	// reason is that of the failure; its exit code follows from it.
	reason string
	// want are words that the failure has to tell: the input, the fault, and of the
	// next step, which there must be in any case.
	want []string
	// began says that the fault is met only once the locks are taken, so that there
	// are locks and a history.
	began bool
	// plain is about the output itself, so that there is no JSON form of it.
	plain bool
}

// codes are the exit codes by the reasons, as docs/exit-codes.md has them.
var codes = map[string]int{
	"Failed": 1, "Usage": 2, "BadInput": 2, "AmbiguousPlugin": 2, "PartlyDone": 3, "Refused": 4, "NotEmpty": 4,
	"NotFound": 5, "NotMounted": 5, "NoPlugin": 5, "NotSupported": 6, "MissingTool": 7, "Uncertain": 8, "Timeout": 8,
	"Busy": 9, "Locked": 10,
}

// scene is a node with something around it that must stay as it is.
type scene struct {
	*node
	outside string // a tree beside the root; nothing of it is a volume but outside/data
	stdin   string
	also    []string // mounts whose content is watched too
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{node: newNode(t)}
	s.outside = s.dir + "/outside"
	for _, d := range []string{s.outside, s.outside + "/data", s.outside + "/pod", s.outside + "/empty"} {
		s.mkdir(d)
	}
	s.file("outside/data/keep", "data of the volume")
	s.file("outside/pod/keep", "data of somebody")
	return s
}

func (s *scene) mkdir(path string) string {
	s.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *scene) symlink(target, path string) string {
	s.t.Helper()
	if err := os.Symlink(target, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// tmpfs mounts a small file system whose content is watched.
func (s *scene) tmpfs(path string) string {
	s.t.Helper()
	testutil.Tmpfs(s.t, s.mkdir(path))
	s.also = append(s.also, path)
	return path
}

// up is the way up of a good volume with a pod, and down its way down.
func (s *scene) up(more ...string) []string {
	return append([]string{"setup", "-f", s.pv("pv", s.outside+"/data"), "--pod-uid", podA}, more...)
}

func (s *scene) down(more ...string) []string {
	return append([]string{"teardown", "pv", "--pod-uid", podA}, more...)
}

// doc is the way up of what a document describes.
func (s *scene) doc(text string) []string {
	return []string{"setup", "-f", s.file("in.yaml", text), "--pod-uid", podA}
}

// local is the way up of a volume whose path is given.
func (s *scene) local(path string, more ...string) []string {
	return []string{"setup", "-f", s.pv("pv", path, more...), "--pod-uid", podA}
}

// look is everything that must not change. kvol's own directories are looked at
// unless what is tried goes as far as taking locks.
func (s *scene) look(began bool) string {
	s.t.Helper()
	var b strings.Builder
	for line := range strings.Lines(testutil.Tree(s.t, s.dir)) {
		own := strings.HasPrefix(line, `"./state`) || strings.HasPrefix(line, `"./run`)
		if !own || !began {
			b.WriteString(line)
		}
	}
	for _, path := range s.also {
		b.WriteString(testutil.Tree(s.t, path))
	}
	b.WriteString(testutil.MountTable(s.t, s.dir))
	return b.String()
}

func TestBadInput(t *testing.T) {
	all := append(append(append(append(badDocuments(), badWords()...), badSettings()...), badSources()...), badNodes()...)
	all = append(append(all, badRecover()...), badAll()...)
	if len(all) < 90 {
		t.Errorf("only %d", len(all))
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			c.check(s, c.make(s))
		})
	}
	t.Logf("%d bad inputs", len(all))
}

// check runs the same command for people and for programs.
func (c bad) check(s *scene, args []string) {
	s.t.Helper()
	before := s.look(c.began)
	forPeople := s.kvolStdin(s.stdin, args...)
	c.checkText(s.t, forPeople)
	c.unchanged(s, before, forPeople)
	if c.plain || s.t.Failed() {
		return
	}
	forPrograms := s.kvolStdin(s.stdin, append(args, "-o", "json")...)
	c.checkDoc(s.t, forPrograms)
	c.unchanged(s, before, forPrograms)
}

func (c bad) unchanged(s *scene, before string, o out) {
	s.t.Helper()
	if after := s.look(c.began); after != before {
		s.t.Errorf("it changed (-before +after):\n%s\n%v", cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")), o)
	}
}

// checkText holds what people are told.
func (c bad) checkText(t *testing.T, o out) {
	t.Helper()
	if testing.Verbose() {
		t.Logf("%d %s", o.code, o.stderr)
	}
	if want, ok := codes[c.reason]; !ok || o.code != want {
		t.Errorf("wanted %s, exit code %d:\n%v", c.reason, want, o)
	}
	head, next, ok := strings.Cut(o.stderr, "\nnext: ")
	if !ok || strings.TrimSpace(next) == "" {
		t.Errorf("no next step:\n%v", o)
	}
	if !strings.Contains(head, "kvol: ") || len(head) > 8<<10 {
		t.Errorf("not a message for people:\n%v", o)
	}
	c.checkWords(t, o.stderr, o)
}

// checkDoc holds what programs are told: the same, as the last line.
func (c bad) checkDoc(t *testing.T, o out) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(o.stderr, "\n"), "\n")
	doc := decode[api.ErrorDoc](t, lines[len(lines)-1])
	if o.stdout != "" {
		decode[api.List[any]](t, o.stdout) // how far it came
	}
	if doc.APIVersion != api.Version || doc.Kind != "Error" || doc.Reason != c.reason || doc.Code != codes[c.reason] || doc.Code != o.code {
		t.Errorf("wanted %s and %d:\n%v", c.reason, codes[c.reason], o)
	}
	if doc.Message == "" || doc.Next == "" {
		t.Errorf("no message or no next step:\n%v", o)
	}
	c.checkWords(t, doc.Message+"\n"+strings.Join(doc.Details, "\n")+"\n"+doc.Next, o)
}

func (c bad) checkWords(t *testing.T, told string, o out) {
	t.Helper()
	for _, w := range c.want {
		if !strings.Contains(told, w) {
			t.Errorf("nothing is told of %q:\n%v", w, o)
		}
	}
	for _, w := range []string{"panic", "goroutine", "runtime error", "a defect in kvol", "%!", "<nil>"} {
		if strings.Contains(o.stderr, w) || strings.Contains(o.stdout, w) {
			t.Errorf("%q is told:\n%v", w, o)
		}
	}
	if strings.ContainsFunc(o.stderr, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
		t.Errorf("control characters are told: %q", o.stderr)
	}
}
