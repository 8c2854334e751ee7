package main

import (
	"github.com/kvol/kvol/internal/host"
	"github.com/kvol/kvol/internal/ops"
	"github.com/kvol/kvol/internal/plugins"
)

// machine is what a command that looks at this node has of it.
type machine struct {
	host *host.Host
	mgr  *plugins.VolumePluginMgr
}

func (m *machine) ops() *ops.Ops { return ops.New(m.host, m.mgr) }

// onNode is the look of a command at this node, which is opened for it and closed again.
func onNode[T any](a *app, look func(*machine) (T, error)) func() (T, error) {
	return func() (T, error) {
		h, mgr, err := a.open()
		if err != nil {
			var nothing T
			return nothing, err
		}
		defer h.Close()
		return look(&machine{h, mgr})
	}
}
