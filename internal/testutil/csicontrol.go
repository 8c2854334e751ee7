package testutil

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// CSIControl is how the tests' CSI driver behaves. The driver reads it anew, from
// control.json of its directory, with every call.
type CSIControl struct {
	// NodeCaps and ControllerCaps are the names of the RPC capabilities; without
	// ControllerCaps there is no controller service.
	NodeCaps       []string `json:"nodeCaps"`
	ControllerCaps []string `json:"controllerCaps,omitempty"`
	NodeID         string   `json:"nodeID"`
	MaxVolumes     int64    `json:"maxVolumes,omitempty"`
	// AnyVolume makes an unknown handle a volume of 16 MiB at its first use.
	AnyVolume bool `json:"anyVolume,omitempty"`
	// NeedAttach demands the publish context that ControllerPublishVolume gave.
	NeedAttach bool `json:"needAttach,omitempty"`
	// Secrets are what the methods demand: method, key, value.
	Secrets map[string]map[string]string `json:"secrets,omitempty"`
	// PlainStage stages without a mount and publishes a directory of the node's own
	// file system.
	PlainStage bool `json:"plainStage,omitempty"`
	// StageDevice binds the node of a block volume into its staging directory.
	StageDevice bool `json:"stageDevice,omitempty"`
	// Garbage answers what is no gRPC.
	Garbage bool `json:"garbage,omitempty"`
	// Endpoint is what the registration answers; "" is the driver's own socket.
	Endpoint string `json:"endpoint,omitempty"`
	// Type and Versions are what else the registration answers.
	Type     string   `json:"type,omitempty"`
	Versions []string `json:"versions,omitempty"`
	// Faults of a method: the first that is meant for a call happens.
	Faults map[string][]CSIFault `json:"faults,omitempty"`
}

// CSIFault is a misbehaviour of one method. The calls from the From-th up to, not
// including, the Until-th have it; 0 is no limit.
type CSIFault struct {
	From  int `json:"from,omitempty"`
	Until int `json:"until,omitempty"`

	// After has Delay, WaitFor, Hang, Die and Code happen when the work is done and
	// the answer not given; else nothing is done yet.
	After   bool          `json:"after,omitempty"`
	Delay   time.Duration `json:"delay,omitempty"`
	WaitFor string        `json:"waitFor,omitempty"` // until this file is there
	Hang    bool          `json:"hang,omitempty"`
	Die     bool          `json:"die,omitempty"`
	Code    string        `json:"code,omitempty"` // as in codes.Code.String
	Message string        `json:"message,omitempty"`

	// Nothing answers success and does nothing.
	Nothing bool `json:"nothing,omitempty"`
	// Leave is what NodeUnpublishVolume and NodeUnstageVolume leave on the path that
	// they unmounted, "dir" or "file".
	Leave string `json:"leave,omitempty"`
	// RemoveParent removes the directory above the target too, with what is in it.
	RemoveParent bool `json:"removeParent,omitempty"`
}

// CSICall is a call as the driver's log has it: names, never values of secrets.
type CSICall struct {
	N      int    `json:"n"` // the how manieth of all calls
	Method string `json:"method"`
	Code   string `json:"code,omitempty"` // "" while it is not answered

	VolumeID       string            `json:"volumeID,omitempty"`
	TargetPath     string            `json:"targetPath,omitempty"`
	TargetThere    bool              `json:"targetThere,omitempty"` // when the call came
	StagingPath    string            `json:"stagingPath,omitempty"`
	VolumePath     string            `json:"volumePath,omitempty"`
	NodeID         string            `json:"nodeID,omitempty"`
	Access         string            `json:"access,omitempty"` // mount or block
	Mode           string            `json:"mode,omitempty"`
	FSType         string            `json:"fsType,omitempty"`
	MountFlags     []string          `json:"mountFlags,omitempty"`
	MountGroup     string            `json:"mountGroup,omitempty"`
	ReadOnly       bool              `json:"readOnly,omitempty"`
	Bytes          int64             `json:"bytes,omitempty"`
	Secrets        []string          `json:"secrets,omitempty"`
	PublishContext []string          `json:"publishContext,omitempty"`
	VolumeContext  map[string]string `json:"volumeContext,omitempty"` // without the tokens
}

// CSIVolume is a volume as the driver keeps it in volumes/SHA256/volume.json; its
// data is the file image beside it, or the directory data.
type CSIVolume struct {
	ID        string `json:"id"`
	FSType    string `json:"fsType,omitempty"` // what a missing fsType means for it
	Bytes     int64  `json:"bytes"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
	Node      string `json:"node,omitempty"` // to which it is attached
	Token     string `json:"token,omitempty"`
}

// WriteJSON writes a file whole or not at all.
func WriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp")
	if err != nil {
		return err
	}
	defer tmp.Close()
	if _, err := tmp.Write(append(b, '\n')); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// ReadCalls reads the driver's log: a line for a call and another for its answer.
func ReadCalls(path string) ([]CSICall, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	calls := map[int]CSICall{}
	for dec := json.NewDecoder(f); dec.More(); {
		var c CSICall
		if err := dec.Decode(&c); err != nil {
			return nil, err
		}
		if first, ok := calls[c.N]; ok {
			first.Code = c.Code
			c = first
		}
		calls[c.N] = c
	}
	out := make([]CSICall, 0, len(calls))
	for _, n := range slices.Sorted(maps.Keys(calls)) {
		out = append(out, calls[n])
	}
	return out, nil
}
