package kubelet

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// settings are what a kubelet was told.
type settings struct{ rootDir, nodeName, config, kubeconfig, manifests string }

// flags reads a kubelet's arguments: --name value and --name=value, the last one
// counts, and an underscore is a dash (as the kubelet reads them).
func flags(args []string) settings {
	var s settings
	known := map[string]*string{
		"root-dir": &s.rootDir, "hostname-override": &s.nodeName, "config": &s.config,
		"kubeconfig": &s.kubeconfig, "pod-manifest-path": &s.manifests,
	}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		word, ok := strings.CutPrefix(args[i], "--")
		if !ok {
			continue
		}
		name, value, given := strings.Cut(word, "=")
		to := known[strings.ReplaceAll(name, "_", "-")]
		switch {
		case to == nil:
		case given:
			*to = value
		case i+1 < len(args):
			i++
			*to = args[i]
		}
	}
	return s
}

// hyperkube is all of Kubernetes in one program, until 1.18: hyperkube kubelet ….
func hyperkube(_ proc, args []string) (settings, bool) {
	if filepath.Base(args[0]) == "kubelet" {
		return flags(args[1:]), true
	}
	if len(args) < 2 || args[1] != "kubelet" {
		return settings{}, false
	}
	return flags(args[2:]), true
}

// k3s has its kubelet within itself, as k3s-server or k3s-agent, and overwrites its
// arguments once it has read them (they may hold the token of the cluster); others are
// in files and the environment. So the root directory is told by the socket that its
// kubelet listens on. What is seen of the arguments counts while it is not up yet. It
// works in its data directory, where it unpacks itself to: DIR/data/HASH/bin/k3s.
func k3s(p proc, args []string) (settings, bool) {
	comm := strings.TrimSpace(string(p.read("comm")))
	role := slices.Contains([]string{"k3s-server", "k3s-agent"}, comm) || len(args) > 1 && slices.Contains([]string{"server", "agent"}, args[1])
	if !role || slices.Contains(args, "--disable-agent") {
		return settings{}, false
	}
	var own []string
	s := settings{}
	for i, word := range args {
		name, value, given := strings.Cut(word, "=")
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--kubelet-arg":
			own = append(own, "--"+value)
		case "--node-name":
			s.nodeName = value
		}
	}
	s.rootDir = flags(own).rootDir
	if root, ok := p.listens(); ok {
		s.rootDir = root
	}
	exe, _ := p.link("exe")
	if data, rest, ok := strings.Cut(exe, "/data/"); ok && strings.Count(rest, "/") == 2 {
		s.kubeconfig, s.manifests = data+"/agent/kubelet.kubeconfig", data+"/agent/pod-manifests"
	}
	return s, true
}

// kubelite is MicroK8s' program for all of Kubernetes; the arguments of its kubelet
// are in a file, a flag a line, with variables of the snap.
func kubelite(p proc, args []string) (settings, bool) {
	var s settings
	for _, word := range args {
		file, ok := strings.CutPrefix(word, "--kubelet-args-file=")
		if !ok {
			continue
		}
		data := filepath.Dir(filepath.Dir(file)) // /var/snap/microk8s/REVISION
		text := os.Expand(string(p.file(file)), func(name string) string {
			return map[string]string{"SNAP_DATA": data, "SNAP_COMMON": filepath.Dir(data) + "/common"}[name]
		})
		s = flags(strings.Fields(text))
	}
	if root, ok := p.listens(); ok {
		s.rootDir = root
	}
	return s, true
}

// podResources is where every kubelet since 1.15 listens, below its root directory.
const podResources = "/pod-resources/kubelet.sock"

// listens gives the root directory of the kubelet that listens in this process.
func (p proc) listens() (root string, ok bool) {
	sockets := map[string]string{} // by inode
	for line := range strings.Lines(string(p.read("net/unix"))) {
		// Num RefCount Protocol Flags Type St Inode Path
		f := strings.Fields(line)
		if len(f) != 8 {
			continue
		}
		if dir, ok := strings.CutSuffix(f[7], podResources); ok {
			sockets["socket:["+f[6]+"]"] = dir
		}
	}
	if len(sockets) == 0 {
		return "", false
	}
	fds, _ := os.ReadDir(p.dir + "/fd")
	for _, fd := range fds {
		if target, err := p.link("fd/" + fd.Name()); err == nil && sockets[target] != "" {
			return sockets[target], true
		}
	}
	return "", false
}

// abs is a path as the process means it; "" stays that.
func (p proc) abs(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	cwd, _ := p.link("cwd")
	return filepath.Join("/", cwd, path)
}

// staticPods reads where the configuration file says that static pods are.
func (p proc) staticPods(config string) string {
	if config == "" {
		return ""
	}
	var c struct {
		StaticPodPath string `json:"staticPodPath"`
	}
	_ = yaml.Unmarshal(p.file(config), &c) // a kubelet that runs could read it
	return c.StaticPodPath
}

// file reads a regular file that the process names, as it sees it: links lead
// where they lead from its root directory. nil where that cannot be done.
func (p proc) file(path string) []byte {
	root, err := os.OpenFile(p.dir+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	defer root.Close()
	f, err := openIn(root, p.abs(path), unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	raw, _ := io.ReadAll(io.LimitReader(f, maxFile))
	return raw
}
