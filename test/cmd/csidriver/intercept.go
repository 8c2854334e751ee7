package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvol/kvol/internal/testutil"
)

// callLog writes down calls and counts them, across restarts too.
type callLog struct {
	mu    sync.Mutex
	f     *os.File
	all   int
	count map[string]int
}

func (l *callLog) open(name string) error {
	calls, err := testutil.ReadCalls(name)
	if err != nil {
		return err
	}
	l.all, l.count = len(calls), map[string]int{}
	for _, c := range calls {
		l.count[c.Method]++
	}
	l.f, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return err
}

// begin writes a call down; n is which of its method it is, from 1.
func (l *callLog) begin(c *testutil.CSICall) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all++
	l.count[c.Method]++
	c.N = l.all
	l.write(*c)
	return l.count[c.Method]
}

func (l *callLog) end(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(testutil.CSICall{N: n, Code: status.Code(err).String()})
}

// write writes one line with one system call, so that a reader and a restart see
// whole lines only.
func (l *callLog) write(c testutil.CSICall) {
	b, err := json.Marshal(c)
	if err == nil {
		_, err = l.f.Write(append(b, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "csidriver: calls.jsonl:", err)
		os.Exit(1)
	}
}

// intercept writes the call down, misbehaves as it is told to, and lets the service
// do the rest.
func (d *driver) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call := describe(req)
	call.Method = path.Base(info.FullMethod)
	n := d.log.begin(&call)
	c, err := d.control()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	var fault testutil.CSIFault
	for _, f := range slices.Backward(c.Faults[call.Method]) {
		if n >= f.From && (f.Until == 0 || n < f.Until) {
			fault = f
		}
	}
	// A driver goes on when whoever asked it has gone.
	resp, err := d.faulty(context.WithoutCancel(ctx), fault, req, handler)
	d.log.end(call.N, err)
	return resp, err
}

