package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
	"unicode"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/host/exec"
)

// callTimeout is what one call has at most, as with the kubelet (csiTimeout in
// pkg/volume/csi/csi_plugin.go).
const callTimeout = 2 * time.Minute

// driver is a CSI driver of this node for one operation: one connection, and what it
// said that it can do, asked once.
type driver struct {
	name, socket string
	procRoot     string
	link         *link
	node         csipb.NodeClient
	controller   csipb.ControllerClient

	nodeCaps       map[csipb.NodeServiceCapability_RPC_Type]bool
	controllerCaps map[csipb.ControllerServiceCapability_RPC_Type]bool
}

// open connects to the driver of that name, and makes sure that it is the one.
func (p *plugin) open(ctx context.Context, name string) (*driver, error) {
	socket, err := p.endpoint(ctx, name)
	if err != nil {
		return nil, err
	}
	l, err := dial(p.host, "CSI driver "+name, socket)
	if err != nil {
		return nil, err
	}
	info, err := ask(ctx, l, "GetPluginInfo", csipb.NewIdentityClient(l.conn).GetPluginInfo, &csipb.GetPluginInfoRequest{})
	if err == nil && info.GetName() != name {
		err = api.Errorf(api.ErrRefused, "the driver that answers there calls itself %q, and the volume is of %s", tame(info.GetName()), name).At(socket).
			WithNext("name the socket of %s: --csi-endpoint PATH", name)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return &driver{
		name: name, socket: socket, procRoot: p.host.ProcRoot, link: l, node: csipb.NewNodeClient(l.conn), controller: csipb.NewControllerClient(l.conn),
	}, nil
}

func (d *driver) close() { d.link.close() }

// can says whether the driver's node service has a capability.
func (d *driver) can(ctx context.Context, what csipb.NodeServiceCapability_RPC_Type) (bool, error) {
	if d.nodeCaps == nil {
		resp, err := ask(ctx, d.link, "NodeGetCapabilities", d.node.NodeGetCapabilities, &csipb.NodeGetCapabilitiesRequest{})
		if err != nil {
			return false, err
		}
		d.nodeCaps = map[csipb.NodeServiceCapability_RPC_Type]bool{}
		for _, c := range resp.GetCapabilities() {
			d.nodeCaps[c.GetRpc().GetType()] = true
		}
	}
	return d.nodeCaps[what], nil
}

func (d *driver) stages(ctx context.Context) (bool, error) {
	return d.can(ctx, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

// controls says whether the driver serves a controller on this socket too, with that
// capability. One that does not says that it implements no such service.
func (d *driver) controls(ctx context.Context, what csipb.ControllerServiceCapability_RPC_Type) (bool, error) {
	if d.controllerCaps == nil {
		resp, err := ask(ctx, d.link, "ControllerGetCapabilities", d.controller.ControllerGetCapabilities, &csipb.ControllerGetCapabilitiesRequest{})
		if err != nil && status.Code(err) != codes.Unimplemented {
			return false, err
		}
		d.controllerCaps = map[csipb.ControllerServiceCapability_RPC_Type]bool{}
		for _, c := range resp.GetCapabilities() {
			d.controllerCaps[c.GetRpc().GetType()] = true
		}
	}
	return d.controllerCaps[what], nil
}

// nodeInfo is what the driver calls this node, and how many volumes it may have.
func (d *driver) nodeInfo(ctx context.Context) (*csipb.NodeGetInfoResponse, error) {
	return ask(ctx, d.link, "NodeGetInfo", d.node.NodeGetInfo, &csipb.NodeGetInfoRequest{})
}

// link is a gRPC connection to a socket of this node.
type link struct {
	who, socket string
	conn        *grpc.ClientConn

	mu     sync.Mutex
	failed error // how the last attempt to connect ended
}

// dial prepares a connection, which the first call makes. gRPC retries nothing: what
// may have happened is not done twice by itself.
func dial(h *host.Host, who, socket string) (*link, error) {
	l := &link{who: who, socket: socket}
	conn, err := grpc.NewClient("passthrough:///driver",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := h.Dial(ctx, socket)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.failed = err
			return c, err
		}))
	if err != nil {
		return nil, api.Errorf(nil, "%s: %w", who, err)
	}
	l.conn = conn
	return l, nil
}

func (l *link) close() { _ = l.conn.Close() } // nothing is under way any more

func (l *link) unreachable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// ask makes a call that changes nothing.
func ask[Req, Resp any](ctx context.Context, l *link, method string, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	var none Resp
	if err := ctx.Err(); err != nil {
		return none, err
	}
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := f(within, req)
	if err == nil {
		return resp, nil
	}
	return none, l.unanswered(ctx, method, err)
}

// unanswered says why a question has no answer.
func (l *link) unanswered(ctx context.Context, method string, err error) error {
	code := status.Code(err)
	down := l.unreachable()
	e := &api.Error{Path: l.socket, Next: "see that the driver runs on this node, and what it logs; --csi-endpoint names another socket; to take a volume down without it: --without-driver"}
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %s: %w", l.who, method, ctx.Err())
	case code == codes.DeadlineExceeded || ctx.Err() != nil:
		e.Kind, e.Err = api.ErrTimeout, fmt.Errorf("%s did not answer %s in time", l.who, method)
	case code == codes.Unavailable && down != nil:
		e.Path, e.Err = "", fmt.Errorf("%s: %w", l.who, down) // it names the socket
	case code == codes.Unavailable:
		e.Kind, e.Err = api.ErrUncertain, fmt.Errorf("%s broke off, or what listens there is no CSI driver: %s: %w", l.who, method, &said{code, tame(message(err))})
	default:
		e.Err = fmt.Errorf("%s: %s: %w", l.who, method, &said{code, tame(message(err))})
	}
	return e
}

