package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
)

// Dial connects to the unix socket of a daemon on this node, a CSI driver's or the
// container runtime's. It opens the socket first, without following a link below
// the kubelet's root, and connects to what it opened: the name of a socket is at
// most 107 bytes long (unix(7)), and those of drivers below a long root are longer.
//
// A socket that is not there, or that nobody listens on, is ErrMissingTool.
func (h *Host) Dial(ctx context.Context, path string) (net.Conn, error) {
	f, err := h.openSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, api.Errorf(api.ErrMissingTool, "nobody listens on this socket: the daemon that made it has ended").At(path).
			WithNext("start the daemon again; who has which socket: ss -xlp")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, api.Errorf(api.ErrTimeout, "the daemon behind this socket takes no new connections").At(path).
			WithNext("see what it does, and restart it if it hangs; who has which socket: ss -xlp")
	case err != nil:
		return nil, (&api.Error{Path: path, Err: err})
	}
	return conn, nil
}

func (h *Host) openSocket(ctx context.Context, path string) (*os.File, error) {
	var f *os.File
	var info safefs.Info
	path = h.PathOf(path)
	root, err := h.Root()
	if err == nil && strings.HasPrefix(path, root.Path()+"/") {
		if f, err = root.Open(path); err == nil {
			info, err = safefs.StatFD(f)
		}
	} else {
		f, info, err = h.Helper.Open(ctx, path, unix.O_PATH)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, api.Errorf(api.ErrMissingTool, "there is no such socket").At(path).
			WithNext("start the daemon that makes it, or name its socket; which there are: ss -xlp")
	case err != nil:
		return nil, err
	case info.Type != safefs.Socket:
		f.Close()
		return nil, api.Errorf(api.ErrInput, "is a %s, not a socket", info.Type).At(path).
			WithNext("see what it is: stat %s", act.Quote(path))
	}
	return f, nil
}
