package fixture

import (
	info "github.com/moby/sys/mountinfo"
)

func f() {
	info.Mounted("x")     // refused
	info.MountedFast("x") // refused

	_ = info.Info{}.Mountpoint
}
