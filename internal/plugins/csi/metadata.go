package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/safefs"
	"github.com/kvol/kvol/internal/paths"
	"github.com/kvol/kvol/internal/plugins/csi/voldata"
)

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
	d, wrong := voldata.Parse(raw)
	if wrong == "" {
		wrong = d.Lacks(voldata.Driver, voldata.Handle)
	}
	if wrong != "" {
		return data{state: broken, why: wrong}
	}
	return data{volume: volume{d[voldata.Driver], d[voldata.Handle]}, state: whole, lifecycle: d[voldata.Lifecycle]}
}

// read reads a metadata file as it is on disk.
func (p *plugin) read(file string) data {
	root, err := p.host.Root()
	if err != nil {
		return data{state: missing}
	}
	raw, err := root.ReadFile(file, voldata.Max)
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
		voldata.Driver: v.driver, voldata.Handle: v.handle, voldata.Spec: name, voldata.Node: p.host.NodeName,
		// There also where nothing is attached.
		voldata.Attachment: paths.CSIAttachmentID(v.handle, v.driver, p.host.NodeName),
	}
	if lifecycle != "" {
		out[voldata.Lifecycle] = lifecycle
	}
	return out
}
