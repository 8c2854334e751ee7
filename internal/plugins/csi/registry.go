package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// registryTimeout is what a registration socket has to answer. All are asked at once,
// so that one that does not costs this once.
const registryTimeout = time.Second

// settle is how much longer the others are waited for once one has answered to the
// name: two answers have to be told from one.
const settle = 100 * time.Millisecond

// registered is what one registration socket answers.
type registered struct {
	socket string
	info   *registration.PluginInfo
}

// endpoint finds the socket of a driver: the one that the operator names, else the
// one in the answer to the kubelet's registration, else the usual one.
func (p *plugin) endpoint(ctx context.Context, driver string) (string, error) {
	if named := p.host.CSIEndpoint; named != "" {
		return socketPath(named, "--csi-endpoint")
	}
	answers, err := p.registrations(ctx, driver)
	if err != nil {
		return "", err
	}
	var sockets, old []string
	for _, r := range answers {
		if !slices.ContainsFunc(r.info.GetSupportedVersions(), isV1) {
			old = append(old, fmt.Sprintf("%s: CSI %s", r.socket, tame(strings.Join(r.info.GetSupportedVersions(), ", "))))
			continue
		}
		sockets = append(sockets, r.info.GetEndpoint())
	}
	slices.Sort(sockets)
	switch sockets = slices.Compact(sockets); {
	case len(sockets) == 1:
		return socketPath(sockets[0], "the registration of CSI driver "+driver)
	case len(sockets) > 1:
		e := api.Errorf(api.ErrRefused, "CSI driver %s is registered with %d sockets", driver, len(sockets))
		e.Details = sockets
		return "", e.WithNext("say which: --csi-endpoint PATH")
	case len(old) > 0:
		return "", api.Errorf(api.ErrNotSupported, "CSI driver %s is registered, and not for CSI 1: %s", driver, strings.Join(old, "; ")).
			WithNext("use a driver of CSI 1.0 or later")
	}
	usual, err := p.host.Layout.Build(paths.Path{Kind: paths.DriverSocket, Driver: driver})
	if err != nil {
		return "", err
	}
	if _, err := p.socketType(usual); errors.Is(err, fs.ErrNotExist) {
		return "", api.Errorf(api.ErrMissingTool, "CSI driver %s is not on this node: no socket in %s answers to its name, and there is no %s",
			driver, filepath.Join(p.host.Layout.Root, "plugins_registry"), usual).
			WithNext("start the driver's pod on this node, or name its socket: --csi-endpoint PATH; to take a volume down without it: --without-driver")
	}
	return usual, nil
}

func isV1(version string) bool { return version == "1" || strings.HasPrefix(version, "1.") }

func (p *plugin) socketType(path string) (safefs.Type, error) {
	root, err := p.host.Root()
	if err != nil {
		return "", err
	}
	info, err := root.Stat(path)
	return info.Type, err
}

// socketPath is the path that an endpoint names; whose it is, is for the message.
func socketPath(endpoint, whose string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", api.Errorf(api.ErrInput, "%s: %q is not the absolute path of a unix socket", whose, endpoint).
			WithNext("name the driver's socket: --csi-endpoint /PATH/csi.sock")
	}
	return filepath.Clean(path), nil
}

// registrations asks the sockets in plugins_registry who they are, and gives those
// that answer to a driver's name; "" takes every CSI driver.
func (p *plugin) registrations(ctx context.Context, driver string) ([]registered, error) {
	root, err := p.host.Root()
	if err != nil {
		return nil, err
	}
	sockets, err := registrySockets(root, filepath.Join(root.Path(), "plugins_registry"), 0)
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	answers := make(chan *registered, len(sockets))
	for _, socket := range sockets {
		go func() { answers <- p.register(limit, socket, driver) }()
	}
	var out []registered
	for range sockets {
		a := <-answers
		if a == nil {
			continue
		}
		if len(out) == 0 && driver != "" {
			time.AfterFunc(settle, cancel)
		}
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b registered) int { return strings.Compare(a.socket, b.socket) })
	return out, ctx.Err()
}

// register asks one socket; nil is one that does not answer, or is somebody else's.
func (p *plugin) register(ctx context.Context, socket, driver string) *registered {
	l, err := dial(p.host, "registration", socket)
	if err != nil {
		return nil
	}
	defer l.close()
	info, err := registration.NewRegistrationClient(l.conn).GetInfo(ctx, &registration.InfoRequest{})
	if err != nil || info.GetType() != registration.CSIPlugin || driver != "" && info.GetName() != driver {
		return nil
	}
	if info.GetEndpoint() == "" {
		info.Endpoint = socket // as the kubelet's watcher has it
	}
	return &registered{socket, info}
}

// registrySockets lists the sockets below a directory, in which the kubelet looks in
// subdirectories too.
func registrySockets(root *safefs.Root, dir string, depth int) ([]string, error) {
	entries, err := root.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name)
		switch {
		case e.Type == safefs.Socket:
			out = append(out, path)
		case e.Type == safefs.Dir && depth < 3:
			more, err := registrySockets(root, path, depth+1)
			if err == nil { // a mount, or one that just went, holds no registration
				out = append(out, more...)
			}
		}
	}
	return out, nil
}
