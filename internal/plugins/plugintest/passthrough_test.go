package plugintest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/exec"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/plugintest"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

const (
	driver = "kvol.test/passthrough"
	secret = "correct-horse-battery-staple"
)

// TestPassThrough is the suite on a plugin that does as little as one can: it binds
// a directory through. It attaches, and takes a secret for that.
func TestPassThrough(t *testing.T) {
	plugintest.Run(t, plugintest.Case{
		New:      func() plugins.VolumePlugin { return &plugin{} },
		All:      func() []plugins.VolumePlugin { return []plugins.VolumePlugin{&plugin{}} },
		Examples: []plugintest.Example{{Name: "directory", Spec: passed}},
		Secret:   secret,
		Skip:     map[string]string{"FSGroupOtherPod/directory": "the last pod's group has the directory"},
	})
}

func passed(t testing.TB, dir, name string) *plugins.Spec {
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return plugins.NewSpecFromPersistentVolume(&v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{
			Driver: driver, Options: map[string]string{"path": path, "password": secret},
		}}},
	}, false)
}

type plugin struct{ host *host.Host }

var _ plugins.AttachableVolumePlugin = (*plugin)(nil)

func (p *plugin) Info() api.Info {
	return api.Info{Name: driver, Description: "a directory, bound through"}
}
func (p *plugin) Init(h *host.Host) error            { p.host = h; return nil }
func (p *plugin) GetPluginName() string              { return driver }
func (p *plugin) RequiresRemount(*plugins.Spec) bool { return false }
func (p *plugin) SupportsMountOption() bool          { return false }

func (p *plugin) CanSupport(s *plugins.Spec) bool {
	return s != nil && s.PersistentVolume != nil && s.PersistentVolume.Spec.FlexVolume != nil && s.PersistentVolume.Spec.FlexVolume.Driver == driver
}

func (p *plugin) GetVolumeName(s *plugins.Spec) (string, error) {
	if !p.CanSupport(s) {
		return "", api.Errorf(api.ErrInput, "%s is not passed through", s)
	}
	return s.Name(), nil
}

func (p *plugin) NewMounter(s *plugins.Spec, pod plugins.PodRef) (plugins.Mounter, error) {
	_, err := p.GetVolumeName(s)
	return &mounter{p, s, pod}, err
}

func (p *plugin) NewUnmounter(ref plugins.Ref, podUID string) (plugins.Unmounter, error) {
	return &unmounter{p, ref.Name, podUID}, nil
}

func (p *plugin) ConstructVolumeSpec(string, string) (plugins.Reconstructed, error) {
	return plugins.Reconstructed{}, api.Errorf(api.ErrNotSupported, "the disk does not tell the directory")
}

func (p *plugin) CanDeviceMount(context.Context, *plugins.Spec) (bool, string, error) {
	return true, "", nil
}
func (p *plugin) NewDeviceMounter() (plugins.DeviceMounter, error) { return deviceMounter{p}, nil }
func (p *plugin) NewDeviceUnmounter() (plugins.DeviceUnmounter, error) {
	return deviceUnmounter{p}, nil
}
func (p *plugin) NewAttacher() (plugins.Attacher, error) { return attacher{p}, nil }
func (p *plugin) NewDetacher() (plugins.Detacher, error) { return detacher{p}, nil }
func (p *plugin) CanAttach(*plugins.Spec) (bool, error)  { return true, nil }

// global is the volume's global mount.
func (p *plugin) global(name string) (string, error) {
	at, err := p.host.Layout.ForSource(paths.Flex{Driver: driver}, name, "", false)
	return at.GlobalMountPath, err
}

type mounter struct {
	*plugin
	spec *plugins.Spec
	pod  plugins.PodRef
}

func (m *mounter) GetPath() (string, error) {
	return m.host.Layout.PodVolumePath(m.pod.UID, driver, m.spec.Name())
}

