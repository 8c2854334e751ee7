// Package voldata reads what a kubelet keeps beside a CSI volume: its vol_data.json.
// Whoever wants to know what such a file says asks here; where the files are is in
// package paths.
package voldata

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/kvol/kvol/internal/paths"
)

// The keys of the file (volDataKey in pkg/volume/csi/csi_mounter.go).
const (
	Driver     = "driverName"
	Handle     = "volumeHandle"
	Spec       = "specVolID"
	Node       = "nodeName"
	Attachment = "attachmentID"
	Lifecycle  = "volumeLifecycleMode"
	SELinux    = "seLinuxMountContext"

	// Persistent and Ephemeral are the values of Lifecycle.
	Persistent = "Persistent"
	Ephemeral  = "Ephemeral"
)

// Max is far more than a kubelet writes into such a file.
const Max = 64 << 10

// Data is what a file holds.
type Data map[string]string

// Parse reads a file as a kubelet does (loadVolumeData in pkg/volume/csi/csi_util.go):
// a JSON object of strings, whatever follows. Where a kubelet cannot, wrong says why in
// words, and the data is what comes before the fault: a file is written from its first
// byte on, so that a crash leaves the beginning.
func Parse(raw []byte) (data Data, wrong string) {
	const damaged = "it is cut short or damaged"
	data = Data{}
	if len(raw) == 0 {
		return data, "it is empty"
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return data, "it is no JSON object"
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return data, damaged
		}
		value, err := d.Token()
		if err != nil {
			return data, damaged
		}
		text, ok := value.(string)
		if !ok && value != nil { // null is an empty string to a kubelet
			return data, "the value of " + short(key) + " is no text"
		}
		data[key.(string)] = text // a key of an object is one, or an error
	}
	if _, err := d.Token(); err != nil {
		return data, damaged
	}
	return data, ""
}

// short is a key as a message can have it.
func short(key any) string {
	s, _ := key.(string)
	if len(s) > 40 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "a key"
	}
	return s
}

// Lacks says which of some keys has no value, or none that is possible; "" where all have.
func (d Data) Lacks(keys ...string) string {
	for _, key := range keys {
		if d[key] == "" {
			return "it has no " + key
		}
	}
	if paths.ValidDriverName(d[Driver]) != nil {
		return "its driverName is none"
	}
	return ""
}

// VolumeName is driver^handle; "" where one of them is not told.
func (d Data) VolumeName() string {
	if d[Driver] == "" || d[Handle] == "" {
		return ""
	}
	return d[Driver] + "^" + d[Handle]
}
