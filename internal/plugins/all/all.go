// Package all is the one list of kvol's plugins.
package all

import (
	"github.com/kvol/kvol/internal/plugins"
	"github.com/kvol/kvol/internal/plugins/csi"
	"github.com/kvol/kvol/internal/plugins/emptydir"
	"github.com/kvol/kvol/internal/plugins/hostpath"
	"github.com/kvol/kvol/internal/plugins/local"
)

// All gives a new value of every compiled-in plugin, in the order of their names.
func All() []plugins.VolumePlugin {
	return []plugins.VolumePlugin{
		csi.New(),
		emptydir.New(),
		hostpath.New(),
		local.New(),
	}
}