func (m *mounter) SetUp(ctx context.Context, run *act.Runner, args plugins.MounterArgs) error {
	path, err := m.GetPath()
	if err != nil {
		return err
	}
	global, err := m.global(m.spec.Name())
	if err != nil {
		return err
	}
	if err := m.mountGlobal(ctx, run, m.spec, global); err != nil {
		return err
	}
	if err := run.Bind(ctx, act.Bind{Source: global, Target: path, ReadOnly: m.spec.ReadOnly}, 0o750); err != nil {
		return err
	}
	if args.FSGroup == nil || m.spec.ReadOnly {
		return nil
	}
	_, err = run.Do(ctx, act.FSGroup{
		Path: path, GID: *args.FSGroup, OnRootMismatch: args.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch,
	})
	return err
}

func (p *plugin) mountGlobal(ctx context.Context, run *act.Runner, s *plugins.Spec, global string) error {
	return run.Bind(ctx, act.Bind{Source: s.PersistentVolume.Spec.FlexVolume.Options["path"], Target: global}, 0o750)
}

type unmounter struct {
	*plugin
	name, podUID string
}

func (u *unmounter) GetPath() (string, error) {
	return u.host.Layout.PodVolumePath(u.podUID, driver, u.name)
}

func (u *unmounter) TearDown(ctx context.Context, run *act.Runner) error {
	path, err := u.GetPath()
	if err != nil {
		return err
	}
	return remove(ctx, run, path)
}

func remove(ctx context.Context, run *act.Runner, path string) error {
	if _, err := run.UnmountAll(ctx, path, ""); err != nil {
		return err
	}
	_, err := run.Do(ctx, act.Rmdir{Path: path})
	return err
}

type deviceMounter struct{ *plugin }

func (d deviceMounter) GetDeviceMountPath(_ context.Context, s *plugins.Spec) (string, error) {
	return d.global(s.Name())
}

func (d deviceMounter) MountDevice(ctx context.Context, run *act.Runner, s *plugins.Spec, device act.Value, path string, _ plugins.DeviceMounterArgs) error {
	if device.Empty() {
		return api.Errorf(api.ErrInput, "it is not attached")
	}
	return d.mountGlobal(ctx, run, s, path)
}

type deviceUnmounter struct{ *plugin }

func (d deviceUnmounter) GlobalPaths(ref plugins.Ref) ([]string, error) {
	path, err := d.global(ref.Name)
	return []string{path}, err
}

func (d deviceUnmounter) UnmountDevice(ctx context.Context, run *act.Runner, _ plugins.Ref, path string) error {
	if at := d.host.Layout.Parse(path); at.Kind != paths.GlobalMount || at.Plugin != driver || at.Rest != "" {
		return api.Errorf(api.ErrRefused, "is not a global mount of this plugin").At(path)
	}
	return remove(ctx, run, path)
}

// session is a directory that is there while the volume is attached.
func (p *plugin) session(name string) string {
	return filepath.Join(p.host.Layout.Root, "plugins", "sessions", name)
}

type attacher struct{ *plugin }

func (a attacher) Attach(ctx context.Context, run *act.Runner, s *plugins.Spec, _ string) (plugins.Attachment, error) {
	if !run.DryRun {
		password := exec.NewSecret([]byte(s.PersistentVolume.Spec.FlexVolume.Options["password"]))
		if _, err := run.Exec.Run(ctx, exec.Cmd{Name: "cat", Secret: &password}); err != nil {
			return plugins.Attachment{}, err
		}
	}
	path := a.session(s.Name())
	return plugins.Attachment{DevicePath: act.Known(path)}, run.MkdirAll(ctx, path, 0o700, "log in")
}

func (a attacher) VolumesAreAttached(_ context.Context, specs []*plugins.Spec, _ string) (map[*plugins.Spec]bool, error) {
	out := map[*plugins.Spec]bool{}
	for _, s := range specs {
		_, err := os.Stat(a.session(s.Name()))
		out[s] = err == nil
	}
	return out, nil
}

func (a attacher) WaitForAttach(_ context.Context, _ *act.Runner, _ *plugins.Spec, device act.Value, _ plugins.PodRef) (act.Value, error) {
	return device, nil
}

type detacher struct{ *plugin }

func (d detacher) Detach(ctx context.Context, run *act.Runner, ref plugins.Ref, _ string) error {
	_, err := run.Do(ctx, act.Rmdir{Path: d.session(ref.Name)})
	return err
}
