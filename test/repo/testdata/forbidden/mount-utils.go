package fixture

import mount "k8s.io/mount-utils"

func f(m mount.Interface) {
	m.IsMountPoint("x")                               // refused
	m.IsLikelyNotMountPoint("x")                      // refused
	m.GetMountRefs("x")                               // refused
	m.MountSensitive("a", "b", "", nil, nil)          // refused
	mount.CleanupMountPoint("x", m, true)             // refused
	mount.PathExists("x")                             // refused
	mount.New("")                                     // refused
	mount.IsNotMountPoint(m, "x")                     // refused
	mount.HasMountRefs("x", nil)                      // refused
	s := mount.NewSafeFormatAndMount(m, nil)          // refused
	s.FormatAndMountSensitive("a", "b", "", nil, nil) // refused

	mount.MakeBindOpts(nil)
}