func (d *driver) faulty(ctx context.Context, f testutil.CSIFault, req any, handler grpc.UnaryHandler) (any, error) {
	if !f.After {
		if err := happen(f); err != nil {
			return nil, err
		}
	}
	if f.Nothing {
		return emptyAnswer(req)
	}
	resp, err := handler(ctx, req)
	if err == nil {
		err = leave(f, req)
	}
	if err == nil && f.After {
		err = happen(f)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// happen is what a fault does at its moment.
func happen(f testutil.CSIFault) error {
	time.Sleep(f.Delay)
	for f.WaitFor != "" {
		if _, err := os.Lstat(f.WaitFor); err == nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if f.Hang {
		<-make(chan struct{})
	}
	if f.Die {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it cannot fail on oneself
	}
	if f.Code == "" {
		return nil
	}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == f.Code {
			return status.Error(c, f.Message)
		}
	}
	return status.Errorf(codes.Internal, "control.json: %q is no code", f.Code)
}

// emptyAnswer is success without anything done.
func emptyAnswer(req any) (any, error) {
	switch req.(type) {
	case *csi.NodeStageVolumeRequest:
		return &csi.NodeStageVolumeResponse{}, nil
	case *csi.NodeUnstageVolumeRequest:
		return &csi.NodeUnstageVolumeResponse{}, nil
	case *csi.NodePublishVolumeRequest:
		return &csi.NodePublishVolumeResponse{}, nil
	case *csi.NodeUnpublishVolumeRequest:
		return &csi.NodeUnpublishVolumeResponse{}, nil
	case *csi.NodeExpandVolumeRequest:
		return &csi.NodeExpandVolumeResponse{}, nil
	case *csi.ControllerPublishVolumeRequest:
		return &csi.ControllerPublishVolumeResponse{}, nil
	case *csi.ControllerUnpublishVolumeRequest:
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	case *csi.NodeGetInfoRequest:
		return &csi.NodeGetInfoResponse{}, nil
	case *csi.NodeGetCapabilitiesRequest:
		return &csi.NodeGetCapabilitiesResponse{}, nil
	case *csi.GetPluginInfoRequest:
		return &csi.GetPluginInfoResponse{}, nil
	case *csi.CreateVolumeRequest:
		return &csi.CreateVolumeResponse{}, nil
	case *csi.DeleteVolumeRequest:
		return &csi.DeleteVolumeResponse{}, nil
	}
	return nil, status.Errorf(codes.Internal, "control.json: no empty answer to %T", req)
}

// leave is what the path of an unpublish or unstage is left as, beside the rules.
func leave(f testutil.CSIFault, req any) error {
	var target string
	switch r := req.(type) {
	case *csi.NodeUnpublishVolumeRequest:
		target = r.GetTargetPath()
	case *csi.NodeUnstageVolumeRequest:
		target = r.GetStagingTargetPath()
	default:
		return nil
	}
	var err error
	switch f.Leave {
	case "dir":
		err = os.MkdirAll(target, 0o755)
	case "file":
		if err = remove(target); err == nil {
			err = os.WriteFile(target, nil, 0o644)
		}
	}
	if err == nil && f.RemoveParent {
		err = removeParent(target)
	}
	return err
}

// removeParent removes the directory above a target with what plainly is in it.
func removeParent(target string) error {
	parent := path.Dir(target)
	entries, err := os.ReadDir(parent)
	for _, e := range entries {
		err = first(err, remove(path.Join(parent, e.Name())))
	}
	return first(err, remove(parent))
}

// first is the first of two errors.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// describe is what the log has of a request.
func describe(req any) testutil.CSICall {
	var c testutil.CSICall
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		c.VolumeID = r.GetVolumeId()
	}
	if r, ok := req.(interface{ GetTargetPath() string }); ok {
		c.TargetPath = r.GetTargetPath()
	}
	if _, ok := req.(*csi.NodePublishVolumeRequest); ok { // what is unpublished may hang
		_, err := os.Lstat(c.TargetPath)
		c.TargetThere = err == nil
	}
	if r, ok := req.(interface{ GetStagingTargetPath() string }); ok {
		c.StagingPath = r.GetStagingTargetPath()
	}
	if r, ok := req.(interface{ GetVolumePath() string }); ok {
		c.VolumePath = r.GetVolumePath()
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		c.NodeID = r.GetNodeId()
	}
	if r, ok := req.(interface{ GetReadonly() bool }); ok {
		c.ReadOnly = r.GetReadonly()
	}
	if r, ok := req.(interface{ GetSecrets() map[string]string }); ok {
		c.Secrets = slices.Sorted(maps.Keys(r.GetSecrets()))
	}
	if r, ok := req.(interface{ GetPublishContext() map[string]string }); ok {
		c.PublishContext = slices.Sorted(maps.Keys(r.GetPublishContext()))
	}
	if r, ok := req.(interface{ GetVolumeContext() map[string]string }); ok {
		c.VolumeContext = maps.Clone(r.GetVolumeContext())
		if c.VolumeContext[tokensKey] != "" {
			c.VolumeContext[tokensKey] = "given"
		}
	}
	if r, ok := req.(interface{ GetCapacityRange() *csi.CapacityRange }); ok {
		c.Bytes = r.GetCapacityRange().GetRequiredBytes()
	}
	if r, ok := req.(interface{ GetVolumeCapability() *csi.VolumeCapability }); ok {
		describeCapability(&c, r.GetVolumeCapability())
	}
	return c
}

const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

func describeCapability(c *testutil.CSICall, v *csi.VolumeCapability) {
	switch {
	case v.GetBlock() != nil:
		c.Access = "block"
	case v.GetMount() != nil:
		c.Access = "mount"
	default:
		return
	}
	c.Mode = v.GetAccessMode().GetMode().String()
	c.FSType = v.GetMount().GetFsType()
	c.MountFlags = v.GetMount().GetMountFlags()
	c.MountGroup = v.GetMount().GetVolumeMountGroup()
}
