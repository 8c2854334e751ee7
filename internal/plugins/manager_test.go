package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testPlugin takes the sources that it names; a method that the manager does not
// call is that of a nil interface, and fails the test.
type testPlugin struct {
	VolumePlugin
	name    string
	sources []string
	initErr error
	inits   int
	host    *host.Host
}

func (p *testPlugin) Init(h *host.Host) error {
	p.inits++
	p.host = h
	return p.initErr
}
func (p *testPlugin) GetPluginName() string      { return p.name }
func (p *testPlugin) CanSupport(spec *Spec) bool { return slices.Contains(p.sources, spec.Source()) }

type otherPlugin struct{ testPlugin }

type testProber struct {
	initErr, probeErr error
	found             []VolumePlugin
	probes            int
}

func (p *testProber) Init() error { return p.initErr }
func (p *testProber) Probe() ([]VolumePlugin, error) {
	p.probes++
	return p.found, p.probeErr
}

func nfsSpec() *Spec {
	return NewSpecFromVolume(&v1.Volume{Name: "n", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}})
}

func localSpec() *Spec {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "l"}}
	pv.Spec.Local = &v1.LocalVolumeSource{Path: "/mnt"}
	return NewSpecFromPersistentVolume(pv, false)
}

func flexSpec() *Spec {
	return NewSpecFromVolume(&v1.Volume{Name: "f", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}}})
}

func manager(t *testing.T, prober DynamicPluginProber, list ...VolumePlugin) *VolumePluginMgr {
	t.Helper()
	m := NewManager()
	if err := m.InitPlugins(list, prober, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func mentions(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not mention %q", text, word)
		}
	}
}

func TestFindByNameAndBySpec(t *testing.T) {
	h := new(host.Host)
	nfs, local := &testPlugin{name: "kubernetes.io/nfs", sources: []string{"nfs"}}, &testPlugin{name: "kubernetes.io/local-volume", sources: []string{"local"}}
	m := NewManager()
	if err := m.InitPlugins([]VolumePlugin{nfs, local}, nil, h); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[*Spec]*testPlugin{nfsSpec(): nfs, localSpec(): local} {
		if p, err := m.FindPluginBySpec(spec); err != nil || p != want {
			t.Errorf("%s: got %v, %v", spec, p, err)
		}
		if p, err := m.FindPluginByName(want.name); err != nil || p != want {
			t.Errorf("%s: got %v, %v", want.name, p, err)
		}
		if want.inits != 1 || want.host != h {
			t.Errorf("%s: %d inits, host %p, want one with %p", want.name, want.inits, want.host, h)
		}
	}
	if all := m.All(); len(all) != 2 || all[0] != local || all[1] != nfs {
		t.Errorf("All is not sorted by name: %v", all)
	}
	if w := m.Warnings(); len(w) != 0 {
		t.Errorf("warnings: %q", w)
	}
}

func TestFindNothing(t *testing.T) {
	m := manager(t, nil, &testPlugin{name: "kubernetes.io/nfs", sources: []string{"nfs", ""}})
	for _, name := range []string{"", "nfs", "kubernetes.io/local-volume", "kubernetes.io~nfs"} {
		_, err := m.FindPluginByName(name)
		if !errors.Is(err, api.ErrNoPlugin) {
			t.Errorf("name %q: %v", name, err)
			continue
		}
		mentions(t, err.Error(), `"`+name+`"`)
	}
	both := nfsSpec()
	both.PersistentVolume = localSpec().PersistentVolume
	for _, c := range []struct {
		name string
		spec *Spec
		kind error
		want string
	}{
		{"nil", nil, api.ErrInput, "no volume spec"},
		{"empty", &Spec{}, api.ErrInput, "empty"},
		{"both", both, api.ErrInput, "both"},
		{"volume without source", NewSpecFromVolume(&v1.Volume{Name: "v"}), api.ErrInput, `"v" without a source`},
		{"PV without source", NewSpecFromPersistentVolume(&v1.PersistentVolume{}, false), api.ErrInput, "without a source"},
		{"nobody's", localSpec(), api.ErrNoPlugin, `volume "l" of source local`},
	} {
		if _, err := m.FindPluginBySpec(c.spec); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", c.name, err)
		} else {
			mentions(t, err.Error(), c.want)
		}
	}
	if _, err := NewManager().FindPluginBySpec(nfsSpec()); !errors.Is(err, api.ErrNoPlugin) {
		t.Errorf("a manager without plugins: %v", err)
	}
}

