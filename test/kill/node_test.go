package kill

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/testutil"
)

const (
	volume = "pv"
	podA   = "0a1b2c3d-0000-4000-8000-00000000000a"
	podB   = "0a1b2c3d-0000-4000-8000-00000000000b"
	mib    = 1 << 20
)

// mode is a kind of volume and how it is used.
type mode struct {
	name     string
	fs       string // of the device, "" for a directory or a raw block device
	block    bool   // raw block
	blank    bool   // the device is blank, and --format is given
	fsGroup  v1.PodFSGroupChangePolicy
	readOnly bool
	options  []string
	second   bool // another pod has the volume too
	stack    int  // so many mounts more lie on each mount point on the way down
	leftover bool // an earlier life left directories and links
	core     bool // every verb by default, not only setup and teardown
}

func (m mode) device() bool { return m.fs != "" || m.block }

// node is a scratch node with one volume.
type node struct {
	t *testing.T
	mode
	dir, root, state, runDir string
	source                   string // the volume's directory or device
	host                     *host.Host
}

func newNode(t *testing.T, m mode) *node {
	t.Helper()
	testutil.Root(t)
	dir := testutil.TempDir(t)
	// In memory: hundreds of runs that sync their journal are slow on a disk.
	testutil.Mount(t, "tmpfs", dir, "tmpfs", 0, "size=1g,mode=755")
	n := &node{t: t, mode: m, dir: dir, root: dir + "/kubelet", state: dir + "/state", runDir: dir + "/run", source: dir + "/data"}
	size := int64(8 * mib)
	switch m.fs {
	case "xfs":
		size = 300 * mib
	case "btrfs":
		size = 128 * mib
	}
	if m.device() {
		n.must(os.WriteFile(dir+"/disk.img", nil, 0o600))
		n.must(os.Truncate(dir+"/disk.img", size))
		n.source = testutil.Loop(t, dir+"/disk.img")
	}
	switch {
	case m.block:
		n.must(os.WriteFile(n.source, pattern(mib), 0))
	case m.fs == "":
		n.must(os.Mkdir(n.source, 0o755))
		fill(n, n.source)
	case !m.blank:
		testutil.Mkfs(t, n.source, m.fs)
		n.inside(func(dir string) { fill(n, dir) })
	}
	for _, d := range []string{n.root, n.root + "/pods", n.root + "/plugins", n.state, n.runDir} {
		n.must(os.Mkdir(d, 0o750))
	}
	var err error
	n.host, err = n.call(ops.Setup).host(func(s string) { n.t.Log("while preparing:", s) })
	n.must(err)
	t.Cleanup(n.host.Close)
	t.Cleanup(n.clear)
	return n
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// pattern is data that compresses to nothing and is the same every time.
func pattern(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		sum := sha256.Sum256([]byte(strconv.Itoa(i)))
		b.Write(sum[:])
	}
	return b.Bytes()[:size]
}

func fill(n *node, dir string) {
	n.t.Helper()
	n.must(os.MkdirAll(dir+"/a/b", 0o755))
	n.must(os.WriteFile(dir+"/a/b/data", pattern(64<<10), 0o640))
	n.must(os.WriteFile(dir+"/tool", pattern(100), 0o755))
	n.must(os.Symlink("a/b/data", dir+"/link"))
}

// own gives what fsGroup changed back to root, so that it has to be done again.
func own(n *node, dir string) {
	n.t.Helper()
	n.must(filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(p, 0, 0)
		}
		if err == nil && d.IsDir() {
			err = os.Chmod(p, 0o755)
		}
		return err
	}))
}

// inside mounts the volume's device apart for a moment.
func (n *node) inside(f func(dir string)) {
	n.t.Helper()
	dir := n.dir + "/inside"
	n.must(os.MkdirAll(dir, 0o755))
	n.must(unix.Mount(n.source, dir, n.fs, 0, ""))
	defer func() { n.must(unix.Unmount(dir, 0)) }()
	f(dir)
}

func (n *node) pv() *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}
	pv.Spec.Local = &v1.LocalVolumeSource{Path: n.source}
	pv.Spec.MountOptions = n.options
	if n.fs != "" {
		pv.Spec.Local.FSType = &n.fs
	}
	if n.block {
		block := v1.PersistentVolumeBlock
		pv.Spec.VolumeMode = &block
	}
	return pv
}

