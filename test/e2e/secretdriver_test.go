package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tattler is a CSI driver that says aloud what it was told in confidence: in errors,
// in the publish context, in the form that a test gives it.
type tattler struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	csi.UnimplementedControllerServer
	server *grpc.Server
	how    string              // good, fails, hangs, dies
	where  string              // in which method; "" is all
	form   func(string) string // of what it says
	called chan string         // the method, when one hangs
	told   atomic.Int64        // secrets that it was given
}

const tattlerName = "tattler.csi.test"

func tattle(t *testing.T, root, how string, form func(string) string) *tattler {
	t.Helper()
	d := &tattler{server: grpc.NewServer(), how: how, form: form, called: make(chan string, 100)}
	dir := root + "/plugins/" + tattlerName
	must(t, os.MkdirAll(dir, 0o750))
	l, err := net.Listen("unix", dir+"/csi.sock")
	must(t, err)
	csi.RegisterIdentityServer(d.server, d)
	csi.RegisterNodeServer(d.server, d)
	csi.RegisterControllerServer(d.server, d)
	go func() { _ = d.server.Serve(l) }()
	t.Cleanup(d.server.Stop)
	return d
}

// heard is what every method does with the secrets of its request.
func (d *tattler) heard(ctx context.Context, method string, secrets map[string]string) (string, error) {
	d.told.Add(int64(len(secrets)))
	var words []string
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		words = append(words, d.form(secrets[key]))
	}
	said := strings.Join(words, " and ")
	how := d.how
	if d.where != "" && d.where != method {
		how = "good"
	}
	switch how {
	case "fails":
		return said, status.Error(grpccodes.Internal, "cannot log in with "+said)
	case "hangs":
		d.called <- method
		<-ctx.Done()
		return said, ctx.Err()
	case "dies":
		go d.server.Stop()
		return said, status.Error(grpccodes.Unavailable, said)
	}
	return said, nil
}

func (d *tattler) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: tattlerName, VendorVersion: "1"}, nil
}

func (d *tattler) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *tattler) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

func (d *tattler) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{
		Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME},
	}}}}, nil
}

func (d *tattler) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node1"}, nil
}

func (d *tattler) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var all []*csi.NodeServiceCapability
	for _, c := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME} {
		all = append(all, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: all}, nil
}

func (d *tattler) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	said, err := d.heard(ctx, "ControllerPublishVolume", r.GetSecrets())
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"login": said, "lun": "7"}}, err
}

func (d *tattler) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	_, err := d.heard(ctx, "ControllerUnpublishVolume", r.GetSecrets())
	return &csi.ControllerUnpublishVolumeResponse{}, err
}

func (d *tattler) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	_, err := d.heard(ctx, "NodeStageVolume", r.GetSecrets())
	return &csi.NodeStageVolumeResponse{}, err
}

func (d *tattler) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *tattler) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	_, err := d.heard(ctx, "NodePublishVolume", r.GetSecrets())
	if err == nil {
		err = os.MkdirAll(r.GetTargetPath(), 0o750)
	}
	if err == nil {
		err = unix.Mount("tmpfs", r.GetTargetPath(), "tmpfs", 0, "size=1m")
	}
	return &csi.NodePublishVolumeResponse{}, err
}

func (d *tattler) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	for unix.Unmount(r.GetTargetPath(), unix.UMOUNT_NOFOLLOW) == nil {
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(grpccodes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *tattler) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	_, err := d.heard(ctx, "NodeExpandVolume", r.GetSecrets())
	return &csi.NodeExpandVolumeResponse{CapacityBytes: 1 << 20}, err
}

// The forms in which a driver says a secret.
var forms = map[string]func(string) string{
	"plain":    func(s string) string { return s },
	"quoted":   func(s string) string { return fmt.Sprintf("%q", s) },
	"base64":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"one line": func(s string) string { return strings.Join(strings.Fields(s), " ") },
	"url":      func(s string) string { return "https://admin:" + s + "@storage.example.com/" },
}
