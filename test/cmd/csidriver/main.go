// Command csidriver is the CSI driver of the tests and the demo: a gRPC server of
// its own with identity, node and controller services, volumes in files on loop
// devices, and real mounts. It answers the kubelet's registration too.
//
//	csidriver -root DIR -driver NAME -dir DIR [-socket PATH] [-no-registration]
//
// Its directory may have control.json, which says how it behaves and is read anew
// with every call (testutil.CSIControl). It keeps the volumes there, and calls.jsonl,
// where it writes down every call. It says "ready" when it serves. SIGTERM removes
// its sockets; killed it leaves everything, and started again it knows all from its
// directory and the mount table.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kvol/kvol/internal/testutil"
)

// driver is all three services.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	name, dir, socket string

	work sync.Mutex // one change at a time
	log  callLog
}

func main() {
	root := flag.String("root", "/var/lib/kubelet", "the kubelet's root directory")
	name := flag.String("driver", "csi.kvol.test", "the driver's name")
	dir := flag.String("dir", "", "where volumes, control.json and calls.jsonl are")
	socket := flag.String("socket", "", "where to serve (default plugins/DRIVER/csi.sock below the root)")
	quiet := flag.Bool("no-registration", false, "have no registration socket")
	flag.Parse()
	if *socket == "" {
		*socket = filepath.Join(*root, "plugins", *name, "csi.sock")
	}
	d := &driver{name: *name, dir: *dir, socket: *socket}
	sockets := []string{*socket}
	if !*quiet {
		sockets = append(sockets, filepath.Join(*root, "plugins_registry", *name+"-reg.sock"))
	}
	if err := d.serve(sockets); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

// serve serves CSI on the first socket and the registration on the second.
func (d *driver) serve(sockets []string) error {
	if err := d.log.open(filepath.Join(d.dir, "calls.jsonl")); err != nil {
		return err
	}
	if _, err := d.control(); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, len(sockets))
	for i, path := range sockets {
		l, err := listen(path)
		if err != nil {
			return err
		}
		defer os.Remove(path)
		server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
		if i == 0 {
			csi.RegisterIdentityServer(server, d)
			csi.RegisterControllerServer(server, d)
			csi.RegisterNodeServer(server, d)
		} else {
			registration.RegisterRegistrationServer(server, &registrar{driver: d})
		}
		go func() { failed <- server.Serve(garbler{l, d}) }()
	}
	fmt.Println("ready")
	select {
	case <-end:
		return nil
	case err := <-failed:
		return err
	}
}

// listen makes the socket, and the directories above it, by its directory's
// descriptor: its own path may be longer than the name of a socket can be.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// garbler answers connections with what is no gRPC when it is told to.
type garbler struct {
	net.Listener
	d *driver
}

func (g garbler) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, err := g.d.control(); err == nil && !c.Garbage {
			return conn, nil
		}
		_, _ = conn.Write([]byte("220 mail.example.org ESMTP\r\n")) // whoever asked may be gone
		conn.Close()
	}
}

// control is how to behave; without a control.json well, and any handle is a volume.
func (d *driver) control() (testutil.CSIControl, error) {
	var c testutil.CSIControl
	err := testutil.ReadJSON(filepath.Join(d.dir, "control.json"), &c)
	if errors.Is(err, os.ErrNotExist) {
		c, err = testutil.CSIDefaults(), nil
		c.AnyVolume = true
	}
	return c, err
}
