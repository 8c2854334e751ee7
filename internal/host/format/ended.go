package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/uuid"

	"github.com/kvol/kvol/internal/host/exact"
)

// Whether an mkfs without an outcome was killed, or came to its end and the
// primary superblock was lost since, is not always plain: blkid says "nothing" of
// both. In the second case there may be data, so mkfs must not run again. What
// each leaves (measured with e2fsprogs 1.47, xfsprogs 6.1, btrfs-progs 6.2, by
// killing them before every single write):
//
//	ext    group descriptors, backup superblocks, fsync, then the primary
//	xfs    the primary first, with sb_inprogress = 1, which its last write clears
//	btrfs  every superblock with a temporary magic; then the primary, then mirrors

type endedArgs struct {
	FSType string
	UUID   string
	Size   int64
}

// endedJob gives the reason to believe that the mkfs which was given UUID came to
// its end although the primary superblock is not there; "" when there is none.
func endedJob(raw []byte, files []*os.File) (any, []*os.File, error) {
	var a endedArgs
	if err := exact.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	id, err := uuid.Parse(a.UUID)
	if err != nil || len(files) != 1 {
		return nil, nil, errors.Join(errors.New("one device and a UUID are needed"), err)
	}
	dev := device{files[0], a.Size}
	var reason string
	switch a.FSType {
	case "xfs":
		reason, err = xfsEnded(dev, id)
	case "btrfs":
		reason, err = btrfsEnded(dev, id)
	default:
		reason, err = extEnded(dev, id)
	}
	return reason, nil, err
}

// device reads pieces of a device.
type device struct {
	io.ReaderAt
	size int64
}

func (d device) at(off int64, n int) ([]byte, error) {
	buf := make([]byte, n)
	if off < 0 || off+int64(n) > d.size {
		return buf, nil // beyond the end there is nothing
	}
	if _, err := d.ReadAt(buf, off); err != nil {
		return nil, fmt.Errorf("cannot read %d bytes at %d: %w", n, off, err)
	}
	return buf, nil
}

// extSuper is what is needed of struct ext4_super_block (linux fs/ext4/ext4.h).
type extSuper struct {
	blocks, blockSize, firstData, perGroup int64
	descSize                               int64
	sparse, sparse2                        bool
	backupGroups                           [2]uint32
}

const extSuperSize = 1024

// parseExt reads a superblock with that UUID; false when b is none.
func parseExt(b []byte, id uuid.UUID) (extSuper, bool) {
	le := binary.LittleEndian
	if le.Uint16(b[0x38:]) != 0xef53 || !bytes.Equal(b[0x68:0x78], id[:]) {
		return extSuper{}, false
	}
	const (
		compatSparse2  = 0x200
		incompat64bit  = 0x80
		roCompatSparse = 0x1
	)
	s := extSuper{
		blocks: int64(le.Uint32(b[0x4:])), firstData: int64(le.Uint32(b[0x14:])), perGroup: int64(le.Uint32(b[0x20:])),
		descSize: 32, sparse: le.Uint32(b[0x64:])&roCompatSparse != 0, sparse2: le.Uint32(b[0x5c:])&compatSparse2 != 0,
		backupGroups: [2]uint32{le.Uint32(b[0x24c:]), le.Uint32(b[0x250:])},
	}
	logSize := le.Uint32(b[0x18:])
	if logSize > 6 || s.perGroup == 0 || s.blocks == 0 {
		return extSuper{}, false
	}
	s.blockSize = 1024 << logSize
	if le.Uint32(b[0x60:])&incompat64bit != 0 {
		s.blocks |= int64(le.Uint32(b[0x150:])) << 32
		s.descSize = int64(le.Uint16(b[0xfe:]))
	}
	return s, true
}

func (s extSuper) groups() int64 { return (s.blocks - s.firstData + s.perGroup - 1) / s.perGroup }

// offset is where a group begins, and so its copy of the superblock.
func (s extSuper) offset(group int64) int64 { return (s.firstData + group*s.perGroup) * s.blockSize }

