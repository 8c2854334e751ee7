package format

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/host/exact"
	"github.com/kvol/kvol/internal/host/probe"
)

// How much of a device is read for the blank proof.
const (
	wholeUpTo = 8 << 30  // a device of up to this size is read whole
	edge      = 16 << 20 // of a larger one, the first and the last so many bytes
	samples   = 4096     // and a random block from each of so many equal parts
	block     = 4096     // the size of a sample, and of a place
	chunk     = 4 << 20  // read at once
)

// Found is the first data on a device that is not blank.
type Found struct {
	Offset int64  // of the first byte that is not zero, of those looked at
	Bytes  string // up to 16 bytes from there, in hex
	What   string // what it looks like, "" where nothing is known to begin so
}

// String says it for a message.
func (f Found) String() string {
	s := fmt.Sprintf("data at byte %d (%s)", f.Offset, f.Bytes)
	if f.What != "" {
		s += ", " + f.What
	}
	return s
}

// Proof is what was looked at, for the history: with the seed the same samples can
// be taken again.
type Proof struct {
	Size   int64
	Seed   uint64
	Whole  bool
	Places int // where a backup superblock could be
}

// String says what was looked at.
func (p Proof) String() string {
	if p.Whole {
		return fmt.Sprintf("all %d bytes were read", p.Size)
	}
	return fmt.Sprintf("the first and last 16 MiB, %d places of backup superblocks and %d samples (seed %d) were read", p.Places, samples, p.Seed)
}

type blankArgs struct {
	Size int64
	Seed uint64
}

// Blank reads an open device of size bytes: all of it up to 8 GiB, of a larger one
// both ends, every place of a backup superblock and the samples that seed gives.
// Nil when all of that is zero. What cannot be read is an error, not a blank.
//
// dev is open with O_DIRECT: the medium is asked, not what another node of the
// same disk has in its cache.
func Blank(ctx context.Context, h *probe.Helper, dev *os.File, size int64, seed uint64) (*Found, Proof, error) {
	p := Proof{Size: size, Seed: seed, Whole: size <= wholeUpTo}
	if !p.Whole {
		p.Places = len(places(size))
	}
	var found *Found
	_, err := h.Call(ctx, jobBlank, blankArgs{size, seed}, []*os.File{dev}, &found)
	return found, p, err
}

// Jobs is what runs in the helper process: give it to probe.Main.
func Jobs() probe.Jobs {
	return probe.Jobs{jobBlank: blankJob, jobEnded: endedJob, jobXFS: xfsJob}
}

// The names of the jobs.
const (
	jobBlank = "format.blank"
	jobEnded = "format.ended"
	jobXFS   = "format.xfsUnfinished"
)

func blankJob(raw []byte, files []*os.File) (any, []*os.File, error) {
	var a blankArgs
	if err := exact.Unmarshal(raw, &a); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 || a.Size <= 0 {
		return nil, nil, errors.New("one device with a size is needed")
	}
	found, err := firstData(files[0], a.Size, a.Seed)
	return found, nil, err
}

