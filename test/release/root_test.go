package release

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/testutil"
)

// debian is a root directory with a Debian in it that knows nothing of kvol.
type debian struct {
	t   *testing.T
	dir string
}

// newDebian makes one of this machine's own release, from its own package sources.
func newDebian(t *testing.T) debian {
	t.Helper()
	testutil.Root(t)
	d := debian{t, filepath.Join(testutil.TempDir(t), "root")}
	release := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(read(t, "/etc/os-release"))
	if release == nil {
		t.Fatal("/etc/os-release has no VERSION_CODENAME: this needs Debian")
	}
	args := []string{"--quiet", "--variant=apt", "--include=bash-completion,man-db,mount", "--dpkgopt=force-unsafe-io",
		`--aptopt=Acquire::Languages "none"`, `--aptopt=APT::Install-Recommends "false"`, string(release[1]), d.dir}
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"} {
		sources, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, sources...)
	}
	run(t, "mmdebstrap", args...)
	// kvol looks for the kubelet's directory, and for mounts from the root of all.
	if err := os.MkdirAll(d.dir+"/var/lib/kubelet", 0o750); err != nil {
		t.Fatal(err)
	}
	testutil.Bind(t, d.dir, d.dir, false)
	testutil.Mount(t, "sysfs", d.dir+"/sys", "sysfs", unix.MS_RDONLY, "")
	for name, src := range map[string]string{"dist": dist(), "test": "testdata", "deploy": "../../deploy"} {
		at := filepath.Join(d.dir, "mnt", name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		testutil.Bind(t, src, at, true)
	}
	return d
}

