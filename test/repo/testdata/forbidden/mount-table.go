package fixture

import (
	"github.com/moby/sys/mountinfo" // refused
	mount "k8s.io/mount-utils"
)

func f() {
	mountinfo.GetMounts(nil)
	mount.ListProcMounts("x") // refused
	mount.ParseMountInfo("x") // refused
	_ = "/proc/mounts"        // refused
	_ = "/proc/self/mounts"   // refused
	_ = "/etc/mtab"           // refused

	_ = "internal/host/mounts"
	_ = "reads /proc/self/mountinfo"
}