func TestAmbiguousSpecNamesAllSorted(t *testing.T) {
	list := []VolumePlugin{
		&testPlugin{name: "z.io/nfs", sources: []string{"nfs"}}, &testPlugin{name: "a.io/nfs", sources: []string{"nfs"}},
		&testPlugin{name: "m.io/nfs", sources: []string{"nfs"}}, &testPlugin{name: "b.io/local", sources: []string{"local"}},
	}
	for range 20 { // the order of a map must not show
		_, err := manager(t, nil, list...).FindPluginBySpec(nfsSpec())
		if !errors.Is(err, api.ErrAmbiguousPlugin) {
			t.Fatal(err)
		}
		mentions(t, err.Error(), "a.io/nfs and m.io/nfs and z.io/nfs")
	}
}

func TestInitPluginsRefusesAndKeepsTheGood(t *testing.T) {
	var none *testPlugin
	boom := errors.New("boom")
	m := NewManager()
	err := m.InitPlugins([]VolumePlugin{
		nil, none,
		&testPlugin{name: "kubernetes.io/good"},
		&otherPlugin{testPlugin{name: "kubernetes.io/good"}},
		&testPlugin{name: "kubernetes.io/broken", initErr: boom},
		&testPlugin{name: ""}, &testPlugin{name: "good"}, &testPlugin{name: "a/b/c"}, &testPlugin{name: "/b"}, &testPlugin{name: "a/"},
		&testPlugin{name: "a~b/c"}, &testPlugin{name: "a/../c"}, &testPlugin{name: "a/b\n"}, &testPlugin{name: "a/" + strings.Repeat("b", 300)},
		&testPlugin{name: "kubernetes.io/last"},
	}, nil, nil)
	if err == nil || !errors.Is(err, boom) {
		t.Fatalf("got %v", err)
	}
	mentions(t, err.Error(), "nil (*plugins.testPlugin)",
		"kubernetes.io/good is there twice: *plugins.testPlugin and *plugins.otherPlugin", "kubernetes.io/broken (*plugins.testPlugin): boom", `"good"`, `"a/b/c"`)
	for n := 1; n < 15; n++ {
		if n != 3 {
			mentions(t, err.Error(), fmt.Sprintf("volume plugin %d of 15", n))
		}
	}
	var names []string
	for _, p := range m.All() {
		names = append(names, p.GetPluginName())
	}
	if !slices.Equal(names, []string{"kubernetes.io/good", "kubernetes.io/last"}) {
		t.Errorf("left are %q", names)
	}
	if err := m.InitPlugins([]VolumePlugin{&testPlugin{name: "kubernetes.io/good"}}, nil, nil); err == nil {
		t.Error("a second InitPlugins registers a name again")
	}
}

func TestProberWhoseInitFails(t *testing.T) {
	prober := &testProber{initErr: errors.New("no such directory"), found: []VolumePlugin{&testPlugin{name: "x/y", sources: []string{"flexVolume"}}}}
	m := manager(t, prober, &testPlugin{name: "kubernetes.io/nfs", sources: []string{"nfs"}})
	if _, err := m.FindPluginBySpec(nfsSpec()); err != nil {
		t.Error(err)
	}
	if _, err := m.FindPluginBySpec(flexSpec()); !errors.Is(err, api.ErrNoPlugin) || prober.probes != 0 {
		t.Errorf("%v after %d probes", err, prober.probes)
	}
	w := m.Warnings()
	if len(w) != 1 {
		t.Fatalf("warnings %q", w)
	}
	mentions(t, w[0], "*plugins.testProber", "no such directory")
}

