package mounts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// What linux/mount.h has for listmount and statmount (Linux 6.8; the source and
// the options of the superblock 6.13), which x/sys does not.
const (
	listRoot       = ^uint64(0) // LSMT_ROOT
	wantSB         = 0x1        // STATMOUNT_SB_BASIC
	wantMount      = 0x2
	wantRoot       = 0x8
	wantPoint      = 0x10
	wantFSType     = 0x20
	wantSubtype    = 0x100
	wantSource     = 0x200
	wantOptions    = 0x400 // STATMOUNT_OPT_ARRAY
	wantAll        = wantSB | wantMount | wantRoot | wantPoint | wantFSType | wantSubtype | wantSource | wantOptions
	statmountFixed = 512 // bytes of struct statmount before its strings
)

type mountRequest struct {
	size, _       uint32
	id, param, ns uint64
}

func kernelCall(t *testing.T, nr uintptr, id, param uint64, out unsafe.Pointer, n int) int {
	t.Helper()
	req := mountRequest{id: id, param: param}
	req.size = uint32(unsafe.Sizeof(req))
	got, _, errno := unix.Syscall6(nr, uintptr(unsafe.Pointer(&req)), uintptr(out), uintptr(n), 0, 0, 0)
	if errors.Is(errno, unix.ENOSYS) || errors.Is(errno, unix.EPERM) {
		testutil.Skip(t, "this kernel has no statmount and listmount: %v", errno)
	}
	if errno != 0 {
		t.Fatalf("system call %d for mount %x: %v", nr, id, errno)
	}
	return int(got)
}

// kernelMounts is the kernel's own answer, without any text to parse: all mounts
// of the namespace below the root directory, sorted by ID. Optional is left out.
// SuperOptions are ro or rw and those of the file system's own.
func kernelMounts(t *testing.T) []Mount {
	t.Helper()
	ids := make([]uint64, 100_000)
	ids = ids[:kernelCall(t, unix.SYS_LISTMOUNT, listRoot, 0, unsafe.Pointer(&ids[0]), len(ids))]
	var out []Mount
	buf := make([]byte, 1<<20)
	for _, id := range ids {
		kernelCall(t, unix.SYS_STATMOUNT, id, wantAll, unsafe.Pointer(&buf[0]), len(buf))
		out = append(out, decode(t, buf))
	}
	slices.SortFunc(out, byID)
	return out
}

func byID(a, b Mount) int { return a.ID - b.ID }

func decode(t *testing.T, buf []byte) Mount {
	u32 := func(at int) int { return int(binary.NativeEndian.Uint32(buf[at:])) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(buf[at:]) }
	mask := u64(8)
	text := func(want uint64, at int) string {
		if mask&want == 0 {
			return ""
		}
		s, _, _ := bytes.Cut(buf[statmountFixed+u32(at):], []byte{0})
		return string(s)
	}
	if mask&wantOptions == 0 && mask&wantSource == 0 && mask&wantSubtype == 0 {
		testutil.Skip(t, "this kernel's statmount does not tell sources and options")
	}
	m := Mount{
		ID: u32(56), Parent: u32(60), Major: u32(16), Minor: u32(20), PeerGroup: int(u64(80)),
		Root: text(wantRoot, 104), MountPoint: text(wantPoint, 108),
		FSType: text(wantFSType, 36), Source: text(wantSource, 124),
		Options: []string{roOrRW(u64(64)&unix.MOUNT_ATTR_RDONLY != 0)}, SuperOptions: []string{roOrRW(u32(32)&unix.MS_RDONLY != 0)},
	}
	m.Root, m.Deleted = strings.CutSuffix(m.Root, "//deleted")
	if sub := text(wantSubtype, 120); sub != "" {
		m.FSType += "." + sub
	}
	if mask&wantOptions != 0 {
		rest := buf[statmountFixed+u32(132):]
		for range u32(128) {
			var o []byte
			o, rest, _ = bytes.Cut(rest, []byte{0})
			m.SuperOptions = append(m.SuperOptions, string(o))
		}
	}
	return m
}

func roOrRW(ro bool) string {
	if ro {
		return "ro"
	}
	return "rw"
}