// firstData is the blank proof itself.
func firstData(dev io.ReaderAt, size int64, seed uint64) (*Found, error) {
	// O_DIRECT needs memory aligned to the block size: a mapping is, to a page.
	buf, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	defer unix.Munmap(buf) //nolint:errcheck // it was mapped just so
	s := scanner{dev: dev, size: size, buf: buf, zero: make([]byte, chunk)}
	if size <= wholeUpTo {
		return s.span(0, size)
	}
	if f, err := s.span(0, edge); f != nil || err != nil {
		return f, err
	}
	// The last part from a multiple of a block on: a device's size need not be one.
	if f, err := s.span((size-edge)/block*block, size); f != nil || err != nil {
		return f, err
	}
	offsets := append(places(size), sampled(size, seed)...)
	slices.Sort(offsets)
	for _, off := range slices.Compact(offsets) {
		if f, err := s.span(off, min(off+block, size)); f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil
}

// sampled gives the offset of one random block in each of the equal parts.
func sampled(size int64, seed uint64) []int64 {
	rnd := rand.New(rand.NewPCG(seed, seed))
	stratum := size / samples
	out := make([]int64, samples)
	for i := range out {
		off := int64(i)*stratum + rnd.Int64N(stratum)
		out[i] = min(off, size-block) / block * block
	}
	return out
}

// places gives every block of a device of that size in which a file system of
// common geometry, over the whole device or in a partition that begins at 1 MiB,
// keeps a copy of its superblock. Both ends of the device hold the rest (GPT, md,
// LVM, LUKS, ZFS, swap).
func places(size int64) []int64 {
	var out []int64
	for _, start := range []int64{0, 1 << 20} {
		for _, off := range slices.Concat(extPlaces(size-start), xfsPlaces(size-start), btrfsMirrors) {
			if off += start; off <= size-block {
				out = append(out, off/block*block)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// extPlaces: group 1, the groups whose number is a power of 3, 5 or 7, and the
// last one (sparse_super, sparse_super2). A group has 8 clusters for each byte of
// a cluster, so its size is a power of two from 8 MiB (blocks of 1 KiB) on. With
// blocks of 1 KiB the copy is 1 KiB into the group: the same 4 KiB here.
func extPlaces(size int64) []int64 {
	var out []int64
	for group := int64(8 << 20); group < size; group *= 2 {
		out = append(out, group, (size-1)/group*group)
		for _, base := range []int64{3, 5, 7} {
			for n := base; n < size/group+1; n *= base {
				out = append(out, n*group)
			}
		}
	}
	return out
}

// xfsPlaces: the allocation groups. mkfs.xfs makes them of the device's size
// divided by a power of two up to 32 (calc_default_ag_geometry), rounded up to a
// block, and at most 1 TiB large. On a striped device it rounds to the stripe unit
// and, where that is the stripe's width, goes a unit further (align_ag_geometry);
// of these the first three groups.
func xfsPlaces(size int64) []int64 {
	const largest = 1 << 40
	var out []int64
	groups := func(group, count int64) {
		for n := int64(1); n < count && group > 0; n++ {
			out = append(out, n*group)
		}
	}
	groups(largest, (size+largest-1)/largest)
	for count := int64(2); count <= 32; count *= 2 {
		for unit := int64(512); unit <= 1<<20; unit *= 2 {
			group := (size/unit + count - 1) / count * unit
			if unit <= 64<<10 { // a block
				groups(group, count)
			}
			for _, aligned := range []int64{group - 2*unit, group - unit, group, group + unit} {
				groups(aligned, min(count, 4))
			}
		}
	}
	return out
}

// btrfsMirrors are the offsets of a btrfs superblock and its copies, of
// BTRFS_SUPER_MIRROR_SHIFT; the fourth, at 1 PiB, is never used.
var btrfsMirrors = []int64{64 << 10, 64 << 20, 256 << 30}

type scanner struct {
	dev  io.ReaderAt
	size int64
	buf  []byte
	zero []byte
}

// span looks at the bytes from from to to.
func (s *scanner) span(from, to int64) (*Found, error) {
	for off := from; off < to; {
		want := int(min(to-off, int64(len(s.buf))))
		n, err := s.dev.ReadAt(s.buf[:want], off)
		if n < want {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("cannot read bytes %d to %d: %w", off, off+int64(want), err)
		}
		if !bytes.Equal(s.buf[:n], s.zero[:n]) {
			i := slices.IndexFunc(s.buf[:n], func(b byte) bool { return b != 0 })
			return describe(s.buf[:n], i, off), nil
		}
		off += int64(n)
	}
	return nil, nil
}

// magics are the beginnings by which data is recognised that blkid does not see,
// because it lies where only a copy lies.
var magics = []struct {
	align int // where such a thing begins
	at    int // offset of the magic in it
	magic string
	what  string
}{
	{512, 0, "XFSB", "an xfs superblock"},
	{512, 0, "LUKS\xba\xbe", "a LUKS header"},
	{512, 0, "SKUL\xba\xbe", "the second LUKS header"},
	{512, 0, "EFI PART", "a GPT header"},
	{512, 0, "LABELONE", "an LVM label"},
	{1024, 0x38, "\x53\xef", "an ext superblock"},
}

func describe(buf []byte, i int, off int64) *Found {
	f := &Found{Offset: off + int64(i), Bytes: hex.EncodeToString(buf[i:min(i+16, len(buf))])}
	for _, m := range magics {
		if at := i - i%m.align + m.at; at < len(buf) && bytes.HasPrefix(buf[at:], []byte(m.magic)) {
			f.What = "which looks like " + m.what
			break
		}
	}
	return f
}
