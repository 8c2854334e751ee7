package csi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
)

// The keys of vol_data.json (volDataKey in pkg/volume/csi/csi_mounter.go).
const (
	keyDriver     = "driverName"
	keyHandle     = "volumeHandle"
	keySpec       = "specVolID"
	keyNode       = "nodeName"
	keyAttachment = "attachmentID"
	keyLifecycle  = "volumeLifecycleMode"

	persistent = "Persistent"
	ephemeral  = "Ephemeral"
)

// maxData is far more than a kubelet writes into such a file.
const maxData = 64 << 10

// volume is a volume as a driver knows it.
type volume struct{ driver, handle string }

// String is the volume's name, as GetVolumeName has it.
func (v volume) String() string { return v.driver + "^" + v.handle }

// volumeOf reads driver^handle; a driver's name has no ^ in it.
func volumeOf(name string) (volume, bool) {
	driver, handle, ok := strings.Cut(name, "^")
	if !ok || handle == "" || paths.ValidDriverName(driver) != nil {
		return volume{}, false
	}
	return volume{driver, handle}, true
}

// state is what a metadata file is worth.
type state string

const (
	missing state = "missing"
	broken  state = "broken"
	planned state = "planned" // written by this dry run
	whole   state = "whole"
)

// data is a vol_data.json.
type data struct {
	volume
	state     state
	lifecycle string
	why       string // it is broken
}

// parse reads what a kubelet writes, which it does not write whole or not at all: a
// crash leaves an empty or a cut file.
func parse(raw []byte) data {
	var all map[string]any
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&all); err != nil { // whatever follows, as the kubelet
		if len(raw) == 0 {
			return data{state: broken, why: "it is empty"}
		}
		return data{state: broken, why: tame(err.Error())}
	}
	text := func(key string) string {
		s, _ := all[key].(string) // of another type it tells nothing
		return s
	}
	v := volume{text(keyDriver), text(keyHandle)}
	if v.handle == "" || paths.ValidDriverName(v.driver) != nil {
		return data{state: broken, why: "it names no driver and volume"}
	}
	return data{volume: v, state: whole, lifecycle: text(keyLifecycle)}
}

// read reads a metadata file as it is on disk.
func (p *plugin) read(file string) data {
	root, err := p.host.Root()
	if err != nil {
		return data{state: missing}
	}
	raw, err := root.ReadFile(file, maxData)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return data{state: missing}
	case err != nil:
		return data{state: broken, why: err.Error()}
	}
	return parse(raw)
}

// readIn reads a metadata file as an operation has left it so far.
func (p *plugin) readIn(run *act.Runner, file string) (data, error) {
	e, err := run.Entry(file)
	switch {
	case err != nil:
		return data{}, err
	case !e.Present:
		return data{state: missing}, nil
	case e.Type != safefs.File:
		return data{state: broken, why: fmt.Sprintf("it is a %s", e.Type)}, nil
	}
	d := p.read(file)
	if d.state == missing {
		d.state = planned
	}
	return d, nil
}

// write is the action that writes a metadata file. One that names the same volume
// stays, whoever wrote it; false is that there is nothing to write.
func (p *plugin) write(run *act.Runner, file string, v volume, content map[string]string) (act.WriteFile, bool, error) {
	d, err := p.readIn(run, file)
	if err != nil {
		return act.WriteFile{}, false, err
	}
	if d.state == planned || d.state == whole && d.volume == v {
		return act.WriteFile{}, false, nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		return act.WriteFile{}, false, err
	}
	return act.WriteFile{
		Path: file, Content: append(text, '\n'), Perm: 0o644, Replace: d.state == broken,
		Reason: "what it takes to take the volume down again",
	}, true, nil
}

// ownData is the metadata of one node's use of a volume: in the pod's directory, or
// with an empty lifecycle of a raw block volume.
func (p *plugin) ownData(v volume, name, lifecycle string) map[string]string {
	out := map[string]string{
		keyDriver: v.driver, keyHandle: v.handle, keySpec: name, keyNode: p.host.NodeName,
		// There also where nothing is attached.
		keyAttachment: paths.CSIAttachmentID(v.handle, v.driver, p.host.NodeName),
	}
	if lifecycle != "" {
		out[keyLifecycle] = lifecycle
	}
	return out
}
