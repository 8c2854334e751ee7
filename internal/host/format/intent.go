package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/devices"
)

// Intent is what kvol is about to make, on disk before mkfs starts. Without an
// outcome it is the only thing that allows mkfs on a device that is not blank.
type Intent struct {
	Device devices.Device `json:"device"`
	BootID string         `json:"bootID"`
	FSType string         `json:"fsType"`
	// UUIDs has one for every time that mkfs was started, the last one last. Each
	// start takes a new one: so what the last one left on the device is told from
	// what the ones before it left.
	UUIDs []string  `json:"uuids"`
	Time  time.Time `json:"time"`
	// Done: the file system was seen complete. From then on there may be data.
	Done bool `json:"done"`
	// Failed is how the last mkfs ended, when kvol saw it end without a complete
	// file system: then there was nothing that anybody could have mounted.
	Failed string `json:"failed,omitempty"`
}

// intentDir is below the state directory.
const intentDir = "format"

// intentName is one file for each device number: numbers are used again, so the
// directory stays small, and an intent for the disk that had it before is void.
func intentName(d devices.Device) string {
	return filepath.Join(intentDir, strings.ReplaceAll(d.Number(), ":", "-")+".json")
}

// pending gives the intent without an outcome for this very device in this boot,
// nil when there is none. stale says why one with its number does not count.
func (e Env) pending(dev devices.Device) (in *Intent, stale string, err error) {
	if e.State == nil {
		return nil, "", nil
	}
	const enough = 64 << 10
	raw, err := e.State.ReadFile(intentName(dev), enough)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, api.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	in = &Intent{}
	if err := json.Unmarshal(raw, in); err != nil || len(in.UUIDs) == 0 {
		return nil, "the record of an earlier format of " + dev.Number() + " cannot be read", nil
	}
	boot, err := e.Devices.BootID()
	switch {
	case err != nil:
		return nil, "", err
	case in.Done:
		return nil, "", nil
	case in.BootID != boot:
		return nil, fmt.Sprintf("a format of %s that was begun at %s does not count: that was before the last boot", dev.Number(), in.Time.Format(time.RFC3339)), nil
	case !in.Device.Same(dev):
		return nil, fmt.Sprintf("a format of %s that was begun at %s does not count: that was another disk (sequence number %d, this is %d)",
			dev.Number(), in.Time.Format(time.RFC3339), in.Device.DiskSeq, dev.DiskSeq), nil
	}
	return in, "", nil
}

// GiveRaw ends an mkfs that was begun and never ended, before the device is given
// away as it is: whoever has it then may write anything, without a signature
// that would tell. It is not gone on with after that.
func GiveRaw(ctx context.Context, e Env, path string) error {
	dev, err := e.Devices.Open(ctx, path)
	if err != nil {
		return err
	}
	defer dev.Close()
	in, _, err := e.pending(dev.Device)
	if err != nil || in == nil {
		return err
	}
	in.Done = true
	return e.save(in)
}

// save writes the intent and waits until it is on disk.
func (e Env) save(in *Intent) error {
	raw, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return err
	}
	if _, err := e.State.MkdirAll(intentDir, 0o700); err != nil {
		return err
	}
	return e.State.WriteFile(intentName(in.Device), append(raw, '\n'), 0o600)
}
