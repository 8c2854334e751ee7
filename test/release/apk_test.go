package release

import (
	"archive/tar"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readAPK gives the control files of a package and its data, a compressed tar. One
// that is not signed is two gzip streams, one after the other.
func readAPK(t *testing.T, path string) (control map[string][]byte, data []byte) {
	t.Helper()
	r := bytes.NewReader(read(t, path))
	control = untar(t, gunzip(t, r))
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return control, data
}

// apkVersion is what apk takes for a version.
// See https://wiki.alpinelinux.org/wiki/APKBUILD_Reference
var apkVersion = regexp.MustCompile(`^\d+(\.\d+)*[a-z]?(_(alpha|beta|pre|rc|cvs|svn|git|hg|p)\d*)*(-r\d+)?$`)

// TestAPK reads the packages as apk does, for want of an apk: who they are, and
// that the digests of the data and of each file in it are right.
func TestAPK(t *testing.T) {
	for i, a := range artifacts(t, "Linux Package", "apk") {
		control, data := readAPK(t, a.Path)
		if got, want := slices.Sorted(maps.Keys(control)), []string{".PKGINFO", ".post-deinstall"}; !slices.Equal(got, want) {
			t.Errorf("%s: its control files are %q, want %q", a.Name, got, want)
		}
		info := map[string]string{}
		for line := range strings.Lines(string(control[".PKGINFO"])) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
			info[key] = value
		}
		for key, want := range map[string]string{
			"pkgname": "kvol", "arch": []string{"x86_64", "aarch64"}[i], "license": "NONE", "datahash": sum(data),
			"pkgver": strings.Replace(version(t), "-", "_", 1),
		} {
			if info[key] != want {
				t.Errorf("%s: %s is %q, want %q", a.Name, key, info[key], want)
			}
		}
		if !apkVersion.MatchString(info["pkgver"]) {
			t.Errorf("%s: apk knows no version %q", a.Name, info["pkgver"])
		}
		eachFile(t, gunzip(t, bytes.NewReader(data)), func(h *tar.Header, content []byte) {
			digest := sha1.Sum(content)
			if got, want := h.PAXRecords["APK-TOOLS.checksum.SHA1"], hex.EncodeToString(digest[:]); got != want {
				t.Errorf("%s: %s has the digest %s, its header says %q", a.Name, h.Name, want, got)
			}
		})
	}
}