func (n *node) call(v ops.Verb) call {
	c := call{
		Root: n.root, State: n.state, Run: n.runDir, Verb: v, PV: n.pv(), ReadOnly: n.readOnly,
		Pod: plugins.PodRef{UID: podA}, Format: n.blank && (v == ops.Setup || v == ops.MountDevice),
	}
	if n.fsGroup != "" {
		gid := int64(2000)
		c.Pod.FSGroup, c.Pod.FSGroupChangePolicy = &gid, n.fsGroup
	}
	return c
}

// do carries a verb out to prepare for another, which is what is tested.
func (n *node) do(c call) {
	n.t.Helper()
	if a := c.carryOut(n.host); a.Code != 0 {
		n.t.Fatalf("prepare by %s: %v", c.Verb, a)
	}
}

// prepare makes the node new, with what a verb begins with.
func (n *node) prepare(before []ops.Verb, down bool) {
	n.t.Helper()
	n.wipe()
	if n.leftover {
		n.leave(down)
		return
	}
	if n.second {
		c := n.call(ops.Setup)
		c.Pod = plugins.PodRef{UID: podB}
		n.do(c)
	}
	for _, v := range before {
		n.do(n.call(v))
	}
	if down {
		n.pileUp()
	}
}

// leave leaves what a reboot or half a run leaves: directories, the empty target
// of a device bind and the pod's link, nothing mounted.
func (n *node) leave(down bool) {
	n.t.Helper()
	if n.block {
		n.must(os.MkdirAll(filepath.Dir(n.mapPath(podA)), 0o750))
		n.must(os.WriteFile(n.mapPath(podA), nil, 0o750))
		n.must(os.MkdirAll(filepath.Dir(n.linkPath(podA)), 0o750))
		n.must(os.Symlink(n.source, n.linkPath(podA)))
		return
	}
	n.must(os.MkdirAll(n.podPath(podA), 0o750))
	if n.fs != "" && down {
		n.must(os.MkdirAll(n.global(), 0o750))
	}
}

// pileUp binds every mount point on itself.
func (n *node) pileUp() {
	n.t.Helper()
	for range n.stack {
		for _, p := range []string{n.podPath(podA), n.global(), n.mapPath(podA)} {
			if mounted(p) {
				n.must(unix.Mount(p, p, "", unix.MS_BIND, ""))
			}
		}
	}
}

func mounted(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func (n *node) podPath(pod string) string {
	return n.root + "/pods/" + pod + "/volumes/kubernetes.io~local-volume/" + volume
}

func (n *node) global() string {
	return n.root + "/plugins/kubernetes.io/local-volume/mounts/" + volume
}

func (n *node) linkPath(pod string) string {
	return n.root + "/pods/" + pod + "/volumeDevices/kubernetes.io~local-volume/" + volume
}

func (n *node) mapPath(pod string) string {
	return n.root + "/plugins/kubernetes.io~local-volume/volumeDevices/" + volume + "/" + pod
}

// wipe takes everything away but the volume's data, which becomes what it was.
func (n *node) wipe() {
	n.t.Helper()
	n.clear()
	switch {
	case n.blank:
		n.zero()
	case n.fsGroup == "":
	case n.fs == "":
		own(n, n.source)
	default:
		n.inside(func(dir string) { own(n, dir) })
	}
}

// clear takes everything away but the volume.
func (n *node) clear() {
	n.t.Helper()
	loops := n.loops()
	for _, l := range loops {
		f, err := os.OpenFile("/dev/"+l.name, os.O_RDONLY, 0)
		n.must(err)
		_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) // whether it went shows below
		f.Close()
	}
	if len(loops) > 0 {
		testutil.Poll(n.t, "the loop devices are gone", func() bool { return len(n.loops()) == 0 })
	}
	for _, p := range slices.Backward(n.mountPoints()) {
		n.must(unix.Unmount(p, unix.UMOUNT_NOFOLLOW))
	}
	if left := n.mountPoints(); len(left) > 0 {
		n.t.Fatalf("still mounted: %v", left)
	}
	for _, d := range []string{n.root + "/pods", n.root + "/plugins", n.state, n.runDir} {
		below, err := filepath.Glob(d + "/*")
		n.must(err)
		for _, p := range below {
			n.must(os.RemoveAll(p))
		}
	}
}

// mountPoints are those below the root, in the kernel's order.
func (n *node) mountPoints() (out []string) {
	n.t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	n.must(err)
	for line := range strings.Lines(string(table)) {
		if p := strings.Fields(line)[4]; strings.HasPrefix(p, n.root+"/") {
			out = append(out, p)
		}
	}
	return out
}

