// Package paths has every path that a kubelet makes below its root directory,
// for every volume source and every generation of the layout, built from names
// and read back into names. One table ([layouts]) says both.
//
// Everything here is a pure value: nothing looks at a disk. A path that this
// package builds lies below the root and reads back as what it was built from;
// input is validated strictly. Reading is tolerant: what is already on a node
// under an odd name is shown, not hidden.
//
// Do not use it to decide what a thing on disk is: it says what a path means,
// not whether a directory, a mount or a hostile link is there.
package paths

import (
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/kvol/kvol/internal/api"
)

// Layout is the layout below one kubelet's root directory. Make it with [New].
type Layout struct {
	// Root is a clean absolute path, never "/". A kubelet does not resolve
	// symbolic links in it, so neither does this package: resolve first.
	Root string
}

// New checks the root directory: absolute, without "..", not "/" (below which
// everything would be the kubelet's). A trailing slash is cut. Errors are
// [api.ErrInput].
func New(root string) (Layout, error) {
	fault := ""
	switch {
	case root == "":
		fault = "it is empty"
	case !filepath.IsAbs(root):
		fault = "it is not absolute"
	case !utf8.ValidString(root) || !printable(root):
		fault = "it has control characters or is not UTF-8"
	case hasDotDot(root):
		fault = `it has a ".." element`
	case filepath.Clean(root) == "/":
		fault = "it is the root of the file system"
	}
	if fault != "" {
		return Layout{}, bad("kubelet root directory", root, fault,
			"give the directory that the kubelet has as --root-dir, such as /var/lib/kubelet")
	}
	return Layout{Root: filepath.Clean(root)}, nil
}

func hasDotDot(path string) bool {
	for elem := range strings.SplitSeq(path, "/") {
		if elem == ".." {
			return true
		}
	}
	return false
}

// Path is what a path below the root means. Only the fields that the layout of
// its kind has are set, so two paths are the same when the values are equal.
type Path struct {
	Kind Kind
	// Plugin is the plugin's name, "kubernetes.io/csi"; of a FlexVolume driver
	// its own, "vendor/driver".
	Plugin string
	// Volume is the spec name as the directory has it: the PV's name, or for an
	// inline volume the pod's name for it.
	Volume string
	// ID is what a plugin names a global directory by instead of the spec name:
	// "10.0.0.1:3260-iqn.2001-04.com.example:x-lun-0", "aws/us-east-1a/vol-1". It
	// can have several elements. [Identify] takes it apart.
	ID        string
	PodUID    string
	Container string
	// Index is the position in the container's volumeMounts, of a SubPath only.
	Index      int
	Driver     string // CSI driver
	HandleHash string // lower-case hex of the SHA-256 of a CSI volume handle
	Iface      string // iSCSI interface
	File       string // name of a file whose name is not fixed
	// Old marks the place that an older generation of the plugin used.
	Old bool
	// Rest is what lies deeper than the path of that kind, "" at the path itself.
	Rest string
}

// Parse says what an absolute path means; it never fails. Kind is [None] where
// the path is not clean, not below the root, or nothing that a kubelet makes. A
// path inside a volume is that volume with a Rest.
func (l Layout) Parse(abs string) Path {
	if filepath.Clean(abs) != abs || strings.ContainsRune(abs, 0) {
		return Path{Kind: None}
	}
	if abs == l.Root {
		return Path{Kind: RootDir}
	}
	rel, below := strings.CutPrefix(abs, l.Root+"/")
	if !below {
		return Path{Kind: None}
	}
	elems := strings.Split(rel, "/")
	rows, own := table()
	for i := range rows {
		if _, fits := rows[i].fits(elems); !fits {
			continue
		}
		if p, ok := rows[i].match(elems, own); ok {
			return p
		}
	}
	return Path{Kind: None}
}

// Build is the inverse of [Layout.Parse]: the absolute path that reads back as
// exactly p. Every part is validated; a name that the layout itself uses at that
// place (a CSI block volume called "staging") is refused, as is a field that the
// kind does not have. Errors are [api.ErrInput].
func (l Layout) Build(p Path) (string, error) {
	if l.Root == "" {
		return "", api.Errorf(api.ErrInput, "no kubelet root directory").WithNext("give it: --root-dir DIR")
	}
	if p.Kind == RootDir && p == (Path{Kind: RootDir}) {
		return l.Root, nil
	}
	var failed error
	rows, own := table()
	for i := range rows {
		r := &rows[i]
		if !r.serves(p, own) {
			continue
		}
		rel, err := r.render(p)
		if err == nil {
			abs := l.Root + "/" + rel
			if l.Parse(abs) == p {
				return abs, nil
			}
			err = bad(string(p.Kind)+" path", rel, "it reads back as something else: a name in it is one that the layout uses itself, or a field is given that the path does not have",
				"use another name")
		}
		if failed == nil {
			failed = err
		}
	}
	if failed == nil {
		failed = bad("kind", string(p.Kind), "plugin "+quote(p.Plugin)+" has no such path", "kvol paths lists what a volume has")
	}
	return "", failed
}

// MountKind is how a list of mounts calls a mount on exactly this path. Inside a
// volume, and on directories where nothing belongs mounted, it is "other".
func (p Path) MountKind() api.MountKind {
	if p.Rest != "" && !p.inStaging() {
		return api.KindOther
	}
	switch p.Kind {
	case PodVolume:
		// A CSI driver mounts on the directory "mount" beneath it.
		if p.Plugin != CSIPlugin {
			return api.KindPodVolume
		}
	case PodVolumeMount:
		return api.KindPodVolume
	case GlobalMount, SharedMount, CSIBlockStaging:
		return api.KindGlobalMount
	case PodDevice:
		return api.KindPodDevice
	case GlobalMapDevice, CSIBlockPublish, CSIBlockPublishDir:
		return api.KindGlobalMapDevice
	case SubPath:
		return api.KindSubPath
	}
	return api.KindOther
}

// inStaging says that a path lies directly in a CSI staging directory: some drivers
// mount there, and not on the directory itself.
func (p Path) inStaging() bool {
	return p.Plugin == CSIPlugin && (p.Kind == GlobalMount || p.Kind == CSIBlockStaging) && !strings.Contains(p.Rest, "/")
}
