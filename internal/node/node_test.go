package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, host.Main) }

const (
	podA = "0a1b2c3d-0000-4000-8000-00000000000a"
	podB = "0a1b2c3d-0000-4000-8000-00000000000b"
)

// scratch is a node with nothing on it.
type scratch struct {
	t    *testing.T
	dir  string // everything of the test
	root string
	link string // leads to the root
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	testutil.Root(t)
	dir := testutil.TempDir(t)
	s := &scratch{t: t, dir: dir, root: dir + "/kubelet", link: dir + "/link"}
	s.must(os.Symlink(s.root, s.link))
	s.mkdir("pods")
	s.mkdir("plugins")
	return s
}

func (s *scratch) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// host is named the root by the link.
func (s *scratch) host() *host.Host {
	s.t.Helper()
	h, err := host.New(host.Options{
		RootDir: s.link, StateDir: s.dir + "/state", RunDir: s.dir + "/run", ProbeTimeout: time.Second,
	})
	s.must(err)
	s.t.Cleanup(func() { h.Close() })
	return h
}

func (s *scratch) at(rel string) string { return filepath.Join(s.root, rel) }

// mkdir makes a directory; a rel that is absolute is outside of the root.
func (s *scratch) mkdir(rel string) string {
	s.t.Helper()
	path := rel
	if !filepath.IsAbs(rel) {
		path = s.at(rel)
	}
	s.must(os.MkdirAll(path, 0o750))
	return path
}

func (s *scratch) tmpfs(rel string) string {
	s.t.Helper()
	path := s.mkdir(rel)
	testutil.Tmpfs(s.t, path)
	return path
}

func (s *scratch) bind(src, rel string) {
	s.t.Helper()
	testutil.Bind(s.t, src, s.mkdir(rel), false)
}

// mapped binds a file or device node where a block volume is mapped.
func (s *scratch) mapped(src, rel string) {
	s.t.Helper()
	path := filepath.Join(s.mkdir(filepath.Dir(rel)), filepath.Base(rel))
	s.must(os.WriteFile(path, nil, 0o600))
	testutil.Bind(s.t, src, path, false)
}

func (s *scratch) symlink(to, rel string) {
	s.t.Helper()
	s.must(os.Symlink(to, filepath.Join(s.mkdir(filepath.Dir(rel)), filepath.Base(rel))))
}

func (s *scratch) ext4(at string) (dev string) {
	s.t.Helper()
	dev, _ = testutil.LoopImage(s.t, 16<<20)
	testutil.Mkfs(s.t, dev, "ext4")
	testutil.Mount(s.t, dev, s.mkdir(at), "ext4", 0, "")
	return dev
}

// mknod makes a node of a block device that no machine has.
func (s *scratch) mknod(path string) string {
	s.t.Helper()
	s.must(unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 1<<20-1))))
	return path
}

// The places that tests share.
const (
	local      = "kubernetes.io~local-volume/"
	volumesA   = "pods/" + podA + "/volumes/"
	volumesB   = "pods/" + podB + "/volumes/"
	devicesA   = "pods/" + podA + "/volumeDevices/"
	devicesB   = "pods/" + podB + "/volumeDevices/"
	globals    = "plugins/kubernetes.io/local-volume/mounts/"
	maps       = "plugins/kubernetes.io~local-volume/volumeDevices/"
	driver     = "drv.example"
	csiVolumes = "plugins/kubernetes.io/csi/" + driver + "/"
)

// staging is where a volume of the driver is staged.
func staging(handle string) string {
	return csiVolumes + paths.HandleHash(handle) + "/globalmount"
}