// zero makes the device blank.
func (n *node) zero() {
	n.t.Helper()
	f, err := os.OpenFile(n.source, os.O_RDWR, 0)
	n.must(err)
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	n.must(err)
	const blkZeroOut = 0x127f // BLKZEROOUT of linux/fs.h
	span := [2]uint64{0, uint64(size)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), blkZeroOut, uintptr(unsafe.Pointer(&span)))
	if errno != 0 {
		n.t.Fatal(errno)
	}
}

// loop is a loop device over a file of the node.
type loop struct{ name, backing string }

func (n *node) loops() (out []loop) {
	devices, err := os.ReadDir("/sys/block")
	n.must(err)
	for _, d := range devices {
		if !strings.HasPrefix(d.Name(), "loop") {
			continue
		}
		b, err := os.ReadFile("/sys/block/" + d.Name() + "/loop/backing_file")
		if err == nil && strings.HasPrefix(string(b), n.root+"/") {
			out = append(out, loop{d.Name(), strings.TrimSpace(string(b))})
		}
	}
	slices.SortFunc(out, func(a, b loop) int { return strings.Compare(a.backing, b.backing) })
	return out
}

// look is all that must be the same whether kvol was killed or not: the tree, the
// mounts, the loop devices and the volume's data.
func (n *node) look() string {
	n.t.Helper()
	var b strings.Builder
	b.WriteString(testutil.Tree(n.t, n.root) + testutil.MountTable(n.t, n.root))
	for _, l := range n.loops() {
		fmt.Fprintf(&b, "loop device over %s\n", l.backing)
	}
	b.WriteString("data:\n")
	switch {
	case n.block:
		fmt.Fprintln(&b, n.raw())
	case n.fs == "":
		b.WriteString(testutil.Tree(n.t, n.source))
	case mounted(n.global()):
		b.WriteString(testutil.Tree(n.t, n.global()))
	case !n.blank:
		n.inside(func(dir string) { b.WriteString(testutil.Tree(n.t, dir)) })
	}
	return b.String()
}

// raw is the digest of the volume's device.
func (n *node) raw() string {
	n.t.Helper()
	b, err := os.ReadFile(n.source)
	n.must(err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// entries reads the journal strictly: a line that is none is a failure.
func (n *node) entries() (out []api.Entry) {
	n.t.Helper()
	files, err := filepath.Glob(n.state + "/journal-*.jsonl")
	n.must(err)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		n.must(err)
		for line := range bytes.Lines(raw) {
			var e api.Entry
			if err := json.Unmarshal(line, &e); err != nil {
				n.t.Fatalf("a line of the journal: %v\n%s", err, line)
			}
			out = append(out, e)
		}
	}
	return out
}

func (n *node) historyList() (*api.List[api.Operation], error) {
	return ops.New(n.host, plugins.NewManager()).History(context.Background(), ops.HistoryFilter{})
}

// history is what kvol history says of the node.
func (n *node) history() []api.Operation {
	n.t.Helper()
	l, err := n.historyList()
	n.must(err)
	if len(l.Warnings) > 0 {
		n.t.Errorf("history warns: %v", l.Warnings)
	}
	return l.Items
}

// quiet waits until no process works on the node any more and makes sure that
// every lock can then be had at once.
func (n *node) quiet() {
	n.t.Helper()
	var left []process
	done := eventually(func() bool { left = n.processes(); return len(left) == 0 })
	if !done {
		n.t.Fatalf("left running: %v", left)
	}
	locks, err := filepath.Glob(n.runDir + "/*.lock")
	n.must(err)
	for _, l := range locks {
		f, err := os.OpenFile(l, os.O_RDWR, 0)
		n.must(err)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			n.t.Errorf("%s: %v", l, err)
		}
		f.Close()
	}
}

// eventually is testutil.Poll for a caller that has more to say.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// process is one that a kvol of this node started, or is.
type process struct {
	pid  int
	comm string
}

// processes lists those that carry the node's mark and are not zombies.
func (n *node) processes() (out []process) {
	mark := []byte(envNode + "=" + n.root + "\x00")
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range all {
		env, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(env, mark) {
			continue
		}
		dir := filepath.Dir(f)
		comm, err := os.ReadFile(dir + "/comm")
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			out = append(out, process{pid, strings.TrimSpace(string(comm))})
		}
	}
	return out
}