func TestProberComesLastAndShadowsNothing(t *testing.T) {
	builtin := &testPlugin{name: "vendor/built-in", sources: []string{"nfs"}}
	driver := &testPlugin{name: "vendor/driver", sources: []string{"flexVolume", "nfs"}}
	shadow := &otherPlugin{testPlugin{name: "vendor/built-in", sources: []string{"flexVolume"}}}
	prober := &testProber{found: []VolumePlugin{driver, shadow}}
	m := manager(t, prober, builtin)

	if p, err := m.FindPluginBySpec(nfsSpec()); err != nil || p != builtin {
		t.Errorf("got %v, %v", p, err)
	}
	if p, err := m.FindPluginByName("vendor/built-in"); err != nil || p != builtin {
		t.Errorf("got %v, %v", p, err)
	}
	if prober.probes != 0 {
		t.Errorf("the prober ran though a built-in plugin matched")
	}
	if p, err := m.FindPluginBySpec(flexSpec()); err != nil || p != driver {
		t.Errorf("got %v, %v", p, err)
	}
	if p, err := m.FindPluginByName("vendor/driver"); err != nil || p != driver {
		t.Errorf("got %v, %v", p, err)
	}
	if p, err := m.FindPluginByName("vendor/built-in"); err != nil || p != builtin {
		t.Errorf("got %v, %v", p, err)
	}
	if prober.probes != 1 || driver.inits != 1 || shadow.inits != 0 {
		t.Errorf("%d probes, %d inits, %d of the shadow", prober.probes, driver.inits, shadow.inits)
	}
	if w := m.Warnings(); len(w) != 1 {
		t.Errorf("warnings %q", w)
	} else {
		mentions(t, w[0], "vendor/built-in", "*plugins.testPlugin", "*plugins.otherPlugin")
	}
}

func TestBrokenProbedPluginsAreWarnings(t *testing.T) {
	var none *testPlugin
	good := &testPlugin{name: "vendor/good", sources: []string{"flexVolume"}}
	prober := &testProber{probeErr: errors.New("drivers/bad: not executable"), found: []VolumePlugin{
		nil, none, &testPlugin{name: "bad name"}, &testPlugin{name: "kubernetes.io/posing", sources: []string{"flexVolume"}},
		&testPlugin{name: "vendor/broken", sources: []string{"flexVolume"}, initErr: errors.New("init answers nonsense")}, good, &testPlugin{name: "vendor/good"},
	}}
	m := manager(t, prober)
	if p, err := m.FindPluginBySpec(flexSpec()); err != nil || p != good {
		t.Fatalf("got %v, %v", p, err)
	}
	if len(m.All()) != 1 {
		t.Errorf("plugins: %v", m.All())
	}
	w := m.Warnings()
	if len(w) != 7 {
		t.Fatalf("%d warnings: %q", len(w), w)
	}
	for i, want := range []string{"drivers/bad: not executable", "1 of 7", "2 of 7", `"bad name"`, `"kubernetes.io/posing" is reserved`,
		"vendor/broken (*plugins.testPlugin): init answers nonsense", "vendor/good is there twice"} {
		mentions(t, w[i], want)
	}
}

func TestAllLooksForProbedPlugins(t *testing.T) {
	m := manager(t, &testProber{found: []VolumePlugin{&testPlugin{name: "b/b"}}}, &testPlugin{name: "c/c"}, &testPlugin{name: "a/a"})
	var names []string
	for _, p := range m.All() {
		names = append(names, p.GetPluginName())
	}
	if !slices.Equal(names, []string{"a/a", "b/b", "c/c"}) {
		t.Errorf("got %q", names)
	}
}

func TestAsNamesPluginAndRung(t *testing.T) {
	p := &testPlugin{name: "kubernetes.io/nfs"}
	if got, err := As[VolumePlugin](p); err != nil || got != p {
		t.Errorf("got %v, %v", got, err)
	}
	_, err := As[BlockVolumePlugin](p)
	if !errors.Is(err, api.ErrNotSupported) {
		t.Fatal(err)
	}
	mentions(t, err.Error(), "kubernetes.io/nfs", "BlockVolumePlugin")
}
