package format

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
	"github.com/kvol/kvol/internal/host/exec"
)

// Signature is what blkid(8) finds by low-level probing, which reads the device
// and never its cache. The zero value is "nothing".
type Signature struct {
	FSType string // "ext4", "crypto_LUKS", "LVM2_member", "swap"
	PTType string // partition table: "gpt", "dos"
	UUID   string
	Label  string
	Usage  string // filesystem, raid, crypto, other
	// Ambivalent: several signatures were found, and none is the right one for
	// sure. The other fields are then empty.
	Ambivalent bool
}

// None says that there is no signature. That is not proof of a blank device.
func (s Signature) None() bool { return s == Signature{} }

// FileSystem says that it is a file system, to be mounted as it is.
func (s Signature) FileSystem() bool { return s.FSType != "" && s.Usage == "filesystem" }

// String names what was found: "ext4 (UUID …, label …)", "a gpt partition table".
func (s Signature) String() string {
	var b strings.Builder
	switch {
	case s.Ambivalent:
		return "several signatures at once"
	case s.FSType == "" && s.PTType == "":
		return "no signature"
	case s.FSType == "":
		return "a " + s.PTType + " partition table"
	}
	fmt.Fprintf(&b, "%s (UUID %s", s.FSType, s.UUID)
	if s.Label != "" {
		fmt.Fprintf(&b, ", label %q", s.Label)
	}
	b.WriteByte(')')
	if s.PTType != "" {
		b.WriteString(" and a " + s.PTType + " partition table")
	}
	return b.String()
}

// blkid's exit codes for -p, from its manual page.
const (
	blkidNothing    = 2
	blkidAmbivalent = 8
)

// selfFD is how a tool opens what it inherited as descriptor 3: the disk that was
// looked at, whatever its name leads to by now.
const selfFD = "/proc/self/fd/3"

// Probe looks for a signature on an open device.
func Probe(ctx context.Context, r exec.Runner, dev *devices.Handle) (Signature, error) {
	cmd := exec.Cmd{Name: "blkid", Args: []string{"-p", "-o", "export", selfFD}, Files: []*os.File{dev.File}}
	res, err := r.Run(ctx, cmd)
	if err != nil {
		return Signature{}, fmt.Errorf("look for a signature on %s: %w", dev.Path, err)
	}
	switch {
	case res.ExitCode == 0:
		return parseExport(string(res.Stdout)), nil
	case res.ExitCode == blkidNothing && len(res.Stderr) == 0:
		return Signature{}, nil
	case res.ExitCode == blkidAmbivalent:
		return Signature{Ambivalent: true}, nil
	}
	// Also exit 2 with words on standard error: that is a device that could not be
	// opened or read, and blkid has no other code for it.
	return Signature{}, &api.Error{Op: "look for a signature", Path: dev.Path, Err: fmt.Errorf("blkid: exit status %d: %s",
		res.ExitCode, strings.TrimSpace(string(res.Stderr)))}
}

// parseExport reads "NAME=value" lines, in whose values blkid puts a backslash
// before what a shell would not take literally.
func parseExport(out string) Signature {
	var s Signature
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch name {
		case "TYPE":
			s.FSType = unescape(value)
		case "PTTYPE":
			s.PTType = unescape(value)
		case "UUID":
			s.UUID = unescape(value)
		case "LABEL":
			s.Label = unescape(value)
		case "USAGE":
			s.Usage = unescape(value)
		}
	}
	return s
}

func unescape(v string) string {
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			i++
		}
		b.WriteByte(v[i])
	}
	return b.String()
}