// change makes a call that changes something. What the driver says is shown without
// the secrets that it was given.
func change[Req, Resp any](ctx context.Context, d *driver, method string, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req, secrets []exec.Secret) (Resp, error) {
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := f(within, req)
	if err == nil {
		return resp, nil
	}
	var none Resp
	return none, d.fault(ctx, method, &said{status.Code(err), tame(exec.Mask(message(err), secrets...))})
}

// fault sorts what a driver said of a change. All that may still be under way, or
// have happened, is uncertain.
func (d *driver) fault(ctx context.Context, method string, s *said) error {
	e := &api.Error{Err: fmt.Errorf("CSI driver %s: %s: %w", d.name, method, s), Details: []string{"asked at " + d.socket}}
	switch {
	case !s.final():
		e.Kind = api.ErrUncertain
		if ctx.Err() != nil {
			e.Err = fmt.Errorf("%w: %w", e.Err, ctx.Err())
		}
		e.Next = "the driver may have done it, or do it still: see what it logs, then run the same command again"
	case s.code == codes.NotFound:
		e.Kind = api.ErrNotFound
	case s.code == codes.Unimplemented:
		e.Kind = api.ErrNotSupported
	}
	if e.Next == "" {
		e.Next = "see what the driver logs, then run the same command again; kvol history tells what was done"
	}
	return e
}

// said is an error as a driver gave it.
type said struct {
	code codes.Code
	text string
}

func (s *said) Error() string {
	if s.text == "" {
		return s.code.String()
	}
	return s.code.String() + ": " + s.text
}

// GRPCStatus lets status.Code tell the code.
func (s *said) GRPCStatus() *status.Status { return status.New(s.code, s.text) }

// final says that the call has ended, for sure: isFinalError of the kubelet
// (pkg/volume/csi/csi_client.go).
func (s *said) final() bool {
	switch s.code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// ended says that an error is of a call that has ended without effect.
func ended(err error) bool {
	s, ok := errors.AsType[*said](err)
	return ok && s.final()
}

// unknown says that the driver does not know the volume.
func unknown(err error) bool {
	s, ok := errors.AsType[*said](err)
	return ok && s.code == codes.NotFound
}

func message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// maxText is what is shown of a driver's message.
const maxText = 2000

// tame makes one line of what somebody else said, without what a terminal obeys.
func tame(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " …"
	}
	return text
}
