package ops

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kvol/kvol/internal/api"
	"github.com/kvol/kvol/internal/host/act"
	"github.com/kvol/kvol/internal/host/devices"
)

// notMapped refuses to mount a device that somebody has as a raw block device, or
// uses through another loop device over the same file: neither is excluded by the
// kernel, and both destroy the file system.
func (op *operation) notMapped(ctx context.Context, path string) error {
	return op.withDevice(ctx, path, func(dev *devices.Handle) error {
		holders, err := op.host.Devices.LoopsOver(ctx, dev.Device)
		if err != nil {
			return err
		}
		if len(holders) > 0 {
			return op.conflict("the device is given to somebody as a raw block device", path, holders)
		}
		same, err := op.host.Devices.SameFile(ctx, dev.Device)
		if err != nil {
			return err
		}
		for _, other := range same {
			err := op.withDevice(ctx, other.Path, func(o *devices.Handle) error { return op.claim(ctx, o) })
			if errors.Is(err, api.ErrBusy) {
				return op.conflict("the file behind the device is in use through another loop device", path,
					[]devices.Holder{{Type: "loop", Path: other.Path, Detail: "over " + other.Backing}})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// notMounted refuses to give a device away as a raw block device that has a
// mounted file system or is part of another device. A process that has claimed it
// is not looked for: that may be the pod's own.
func (op *operation) notMounted(ctx context.Context, path string) error {
	return op.withDevice(ctx, path, func(dev *devices.Handle) error {
		for end := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
			if err := op.claim(ctx, dev); !errors.Is(err, api.ErrBusy) {
				return err
			}
			holders, err := op.host.Devices.Holders(ctx, dev.Device)
			if err != nil {
				return err
			}
			holders = slices.DeleteFunc(holders, func(h devices.Holder) bool {
				return h.Type == "fd" || h.Type == "loop" || h.Detail == devices.NodeBind
			})
			if len(holders) > 0 {
				return op.conflict("the device has a use that a raw block device would damage", path, holders)
			}
			if ctx.Err() != nil || time.Now().After(end) {
				return nil
			}
		}
	})
}

func (op *operation) withDevice(ctx context.Context, path string, look func(*devices.Handle) error) error {
	dev, err := op.host.Devices.Open(ctx, path)
	if err != nil {
		return err
	}
	defer dev.Close()
	return look(dev)
}

func (op *operation) conflict(what, path string, holders []devices.Holder) error {
	e := api.Errorf(api.ErrBusy, "%s", what).At(path)
	for _, h := range holders {
		e.Details = append(e.Details, "holder "+op.holder(h))
	}
	return e.WithNext("end that use first; see also: kvol list-mounts; lsblk %s", act.Quote(path))
}
