package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kvol/kvol/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const handle = "vol-1"

// dial connects to a driver's socket.
func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	// The way around a long name that kvol takes too.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	conn, err := grpc.NewClient("passthrough:///csi", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func want(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v, want %v", err, code)
	}
}

func capability(fs string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if fs == "block" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fs}}
	}
	return c
}

// place is a root with the directories that a kubelet makes for the driver.
func place(t *testing.T) (root, staging, target string) {
	t.Helper()
	testutil.Root(t)
	root = testutil.TempDir(t)
	staging, target = root+"/plugins/kubernetes.io/csi/x/globalmount", root+"/pods/uid/volumes/kubernetes.io~csi/pv/mount"
	for _, d := range []string{staging, filepath.Dir(target)} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return root, staging, target
}

func up(t *testing.T, n csi.NodeClient, staging, target, fs string) error {
	t.Helper()
	_, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: handle, StagingTargetPath: staging, VolumeCapability: capability(fs), Secrets: map[string]string{"key": "hidden"},
	})
	if err != nil {
		return err
	}
	_, err = n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: handle, StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability(fs),
	})
	return err
}

func down(t *testing.T, n csi.NodeClient, staging, target string) error {
	t.Helper()
	if _, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target}); err != nil {
		return err
	}
	_, err := n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: staging})
	return err
}

func TestDriverCarriesAVolume(t *testing.T) {
	for _, fs := range []string{"ext4", "block"} {
		for _, namespace := range []bool{false, true} {
			t.Run(fs, func(t *testing.T) {
				root, staging, target := place(t)
				c := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "csi.kvol.test", Namespace: namespace})
				c.Volume(handle, "", 16<<20)
				n := csi.NewNodeClient(dial(t, c.Endpoint()))
				before := testutil.MountTable(t, root)
				for range 2 {
					want(t, up(t, n, staging, target, fs), codes.OK)
					mounts := 2
					if fs == "block" {
						mounts = 1
					}
					if got := testutil.MountTable(t, root); strings.Count(got, "loop") < mounts {
						t.Errorf("mounts:\n%s", got)
					}
				}
				c.Restart()
				for range 2 {
					want(t, down(t, n, staging, target), codes.OK)
				}
				if got := testutil.MountTable(t, root); got != before {
					t.Errorf("left:\n%s", got)
				}
				if _, err := os.Lstat(target); !os.IsNotExist(err) || loopOf(c.Dir+"/volumes") != "" {
					t.Error(err)
				}
				if log, err := os.ReadFile(c.Dir + "/calls.jsonl"); err != nil || strings.Contains(string(log), "hidden") {
					t.Errorf("%s %v", log, err)
				}
			})
		}
	}
}

func TestDriverChecksRequests(t *testing.T) {
	root, staging, target := place(t)
	c := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "csi.kvol.test"})
	n := csi.NewNodeClient(dial(t, c.Endpoint()))
	_, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: handle, StagingTargetPath: staging})
	want(t, err, codes.InvalidArgument)
	_, err = n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle})
	want(t, err, codes.InvalidArgument)
	want(t, up(t, n, staging, target, "ext4"), codes.NotFound)
	c.Volume(handle, "", 16<<20)
	c.Set(func(c *testutil.CSIControl) { c.NeedAttach = true })
	want(t, up(t, n, staging, target, "ext4"), codes.FailedPrecondition)
	c.Set(func(c *testutil.CSIControl) {
		c.NeedAttach = false
		c.Secrets = map[string]map[string]string{"NodeStageVolume": {"key": "other"}}
	})
	want(t, up(t, n, staging, target, "ext4"), codes.Unauthenticated)
	c.Set(func(c *testutil.CSIControl) { c.NodeCaps = nil })
	want(t, up(t, n, staging, target, "ext4"), codes.Unimplemented)
}

func TestDriverMisbehaves(t *testing.T) {
	root, staging, target := place(t)
	c := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "csi.kvol.test"})
	c.Volume(handle, "", 16<<20)
	n := csi.NewNodeClient(dial(t, c.Endpoint()))
	c.Fail("NodeUnpublishVolume", testutil.CSIFault{From: 2, Code: "NotFound"})
	want(t, up(t, n, staging, target, "ext4"), codes.OK)
	want(t, down(t, n, staging, target), codes.OK)
	want(t, down(t, n, staging, target), codes.NotFound)

	c.Heal()
	want(t, up(t, n, staging, target, "ext4"), codes.OK)
	c.Fail("NodeUnpublishVolume", testutil.CSIFault{Nothing: true, Until: 2})
	_, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
	want(t, err, codes.OK)
	if !strings.Contains(testutil.MountTable(t, target), "ext4") {
		t.Error("something was done")
	}
	c.Fail("NodeUnpublishVolume", testutil.CSIFault{RemoveParent: true})
	want(t, down(t, n, staging, target), codes.OK)
	if _, err := os.Lstat(filepath.Dir(target)); !os.IsNotExist(err) {
		t.Error(err)
	}

	c.Fail("NodeStageVolume", testutil.CSIFault{Die: true, After: true})
	want(t, up(t, n, staging, target, "ext4"), codes.Unavailable)
	c.Died()
	if !strings.Contains(testutil.MountTable(t, staging), "ext4") {
		t.Error("it died before it had staged")
	}
}

func TestRegistrationAnswers(t *testing.T) {
	root, _, _ := place(t)
	c := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "csi.kvol.test", Socket: root + "/" + strings.Repeat("long/", 40) + "csi.sock"})
	r := registration.NewRegistrationClient(dial(t, c.RegistrationSocket()))
	info, err := r.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.GetEndpoint() != c.Endpoint() || info.GetType() != "CSIPlugin" || info.GetName() != "csi.kvol.test" {
		t.Errorf("%v %v", info, err)
	}
	n := csi.NewNodeClient(dial(t, c.Endpoint()))
	_, err = n.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	want(t, err, codes.OK)
	c.Set(func(c *testutil.CSIControl) { c.Garbage = true })
	_, err = csi.NewNodeClient(dial(t, c.Endpoint())).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	want(t, err, codes.Unavailable)
	c.Stop()
	if _, err := os.Lstat(c.RegistrationSocket()); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestControllerAttaches(t *testing.T) {
	root, staging, target := place(t)
	control := testutil.CSIDefaults()
	control.ControllerCaps = []string{"CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"}
	control.NeedAttach = true
	c := testutil.StartCSI(t, testutil.CSIOptions{Root: root, Driver: "csi.kvol.test", Control: &control})
	conn := dial(t, c.Endpoint())
	ctl, n := csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	made, err := ctl.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: handle, VolumeCapabilities: []*csi.VolumeCapability{capability("")}})
	want(t, err, codes.OK)
	pub, err := ctl.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: made.GetVolume().GetVolumeId(), NodeId: "node1", VolumeCapability: capability(""),
	})
	want(t, err, codes.OK)
	want(t, up(t, n, staging, target, "ext4"), codes.FailedPrecondition)
	_, err = n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: handle, StagingTargetPath: staging, VolumeCapability: capability(""), PublishContext: pub.GetPublishContext(),
	})
	want(t, err, codes.OK)
	_, err = ctl.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	want(t, err, codes.FailedPrecondition)
	want(t, down(t, n, staging, target), codes.OK)
	_, err = ctl.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: "node1"})
	want(t, err, codes.OK)
	_, err = ctl.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
	want(t, err, codes.OK)
}
