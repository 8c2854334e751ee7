package paths

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kvol/kvol/internal/api"
)

// nameMax is NAME_MAX of Linux file systems, in bytes.
const nameMax = 255

// bad is an input that is refused: what it is, the input, the fault, and what to
// do instead.
func bad(what, input, fault, next string) error {
	return api.Errorf(api.ErrInput, "%s %s: %s", what, quote(input), fault).WithNext("%s", next)
}

// quote quotes an input for a message; a long one is cut.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// printable tells whether all of s can be shown on a terminal and in a log
// without changing either: no control, format or bidirectional characters.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// elementFault says why s cannot be one element of a path, "" where it can. A
// leading "-" is refused because names reach the argument lists of tools.
func elementFault(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case s == "." || s == "..":
		return "it means another directory"
	case len(s) > nameMax:
		return "it is longer than 255 bytes"
	case !utf8.ValidString(s):
		return "it is not valid UTF-8"
	case strings.Contains(s, "/"):
		return "it has a slash"
	case s[0] == '-':
		return `it begins with "-"`
	case !printable(s):
		return "it has control or other unprintable characters"
	}
	return ""
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func isAlnum(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

// all tells whether every byte of s is allowed: by f, or as one of also.
func all(s string, f func(byte) bool, also string) bool {
	for i := range len(s) {
		if !f(s[i]) && strings.IndexByte(also, s[i]) < 0 {
			return false
		}
	}
	return true
}

// qualified tells whether s is letters, digits and some others, beginning and
// ending with a letter or digit.
func qualified(s string, f func(byte) bool, also string) bool {
	return s != "" && f(s[0]) && f(s[len(s)-1]) && all(s, f, also)
}

// check refuses s when it cannot be a path element, or when ok is false.
func check(what, s string, ok bool, want, next string) error {
	fault := elementFault(s)
	if fault == "" && !ok {
		fault = "it is not " + want
	}
	if fault == "" {
		return nil
	}
	return bad(what, s, fault, next)
}

// ValidPodUID accepts what a pod UID can be: an RFC 4122 UUID, the 32 hex digits
// of a static pod, or what a static pod's manifest sets, as long as it is
// letters, digits, ".", "_", ":" and "-".
func ValidPodUID(uid string) error {
	return check("pod uid", uid, all(uid, isAlnum, "._:-"), `letters, digits, ".", "_", ":" and "-"`,
		"take metadata.uid of the pod, or the name of its directory under pods/")
}

// ValidVolumeName accepts the name of a volume as its directory has it: a PV's
// name, a pod's name for it, or one made from an id by the CSI translation
// library, which can have blanks, brackets and "~".
func ValidVolumeName(name string) error {
	return check("volume name", name, true, "", "give the PV's name, or for an inline volume its name in the pod")
}

// ValidVolume accepts what a person calls a volume: its name, or driver^handle.
func ValidVolume(word string) error {
	driver, handle, ok := strings.Cut(word, "^")
	switch {
	case !ok:
		return ValidVolumeName(word)
	case handle == "":
		return api.Errorf(api.ErrInput, "%q has no handle after the driver", word).WithNext("give both: driver^handle")
	}
	return ValidDriverName(driver)
}

// ValidPluginName accepts "kubernetes.io/nfs", a FlexVolume driver's
// "vendor/driver", and a name without vendor. A "~" is refused: on disk it would
// be read back as "/" (kubelet's UnescapeQualifiedName).
func ValidPluginName(name string) error {
	vendor, driver, two := strings.Cut(name, "/")
	ok := qualified(vendor, isAlnum, "._-") && (!two || qualified(driver, isAlnum, "._-"))
	if ok && len(name) <= nameMax {
		return nil
	}
	fault := elementFault(strings.Replace(name, "/", "~", 1))
	if fault == "" {
		fault = `it is not a name or vendor/name of letters, digits, ".", "_" and "-"`
	}
	return bad("plugin", name, fault, "see the names: kvol plugins")
}

// ValidContainerName accepts a DNS label (RFC 1123), which Kubernetes asks for.
func ValidContainerName(name string) error {
	return check("container name", name, len(name) <= 63 && qualified(name, isLower, "-"),
		`a DNS label: at most 63 lower-case letters, digits and "-"`, "take it from spec.containers of the pod")
}

// ValidDriverName accepts a CSI driver's name: at most 63 letters, digits, ".",
// "_" and "-" (CSI specification, GetPluginInfo; "_" is tolerated as drivers have it).
func ValidDriverName(name string) error {
	return check("CSI driver name", name, len(name) <= 63 && qualified(name, isAlnum, "._-"),
		`at most 63 letters, digits, ".", "_" and "-"`, "take spec.csi.driver of the PV")
}

// ValidHandleHash accepts what [HandleHash] makes.
func ValidHandleHash(hash string) error {
	return check("volume handle hash", hash, len(hash) == 64 && all(hash, isHex, ""), "64 lower-case hex digits",
		"give the volume handle itself")
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// ValidIface accepts an iSCSI interface's name. A kubelet clones one as
// "<portal>:<volume>" when the volume has an initiator name.
func ValidIface(name string) error {
	return check("iSCSI interface", name, qualified(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), isAlnum, "._:[]-"),
		`letters, digits, ".", "_", ":", "[", "]" and "-"`, "take iscsiInterface of the PV; the default is \"default\"")
}

// ValidIQN accepts iSCSI names (RFC 3721): "iqn.<yyyy-mm>.<domain>[:<text>]",
// "eui." and 16 hex digits, "naa." and 16 or 32.
func ValidIQN(iqn string) error {
	kind, rest, _ := strings.Cut(iqn, ".")
	ok := false
	switch kind {
	case "iqn":
		date, name, _ := strings.Cut(rest, ".")
		ok = len(iqn) <= 223 && isYearMonth(date) && name != "" && isAlnum(name[0]) && all(name, isAlnum, ".:_-+@%=")
	case "eui":
		ok = len(rest) == 16 && all(strings.ToLower(rest), isHex, "")
	case "naa":
		ok = (len(rest) == 16 || len(rest) == 32) && all(strings.ToLower(rest), isHex, "")
	}
	return check("iSCSI name", iqn, ok, "iqn.yyyy-mm.domain[:text], eui. with 16 or naa. with 16 or 32 hex digits",
		"take iqn of the PV, or run: iscsiadm -m session")
}

func isYearMonth(s string) bool {
	return len(s) == 7 && s[4] == '-' && all(s[:4]+s[5:], func(c byte) bool { return '0' <= c && c <= '9' }, "")
}

// ValidPortal accepts "host", "host:port", "[IPv6]" and "[IPv6]:port".
func ValidPortal(portal string) error {
	host, port, hasPort := portal, "", false
	if i := strings.LastIndexByte(portal, ':'); i > strings.LastIndexByte(portal, ']') {
		host, port, hasPort = portal[:i], portal[i+1:], true
	}
	ok := qualified(host, isAlnum, ".-")
	if inner, found := strings.CutPrefix(host, "["); found && strings.HasSuffix(inner, "]") {
		ip, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		ok = err == nil && ip.Is6() && ip.Zone() == ""
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		ok = ok && err == nil && n > 0 && strconv.FormatUint(n, 10) == port
	}
	return check("iSCSI portal", portal, ok, "host[:port], an IPv6 address in brackets", "take targetPortal of the PV")
}

// ValidWWN accepts a Fibre Channel world wide name: 16 or 32 hex digits.
func ValidWWN(wwn string) error {
	return check("WWN", wwn, (len(wwn) == 16 || len(wwn) == 32) && all(strings.ToLower(wwn), isHex, ""), "16 or 32 hex digits",
		"take targetWWNs of the PV, without 0x")
}

// ValidWWID accepts a device's world wide identifier, which can have blanks.
func ValidWWID(wwid string) error {
	return check("WWID", wwid, wwid != "" && isAlnum(wwid[0]) && all(wwid, isAlnum, "._: -"), `letters, digits, blanks, ".", "_", ":" and "-"`,
		"take wwids of the PV")
}

// ValidLUN accepts a logical unit number as Kubernetes has it: 0 or more.
func ValidLUN(lun int32) error {
	if lun < 0 {
		return bad("LUN", strconv.Itoa(int(lun)), "it is negative", "take lun of the PV")
	}
	return nil
}

// ValidPool accepts a Ceph pool's name: letters, digits, ".", "_", "-", "+", "=" and ":".
func ValidPool(name string) error {
	return check("RBD pool", name, all(name, isAlnum, "._-+=:"), `letters, digits, ".", "_", "-", "+", "=" and ":"`, "take pool of the PV")
}

// ValidImage accepts an RBD image's name; the letters are those of a pool. "@"
// would name a snapshot.
func ValidImage(name string) error {
	return check("RBD image", name, all(name, isAlnum, "._-+=:"), `letters, digits, ".", "_", "-", "+", "=" and ":"`, "take image of the PV")
}

// validDiskID accepts the id of a cloud disk that is one plain name.
func validDiskID(what, id string) error {
	return check(what, id, all(id, isAlnum, "._-"), `letters, digits, ".", "_" and "-"`, "take it from the PV")
}

// validID accepts a relative path of harmless elements.
func validID(id string) error {
	for elem := range strings.SplitSeq(id, "/") {
		if fault := elementFault(elem); fault != "" {
			return bad("volume id", id, fmt.Sprintf("element %s: %s", quote(elem), fault), "take it from the PV")
		}
	}
	return nil
}

func validFile(name string) error {
	return check("file name", name, true, "", "give a plain file name")
}

func validIndex(index string) error {
	return check("subPath index", index, true, "", "give the position in the container's volumeMounts, from 0")
}

// EscapePlugin is the plugin's name as one path element: every "/" becomes "~".
// CSI does the same to a volume's name. It does not survive names that have "~".
func EscapePlugin(name string) string { return strings.ReplaceAll(name, "/", "~") }

// UnescapePlugin is what a kubelet takes an escaped name for: every "~" is "/".
func UnescapePlugin(name string) string { return strings.ReplaceAll(name, "~", "/") }
