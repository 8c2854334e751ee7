package testutil

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// EnvFUSEName is what a FUSE file system calls itself where it is set: its source, and
// its type after "fuse.".
const EnvFUSEName = "KVOL_TEST_FUSE_NAME"

func fuseName() string { return cmp.Or(os.Getenv(EnvFUSEName), "kvoltest") }

// envFUSE makes the test binary a FUSE daemon: "mode delay mountpoint".
const envFUSE = "KVOL_TEST_FUSE"

// FUSEDaemon takes the process over when it was started as a FUSE daemon. It says
// "ready" or what went wrong in one line on standard output, and serves until it
// is killed: it never unmounts.
func FUSEDaemon() {
	spec := strings.SplitN(os.Getenv(envFUSE), " ", 3)
	if len(spec) != 3 {
		return
	}
	delay, err := time.ParseDuration(spec[1])
	if err == nil {
		err = serve(FUSEMode(spec[0]), delay, spec[2])
	}
	if err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour) // a bare select would be a deadlock to the runtime
	}
}

func serve(mode FUSEMode, delay time.Duration, dst string) error {
	if mode == FUSEMute {
		return serveInit(dst)
	}
	var zero time.Duration
	raw := fs.NewNodeFS(newRoot(), &fs.Options{EntryTimeout: &zero, AttrTimeout: &zero, NegativeTimeout: &zero})
	slow := &slowFS{RawFileSystem: raw, delay: delay}
	srv, err := fuse.NewServer(slow, dst, &fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: fuseName(), Name: fuseName(),
	})
	if err != nil {
		return err
	}
	go srv.Serve()
	err = srv.WaitMount()
	slow.on.Store(mode == FUSESlow)
	return err
}

func newRoot() fs.InodeEmbedder { return &rootNode{} }

// rootNode is the root directory with its one file.
type rootNode struct{ fs.Inode }

// OnAdd makes the file when the root is known to the server.
func (r *rootNode) OnAdd(ctx context.Context) {
	file := &fs.MemRegularFile{Data: []byte("alive\n"), Attr: fuse.Attr{Mode: 0o644}}
	r.AddChild("hello", r.NewPersistentInode(ctx, file, fs.StableAttr{}), false)
}

// slowFS waits before the answers that a look at a mount needs.
type slowFS struct {
	fuse.RawFileSystem
	delay time.Duration
	on    atomic.Bool
}

func (s *slowFS) wait() {
	if s.on.Load() {
		time.Sleep(s.delay)
	}
}

func (s *slowFS) Lookup(c <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.wait()
	return s.RawFileSystem.Lookup(c, h, name, out)
}

func (s *slowFS) GetAttr(c <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.wait()
	return s.RawFileSystem.GetAttr(c, in, out)
}

func (s *slowFS) StatFs(c <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s.wait()
	return s.RawFileSystem.StatFs(c, in, out)
}

func (s *slowFS) Open(c <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.wait()
	return s.RawFileSystem.Open(c, in, out)
}

func (s *slowFS) OpenDir(c <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.wait()
	return s.RawFileSystem.OpenDir(c, in, out)
}

func (s *slowFS) ReadDirPlus(c <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	s.wait()
	return s.RawFileSystem.ReadDirPlus(c, in, out)
}

// serveInit mounts, answers the INIT request and nothing after it. The descriptor
// stays open with the process: closing it would make the mount dead.
func serveInit(dst string) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount(fuseName(), dst, "fuse."+fuseName(), unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	req := make([]byte, 1<<17)
	if _, err := unix.Read(fd, req); err != nil {
		return fmt.Errorf("read INIT: %w", err)
	}
	in := (*fuse.InHeader)(unsafe.Pointer(&req[0]))
	hello := (*fuse.InitIn)(unsafe.Pointer(&req[0]))
	head := fuse.OutHeader{Length: uint32(binary.Size(fuse.OutHeader{}) + binary.Size(fuse.InitOut{})), Unique: in.Unique}
	body := fuse.InitOut{Major: hello.Major, Minor: hello.Minor, MaxWrite: 4096}
	var answer bytes.Buffer
	_ = binary.Write(&answer, binary.NativeEndian, head) // a bytes.Buffer takes all
	_ = binary.Write(&answer, binary.NativeEndian, body)
	_, err = unix.Write(fd, answer.Bytes())
	return err
}
