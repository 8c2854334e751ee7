package main

import (
	"context"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar answers the kubelet's plugin watcher.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver *driver
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	c, err := r.driver.control()
	info := &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver.name, Endpoint: r.driver.socket, SupportedVersions: []string{"1.0.0"},
	}
	if c.Endpoint != "" {
		info.Endpoint = c.Endpoint
	}
	if c.Type != "" {
		info.Type = c.Type
	}
	if c.Versions != nil {
		info.SupportedVersions = c.Versions
	}
	return info, err
}

func (r *registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "test"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	c, err := d.control()
	resp := &csi.GetPluginCapabilitiesResponse{}
	if len(c.ControllerCaps) > 0 {
		resp.Capabilities = []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}
	}
	return resp, err
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	c, err := d.control()
	return &csi.NodeGetInfoResponse{NodeId: c.NodeID, MaxVolumesPerNode: c.MaxVolumes}, err
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	c, err := d.control()
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, name := range c.NodeCaps {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_Type(csi.NodeServiceCapability_RPC_Type_value[name])},
		}})
	}
	return resp, err
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	c, err := d.controller("")
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, name := range c.ControllerCaps {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(csi.ControllerServiceCapability_RPC_Type_value[name])},
		}})
	}
	return resp, err
}

// remove removes a file or an empty directory; none there is as wanted.
func remove(path string) error {
	if err := os.Remove(path); !os.IsNotExist(err) {
		return err
	}
	return nil
}
