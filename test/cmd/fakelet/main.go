// Command fakelet looks like a kubelet: a process that is called like one, with its
// arguments, its root directory and its sockets, and its list of pods where the
// configuration has a port for it. It does nothing to any volume.
//
//	FAKELET_PODS=FILE kubelet --root-dir DIR [--config FILE] [any flag of a kubelet]
//
// A test builds it under the name that it needs. The pods are the PodList in FILE, read
// anew with every question; without the variable there are none. FAKELET_ROOT is the
// root directory where the arguments do not tell or lie, FAKELET_CHROOT where it goes
// when all is there. It says "ready" then, and ends with its standard input.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fakelet:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root, config := "/var/lib/kubelet", ""
	for i, word := range args {
		name, value, given := strings.Cut(word, "=")
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--root-dir":
			root = value
		case "--config":
			config = value
		}
	}
	if os.Getenv("FAKELET_ROOT") != "" {
		root = os.Getenv("FAKELET_ROOT")
	}
	for _, dir := range []string{"pods", "plugins", "plugins_registry", "pod-resources", "device-plugins"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
			return err
		}
	}
	for _, socket := range []string{"pod-resources/kubelet.sock", "device-plugins/kubelet.sock"} {
		path := filepath.Join(root, socket)
		_ = os.Remove(path) // of one that was killed
		if _, err := net.Listen("unix", path); err != nil {
			return err
		}
	}
	if err := serve(config); err != nil {
		return err
	}
	if jail := os.Getenv("FAKELET_CHROOT"); jail != "" {
		if err := errors.Join(os.Chdir(jail), unix.Chroot(".")); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// serve answers for /pods and /runningpods/ on the ports of the configuration.
func serve(config string) error {
	if config == "" {
		return nil
	}
	raw, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var c struct{ Port, ReadOnlyPort int }
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return err
	}
	plain := httptest.NewUnstartedServer(http.HandlerFunc(pods))
	secure := httptest.NewUnstartedServer(http.HandlerFunc(pods))
	return errors.Join(start(plain, c.ReadOnlyPort, plain.Start), start(secure, c.Port, secure.StartTLS))
}

func start(s *httptest.Server, port int, begin func()) error {
	if port == 0 {
		return nil
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	s.Listener.Close()
	s.Listener = l
	begin()
	return nil
}

func pods(w http.ResponseWriter, r *http.Request) {
	file := os.Getenv("FAKELET_PODS")
	if file == "" || r.URL.Path != "/pods" && r.URL.Path != "/runningpods/" {
		http.NotFound(w, r)
		return
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		raw, err = yaml.YAMLToJSON(raw)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(raw)
}
