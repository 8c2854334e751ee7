package plugins

// rungs are the interfaces above VolumePlugin, by the names that kvol shows.
var rungs = []struct {
	name string
	has  func(VolumePlugin) bool
}{
	{"PersistentVolume", is[PersistentVolumePlugin]},
	{"Recyclable", is[RecyclableVolumePlugin]},
	{"Deletable", is[DeletableVolumePlugin]},
	{"Provisionable", is[ProvisionableVolumePlugin]},
	{"DeviceMountable", is[DeviceMountableVolumePlugin]},
	{"Attachable", is[AttachableVolumePlugin]},
	{"Expandable", is[ExpandableVolumePlugin]},
	{"NodeExpandable", is[NodeExpandableVolumePlugin]},
	{"AttachLimits", is[VolumePluginWithAttachLimits]},
	{"Block", is[BlockVolumePlugin]},
}

func is[T VolumePlugin](p VolumePlugin) bool {
	_, ok := p.(T)
	return ok
}

// Rungs names the rungs that a plugin has, from its type: what it can do is
// never written down a second time.
func Rungs(p VolumePlugin) []string {
	out := []string{}
	for _, r := range rungs {
		if r.has(p) {
			out = append(out, r.name)
		}
	}
	return out
}
