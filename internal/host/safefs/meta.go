package safefs

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/paths"
)

// Meta is an entry of the metadata list: all that may ever be unlinked below a
// kubelet's root. Whether it is time for it (the pod proven gone, the driver
// called) is the caller's part.
type Meta string

// The metadata list. Each is a regular file, but for those that say otherwise,
// and only in the place where package paths has it: a vol_data.json in an
// emptyDir is a pod's data.
const (
	VolData       Meta = "vol_data.json of a CSI volume"
	ISCSIData     Meta = "iscsi.json of an iSCSI volume"
	ReadyMarker   Meta = "ready marker of a volume"
	EtcHosts      Meta = "etc-hosts of a pod"
	UserNS        Meta = "userns of a pod"
	ContainerFile Meta = "termination message of a container"
	// BindTarget is the file that a subPath or a block device was bound on: empty.
	BindTarget Meta = "empty target of a bind mount"
	// DeviceLink is the symbolic link of a pod to a block volume's device.
	DeviceLink Meta = "volumeDevices link of a pod"
	// AtomicWriterFile is a file in a "..<time>" directory of the atomic writer, or one
	// of its links: "..data", "..data_tmp", and the visible names, which lead into "..data"
	// (pkg/volume/util/atomic_writer.go).
	AtomicWriterFile Meta = "atomic writer's own file"
	// TempFile is what a killed WriteFile left.
	TempFile Meta = "kvol's own temporary file"
)

// writable are the entries that kvol itself writes, and whose old content it
// may replace.
var writable = []Meta{VolData, ISCSIData, ReadyMarker}

// AtomicWriters are the plugins whose volumes on disk are written by the atomic
// writer.
var AtomicWriters = []string{
	paths.SecretPlugin, paths.ConfigMapPlugin, paths.DownwardAPIPlugin, paths.ProjectedPlugin,
}

const tempPrefix, tempSuffix = ".", ".kvol-tmp"

// tempName is the name under which a file is written before it takes its place.
// It is always the same, so that a killed kvol leaves at most one and the next one
// finds it.
func tempName(name string) string {
	return tempPrefix + name[:min(len(name), unix.NAME_MAX-len(tempPrefix+tempSuffix))] + tempSuffix
}

// MetaAt tells which entry of the list may lie at a path below a kubelet's root; "" is
// none. What is there decides: [Root.Unlink] looks at it.
func MetaAt(layout paths.Layout, file string) Meta { return metaAt(layout, file) }

// metaAt tells which entry of the list may lie at a path; "" is none.
func metaAt(layout paths.Layout, file string) Meta {
	p := layout.Parse(file)
	dir, base := path.Split(file)
	if p.Kind == paths.PodVolume && p.Rest != "" && slices.Contains(AtomicWriters, p.Plugin) {
		return AtomicWriterFile
	}
	if of, ok := strings.CutPrefix(strings.TrimSuffix(base, tempSuffix), tempPrefix); ok && strings.HasSuffix(base, tempSuffix) {
		if slices.Contains(writable, metaAt(layout, dir+of)) {
			return TempFile
		}
	}
	if p.Kind == paths.CSIBlockStaging && p.Rest != "" && !strings.Contains(p.Rest, "/") {
		return BindTarget // what some drivers bind the device on
	}
	if p.Rest != "" {
		return ""
	}
	switch p.Kind {
	case paths.PodVolumeMetadata, paths.GlobalMetadata, paths.GlobalMapMetadata:
		switch base {
		case "vol_data.json":
			return VolData
		case "iscsi.json":
			return ISCSIData
		}
	case paths.ReadyMarker:
		return ReadyMarker
	case paths.PodEtcHosts:
		return EtcHosts
	case paths.PodUserNS:
		return UserNS
	case paths.PodContainerFile:
		return ContainerFile
	case paths.SubPath, paths.GlobalMapDevice, paths.CSIBlockPublish, paths.CSIBlockPublishDir:
		return BindTarget
	case paths.PodDevice:
		return DeviceLink
	}
	return ""
}

// Unlink removes a file of the metadata list. It is refused where the list has
// no such entry, and where the thing itself, looked at by descriptor, is not of
// the entry's type: another type, a mount point, a bind target that is not empty,
// a link that the atomic writer does not make. Only a layout root has such files.
//
// What is put in the file's place between the look and the unlink is unlinked
// instead: the system has no unlink by descriptor. It is then still a
// directory entry of that name in that place, and never what a link or a mount leads to.
func (r *Root) Unlink(name string, what Meta) error {
	const op = "unlink"
	s, err := r.slot(op, name)
	if err != nil {
		return err
	}
	defer s.close()
	if r.kind != layoutRoot || what == "" || metaAt(paths.Layout{Root: r.path}, s.path) != what {
		return refuse(op, s.path, "is not the place of any %s", what).
			WithNext("no data is deleted; look at it with: ls -l %s", api.Quote(s.path))
	}
	fd, info, err := s.open(true)
	if err != nil {
		return fail(op, s.path, err)
	}
	defer unix.Close(fd)
	if fault := s.notMeta(fd, info, what); fault != "" {
		return refuse(op, s.path, "is no %s: it is %s", what, fault).
			WithNext("no data is deleted; look at it with: ls -l %s", api.Quote(s.path))
	}
	return fail(op, s.path, s.unlink())
}

// unlink is the only unlink of a file in kvol: its callers have looked at the
// thing. On a mount point it fails with EBUSY; a mount on it in another mount
// namespace is taken off by it, as the kernel does since Linux 3.18 (detach_mounts).
func (s slot) unlink() error {
	return retry(func() error { return unix.Unlinkat(s.dir, s.name, 0) })
}

// notMeta tells what keeps a thing from being that entry of the list, "" for
// nothing.
func (s slot) notMeta(fd int, info Info, what Meta) string {
	want := File
	switch what {
	case DeviceLink:
		want = Symlink
	case AtomicWriterFile:
		// Below pods/<uid>/volumes/<plugin>/<volume>; only files in a "..<time>" directory
		// are no links.
		if in := s.elems[5:]; len(in) == 1 || !IsWriterDir(in[0]) {
			want = Symlink
		}
	}
	switch {
	case info.Type != want:
		return "a " + string(info.Type)
	case what == BindTarget && info.Size != 0:
		return "not empty"
	case what == AtomicWriterFile && want == Symlink && !isWriterLink(s.name, linkTarget(fd)):
		return "a link to " + quote(linkTarget(fd))
	}
	return ""
}

// isWriterLink tells whether the atomic writer makes such a link: "..data" to
// one of its directories, a visible name ("ca.crt", in old releases also
// "dir/ca.crt") into "..data".
func isWriterLink(name, target string) bool {
	if isDataLink(name) {
		return strings.HasPrefix(target, "..") && !strings.Contains(target, "/")
	}
	for strings.HasPrefix(target, "../") {
		target = target[len("../"):]
	}
	return strings.HasPrefix(target, "..data/")
}

// IsWriterDir tells whether the atomic writer calls its directories so:
// "..2006_01_02_15_04_05.", then a number. Old releases had the format of the time wrong,
// so that its digits are not looked at.
func IsWriterDir(name string) bool { return writerDir.MatchString(name) }

var writerDir = regexp.MustCompile(`^\.\.\d+(_\d+){5}\.\d+$`)

func isDataLink(name string) bool { return name == "..data" || name == "..data_tmp" }
