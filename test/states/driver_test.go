package states

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// driverName is the CSI driver's.
const driverName = "a.csi.test"

// driver is the CSI driver of a node, as little of it as taking down needs.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	n      *node
	fault  string
	hangs  bool
	server *grpc.Server

	mu    sync.Mutex
	calls map[string][]codes.Code // by target: how the calls for it ended
	count int
}

// startDriver serves, or leaves the socket of one that did.
func startDriver(n *node, how, fault string) *driver {
	d := &driver{n: n, fault: fault, hangs: how == "hangs", server: grpc.NewServer(), calls: map[string][]codes.Code{}}
	socket := n.root + "/plugins/" + driverName + "/csi.sock"
	if how == "registered" {
		socket = n.root + "/plugins/" + driverName + "/elsewhere.sock"
	}
	must(os.MkdirAll(filepath.Dir(socket), 0o750))
	csi.RegisterIdentityServer(d.server, d)
	csi.RegisterNodeServer(d.server, d)
	registration.RegisterRegistrationServer(d.server, d)
	listen := []string{socket}
	if how == "registered" {
		listen = append(listen, n.root+"/plugins_registry/"+driverName+"-reg.sock")
	}
	for _, path := range listen {
		l, err := net.Listen("unix", path)
		must(err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		if how == "dead" {
			must(l.Close())
			continue
		}
		go func() { _ = d.server.Serve(l) }()
	}
	n.undo = append(n.undo, d.server.Stop)
	return d
}

// GetInfo answers the kubelet's question at registration.
func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driverName, Endpoint: d.n.root + "/plugins/" + driverName + "/elsewhere.sock", SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	}}}}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node1"}, nil
}

func (d *driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.down(ctx, r.GetTargetPath(), true)
}

func (d *driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, d.down(ctx, r.GetStagingTargetPath(), false)
}

// down takes a target down, or does what it is told to do instead.
func (d *driver) down(ctx context.Context, target string, remove bool) error {
	if d.hangs {
		d.note(target, codes.DeadlineExceeded)
		<-ctx.Done()
		return ctx.Err()
	}
	err := d.answer(target, remove)
	d.note(target, status.Code(err))
	return err
}

func (d *driver) answer(target string, remove bool) error {
	d.mu.Lock()
	d.count++
	first := d.count == 1
	d.mu.Unlock()
	switch d.fault {
	case "Internal", "Unavailable", "FailedPrecondition", "NotFound":
		all := []codes.Code{codes.Internal, codes.Unavailable, codes.FailedPrecondition, codes.NotFound}
		i := slices.IndexFunc(all, func(c codes.Code) bool { return c.String() == d.fault })
		return status.Error(all[i], "the driver will not")
	case "once":
		if first {
			return status.Error(codes.Internal, "not the first time")
		}
	case "dies":
		go d.server.Stop()
		return status.Error(codes.Unavailable, "it died")
	case "success for nothing":
		return nil
	}
	for unix.Unmount(target, unix.UMOUNT_NOFOLLOW) == nil {
		d.note(target, codes.OK) // whatever comes of the rest
	}
	if len(d.n.snapshotAt(target)) > 0 {
		return status.Error(codes.Internal, "the target is busy")
	}
	if !remove || d.fault == "leaves a directory" {
		return nil
	}
	if info, err := os.Lstat(target); err == nil && (info.IsDir() || info.Size() == 0 && info.Mode().IsRegular()) {
		if err := os.Remove(target); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return status.Error(codes.Internal, err.Error())
	}
	if d.fault == "removes the parent" {
		parent := filepath.Dir(target)
		if info, err := os.Lstat(parent + "/vol_data.json"); err == nil && info.Mode().IsRegular() {
			_ = os.Remove(parent + "/vol_data.json")
		}
		_ = os.Remove(parent) // not empty is as it is
	}
	return nil
}

func (d *driver) note(target string, code codes.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[target] = append(d.calls[target], code)
}

// took says that the driver was asked to take a target down and let it go.
func (d *driver) took(target string) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.calls[target], codes.OK) || slices.Contains(d.calls[target], codes.NotFound)
}

// snapshotAt are the mounts on a path now.
func (n *node) snapshotAt(path string) []mount { return snapshot{mounts: n.mounts()}.at(path) }