// run runs a program in it, with a process table of its own: no kubelet of this
// machine is seen there.
func (d debian) run(argv ...string) string {
	d.t.Helper()
	args := []string{"--pid", "--fork", "--kill-child", "--mount", "--root=" + d.dir, "--mount-proc"}
	return runIn(d.t, "", []string{"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}, "unshare", append(args, argv...)...)
}

// use works with the installed kvol.
func (d debian) use() {
	d.t.Helper()
	d.run("bash", "/mnt/test/use.sh", "v"+version(d.t), "/mnt/test/pod.yaml")
}

// files is what lies in it, by path: mode, owner, size and digest. What package
// managers themselves write is given by its path alone, and kvol's own state not.
func (d debian) files() map[string]string {
	d.t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(testutil.Tree(d.t, d.dir)) {
		path, rest, _ := strings.Cut(strings.TrimPrefix(line, `".`), `" `)
		if records.MatchString(path) {
			if !strings.Contains(path, "kvol") {
				continue
			}
			rest = ""
		}
		out[path] = rest
	}
	return out
}

// records is what dpkg, apt, man-db, rpm and mount keep of what they did.
var records = regexp.MustCompile(`^/var/(lib/(dpkg|apt|rpm)|cache/(apt|man|debconf|ldconfig)|log)(/|$)|^/run/mount(/|$)`)

// TestPackages installs, uses and removes each package. Each puts there what it
// should, and leaves nothing.
func TestPackages(t *testing.T) {
	t.Parallel()
	d := newDebian(t)
	before := d.files()
	for _, p := range []struct {
		format          string
		install, remove func(t *testing.T, d debian, file string)
	}{
		{"deb", installDeb, removeDeb},
		{"rpm", installRPM, removeRPM},
		{"apk", installAPK, removeAPK},
	} {
		ok := t.Run(p.format, func(t *testing.T) {
			d := debian{t, d.dir}
			file := filepath.Base(artifacts(t, "Linux Package", p.format)[0].Path)
			p.install(t, d, file)
			got := map[string][]byte{}
			for path, what := range d.files() {
				if _, was := before[path]; !was && what != "" && what[0] == '-' {
					got[path] = read(t, d.dir+path)
				}
			}
			same(t, file, got, installed(t, p.format))
			d.leads(got)
			d.use()
			p.remove(t, d, file)
			after := d.files()
			for path := range after {
				if before[path] != after[path] {
					t.Errorf("%s is left, or changed: %s", path, after[path])
				}
			}
			for path := range before {
				if _, there := after[path]; !there {
					t.Errorf("%s is gone", path)
				}
			}
		})
		if !ok {
			break // what it left would be the next one's
		}
	}
}

// installed are the files of a package, where its distributions look for them.
func installed(t *testing.T, format string) map[string][]byte {
	t.Helper()
	zsh := "/usr/share/zsh/site-functions/_kvol"
	if format == "deb" {
		zsh = "/usr/share/zsh/vendor-completions/_kvol"
	}
	want := map[string][]byte{
		"/usr/bin/kvol": read(t, artifacts(t, "Binary", "")[0].Path),
		"/usr/share/bash-completion/completions/kvol":    read(t, "../../completions/kvol.bash"),
		"/usr/share/fish/vendor_completions.d/kvol.fish": read(t, "../../completions/kvol.fish"),
		zsh: read(t, "../../completions/_kvol"),
		"/usr/share/doc/kvol/examples/config.yaml":       read(t, "../../deploy/config.yaml"),
		"/usr/share/doc/kvol/examples/recover-a-node.sh": read(t, "../../"+recovery),
		"/usr/share/doc/kvol/copyright":                  read(t, "../../bin/release/copyright"),
	}
	for _, name := range append(documents(t), "deploy/config.yaml") {
		want["/usr/share/doc/kvol/"+name] = read(t, "../../"+name)
	}
	if format == "deb" {
		want["/usr/share/doc/kvol/changelog.gz"] = read(t, "../../bin/release/changelog.gz")
		lintian, err := filepath.Glob(filepath.Join(dist(), "deb/*/*lintian*"))
		if err != nil || len(lintian) == 0 {
			t.Fatal(lintian, err)
		}
		want["/usr/share/lintian/overrides/kvol"] = read(t, lintian[0])
	}
	for _, page := range pages(t) {
		want["/usr/share/man/man8/"+filepath.Base(page)+".gz"] = read(t, page+".gz")
	}
	return want
}

// leads follows what the pages link to, and what the manual pages name.
func (d debian) leads(files map[string][]byte) {
	d.t.Helper()
	check := func(page, to string) {
		if _, err := os.Stat(filepath.Join(d.dir, to)); err != nil {
			d.t.Errorf("%s leads to %s, which is not there: %v", page, to, err)
		}
	}
	eachLink(files, check)
	for _, page := range pages(d.t) {
		text := strings.NewReplacer(`\fP`, "", `\`, "").Replace(string(read(d.t, page)))
		for _, to := range regexp.MustCompile(`/usr/share/doc/kvol[\w/.-]*\w`).FindAllString(text, -1) {
			check(page, to)
		}
	}
	d.run("test", "-x", "/usr/share/doc/kvol/examples/recover-a-node.sh")
}

func installDeb(t *testing.T, d debian, file string) {
	if out := run(t, "lintian", "--fail-on", "error,warning", filepath.Join(dist(), file)); out != "" {
		t.Errorf("lintian: %s", out)
	}
	d.run("apt-get", "install", "-qq", "/mnt/dist/"+file)
	if got, want := d.run("dpkg-query", "-W", "-f", "${Version} ${Architecture} ${Status}", "kvol"),
		strings.Replace(version(t), "-", "~", 1)+" amd64 install ok installed"; got != want {
		t.Errorf("dpkg says %q, want %q", got, want)
	}
}

// removeDeb: what is kept until the purge is kvol's history. The configuration is the
// operator's before, during and after an upgrade.
func removeDeb(t *testing.T, d debian, file string) {
	config := filepath.Join(d.dir, "etc/kvol/config.yaml")
	write(t, config, []byte("color: never # ours\n"), 0o644)
	d.run("dpkg", "-i", "/mnt/dist/"+file)
	d.run("kvol", "config", "view")
	defer func() {
		if got := string(read(t, config)); got != "color: never # ours\n" {
			t.Errorf("the configuration is %q", got)
		}
		if err := os.RemoveAll(filepath.Dir(config)); err != nil {
			t.Error(err)
		}
	}()
	d.run("apt-get", "remove", "-qq", "kvol")
	if _, err := os.Stat(d.dir + "/usr/bin/kvol"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed, and the program is there: %v", err)
	}
	if len(read(t, d.dir+"/var/lib/kvol/journal-000001.jsonl")) == 0 {
		t.Error("removed, and the history is empty")
	}
	d.run("apt-get", "purge", "-qq", "kvol")
}

// rpm runs this machine's rpm on d; its database is in there too, where Fedora's
// rpm has it and Debian's has not.
func rpm(t *testing.T, d debian, args ...string) string {
	t.Helper()
	return run(t, "rpm", append([]string{"--root", d.dir, "--dbpath", "/var/lib/rpm"}, args...)...)
}

func installRPM(t *testing.T, d debian, file string) {
	rpm(t, d, "--install", filepath.Join(dist(), file))
	want := strings.Replace(version(t), "-", "~", 1) + " x86_64 NONE"
	if got := rpm(t, d, "--query", "--queryformat", "%{VERSION} %{ARCH} %{LICENSE}", "kvol"); got != want {
		t.Errorf("rpm says %q, want %q", got, want)
	}
	if got := strings.Fields(rpm(t, d, "--query", "--recommends", "kvol")); !slices.Equal(got, []string{"e2fsprogs", "util-linux"}) {
		t.Errorf("rpm recommends %q", got)
	}
	if got := strings.Fields(rpm(t, d, "--query", "--licensefiles", "kvol")); !slices.Equal(got, []string{"/usr/share/doc/kvol/copyright"}) {
		t.Errorf("rpm has the licences %q", got)
	}
	rpm(t, d, "--verify", "kvol")
}

// removeRPM: an upgrade runs the same script, and keeps what kvol wrote.
func removeRPM(t *testing.T, d debian, file string) {
	rpm(t, d, "--upgrade", "--replacepkgs", filepath.Join(dist(), file))
	if len(read(t, d.dir+"/var/lib/kvol/journal-000001.jsonl")) == 0 {
		t.Error("upgraded, and the history is empty")
	}
	rpm(t, d, "--erase", "kvol")
}

// installAPK lays out what the archive holds: Debian has no apk.
func installAPK(t *testing.T, d debian, file string) {
	_, data := readAPK(t, filepath.Join(dist(), file))
	eachFile(t, gunzip(t, bytes.NewReader(data)), func(h *tar.Header, b []byte) {
		write(t, filepath.Join(d.dir, h.Name), b, h.FileInfo().Mode().Perm())
	})
}

func write(t *testing.T, path string, b []byte, mode fs.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, b, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// removeAPK takes the files off as apk does, and runs the script as apk does.
func removeAPK(t *testing.T, d debian, file string) {
	control, data := readAPK(t, filepath.Join(dist(), file))
	for _, name := range slices.Sorted(maps.Keys(untar(t, gunzip(t, bytes.NewReader(data))))) {
		if err := os.Remove(filepath.Join(d.dir, name)); err != nil {
			t.Error(err)
		}
		for dir := filepath.Dir(name); os.Remove(filepath.Join(d.dir, dir)) == nil; dir = filepath.Dir(dir) {
		}
	}
	if got, want := string(control[".post-deinstall"]), string(read(t, "../../deploy/postremove.sh")); got != want {
		t.Errorf("the script is %s", got)
	}
	d.run("sh", "/mnt/deploy/postremove.sh", "0.0.1")
}