// backups are the groups that have a copy of the superblock.
func (s extSuper) backups() []int64 {
	var out []int64
	for g := int64(1); g < s.groups(); g++ {
		switch {
		case s.sparse2:
			if g != int64(s.backupGroups[0]) && g != int64(s.backupGroups[1]) {
				continue
			}
		case s.sparse && g != 1 && !powerOf(g, 3) && !powerOf(g, 5) && !powerOf(g, 7):
			continue
		}
		out = append(out, g)
	}
	return out
}

func powerOf(n, base int64) bool {
	for n > 1 && n%base == 0 {
		n /= base
	}
	return n == 1
}

// extEnded: all backups there, and the primary group descriptors not as the
// backups have them. A file cannot be made without the primary ones changing,
// whereas mkfs leaves them the same: so equal ones mean that it was killed in its
// long fsync between the backups and the primary.
func extEnded(dev device, id uuid.UUID) (string, error) {
	super, found, err := extBackup(dev, id)
	if err != nil || !found {
		return "", err
	}
	backups := super.backups()
	for _, g := range backups {
		b, err := dev.at(super.offset(g), extSuperSize)
		if err != nil {
			return "", err
		}
		if _, ok := parseExt(b, id); !ok {
			return "", nil
		}
	}
	if len(backups) == 0 {
		return "", nil
	}
	tables := make([][]byte, 2)
	for i, group := range []int64{0, backups[0]} {
		size := super.groups() * super.descSize
		if tables[i], err = dev.at(super.offset(group)+super.blockSize, int(size)); err != nil {
			return "", err
		}
	}
	if bytes.Equal(tables[0], tables[1]) {
		return "", nil
	}
	return fmt.Sprintf("all %d backup superblocks with UUID %s are there and the primary one is not, and its group descriptors changed since", len(backups), id), nil
}

// extBackup finds any backup superblock with that UUID.
func extBackup(dev device, id uuid.UUID) (extSuper, bool, error) {
	for _, off := range extPlaces(dev.size) {
		for _, in := range []int64{0, 1024} { // the second with blocks of 1 KiB
			b, err := dev.at(off+in, extSuperSize)
			if err != nil {
				return extSuper{}, false, err
			}
			if s, ok := parseExt(b, id); ok {
				return s, true, nil
			}
		}
	}
	return extSuper{}, false, nil
}

// Offsets in struct xfs_dsb (linux fs/xfs/libxfs/xfs_format.h).
const (
	xfsUUID       = 32
	xfsInProgress = 126
)

// xfsJob says whether the device has the superblock of an mkfs.xfs that did not
// end. The kernel does not mount it.
func xfsJob(_ []byte, files []*os.File) (any, []*os.File, error) {
	if len(files) != 1 {
		return nil, nil, errors.New("one device is needed")
	}
	b := make([]byte, 512)
	if _, err := files[0].ReadAt(b, 0); err != nil {
		return nil, nil, err
	}
	return bytes.HasPrefix(b, []byte("XFSB")) && b[xfsInProgress] != 0, nil, nil
}

// xfsEnded: a group's superblock without the primary one, which mkfs writes first.
func xfsEnded(dev device, id uuid.UUID) (string, error) {
	primary, err := dev.at(0, 512)
	if err != nil || bytes.HasPrefix(primary, []byte("XFSB")) {
		return "", err // in progress: a complete one never comes here
	}
	for _, off := range xfsPlaces(dev.size) {
		b, err := dev.at(off, 512)
		if err != nil {
			return "", err
		}
		if bytes.HasPrefix(b, []byte("XFSB")) && bytes.Equal(b[xfsUUID:xfsUUID+16], id[:]) {
			return fmt.Sprintf("the superblock of an allocation group at byte %d has UUID %s and the primary one is gone", off, id), nil
		}
	}
	return "", nil
}

// btrfsEnded: a mirror with the final magic without the primary, which gets it first.
func btrfsEnded(dev device, id uuid.UUID) (string, error) {
	for _, off := range slices.Backward(btrfsMirrors) {
		b, err := dev.at(off, 4096)
		if err != nil {
			return "", err
		}
		if bytes.Equal(b[0x40:0x48], []byte("_BHRfS_M")) && bytes.Equal(b[0x20:0x30], id[:]) {
			return fmt.Sprintf("the superblock copy at byte %d has UUID %s and the primary one is gone", off, id), nil
		}
	}
	return "", nil
}
